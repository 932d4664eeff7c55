//! The clock: what it issues under any sequence of ticks, messages and jumps of the wall clock.
//!
//! An input is text, one operation a line, and the first byte of the line says which, so that a committed input keeps
//! its meaning when operations are added:
//!
//! | Line | Operation |
//! |---|---|
//! | `t` | tick |
//! | `r1696374425000:5` | receive that wall and counter |
//! | `=1696374425000` | set the wall clock |
//! | `+5`, `-5` | move the wall clock by milliseconds |
//! | `d500` | set the drift bound, in microseconds |
//!
//! Other lines are skipped, a missing number is zero, and numbers stop at the greatest of 64 bits.

use core::time::Duration;

use statestore_proto::hlc::{Hlc, HlcRef, HybridClock, NodeId, NodeIdRef};
use statestore_proto::time::UnixTime;

/// The greatest counter that may be issued: the limit of a deployed parser of signed 32 bits.
const COUNTER_LIMIT: u128 = 2_147_483_647;

/// Oracle: the four cases of the receive rule, written out in 128 bits, predict every value and every refusal; issued
/// values strictly grow, exceed what was received, stay within the drift bound, and a refusal changes nothing.
pub fn hlc_clock(data: &[u8]) {
    let mut run = Run {
        clock: HybridClock::new(NodeId::new("node").expect("a node id")),
        model: Model { own: (0, 0), drift_us: 60_000_000 },
        now: 0,
    };
    for line in data.split(|byte| *byte == b'\n') {
        if let Some((tag, operand)) = line.split_first() {
            run.step(*tag, operand);
        }
    }
}

struct Run {
    clock: HybridClock,
    model: Model,
    now: u64,
}

impl Run {
    fn step(&mut self, tag: u8, operand: &[u8]) {
        let mut numbers = operand.split(|byte| *byte == b':').map(saturating);
        let first = numbers.next().unwrap_or(0);
        match tag {
            b't' => self.issue(None),
            b'r' => self.issue(Some((first, numbers.next().unwrap_or(0)))),
            b'=' => self.now = first,
            b'+' => self.now = self.now.saturating_add(first),
            b'-' => self.now = self.now.saturating_sub(first),
            b'd' => {
                self.model.drift_us = u128::from(first);
                self.clock = self.clock.clone().with_drift_max(Duration::from_micros(first));
            }
            _ => {}
        }
    }

    fn issue(&mut self, received: Option<(u64, u64)>) {
        let (before, now) = (self.clock.last().to_string(), UnixTime::from_millis(self.now));
        let last = self.clock.last().to_owned().expect("short enough");
        let other = received.map(|(wall, counter)| {
            // The greatest node id of all does not help a received value to stay ahead.
            let node = NodeIdRef::new("\u{10ffff}").expect("a node id");
            HlcRef::new(UnixTime::from_millis(wall), counter, node)
        });
        let outcome = match other {
            None => self.clock.tick(now),
            Some(other) => self.clock.receive(now, other),
        };
        match (&outcome, self.model.issue(u128::from(self.now), received)) {
            (Ok(issued), Ok(expected)) => {
                assert_eq!(position(issued), expected, "now {}, after {before}", self.now);
                assert!(*issued > last, "{issued} after {before}");
                assert!(other.is_none_or(|other| *issued > other), "{issued} after a message");
                assert_eq!(self.clock.last(), *issued);
            }
            (Err(error), Err(ahead)) => {
                assert_eq!(error.ahead.as_millis(), ahead);
                assert_eq!(self.clock.last().to_string(), before, "a refusal changes nothing");
            }
            (_, expected) => {
                panic!("{outcome:?} where the rule gives {expected:?}, after {before}")
            }
        }
    }
}

/// Wall and counter of the last value issued.
struct Model {
    own: (u128, u128),
    drift_us: u128,
}

impl Model {
    /// The next position, or by how many milliseconds it would be ahead when that is too much.
    fn issue(&mut self, now: u128, other: Option<(u64, u64)>) -> Result<(u128, u128), u128> {
        let own = self.own;
        let (mut wall, mut counter) = match other.map(|(w, c)| (u128::from(w), u128::from(c))) {
            None if now > own.0 => (now, 0),
            None => (own.0, own.1 + 1),
            Some(other) if now > own.0 && now > other.0 => (now, 0),
            Some(other) if own.0 == other.0 => (own.0, own.1.max(other.1) + 1),
            Some(other) if own.0 > other.0 => (own.0, own.1 + 1),
            Some(other) => (other.0, other.1 + 1),
        };
        if counter > COUNTER_LIMIT {
            (wall, counter) = (wall + 1, 0);
        }
        if wall > u128::from(u64::MAX) {
            // Past the end of time is as far ahead as can be said.
            return Err(u128::from(u64::MAX));
        }
        if wall.saturating_sub(now) > self.drift_us.div_ceil(1000) {
            return Err(wall.saturating_sub(now));
        }
        self.own = (wall, counter);
        Ok(self.own)
    }
}

fn position(hlc: &Hlc) -> (u128, u128) {
    (u128::from(hlc.wall().as_millis()), u128::from(hlc.counter()))
}

/// The digits of `text`, whatever stands between them.
fn saturating(text: &[u8]) -> u64 {
    text.iter().filter(|byte| byte.is_ascii_digit()).fold(0, |number: u64, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naive_rule() {
        let mut model = Model { own: (0, 0), drift_us: 60_000_000 };
        assert_eq!(model.issue(1000, None), Ok((1000, 0)), "the wall clock leads");
        assert_eq!(model.issue(1000, None), Ok((1000, 1)), "it stands still");
        assert_eq!(model.issue(1000, Some((1000, 7))), Ok((1000, 8)), "equal in wall");
        assert_eq!(model.issue(900, Some((950, 9))), Ok((1000, 9)), "own ahead");
        assert_eq!(model.issue(900, Some((60_900, 3))), Ok((60_900, 4)), "the other ahead, just");
        assert_eq!(model.issue(900, Some((60_901, 3))), Err(60_001), "too far ahead");
        assert_eq!(model.issue(900, Some((60_899, u64::MAX))), Ok((60_900, 5)), "own ahead");
        assert_eq!(model.issue(99_999, Some((99_999, u64::MAX))), Ok((100_000, 0)), "used up");
    }

    #[test]
    fn numbers_of_operations() {
        assert_eq!(
            (saturating(b""), saturating(b"x1y2"), saturating(&[b'9'; 30])),
            (0, 12, u64::MAX)
        );
    }
}
