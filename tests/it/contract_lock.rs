//! The eight clauses of the poll contract for the lock.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use statestore_models::alphabet;
use statestore_models::machines;
use statestore_proto::client::{Outcome, SubmitError, WatchEnd, WatchEvent};
use statestore_proto::hlc::{Hlc, Version};
use statestore_proto::lock::{
    AcquireError, Lock, LockAction, LockConfig, LockEvent, LockRequestId, LockState,
};
use statestore_proto::message::{Command, Refusal, Reply, Response, ServiceError};
use statestore_proto::time::Instant;
use statestore_testkit::process::memory::{allocations, live_bytes};

alphabet! {
    /// Inputs of a lock.
    enum LockOp {
        /// A call of `acquire`.
        Acquire = b'a', 4;
        /// A call of `try_acquire`.
        Try = b't', 1;
        /// A call of `release`.
        Release = b'r', 2;
        /// The outcome of the outstanding request.
        Outcome = b'o', 9;
        /// An event of the watch.
        Watch = b'w', 3;
        /// Time passes.
        Pass = b'T', 6;
        /// The refusal of a fenced write for its token.
        FencedOut = b'f', 1;
    }
}

/// An input and two numbers that select its details.
type Op = (LockOp, u8, u8);

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = machines::ops(|_: LockOp| true);
    prop::collection::vec((op, any::<u8>(), any::<u8>()), 0..80)
}

struct Rig {
    lock: Lock,
    now: Instant,
    outstanding: Vec<LockRequestId>,
    /// The outstanding request is a VDEL.
    freeing: bool,
    settled: Vec<LockRequestId>,
    versions: u64,
    value: Bytes,
    accepted: usize,
    events: Vec<LockEvent>,
    wanted: Vec<String>,
}

impl Rig {
    fn new(watch: bool) -> Self {
        let lease = Duration::from_millis(1_000);
        let config = LockConfig::new("lock", "me", *b"noncenon", lease).watch_holder(watch);
        Self {
            lock: Lock::new(config).unwrap(),
            now: Instant::default(),
            outstanding: Vec::new(),
            freeing: false,
            settled: Vec::new(),
            versions: 10,
            value: Bytes::new(),
            accepted: 0,
            events: Vec::new(),
            wanted: Vec::new(),
        }
    }

    fn version(&self, which: u8) -> Option<Version> {
        let wall = (self.versions + 2).saturating_sub(u64::from(which % 8));
        let hlc: Hlc = format!("{wall}:0:S").parse().unwrap();
        (which < 250).then(|| Version::new(hlc))
    }

    fn apply(&mut self, (op, what, how): Op) {
        let now = self.now;
        match op {
            LockOp::Acquire | LockOp::Try => {
                let deadline =
                    (what < 128).then(|| now + Duration::from_millis(u64::from(how) * 20));
                let begin = |lock: &mut Lock| match op {
                    LockOp::Acquire => lock.acquire(now, deadline),
                    _ => lock.try_acquire(now),
                };
                let mut begun = begin(&mut self.lock);
                if begun == Err(AcquireError::Full) {
                    self.drain();
                    begun = begin(&mut self.lock);
                }
                self.accepted += usize::from(begun.is_ok());
            }
            LockOp::Release => _ = self.lock.release(now),
            LockOp::Outcome => {
                if let Some(ticket) = self.outstanding.pop() {
                    self.versions += 3;
                    let outcome = self.outcome(what, how);
                    self.lock.handle_outcome(now, ticket, outcome);
                    self.settled.push(ticket);
                }
            }
            LockOp::Watch => {
                let event = self.event(what, how);
                self.lock.handle_watch(now, &event);
            }
            LockOp::Pass => {
                self.now = match what {
                    0..=99 => now + Duration::from_millis(u64::from(how)),
                    100..=229 => self.lock.poll_timeout().unwrap_or(now).max(now),
                    _ => now + Duration::from_millis(u64::from(how) * 20),
                };
                self.lock.handle_timeout(self.now);
            }
            LockOp::FencedOut => {
                if let Some(token) = self.lock.token(now).cloned() {
                    self.lock.handle_fenced_out(now, &token);
                }
            }
        }
        self.take_actions();
    }

    fn outcome(&self, what: u8, how: u8) -> Result<Outcome, SubmitError> {
        let replied = |reply| {
            let version = self.version(how);
            Ok(Outcome::Responded { response: Response::Reply(reply), version, incarnation: None })
        };
        match what {
            0..=119 => replied(Reply::Done),
            120..=149 => replied(Reply::NotApplied),
            150..=179 => replied(Reply::Removed),
            180..=189 => replied(Reply::NothingRemoved),
            190..=209 => Ok(Outcome::TimedOut { sent: how & 1 == 0 }),
            210..=219 => Ok(Outcome::ConnectionLost),
            220..=229 => replied(Reply::Value(Bytes::from_static(b"?"))),
            230..=239 => Err(SubmitError::Full),
            240..=244 => replied(Reply::Error(Refusal::QuotaExceeded.into())),
            245..=249 => replied(Reply::Error(Refusal::NotAuthorized.into())),
            _ => Err(SubmitError::EmptyKey),
        }
    }

