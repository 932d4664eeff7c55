//! Locks: each rule with exact times and explicit outcomes.

mod driver;
mod holder;
mod holding;
mod leaving;
mod replaced;
mod waiting;

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, Request, SubmitError, WatchEvent};
use statestore_proto::hlc::{FencingToken, Hlc, Version};
use statestore_proto::lock::{
    HolderStatus, Lock, LockAction, LockConfig, LockConfigError, LockEvent, LockRequestId,
};
use statestore_proto::message::{
    Command, Condition, Expiry, Refusal, Reply, Response, ServiceError,
};
use statestore_proto::time::Instant;

/// Lease 1,000; margin 100; renewal after 300; timeout 250; longest lease 1,000; first retry after
/// 40 to 80, later ones after at most 160.
fn config() -> LockConfig {
    LockConfig::new("lock", "me", *b"12345678", millis(1_000))
        .renew_after(millis(300))
        .retry(millis(80), millis(160))
}

/// Value of the first holding of that lock.
const VALUE: &str = "me/3132333435363738/1";

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn version(wall: u64) -> Version {
    Version::new(format!("{wall}:0:StateStore").parse::<Hlc>().unwrap())
}

fn token(wall: u64) -> FencingToken {
    version(wall).to_fencing_token()
}

fn replied(reply: Reply<Bytes>, wall: Option<u64>) -> Result<Outcome, SubmitError> {
    Ok(Outcome::Responded {
        response: Response::Reply(reply),
        version: wall.map(version),
        incarnation: None,
    })
}

fn done(wall: u64) -> Result<Outcome, SubmitError> {
    replied(Reply::Done, Some(wall))
}

fn not_applied() -> Result<Outcome, SubmitError> {
    replied(Reply::NotApplied, Some(1))
}

fn refused(refusal: Refusal) -> Result<Outcome, SubmitError> {
    replied(Reply::Error(ServiceError::Known(refusal)), None)
}

fn lost() -> Result<Outcome, SubmitError> {
    Ok(Outcome::TimedOut { sent: true })
}

fn changed(value: Option<&'static str>, wall: Option<u64>) -> WatchEvent {
    let value = value.map(|value| Bytes::from_static(value.as_bytes()));
    WatchEvent::Changed { value, version: wall.map(version) }
}

/// A lock under test.
struct Rig {
    lock: Lock,
}

impl Rig {
    fn new(config: LockConfig) -> Self {
        Self { lock: Lock::new(config).expect("a valid configuration") }
    }

    /// A lock acquired with token 5 by a SET that was sent at 0 and replied to at 10.
    fn held() -> Self {
        let mut rig = Self::new(config());
        rig.lock.acquire(at(0), None).unwrap();
        let ticket = rig.expect_set(0);
        rig.lock.handle_outcome(at(10), ticket, done(5));
        assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
        rig
    }

    fn expect_request(&mut self, now: u64) -> (LockRequestId, Request) {
        match self.lock.poll_action(at(now)) {
            Some(LockAction::Submit { ticket, request }) => (ticket, request),
            other => panic!("at {now}: {other:?}"),
        }
    }

    /// Expects the SET of the recipe with the first value.
    fn expect_set(&mut self, now: u64) -> LockRequestId {
        self.expect_set_of(now, VALUE)
    }

    fn expect_set_of(&mut self, now: u64, value: &'static str) -> LockRequestId {
        let (ticket, request) = self.expect_request(now);
        let set = Command::Set {
            key: Bytes::from_static(b"lock"),
            value: Bytes::from_static(value.as_bytes()),
            condition: Condition::IfAbsentOrEqual,
            expiry: Expiry::from_millis(1_000),
        };
        assert_eq!(request.command(), Some(&set));
        ticket
    }

    /// Expects the VDEL of the recipe with the first value.
    fn expect_vdel(&mut self, now: u64) -> LockRequestId {
        let (ticket, request) = self.expect_request(now);
        let value = Bytes::from_static(VALUE.as_bytes());
        assert_eq!(
            request.command(),
            Some(&Command::VDel { key: Bytes::from_static(b"lock"), value })
        );
        ticket
    }

