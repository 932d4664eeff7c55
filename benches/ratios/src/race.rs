//! The stopwatch: contestants take turns in short batches, and each is judged by the median of its own.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How long one batch takes: long against reading the clock, short against a disturbance.
    batch: Duration,
    /// How often each contestant gets its turn.
    rounds: u32,
}

impl Effort {
    /// For figures: some 30 ms for each contestant.
    pub const FULL: Self = Self { batch: Duration::from_micros(60), rounds: 501 };
    /// For tests, which want to know that everything runs and not how fast.
    pub const TEST: Self = Self { batch: Duration::ZERO, rounds: 1 };
}

impl Effort {
    /// Whether nothing is to be learnt from the figures.
    #[must_use]
    pub const fn is_rehearsal(&self) -> bool {
        self.rounds == 1
    }
}

/// One of those compared: a name and a piece of work.
pub struct Contestant<'a> {
    /// Its name in the report.
    pub name: &'static str,
    // Runs the work this many times. The loop is inside, so that nothing but the work is called indirectly.
    batch: Box<dyn FnMut(u32) -> Duration + 'a>,
}

impl<'a> Contestant<'a> {
    /// `work` is what is timed, dropping its result included. Its inputs belong into [`black_box`].
    pub fn new<T>(name: &'static str, mut work: impl FnMut() -> T + 'a) -> Self {
        // By reference: the result is complete in memory, and no side pays for moving it once more.
        Self { name, batch: Box::new(move |times| timed(times, || _ = black_box(&work()))) }
    }

    /// The same for payloads, each of which is dropped one turn later.
    ///
    /// A payload is sent before it is freed. An allocator that reads a block which it is given back (glibc looks for
    /// its own mark there) would otherwise wait for the bytes just written, a wait that no program has outside of such
    /// a loop and that takes longer than writing a short message.
    pub fn sender(name: &'static str, mut work: impl FnMut() -> Vec<u8> + 'a) -> Self {
        let mut sent = Vec::new();
        Self { name, batch: Box::new(move |times| timed(times, || sent = black_box(work()))) }
    }
}

/// Nanoseconds of each contestant's work: one figure for each round, in the order of the contestants.
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

/// Frees one great block. From then on glibc keeps what is freed instead of returning the end of its heap to the system;
/// whether a contestant's blocks lie at that end, and cost a system call each, would be chance.
fn settle_allocator() {
    drop(black_box(vec![0_u8; 16 << 20]));
}

/// How many times fill one batch. Warms up on the way.
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

/// Does `work` once, and says how long it took.
pub fn stopwatch<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let lap = Lap::start();
    let result = work();
    (result, lap.time())
}

/// Time since a moment.
#[derive(Clone, Copy, Debug)]
pub struct Lap(Instant);

#[expect(clippy::disallowed_methods, reason = "a stopwatch reads a clock")]
impl Lap {
    /// Begins now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long ago that was.
    #[must_use]
    pub fn time(self) -> Duration {
        Instant::now().duration_since(self.0)
    }
}

/// The middle one, which a disturbed batch does not move; zero when there are none.
#[must_use]
pub fn median(samples: Vec<f64>) -> f64 {
    percentile(samples, 50)
}

/// What so many of a hundred are at most; zero when there are none.
#[must_use]
pub fn percentile(mut samples: Vec<f64>, percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * percent / 100).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_outliers() {
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