    fn event(&self, what: u8, how: u8) -> WatchEvent {
        let version = self.version(how);
        match what {
            0..=79 => WatchEvent::Changed { value: None, version },
            80..=139 => WatchEvent::Changed { value: Some(self.value.clone()), version },
            140..=189 => WatchEvent::Changed { value: Some(Bytes::from_static(b"other")), version },
            190..=219 => WatchEvent::Live,
            220..=239 => WatchEvent::Gap,
            240..=247 => WatchEvent::Ended(WatchEnd::Stopped),
            _ => WatchEvent::Ended(WatchEnd::Refused(ServiceError::Known(Refusal::QuotaExceeded))),
        }
    }

    fn take_actions(&mut self) {
        while let Some(action) = self.lock.poll_action(self.now) {
            self.wanted.push(format!("{:?} {action:?}", self.now));
            let LockAction::Submit { ticket, request } = action else { continue };
            // The lock abandons an unanswered VDEL when the lease is over.
            assert!(self.outstanding.is_empty() || self.freeing, "one request at a time");
            self.freeing = matches!(request.command(), Some(Command::VDel { .. }));
            self.settled.append(&mut self.outstanding);
            assert!(request.timeout().is_some_and(|limit| !limit.is_zero()), "{request:?}");
            if let Some(Command::Set { value, .. }) = request.command() {
                self.value = value.clone();
            }
            self.outstanding.push(ticket);
        }
    }

    fn drain(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.lock.poll_event()));
    }

    /// The events that are never merged, however seldom they are polled.
    fn lasting(&self) -> Vec<LockEvent> {
        let lasts = |event: &&LockEvent| {
            !matches!(event, LockEvent::Renewed { .. } | LockEvent::HolderChanged(_))
        };
        self.events.iter().filter(lasts).cloned().collect()
    }
}

fn run(watch: bool, ops: &[Op]) -> Rig {
    let mut rig = Rig::new(watch);
    for op in ops {
        rig.apply(*op);
        rig.drain();
    }
    rig
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clause_1_any_order_of_calls_is_accepted(
        watch: bool,
        ops in ops(),
        polls in prop::collection::vec(0_u8..4, 80),
    ) {
        let mut rig = Rig::new(watch);
        for (op, polls) in ops.iter().zip(polls) {
            rig.apply(*op);
            for _ in 0..polls {
                rig.events.extend(rig.lock.poll_event());
                rig.take_actions();
            }
        }
        rig.drain();
        let other = run(watch, &ops);
        prop_assert_eq!((rig.lasting(), &rig.wanted), (other.lasting(), &other.wanted));
    }

    #[test]
    fn clause_3_deadlines_advance_after_each_timeout(
        watch: bool,
        ops in ops(),
        start in prop::sample::select(&[0, u64::MAX - 3_000][..]),
    ) {
        let mut rig = Rig::new(watch);
        rig.now = Instant::from_millis(start);
        for op in ops {
            rig.apply(op);
            if let Some(due) = rig.lock.poll_timeout() {
                rig.now = due.max(rig.now);
                rig.lock.handle_timeout(rig.now);
                prop_assert!(rig.lock.poll_timeout().is_none_or(|next| next > rig.now));
            }
        }
    }

    #[test]
    fn clause_4_early_is_harmless(watch: bool, ops in ops()) {
        let mut rig = Rig::new(watch);
        for op in &ops {
            if rig.lock.poll_timeout().is_none_or(|due| due > rig.now) {
                let before = format!("{:?}", rig.lock);
                rig.lock.handle_timeout(rig.now);
                rig.lock.handle_timeout(rig.now);
                prop_assert_eq!(before, format!("{:?}", rig.lock));
            }
            rig.apply(*op);
            rig.drain();
        }
        let other = run(watch, &ops);
        prop_assert_eq!((rig.events, rig.wanted), (other.events, other.wanted));
    }

    #[test]
    fn clause_6_each_input_is_completed_exactly_once(watch: bool, ops in ops()) {
        let mut rig = run(watch, &ops);
        rig.lock.release(rig.now);
        // After all leases, only requests without any reply are outstanding.
        rig.now = rig.now + Duration::from_secs(10);
        rig.lock.handle_timeout(rig.now);
        rig.apply((LockOp::Outcome, 120, 0));
        rig.drain();
        rig.now = rig.now + Duration::from_secs(10);
        rig.lock.handle_timeout(rig.now);
        rig.drain();
        let count = |is: fn(&LockEvent) -> bool| rig.events.iter().filter(|event| is(event)).count();
        let acquired = count(|event| matches!(event, LockEvent::Acquired { .. }));
        let gave_up = count(|event| matches!(event, LockEvent::AcquireFailed(_)));
        let over = count(|event| matches!(event, LockEvent::Lost(_) | LockEvent::Released { .. }));
        prop_assert_eq!((acquired + gave_up, over), (rig.accepted, acquired), "{:?}", rig.events);
        prop_assert!(rig.lock.is_settled(), "{:?}", rig.lock);
    }

    #[test]
    fn clause_6_tokens_grow_and_holding_matches_the_events(watch: bool, ops in ops()) {
        let mut rig = Rig::new(watch);
        let mut held = false;
        let mut last = None;
        for op in ops {
            rig.apply(op);
            for event in std::iter::from_fn(|| rig.lock.poll_event()) {
                match event {
                    LockEvent::Acquired { token } | LockEvent::Renewed { token } => {
                        held = true;
                        prop_assert!(last.as_ref().is_none_or(|last| *last < token));
                        last = Some(token);
                    }
                    LockEvent::Lost(_) => held = false,
                    _ => {}
                }
            }
            held &= rig.lock.state() != LockState::Released;
            prop_assert_eq!(rig.lock.is_held(rig.now), held);
            prop_assert_eq!(rig.lock.token(rig.now), last.as_ref().filter(|_| held));
        }
    }

    #[test]
    fn clause_7_invalid_input_does_not_affect_other_requests(
        ops in ops(),
        hostile in prop::collection::vec((any::<u8>(), any::<u8>()), 80),
    ) {
        let mut rig = Rig::new(false);
        for (op, (what, how)) in ops.iter().zip(hostile) {
            rig.apply(*op);
            // A second outcome of a request, and events of a watch that was not requested.
            if let Some(ticket) = rig.settled.last().copied() {
                let outcome = rig.outcome(what, how);
                rig.lock.handle_outcome(rig.now, ticket, outcome);
            }
            let watches = rig.wanted.iter().rev().find(|wanted| ["Watch(", "Unwatch"].iter().any(|of| wanted.contains(of)));
            if watches.is_none_or(|last| last.contains("Unwatch")) {
                let event = rig.event(what, how);
                rig.lock.handle_watch(rig.now, &event);
            }
            rig.take_actions();
            rig.drain();
        }
        let other = run(false, &ops);
        prop_assert_eq!((rig.events, rig.wanted), (other.events, other.wanted));
    }

    #[test]
    fn clause_8_equal_inputs_give_equal_outputs(watch: bool, ops in ops()) {
        let (one, other) = (run(watch, &ops), run(watch, &ops));
        prop_assert_eq!((one.events, one.wanted), (other.events, other.wanted));
    }
}

