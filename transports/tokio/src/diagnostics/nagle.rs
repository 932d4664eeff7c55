//! Detects that a broker delays small packets by Nagle's algorithm.

use std::ops::Range;
use std::time::Duration;

/// Advice for a broker for which [`is_delay`] returns true.
pub const REMEDY: &str = "disable Nagle's algorithm in the broker; in mosquitto's configuration, set \
                          `set_tcp_nodelay true`";

/// Number of requests that are evaluated together.
const WINDOW: usize = 16;

/// Returns whether this median duration of sequential requests suggests Nagle's algorithm.
///
/// A broker without `TCP_NODELAY` withholds a small packet until the previous one is acknowledged,
/// and the receiver delays that acknowledgement by 40 ms. Two such delays take about 88 ms.
#[must_use]
pub fn is_delay(median: Duration) -> bool {
    (Duration::from_millis(35)..Duration::from_millis(100)).contains(&median)
}

/// Durations of requests with one and with two such delays, in milliseconds. On a busy machine,
/// requests can take as long, but their durations are spread.
const DELAYED: [Range<u128>; 2] = [38..54, 78..100];

/// Durations of the latest sequential requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    times: [Duration; WINDOW],
    seen: usize,
    warned: bool,
}

impl Latency {
    /// Records the duration of a request that was alone on its connection. Returns whether to warn;
    /// true once.
    pub(crate) fn record(&mut self, took: Duration) -> bool {
        let Some(slot) = self.times.get_mut(self.seen).filter(|_| !self.warned) else {
            return false;
        };
        *slot = took;
        self.seen = (self.seen + 1) % WINDOW;
        if self.seen == 0 {
            let is_delayed =
                |time: &&Duration| DELAYED.iter().any(|range| range.contains(&time.as_millis()));
            self.warned = self.times.iter().filter(is_delayed).count() > WINDOW / 2;
        }
        self.warned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(times: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let mut latency = Latency::default();
        let warns = |(at, millis)| latency.record(Duration::from_millis(millis)).then_some(at);
        times.into_iter().enumerate().filter_map(warns).collect()
    }

    #[test]
    fn delayed_median_warns_once() {
        assert_eq!(warnings([44; 100]), [WINDOW - 1]);
        assert_eq!(warnings([88; 100]), [WINDOW - 1]);
        // Fewer than half are fast.
        let mixed = (0..32).map(|at| if at % 3 == 0 { 1 } else { 44 });
        assert_eq!(warnings(mixed), [WINDOW - 1]);
    }

    #[test]
    fn spread_durations_of_a_busy_machine_do_not_warn() {
        // Their median is that of delayed requests.
        assert!(warnings((0..64).map(|at| 20 + 5 * (at % 16))).is_empty());
    }

    #[test]
    fn other_medians_do_not_warn() {
        for millis in [0, 1, 34, 100, 500] {
            assert!(warnings([millis; 100]).is_empty(), "{millis} ms");
        }
        assert!(warnings([44; WINDOW - 1]).is_empty(), "too few");
        assert!(warnings((0..64).map(|at| if at % 3 == 0 { 44 } else { 1 })).is_empty());
        assert!(warnings((0..64).map(|at| if at % 2 == 0 { 1 } else { 500 })).is_empty());
    }

    #[test]
    fn windows_do_not_overlap() {
        let later = [1; WINDOW].into_iter().chain([44; WINDOW]);
        assert_eq!(warnings(later), [2 * WINDOW - 1]);
    }
}
