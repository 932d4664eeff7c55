//! Histogram of durations.

use std::time::Duration;

/// A histogram of durations with fixed buckets.
///
/// ```
/// use std::time::Duration;
/// use statestore_tokio::Histogram;
///
/// let mut histogram = Histogram::default();
/// histogram.record(Duration::from_millis(3));
/// let within_5_ms = histogram.buckets().find(|(bound, _)| *bound == Duration::from_millis(5));
/// assert_eq!(within_5_ms, Some((Duration::from_millis(5), 1)));
/// assert_eq!((histogram.count(), histogram.sum()), (1, Duration::from_millis(3)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// One count per bucket; the last one is for durations longer than every bound.
    counts: [u64; Self::BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// The inclusive upper bounds of the buckets, from 100 µs, as for a response from memory, to 10
    /// s.
    pub const BOUNDS: [Duration; 16] = [
        Duration::from_micros(100),
        Duration::from_micros(250),
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_micros(2_500),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2_500),
        Duration::from_secs(5),
        Duration::from_secs(10),
    ];

    /// Counts a duration.
    pub fn record(&mut self, took: Duration) {
        let at = Self::BOUNDS.partition_point(|bound| *bound < took);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(took);
    }

    /// Each bound, and the number of durations up to that bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        Self::BOUNDS.into_iter().zip(self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all durations.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }
}
