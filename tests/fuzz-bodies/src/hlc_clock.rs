//! The clock under any sequence of ticks, messages and jumps of the wall clock.

use core::time::Duration;

use statestore_proto::hlc::{HlcRef, HybridClock, NodeId, NodeIdRef};
use statestore_proto::time::UnixTime;

use super::clock::{Clock, DRIFT_MAX, Drift, stamp};

/// Oracle: a naive clock with 128-bit numbers predicts every value and every refusal. Issued values
/// strictly grow, exceed received values, and stay within the drift limit. A refusal changes
/// nothing.
///
/// Input: text with one operation per line. The first byte of a line selects the operation, so a
/// committed input keeps its meaning when operations are added:
///
/// | Line | Operation |
/// |---|---|
/// | `t` | tick |
/// | `r1696374425000:5` | receive that wall and counter |
/// | `=1696374425000` | set the wall clock |
/// | `+5`, `-5` | move the wall clock by milliseconds |
/// | `d500` | set the drift bound, in microseconds |
///
/// Other lines are skipped. A missing number is zero, and numbers saturate at 64 bits.
pub fn hlc_clock(data: &[u8]) {
    let mut run = Run {
        clock: HybridClock::new(NodeId::new("node").expect("a node id")),
        model: Clock::new("node", DRIFT_MAX),
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
    model: Clock,
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
                self.model.drift_max = first.div_ceil(1000);
                self.clock = self.clock.clone().with_drift_max(Duration::from_micros(first));
            }
            _ => {}
        }
    }

    fn issue(&mut self, received: Option<(u64, u64)>) {
        let (before, now) = (self.clock.last().to_string(), UnixTime::from_millis(self.now));
        let last = self.clock.last().clone();
        // Even the greatest node id does not put the received value ahead of the issued one.
        let node = NodeIdRef::new("\u{10ffff}").expect("a node id");
        let other =
            received.map(|(wall, counter)| HlcRef::new(UnixTime::from_millis(wall), counter, node));
        let (outcome, expected) = match other {
            None => (self.clock.tick(now), self.model.tick(self.now)),
            Some(other) => {
                (self.clock.receive(now, other), self.model.receive(self.now, &stamp(&other)))
            }
        };
        match (&outcome, expected) {
            (Ok(issued), Ok(expected)) => {
                assert_eq!(stamp(issued), expected, "now {}, after {before}", self.now);
                assert!(*issued > last, "{issued} after {before}");
                assert!(other.is_none_or(|other| *issued > other), "{issued} after a message");
                assert_eq!(self.clock.last(), issued);
            }
            (Err(error), Err(Drift(ahead))) => {
                assert_eq!(error.ahead.as_millis(), ahead);
                assert_eq!(self.clock.last().to_string(), before, "a refusal changes nothing");
            }
            (_, expected) => {
                panic!("{outcome:?} instead of {expected:?}, after {before}")
            }
        }
    }
}

/// The value of all digits in `text`; other bytes are skipped.
fn saturating(text: &[u8]) -> u64 {
    text.iter().filter(|byte| byte.is_ascii_digit()).fold(0, |number: u64, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturating_reads_all_digits_and_saturates() {
        assert_eq!(
            (saturating(b""), saturating(b"x1y2"), saturating(&[b'9'; 30])),
            (0, 12, u64::MAX)
        );
    }
}
