//! `mirror`: copies keys and their changes from one store to another.

use std::collections::{BTreeMap, BTreeSet};
use std::future::IntoFuture as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{Refusal, ServiceError};
use statestore_proto::time::UnixTime;
use statestore_tokio::{Error, PatternEnd, PatternEvent, StateStore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, sleep};

use crate::args::{Common, Connection, Login, Mirror, Output};
use crate::connection;
use crate::data::unix_now;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keys::{self, REQUESTS_MAX, matches_every_key};
use crate::notices::Notices;
use crate::output::{line, notice};
use crate::refusals::{self, RETRY};
use crate::signals::Signals;
use crate::sources::Endpoint;

/// Number of refused keys that are printed. The others are only counted, since a full store refuses
/// all of them.
const REFUSED_SHOWN: u64 = 10;

/// Maximum number of keys whose change waits, for example while the target is out of reach. At most
/// [`KEYS_MAX`] of them have a value; the others are deletions.
const WAITING_MAX: usize = 10_000;

/// Maximum number of keys: that of a watched pattern.
const KEYS_MAX: usize = 1_000;

/// Interval of requests to the target. Their responses show whether it was replaced.
const TARGET_CHECK: Duration = Duration::from_secs(5);

/// Key of these requests. No client has to set it.
const TARGET_CHECK_KEY: &str = "statestore-mirror-check";

/// Expiry of the key that [`check_different`] sets. It ends the key if it cannot be deleted.
const PROBE_EXPIRY: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: Mirror) -> Result<ExitCode, Failure> {
    if matches_every_key(&args.keys) {
        return Err(Failure::bad_input(
            "--keys: this pattern matches every key, or every key of a length, also locks; name a \
             part of the keys, such as 'rooms/*', or copy all keys once with `statestore export` \
             and `statestore import`",
        ));
    }
    if args.from == args.to {
        return Err(same_store_failure());
    }
    let mut signals = Signals::new()?.with_hangup()?;
    let common = |broker: &str, login| Common {
        connection: Connection { broker: vec![broker.to_owned()], login },
        time_limit: args.time_limit,
        format: args.format,
    };
    let connect = |url, login: Login| {
        let at = login.endpoint;
        connection::store(&common(url, login)).map_err(|failure| named(at, failure))
    };
    let target = connect(&args.to, args.to_login.login())?;
    let source = connect(&args.from, Login { endpoint: Endpoint::Source, ..args.login.clone() })?;
    let check = async {
        check_different(&source, &target).await?;
        check_count(&source, &args.keys).await
    };
    let checked = signals.unless_received(check).await;
    let Some(checked) = checked else { return Ok(ExitCode::SUCCESS) };
    checked?;
    let mut copier = Copier::new(target, args.format.output);
    let outcome = signals.unless_received(follow(&source, &mut copier, &args)).await;
    copier.print("stopped").await?;
    outcome.transpose()?;
    source.shutdown().await;
    Ok(if copier.counts.refused > 0 { Exit::Refused } else { Exit::Success }.into())
}

/// Adds the name of the store to an error of it.
fn named(at: Endpoint, failure: Failure) -> Failure {
    failure.map(|text| match at {
        Endpoint::Broker | Endpoint::Serve | Endpoint::Source => format!("source: {text}"),
        Endpoint::Target => format!("target: {text}"),
    })
}

/// A failed request to one of the two stores.
fn request_failure(at: Endpoint, error: Error) -> Failure {
    named(at, Failure::request_at(at, error))
}

/// A failed write of one key of the target; others may succeed.
fn key_failure(key: &[u8], error: Error) -> Failure {
    named(Endpoint::Target, refusals::key_failure_at(Endpoint::Target, key, error))
}

/// A failed listing of the source.
fn listing_failure(error: Error) -> Failure {
    named(Endpoint::Source, keys::failure_at(Endpoint::Source, error))
}

fn same_store_failure() -> Failure {
    Failure::bad_input(
        "FROM and TO are the same store, so each copy would cause another one: name another target",
    )
}

