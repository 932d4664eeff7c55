//! Locks: each rule with exact times, answers spelled out.

mod bound;
mod holding;
mod leaving;
mod replaced;
mod waiting;

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, Request, SubmitError, WatchEvent};
use statestore_proto::hlc::{FencingToken, Hlc, Version};
use statestore_proto::lock::{Action, Holder, HolderStatus, Lock, LockConfig, LockEvent, Ticket};
use statestore_proto::message::{Command, Condition, Expiry, Refusal, Reply, ServiceError};
use statestore_proto::time::Instant;

/// Lease 1,000; margin 100; renewal after 300; time-out 250; others' lease 1,000; retries after 40 to 80, and 160 at most.
fn config() -> LockConfig {
    LockConfig::new("lock", "me", *b"12345678", millis(1_000))
        .renew_after(millis(300))
        .retry(millis(80), millis(160))
}

/// The value of the first holding of that lock.
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
    Ok(Outcome::Replied { reply, version: wall.map(version), incarnation: None })
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

/// A lock and what it wanted last.
struct Rig {
    lock: Lock,
}

impl Rig {
    fn new(config: LockConfig) -> Self {
        Self { lock: Lock::new(config) }
    }

    /// One that was acquired by a SET sent at 0 and answered at 10, with token 5.
    fn held() -> Self {
        let mut rig = Self::new(config());
        rig.lock.acquire(at(0), None).unwrap();
        let ticket = rig.takes(0);
        rig.lock.handle_outcome(at(10), ticket, done(5));
        assert_eq!(rig.events(), [LockEvent::Acquired { token: token(5) }]);
        rig
    }

    fn submits(&mut self, now: u64) -> (Ticket, Request) {
        match self.lock.poll_action(at(now)) {
            Some(Action::Submit { ticket, request }) => (ticket, request),
            other => panic!("at {now}: {other:?}"),
        }
    }

    /// It sends the SET of the recipe now, with the first value.
    fn takes(&mut self, now: u64) -> Ticket {
        self.takes_as(now, VALUE)
    }

    fn takes_as(&mut self, now: u64, value: &'static str) -> Ticket {
        let (ticket, request) = self.submits(now);
        let set = Command::Set {
            key: Bytes::from_static(b"lock"),
            value: Bytes::from_static(value.as_bytes()),
            condition: Condition::IfAbsentOrEqual,
            expiry: Expiry::from_millis(1_000),
        };
        assert_eq!(request.command(), Some(&set));
        ticket
    }

    /// It sends the VDEL of the recipe now, with the first value.
    fn frees(&mut self, now: u64) -> Ticket {
        let (ticket, request) = self.submits(now);
        let value = Bytes::from_static(VALUE.as_bytes());
        assert_eq!(
            request.command(),
            Some(&Command::VDel { key: Bytes::from_static(b"lock"), value })
        );
        ticket
    }

    /// It sends nothing until then, and something then.
    fn idle_until(&mut self, from: u64, until: u64) {
        assert!(self.lock.poll_action(at(from)).is_none());
        assert_eq!(self.lock.poll_timeout(), Some(at(until)));
        assert!(self.lock.poll_action(at(until - 1)).is_none());
    }

    fn watches(&mut self, now: u64) {
        assert!(
            matches!(self.lock.poll_action(at(now)), Some(Action::Watch(key)) if key == "lock")
        );
    }

    fn answer(&mut self, now: u64, ticket: Ticket, outcome: Result<Outcome, SubmitError>) {
        self.lock.handle_outcome(at(now), ticket, outcome);
    }

    fn events(&mut self) -> Vec<LockEvent> {
        std::iter::from_fn(|| self.lock.poll_event()).collect()
    }
}

#[test]
fn a_lease_is_what_was_asked_for_in_whole_milliseconds() {
    for (asked, given) in [(1_000_000, 1_000), (1_000_001, 1_001), (1_500, 2), (0, 1)] {
        let config = LockConfig::new("lock", "me", *b"12345678", Duration::from_micros(asked));
        assert_eq!((config.lease(), &config.key()[..]), (millis(given), b"lock".as_slice()));
    }
}

#[test]
fn a_holder_is_read_back_from_its_value() {
    let held = |value: &'static str| {
        let reply = Reply::Value(Bytes::from_static(value.as_bytes()));
        match Holder::of_outcome(&Outcome::Replied {
            reply,
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
        "somebody",
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
    let absent = Outcome::Replied { reply: Reply::Absent, version: None, incarnation: None };
    assert_eq!(Holder::of_outcome(&absent), HolderStatus::Free);
    assert_eq!(Holder::of_outcome(&Outcome::Unknown), HolderStatus::Unknown);
    assert!(matches!(Holder::query("k").command(), Some(Command::Get { key }) if key == "k"));
}

#[test]
fn values_do_not_reach_debug_output() {
    let mut rig = Rig::held();
    rig.lock.handle_watch(at(20), &changed(Some("secret"), Some(9)));
    let (ticket, request) = rig.submits(400);
    for text in [format!("{:?}", rig.lock), format!("{request:?} {ticket:?}")] {
        assert!(!text.contains("secret") && !text.contains("me/"), "{text}");
    }
}
