//! Growing pauses between tries to connect, with jitter so that many clients do not come back at once.

use std::time::Duration;

/// How long to wait between tries.
///
/// The pause doubles from `first` to `longest`; each is shortened by a random part of up to a half. A connection that
/// lasted for longer than `longest` starts it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(10) }
    }
}

/// The pauses of one link.
#[derive(Debug)]
pub(crate) struct Pauses {
    backoff: Backoff,
    failures: u32,
    rng: fastrand::Rng,
}

impl Pauses {
    pub(crate) const fn new(backoff: Backoff, rng: fastrand::Rng) -> Self {
        Self { backoff, failures: 0, rng }
    }

    /// Before the next try: nothing at first.
    pub(crate) fn next(&mut self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let full = self.backoff.first.saturating_mul(factor).min(self.backoff.longest);
        full.mul_f64(1.0 - self.rng.f64() / 2.0)
    }

    /// The longest pause.
    pub(crate) const fn longest(&self) -> Duration {
        self.backoff.longest
    }

    pub(crate) const fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) const fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let backoff =
            Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
        let mut pauses = Pauses::new(backoff, fastrand::Rng::with_seed(1));
        assert_eq!(pauses.next(), Duration::ZERO);
        for full in [100, 200, 400, 800, 1_000, 1_000] {
            pauses.failed();
            let pause = pauses.next();
            assert!(
                pause <= Duration::from_millis(full) && pause >= Duration::from_millis(full / 2),
                "{pause:?}"
            );
        }
        pauses.failures = u32::MAX;
        assert!(pauses.next() <= backoff.longest);
        pauses.succeeded();
        assert_eq!(pauses.next(), Duration::ZERO);
    }
}