/// Fails if both handles reach one store, for example by two names of one machine.
async fn check_different(source: &StateStore, target: &StateStore) -> Result<(), Failure> {
    let probe = connection::unique_id("mirror");
    let set = target.set(probe.clone(), "probe").expires_after(PROBE_EXPIRY).await;
    set.map_err(|error| request_failure(Endpoint::Target, error))?;
    let found = source.get(probe.clone()).await;
    // If this fails, the key expires.
    let _ = target.del(probe).await;
    match found.map_err(|error| request_failure(Endpoint::Source, error))? {
        Some(_) => Err(same_store_failure()),
        None => Ok(()),
    }
}

/// Fails if too many keys match, before any of them is copied.
async fn check_count(source: &StateStore, pattern: &str) -> Result<(), Failure> {
    let mut keys = source.scan(pattern.to_owned());
    let mut count = 0;
    loop {
        let key = keys.next().await;
        match key.map_err(listing_failure)? {
            Some(_) if count == KEYS_MAX => return Err(too_many_failure(pattern)),
            Some(_) => count += 1,
            None => return Ok(()),
        }
    }
}

fn too_many_failure(pattern: &str) -> Failure {
    Failure::bad_input(format_args!(
        "--keys {pattern}: more than {KEYS_MAX} keys match; use a narrower pattern, or one mirror \
         for each part of the keys"
    ))
}

/// Copies until an error, or with --once until all keys are copied.
async fn follow(source: &StateStore, copier: &mut Copier, args: &Mirror) -> Result<(), Failure> {
    let watch = || source.watch_pattern(args.keys.clone()).keys_max(KEYS_MAX);
    let mut changes = watch();
    let mut replacements = copier.target.replacements();
    let mut check = tokio::time::interval_at(Instant::now() + TARGET_CHECK, TARGET_CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_live, mut is_reported) = (false, false);
    // Copied keys that the present watch has not reported. At `Live`, they are deleted.
    let mut unlisted = BTreeSet::new();
    let mut report = tokio::time::interval_at(Instant::now() + args.report, args.report);
    loop {
        copier.start_writes();
        if is_live && copier.is_idle() {
            if !std::mem::replace(&mut is_reported, true) {
                copier.print("live").await?;
            }
            if args.once {
                return Ok(());
            }
        }
        tokio::select! {
            event = changes.next() => match event {
                Some(PatternEvent::Changed { key, value, version }) => {
                    unlisted.remove(&key);
                    copier.add(key, value, version)?;
                }
                Some(PatternEvent::Live) => {
                    is_live = true;
                    for key in std::mem::take(&mut unlisted) {
                        copier.add(key, None, None)?;
                    }
                }
                Some(PatternEvent::Gap) => {
                    (is_live, is_reported) = (false, false);
                    copier.print("gap").await?;
                }
                Some(PatternEvent::Ended(PatternEnd::TooManyKeys(_))) => {
                    return Err(too_many_failure(&args.keys));
                }
                Some(PatternEvent::Ended(PatternEnd::Failed(error))) => {
                    return Err(listing_failure(error));
                }
                None | Some(_) => {
                    let status = source.status().current();
                    return Err(named(
                        Endpoint::Source,
                        Failure::stopped_at(Endpoint::Source, &status),
                    ));
                }
            },
            Some(_) = replacements.next() => {
                notice("target: the store was restarted or replaced; copying all keys again");
                changes = watch();
                // The previous watch may have had deletions that were not processed yet.
                unlisted = copier.versions.keys().cloned().collect();
                (is_live, is_reported) = (false, false);
            }
            _ = check.tick() => copier.check_target(),
            written = copier.writes.join_next(), if !copier.writes.is_empty() => {
                if let Some(written) = written {
                    copier.settle(written.map_err(Failure::system)?)?;
                }
            }
            _ = report.tick(), if copier.has_changed => copier.print("copying").await?,
        }
    }
}