    /// Expects no action before `until`, and a timer at `until`.
    fn idle_until(&mut self, from: u64, until: u64) {
        assert!(self.lock.poll_action(at(from)).is_none());
        assert_eq!(self.lock.poll_timeout(), Some(at(until)));
        assert!(self.lock.poll_action(at(until - 1)).is_none());
    }

    fn expect_watch(&mut self, now: u64) {
        assert!(
            matches!(self.lock.poll_action(at(now)), Some(LockAction::Watch(key)) if key == "lock")
        );
    }

    fn reply(&mut self, now: u64, ticket: LockRequestId, outcome: Result<Outcome, SubmitError>) {
        self.lock.handle_outcome(at(now), ticket, outcome);
    }

    fn events(&mut self) -> Vec<LockEvent> {
        std::iter::from_fn(|| self.lock.poll_event()).collect()
    }
}

#[test]
fn durations_are_rounded_up_to_whole_milliseconds() {
    for (micros, expected) in [(1_000_000, 1_000), (1_000_001, 1_001), (1_500, 2), (1, 1)] {
        let config = LockConfig::new("lock", "me", *b"12345678", Duration::from_micros(micros));
        assert_eq!((config.lease(), &config.key()[..]), (millis(expected), b"lock".as_slice()));
        assert!(Lock::new(config).is_ok(), "every default is valid");
    }
}

#[test]
fn invalid_configuration_is_rejected() {
    use LockConfigError::*;
    let zero = Duration::ZERO;
    let new = |lease| LockConfig::new("lock", "me", [0; 8], lease);
    for (config, expected) in [
        (new(zero), ZeroLease),
        (config().margin(millis(1_000)), MarginTooLong),
        (config().margin(Duration::MAX), MarginTooLong),
        (new(Duration::from_micros(9_100)).margin(millis(10)), MarginTooLong),
        (config().renew_after(zero), ZeroRenewal),
        (config().timeout(zero), ZeroTimeout),
        (config().max_lease(zero), ZeroMaxLease),
        (config().retry(zero, millis(10)), ZeroRetry),
        (config().retry(millis(11), millis(10)), RetryOrder),
    ] {
        assert_eq!(Lock::new(config).err(), Some(expected));
    }
    let least = Duration::from_nanos(1);
    let valid = config().margin(millis(999)).renew_after(least).timeout(least).max_lease(least);
    assert!(Lock::new(valid.retry(least, least)).is_ok());
}

#[test]
fn holder_name_and_nonce_are_parsed_from_its_value() {
    let held = |value: &'static str| {
        let reply = Reply::Value(Bytes::from_static(value.as_bytes()));
        match HolderStatus::from_outcome(&Outcome::Responded {
            response: Response::Reply(reply),
            version: Some(version(4)),
            incarnation: None,
        }) {
            HolderStatus::Held(holder) => holder,
            other => panic!("{other:?}"),
        }
    };
    let ours = held(VALUE);
    assert_eq!((ours.name(), ours.nonce()), (b"me".as_slice(), Some(*b"12345678")));
    assert_eq!(ours.version(), Some(&version(4)));
    assert_eq!(held("a/b/3132333435363738/12").name(), b"a/b");
    for strange in [
        "stranger",
        "a/31323334/1",
        "a/3132333435363738/",
        "a/3132333435363738/x",
        "a/313233343536373G/1",
        "a/+132333435363738/1",
        "a/313233343536373A/1",
        "/1",
        "",
    ] {
        let holder = held(strange);
        assert_eq!((holder.name(), holder.nonce()), (strange.as_bytes(), None), "{strange}");
    }
    let absent = Outcome::Responded {
        response: Response::Reply(Reply::Absent),
        version: None,
        incarnation: None,
    };
    assert_eq!(HolderStatus::from_outcome(&absent), HolderStatus::Free);
    assert_eq!(HolderStatus::from_outcome(&Outcome::ConnectionLost), HolderStatus::Unknown);
}

#[test]
fn debug_output_contains_no_values() {
    let mut rig = Rig::held();
    rig.lock.handle_watch(at(20), &changed(Some("secret"), Some(9)));
    let (ticket, request) = rig.expect_request(400);
    for text in [format!("{:?}", rig.lock), format!("{request:?} {ticket:?}")] {
        assert!(!text.contains("secret") && !text.contains("me/"), "{text}");
    }
}
