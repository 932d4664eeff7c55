//! A clock increases strictly, stays within the drift of the wall clock, and follows the receive
//! rule.

use std::time::Duration;

use proptest::prelude::*;
use statestore_models::generators::{ClockOp, clock_ops};
use statestore_models::reference::clock::{Clock, DRIFT_MAX, stamp};
use statestore_proto::hlc::{ClockDriftError, Hlc, HybridClock, NodeId};
use statestore_proto::limits::COUNTER_MAX;
use statestore_proto::time::UnixTime;

fn clock(node: &str) -> HybridClock {
    HybridClock::new(NodeId::new(node).unwrap())
}

fn apply(clock: &mut HybridClock, op: &ClockOp) -> Result<Hlc, ClockDriftError> {
    match op {
        ClockOp::Tick { now } => clock.tick(UnixTime::from_millis(*now)),
        ClockOp::Receive { now, other } => {
            clock.receive(UnixTime::from_millis(*now), other.borrowed())
        }
    }
}

fn now_of(op: &ClockOp) -> u64 {
    match op {
        ClockOp::Tick { now } | ClockOp::Receive { now, .. } => *now,
    }
}

proptest! {
    #[test]
    fn clock_increases_and_stays_within_the_drift(ops in clock_ops()) {
        let mut clock = clock("StateStore");
        let mut last: Option<Hlc> = None;
        for op in &ops {
            let Ok(issued) = apply(&mut clock, op) else { continue };
            if let Some(last) = &last {
                prop_assert!(issued > *last, "{issued} after {last}");
            }
            if let ClockOp::Receive { other, .. } = op {
                prop_assert!(issued > *other, "{issued} after receiving {other}");
            }
            let ahead = issued.wall().as_millis().saturating_sub(now_of(op));
            prop_assert!(ahead <= DRIFT_MAX, "{issued} is {ahead} ms ahead");
            prop_assert!(issued.counter() <= COUNTER_MAX);
            prop_assert_eq!(clock.last(), &issued);
            prop_assert_eq!(issued.node().as_str(), "StateStore");
            last = Some(issued);
        }
    }

    #[test]
    fn clock_agrees_with_the_naive_clock(ops in clock_ops(), drift_max in 0..120_000_u64) {
        for drift_max in [DRIFT_MAX, drift_max] {
            let mut clock = clock("n").with_drift_max(Duration::from_millis(drift_max));
            let mut naive = Clock::new("n", drift_max);
            for op in &ops {
                let expected = match op {
                    ClockOp::Tick { now } => naive.tick(*now),
                    ClockOp::Receive { now, other } => naive.receive(*now, &stamp(other)),
                };
                match (apply(&mut clock, op), expected) {
                    (Ok(issued), Ok(expected)) => prop_assert_eq!(stamp(&issued), expected),
                    (Err(error), Err(expected)) => {
                        prop_assert_eq!(error.allowed, Duration::from_millis(drift_max));
                        prop_assert_eq!(error.ahead.as_millis(), expected.0);
                    }
                    (found, expected) => {
                        prop_assert!(false, "{op:?}: found {found:?}, expected {expected:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn failed_call_does_not_change_the_clock(ops in clock_ops()) {
        let (mut all, mut accepted_only) = (clock("n"), clock("n"));
        for op in &ops {
            let before = all.last().clone();
            match apply(&mut all, op) {
                Ok(issued) => prop_assert_eq!(apply(&mut accepted_only, op), Ok(issued)),
                Err(_) => prop_assert_eq!(all.last(), &before),
            }
        }
        let later = UnixTime::from_millis(u64::MAX);
        prop_assert_eq!(all.tick(later), accepted_only.tick(later));
    }

    #[test]
    fn clocks_of_different_nodes_issue_different_values(
        ops in proptest::collection::vec((0..3_usize, clock_ops()), 1..4),
        gossip in proptest::collection::vec((0..3_usize, 0..3_usize, 0..3_u64), 1..40),
    ) {
        let mut clocks = ["a", "ab", "a node id that is too long to be inline"].map(clock);
        let mut issued = Vec::new();
        for (at, ops) in &ops {
            issued.extend(ops.iter().filter_map(|op| apply(&mut clocks[*at], op).ok()));
        }
        for (from, to, step) in gossip {
            let now = clocks[from].last().wall() + Duration::from_millis(step);
            let Ok(sent) = clocks[from].tick(now) else { continue };
            let received = clocks[to].receive(now, sent.borrowed());
            if let Ok(received) = &received {
                prop_assert!(*received > sent);
            }
            issued.push(sent);
            issued.extend(received);
        }
        let count = issued.len();
        issued.sort();
        issued.dedup();
        prop_assert_eq!(issued.len(), count);
    }
}

#[test]
fn exhausted_counter_carries_into_the_wall_clock_part() {
    let mut clock = clock("n");
    let now = UnixTime::from_millis(1_000);
    let other = Hlc::new(now, COUNTER_MAX - 1, NodeId::new("c").unwrap());
    assert_eq!(clock.receive(now, other.borrowed()).unwrap().to_string(), "1000:2147483647:n");
    assert_eq!(clock.tick(now).unwrap().to_string(), "1001:0:n");
    assert_eq!(clock.tick(now).unwrap().to_string(), "1001:1:n");
}

#[test]
fn no_value_exceeds_the_last_millisecond_of_64_bits() {
    let mut clock = clock("n");
    let end = UnixTime::from_millis(u64::MAX);
    let last = Hlc::new(end, COUNTER_MAX, NodeId::new("c").unwrap());
    assert!(clock.receive(end, last.borrowed()).is_err());
    assert_eq!(clock.tick(end).unwrap().counter(), 0);
    let nearly = Hlc::new(end, COUNTER_MAX - 1, NodeId::new("c").unwrap());
    assert_eq!(clock.receive(end, nearly.borrowed()).unwrap().counter(), COUNTER_MAX);
    assert!(clock.tick(end).is_err(), "every value is used up");
}

#[test]
fn drift_limit_is_rounded_up_to_milliseconds() {
    let mut clock = clock("n").with_drift_max(Duration::from_micros(1_001));
    let other = |wall| Hlc::new(UnixTime::from_millis(wall), 0, NodeId::new("c").unwrap());
    assert!(clock.receive(UnixTime::from_millis(10), other(13).borrowed()).is_err());
    assert!(clock.receive(UnixTime::from_millis(10), other(12).borrowed()).is_ok());
}