/// A change to copy.
struct Change {
    /// `None` for a deletion.
    value: Option<Bytes>,
    /// Version in the source; for a deletion, that of the removed value. The write is without a
    /// fencing token if it is unknown.
    version: Option<Version>,
    /// Refusals so far.
    refusals: u32,
}

/// Results since the start.
#[derive(Default)]
struct Counts {
    copied: u64,
    deleted: u64,
    /// Keys whose copy in the target is newer.
    superseded: u64,
    refused: u64,
    /// Time from the version of the last copied value to the response of the target.
    lag: Option<Duration>,
}

/// The writes to the target: at most one per key is in flight, and the latest change waits.
struct Copier {
    target: StateStore,
    output: Output,
    /// The latest change of each key that waits.
    waiting: BTreeMap<Bytes, Change>,
    /// Keys with a write in flight, at most [`REQUESTS_MAX`].
    in_flight: BTreeSet<Bytes>,
    /// Version of the present value of each key, for a deletion, which is reported without one.
    versions: BTreeMap<Bytes, Version>,
    writes: JoinSet<(Bytes, Change, Result<(), Error>)>,
    counts: Counts,
    /// Set if the counts have changed since the last report.
    has_changed: bool,
    notices: Notices,
    /// The last request of [`check_target`](Self::check_target).
    check: Option<JoinHandle<()>>,
}

impl Copier {
    fn new(target: StateStore, output: Output) -> Self {
        Self {
            target,
            output,
            waiting: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            versions: BTreeMap::new(),
            writes: JoinSet::new(),
            counts: Counts::default(),
            has_changed: false,
            notices: Notices::default(),
            check: None,
        }
    }

    /// Reads a key of the target. The response shows whether the target was replaced, also while no
    /// key changes.
    fn check_target(&mut self) {
        if self.check.as_ref().is_none_or(JoinHandle::is_finished) {
            let get = self.target.get(TARGET_CHECK_KEY).into_future();
            self.check = Some(tokio::spawn(async move { _ = get.await }));
        }
    }

