//! Whether single requests take as long as a broker that waits for acknowledgements before it sends.

use std::time::Duration;

/// What to do when [`is_delay`].
pub const REMEDY: &str =
    "let the broker send at once; for mosquitto, write `set_tcp_nodelay true` into its file";

/// Requests that are judged together.
const WINDOW: usize = 16;

/// Whether requests made one at a time that take so long at the median do so because of Nagle's algorithm.
///
/// A broker without `TCP_NODELAY` holds a small packet back until the one before is acknowledged, which the other side
/// delays by 40 ms; two such waits are 88 ms.
#[must_use]
pub fn is_delay(median: Duration) -> bool {
    (Duration::from_millis(35)..Duration::from_millis(100)).contains(&median)
}

/// How long the latest single requests of one connection took.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    times: [Duration; WINDOW],
    seen: usize,
    warned: bool,
}

impl Latency {
    /// Records how long a request took that was alone on its connection. Returns whether to warn, which is once.
    pub(crate) fn note(&mut self, took: Duration) -> bool {
        let Some(slot) = self.times.get_mut(self.seen).filter(|_| !self.warned) else {
            return false;
        };
        *slot = took;
        self.seen = (self.seen + 1) % WINDOW;
        if self.seen == 0 {
            self.times.sort_unstable();
            self.warned = is_delay(self.times[WINDOW / 2]);
        }
        self.warned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(times: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let mut latency = Latency::default();
        let warns = |(at, millis)| latency.note(Duration::from_millis(millis)).then_some(at);
        times.into_iter().enumerate().filter_map(warns).collect()
    }

    #[test]
    fn a_delay_at_the_median_is_told_once() {
        assert_eq!(warnings([44; 100]), [WINDOW - 1]);
        assert_eq!(warnings([88; 100]), [WINDOW - 1]);
        // Fewer than half are something else.
        let mixed = (0..32).map(|at| if at % 3 == 0 { 1 } else { 44 });
        assert_eq!(warnings(mixed), [WINDOW - 1]);
    }

    #[test]
    fn other_times_are_not() {
        for millis in [0, 1, 34, 100, 500] {
            assert_eq!(warnings([millis; 100]), [], "{millis} ms");
        }
        assert_eq!(warnings([44; WINDOW - 1]), [], "too few");
        assert_eq!(warnings((0..64).map(|at| if at % 3 == 0 { 44 } else { 1 })), []);
        assert_eq!(warnings((0..64).map(|at| if at % 2 == 0 { 1 } else { 500 })), []);
    }

    #[test]
    fn the_windows_follow_each_other() {
        let later = [1; WINDOW].into_iter().chain([44; WINDOW]);
        assert_eq!(warnings(later), [2 * WINDOW - 1]);
    }
}
