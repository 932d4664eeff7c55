//! Which store leads, and which stand by.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use statestore_etcd::{Survey, SurveyError};
use statestore_proto::time::UnixTime;

use crate::args::{Output, StatusOf};
use crate::escape::printable;
use crate::etcd;
use crate::failure::Failure;
use crate::output;
use crate::policy::counted;

pub(crate) async fn run(args: StatusOf) -> Result<ExitCode, Failure> {
    if args.at.etcd.is_empty() {
        return Err(Failure::bad_input("--etcd: name the members of the etcd that the stores use"));
    }
    let survey = Survey::take(&etcd::options(&args.at)?).await;
    let survey = survey.map_err(|error| match error {
        SurveyError::Unreachable(reason) => Failure::unreachable(reason),
        error => Failure::bad_input(error),
    })?;
    let text = match args.output {
        Output::Raw => text(&survey),
        Output::Json => format!("{}\n", json_of(&survey)),
    };
    output::raw(printable(&text).as_bytes())?;
    // As for a key that is absent.
    Ok(ExitCode::from(u8::from(survey.leader.is_none())))
}

fn text(survey: &Survey) -> String {
    let mut text = match &survey.leader {
        Some(leader) => format!(
            "leads      {}{}, since {}, in epoch {}, with {} s left of its lease; {}, the last {}\n",
            leader.name,
            at(&leader.address),
            moment(leader.since),
            survey.epoch,
            survey.lease_left.as_secs(),
            counted(usize::try_from(survey.sequence).unwrap_or(usize::MAX), "transaction"),
            ago(survey.written),
        ),
        None if survey.foreign_lease.is_some() => format!(
            "nobody leads, and nobody can: what is at the key of the leader no store has put there; end its lease with `etcdctl lease revoke {:x}`\n",
            survey.foreign_lease.unwrap_or_default(),
        ),
        None => format!("nobody leads; the last transaction was {}\n", ago(survey.written)),
    };
    for standby in &survey.standbys {
        let is_leader = survey.leader.as_ref().is_some_and(|leader| leader.name == standby.name);
        if !is_leader {
            let behind = counted(usize::try_from(standby.lag).unwrap_or(usize::MAX), "transaction");
            let (name, at, said) = (&standby.name, at(&standby.address), ago(standby.said));
            text += &format!("stands by  {name}{at}, {behind} behind, heard {said}\n");
        }
    }
    for alarm in &survey.alarms {
        text += &format!("alarm      {alarm}{}\n", advice(alarm));
    }
    for endpoint in &survey.silent {
        text +=
            &format!("silent     {endpoint} does not answer: see that this member of etcd runs\n");
    }
    text
}

/// What to do about an alarm of etcd.
fn advice(alarm: &str) -> &'static str {
    if alarm.starts_with("NOSPACE") {
        ": nothing is written before there is room again: compact, defragment each member, `etcdctl alarm disarm`"
    } else {
        ": see the log of that member"
    }
}

fn json_of(survey: &Survey) -> Value {
    let leader = survey.leader.as_ref().map(|leader| {
        json!({"name": leader.name, "address": leader.address, "since_ms": leader.since.as_millis()})
    });
    let standbys: Vec<Value> = survey
        .standbys
        .iter()
        .map(|one| {
            json!({"name": one.name, "address": one.address, "lag": one.lag, "said_ms": one.said.as_millis()})
        })
        .collect();
    json!({
        "leader": leader,
        "epoch": survey.epoch,
        "transactions": survey.sequence,
        "written_ms": survey.written.as_millis(),
        "standbys": standbys,
        "lease_left_ms": u64::try_from(survey.lease_left.as_millis()).unwrap_or(u64::MAX),
        "foreign_lease": survey.foreign_lease.map(|lease| format!("{lease:x}")),
        "alarms": survey.alarms,
        "silent": survey.silent,
    })
}

/// Where it is, unless it has not said so.
fn at(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" at {address}") }
}

/// Of a time that somebody else has written, no later than what can be printed.
fn system(time: UnixTime) -> SystemTime {
    const LAST: u64 = 253_402_300_799_999;
    SystemTime::UNIX_EPOCH + Duration::from_millis(time.as_millis().min(LAST))
}

fn moment(time: UnixTime) -> String {
    humantime::format_rfc3339_seconds(system(time)).to_string()
}

/// How long ago that was, by the clock here.
fn ago(time: UnixTime) -> String {
    #[expect(clippy::disallowed_methods, reason = "people read it")]
    let now = SystemTime::now();
    let passed = now.duration_since(system(time)).unwrap_or_default();
    format!("{} ago", humantime::format_duration(Duration::from_secs(passed.as_secs())))
}