#[test]
fn clause_2_idle_is_free() {
    for replies in 0..3 {
        let mut rig = Rig::new(false);
        rig.apply((LockOp::Acquire, 255, 0));
        (0..replies).for_each(|_| rig.apply((LockOp::Outcome, 0, 0)));
        rig.drain();
        let (before, state) = (allocations(), format!("{:?}", rig.lock));
        let printed = allocations() - before;
        let before = allocations();
        for _ in 0..200_000 {
            assert!(rig.lock.poll_action(rig.now).is_none() && rig.lock.poll_event().is_none());
            assert_eq!(rig.lock.poll_timeout().is_some(), replies > 0);
        }
        assert_eq!(allocations() - before, 0);
        assert!(printed > 0 && state == format!("{:?}", rig.lock), "a poll has changed something");
    }
}

#[test]
fn clause_5_queues_are_bounded() {
    let mut rig = Rig::new(true);
    let mut flood = || {
        let mut full = 0;
        for round in 0..2_000_u32 {
            full += usize::from(rig.lock.acquire(rig.now, None) == Err(AcquireError::Full));
            for what in [0, 100, 0, 200, 0, 150, 0] {
                rig.apply((LockOp::Watch, what, 0));
                rig.apply((LockOp::Watch, 190, 0));
                rig.apply((LockOp::Pass, 100, 0));
                rig.apply((LockOp::Outcome, if round % 3 == 0 { 0 } else { what }, 0));
            }
            rig.lock.release(rig.now);
            rig.apply((LockOp::Outcome, 0, 0));
            rig.apply((LockOp::Outcome, 150, 0));
            (rig.wanted, rig.settled) = (Vec::new(), Vec::new());
        }
        full
    };
    let (first, before) = (flood(), live_bytes());
    assert!(flood() > 1_900 && first > 1_900, "the event queue fills up");
    let growth = live_bytes() - before;
    assert!(growth.abs() < 2_048, "{growth} bytes more after the second flood");
    rig.drain();
    assert!(rig.events.len() <= 16 + 4, "{} events: {:?}", rig.events.len(), rig.events);
    assert_eq!(rig.lock.acquire(rig.now, None), Ok(()));
}
