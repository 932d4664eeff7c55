//! Time measurement: contestants take turns in short batches.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Amount of measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Duration of one batch: long compared with reading the clock, short compared with a
    /// disturbance.
    batch: Duration,
    /// Number of turns of each contestant.
    rounds: u32,
}

impl Effort {
    /// For results: about 30 ms for each contestant.
    pub const FULL: Self = Self { batch: Duration::from_micros(60), rounds: 501 };
    /// For tests: each contestant runs, and its time is meaningless.
    pub const TEST: Self = Self { batch: Duration::ZERO, rounds: 1 };

    /// Returns whether this is [`TEST`](Self::TEST).
    #[must_use]
    pub const fn is_test(&self) -> bool {
        self.rounds == 1
    }
}

/// One side of a comparison: a name and a piece of work.
pub struct Contestant<'a> {
    /// Name in the report.
    pub name: &'static str,
    // Repeats the work. The loop is inside, so the indirect call happens once per batch.
    batch: Box<dyn FnMut(u32) -> Duration + 'a>,
}

impl<'a> Contestant<'a> {
    /// Creates a contestant. The measured time includes dropping the result of `work`. Pass the
    /// inputs through [`black_box`].
    pub fn new<T>(name: &'static str, mut work: impl FnMut() -> T + 'a) -> Self {
        // By reference, so the result is written to memory once and not moved again.
        Self { name, batch: Box::new(move |times| timed(times, || _ = black_box(&work()))) }
    }

    /// Creates a contestant that returns payloads. Each payload is dropped after the next one was
    /// created.
    ///
    /// In a program, a payload is sent before it is freed. If it were freed at once, glibc would
    /// read a mark in the block and wait for the bytes just written. This takes longer than the
    /// encoding of a short message.
    pub fn sender(name: &'static str, mut work: impl FnMut() -> Vec<u8> + 'a) -> Self {
        let mut sent = Vec::new();
        Self { name, batch: Box::new(move |times| timed(times, || sent = black_box(work()))) }
    }
}

/// Returns the nanoseconds of one call of each contestant, for each round.
#[must_use]
pub fn race(contestants: &mut [Contestant<'_>], effort: Effort) -> Vec<Vec<f64>> {
    settle_allocator();
    let times: Vec<u32> = contestants.iter_mut().map(|one| calibrate(one, effort.batch)).collect();
    let mut samples = vec![Vec::new(); contestants.len()];
    for _ in 0..effort.rounds {
        for ((one, times), samples) in contestants.iter_mut().zip(&times).zip(&mut samples) {
            let spent = (one.batch)(*times);
            samples.push(spent.as_secs_f64() * 1e9 / f64::from(*times));
        }
    }
    samples
}

/// Frees one large block. Afterwards glibc does not return the end of its heap to the system.
/// Otherwise contestants whose blocks happen to be at the end would need a system call for each.
fn settle_allocator() {
    drop(black_box(vec![0_u8; 16 << 20]));
}

/// Returns the number of calls that fill one batch. This also warms up the contestant.
fn calibrate(one: &mut Contestant<'_>, batch: Duration) -> u32 {
    let mut times = 1;
    while (one.batch)(times) < batch && times < u32::MAX / 2 {
        times *= 2;
    }
    times
}

fn timed(times: u32, mut work: impl FnMut()) -> Duration {
    let all = || {
        for _ in 0..times {
            work();
        }
    };
    stopwatch(all).1
}

/// Runs `work` once. Returns its result and duration.
pub fn stopwatch<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let lap = Lap::start();
    let result = work();
    (result, lap.time())
}

/// Start of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Lap(Instant);

#[expect(clippy::disallowed_methods, reason = "a stopwatch reads a clock")]
impl Lap {
    /// Starts a measurement.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn time(self) -> Duration {
        Instant::now().duration_since(self.0)
    }
}

/// Returns the median, which single disturbed batches do not change. Zero without samples.
#[must_use]
pub fn median(samples: Vec<f64>) -> f64 {
    percentile(samples, 50)
}

/// Returns a percentile. Zero without samples.
#[must_use]
pub fn percentile(mut samples: Vec<f64>, percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * percent / 100).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_outliers() {
        assert_eq!(median(vec![3.0, 1e9, 1.0, 2.0, 2.5]).to_bits(), 2.5_f64.to_bits());
        assert_eq!(median(Vec::new()).to_bits(), 0.0_f64.to_bits());
        let hundred: Vec<f64> = (0..100_u8).map(f64::from).collect();
        assert_eq!(percentile(hundred, 99).to_bits(), 99.0_f64.to_bits());
    }

    #[test]
    fn contestants_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let mut both =
            ["a", "b"].map(|name| Contestant::new(name, || order.borrow_mut().push_str(name)));
        let effort = Effort { rounds: 3, ..Effort::TEST };
        assert_eq!(race(&mut both, effort).len(), 2);
        drop(both);
        assert_eq!(order.into_inner(), "abababab", "one turn to warm up and three that count");
    }
}
