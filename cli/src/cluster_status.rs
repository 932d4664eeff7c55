//! Leader and standbys of a cluster.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use statestore_etcd::{Survey, SurveyError};
use statestore_proto::time::UnixTime;

use crate::args::EtcdConnection;
use crate::failure::Failure;
use crate::policy::counted;

/// The state of a cluster, for printing.
pub(crate) struct ClusterStatus {
    pub(crate) has_leader: bool,
    pub(crate) text: String,
    pub(crate) json: Map<String, Value>,
}

pub(crate) async fn fetch(etcd: &EtcdConnection) -> Result<ClusterStatus, Failure> {
    let survey = Survey::fetch(&crate::etcd::options(etcd)?).await;
    let survey = survey.map_err(|error| match error {
        SurveyError::Unreachable(reason) => Failure::unreachable(reason),
        error => Failure::bad_input(error),
    })?;
    Ok(ClusterStatus {
        has_leader: survey.leader.is_some(),
        text: text(&survey),
        json: json_fields(&survey),
    })
}

fn text(survey: &Survey) -> String {
    let mut text = match &survey.leader {
        Some(leader) => format!(
            "leads      {}{}, since {}, in epoch {}, lease expires in {} s; {}, the last {}\n",
            leader.name,
            at_address(&leader.address),
            moment(leader.since),
            survey.epoch,
            survey.lease_left.as_secs(),
            counted(usize::try_from(survey.sequence).unwrap_or(usize::MAX), "transaction"),
            ago(survey.written),
        ),
        None if survey.foreign_lease.is_some() => format!(
            "no store leads: a foreign entry occupies the key of the leader; \
             revoke its lease with `etcdctl lease revoke {:x}`\n",
            survey.foreign_lease.unwrap_or_default(),
        ),
        None => format!("no store leads; the last transaction was {}\n", ago(survey.written)),
    };
    for standby in &survey.standbys {
        let is_leader = survey.leader.as_ref().is_some_and(|leader| leader.name == standby.name);
        if !is_leader {
            let behind = counted(usize::try_from(standby.lag).unwrap_or(usize::MAX), "transaction");
            let (name, at) = (&standby.name, at_address(&standby.address));
            let reported = ago(standby.reported);
            text += &format!("standby    {name}{at}, {behind} behind, last report {reported}\n");
        }
    }
    for alarm in &survey.alarms {
        text += &format!("alarm      {alarm}{}\n", advice(alarm));
    }
    for endpoint in &survey.silent {
        text +=
            &format!("silent     {endpoint} does not respond: check that this etcd member runs\n");
    }
    text
}

/// Returns what the operator can do about an alarm of etcd.
fn advice(alarm: &str) -> &'static str {
    if alarm.starts_with("NOSPACE") {
        ": etcd rejects all writes: compact, defragment each member, then run `etcdctl alarm \
         disarm`"
    } else {
        ": check the log of that member"
    }
}

fn json_fields(survey: &Survey) -> Map<String, Value> {
    let leader = survey.leader.as_ref().map(|leader| {
        json!({
            "name": leader.name,
            "address": leader.address,
            "since_ms": leader.since.as_millis(),
        })
    });
    let standbys: Vec<Value> = survey
        .standbys
        .iter()
        .map(|standby| {
            json!({
                "name": standby.name,
                "address": standby.address,
                "lag": standby.lag,
                "reported_ms": standby.reported.as_millis(),
            })
        })
        .collect();
    let fields = json!({
        "leader": leader,
        "epoch": survey.epoch,
        "transactions": survey.sequence,
        "written_ms": survey.written.as_millis(),
        "standbys": standbys,
        "lease_left_ms": u64::try_from(survey.lease_left.as_millis()).unwrap_or(u64::MAX),
        "foreign_lease": survey.foreign_lease.map(|lease| format!("{lease:x}")),
        "alarms": survey.alarms,
        "silent": survey.silent,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Returns ` at ADDRESS`, or nothing if the store has not published its address.
fn at_address(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" at {address}") }
}

/// Converts a time from etcd. Times after the year 9999 cannot be printed, so they are capped.
fn system(time: UnixTime) -> SystemTime {
    const LAST: u64 = 253_402_300_799_999;
    SystemTime::UNIX_EPOCH + Duration::from_millis(time.as_millis().min(LAST))
}

fn moment(time: UnixTime) -> String {
    humantime::format_rfc3339_seconds(system(time)).to_string()
}

/// Returns the time that has passed since then, by the local clock.
fn ago(time: UnixTime) -> String {
    #[expect(clippy::disallowed_methods, reason = "for display only")]
    let now = SystemTime::now();
    let passed = now.duration_since(system(time)).unwrap_or_default();
    format!("{} ago", humantime::format_duration(Duration::from_secs(passed.as_secs())))
}