    /// Adds a change, which replaces an earlier one that waits.
    fn add(
        &mut self,
        key: Bytes,
        value: Option<Bytes>,
        version: Option<Version>,
    ) -> Result<(), Failure> {
        let version = match (&value, version) {
            (None, None) => self.versions.get(&key).cloned(),
            (_, version) => version,
        };
        match (&value, &version) {
            (Some(_), Some(version)) => _ = self.versions.insert(key.clone(), version.clone()),
            _ => _ = self.versions.remove(&key),
        }
        self.waiting.insert(key, Change { value, version, refusals: 0 });
        // Deletions are included: the target may have a key that this process did not write.
        match self.waiting.len() > WAITING_MAX {
            true => Err(Failure::unreachable(format_args!(
                "target: more than {WAITING_MAX} changes wait, because it is out of reach or too \
                 slow; start again when it responds, and delete keys there that the source no \
                 longer has"
            ))),
            false => Ok(()),
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.writes.is_empty()
    }

    fn start_writes(&mut self) {
        while self.writes.len() < REQUESTS_MAX {
            let free = self.waiting.keys().find(|key| !self.in_flight.contains(*key));
            let Some(key) = free.cloned() else { return };
            let Some(change) = self.waiting.remove(&key) else { return };
            self.in_flight.insert(key.clone());
            self.write(key, change, Duration::ZERO);
        }
    }

    fn write(&mut self, key: Bytes, change: Change, pause: Duration) {
        let target = self.target.clone();
        self.writes.spawn(async move {
            sleep(pause).await;
            let token =
                change.version.as_ref().map(|version| FencingToken::new(version.hlc().clone()));
            let result = match &change.value {
                Some(value) => {
                    let set = target.set(key.clone(), value.clone());
                    match token {
                        Some(token) => set.fencing_token(token).await.map(drop),
                        None => set.await.map(drop),
                    }
                }
                None => {
                    let del = target.del(key.clone());
                    match token {
                        Some(token) => del.fencing_token(token).await.map(drop),
                        None => del.await.map(drop),
                    }
                }
            };
            (key, change, result)
        });
    }

    fn settle(
        &mut self,
        (key, mut change, result): (Bytes, Change, Result<(), Error>),
    ) -> Result<(), Failure> {
        self.has_changed = true;
        match result {
            Ok(()) => {
                let counts = &mut self.counts;
                match (&change.value, change.version) {
                    (Some(_), version) => {
                        counts.copied += 1;
                        counts.lag = version.map(|version| lag(unix_now(), version.hlc().wall()));
                    }
                    // The version is that of the removed value.
                    (None, _) => counts.deleted += 1,
                }
            }
            Err(Error::Refused {
                error: ServiceError::Known(Refusal::FencingTokenLower), ..
            }) => self.counts.superseded += 1,
            Err(error) if refusals::may_pass(&error, change.refusals) => {
                change.refusals += 1;
                self.notice_repetition(&key_failure(&key, error));
                self.repeat(key, change);
                return Ok(());
            }
            Err(error @ (Error::Refused { .. } | Error::Invalid(_))) => {
                self.counts.refused += 1;
                if self.counts.refused <= REFUSED_SHOWN {
                    notice(key_failure(&key, error));
                }
            }
            Err(error @ Error::Closed(_)) => return Err(request_failure(Endpoint::Target, error)),
            Err(error) => {
                self.notice_repetition(&request_failure(Endpoint::Target, error));
                self.repeat(key, change);
                return Ok(());
            }
        }
        self.in_flight.remove(&key);
        Ok(())
    }

    /// Prints why a write is repeated.
    fn notice_repetition(&mut self, failure: &Failure) {
        self.notices.print("again", format_args!("{failure}; trying again"));
    }

    /// Repeats the write, unless a later change of the key replaces it.
    fn repeat(&mut self, key: Bytes, change: Change) {
        if self.waiting.contains_key(&key) {
            self.in_flight.remove(&key);
        } else {
            self.write(key, change, RETRY);
        }
    }

    async fn print(&mut self, state: &str) -> Result<(), Failure> {
        self.has_changed = false;
        let waiting = self.waiting.len() + self.writes.len();
        let Counts { copied, deleted, superseded, refused, lag } = self.counts;
        let lag_ms = lag.map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX));
        let text = match self.output {
            Output::Text => {
                let lag = lag_ms.map_or_else(String::new, |lag| format!(", lag {lag} ms"));
                format!(
                    "{state}: copied {copied}, deleted {deleted}, newer in the target \
                     {superseded}, refused {refused}, waiting {waiting}{lag}\n"
                )
            }
            Output::Json => {
                let text = json!({
                    "result": state, "copied": copied, "deleted": deleted,
                    "newer_in_target": superseded, "refused": refused, "waiting": waiting,
                    "lag_ms": lag_ms,
                });
                format!("{text}\n")
            }
        };
        line(text).await
    }
}

/// The time since a version. Clocks that differ must not cause a negative lag.
fn lag(now: UnixTime, version: UnixTime) -> Duration {
    Duration::from_millis(now.as_millis().saturating_sub(version.as_millis()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        mirror: Mirror,
    }

    #[tokio::test]
    async fn changes_that_wait_for_the_target_are_limited() {
        let line = ["mirror", "mqtt://127.0.0.1:1", "mqtt://127.0.0.1:2", "--keys", "a/*"];
        let Line { mirror } = Line::parse_from(line);
        let connection = Connection { broker: vec![mirror.to.clone()], login: mirror.login };
        let Mirror { time_limit, format, .. } = mirror;
        let common = Common { connection, time_limit, format };
        let mut copier = Copier::new(connection::store(&common).unwrap(), format.output);
        let mut add = |number: usize| copier.add(number.to_string().into(), None, None);
        for number in 0..WAITING_MAX {
            add(number).unwrap();
        }
        add(0).unwrap();
        let failure = add(WAITING_MAX).unwrap_err();
        assert_eq!(failure.exit(), Exit::Unreachable);
        assert!(failure.to_string().starts_with("target: more than 10000 changes wait"));
    }
}
