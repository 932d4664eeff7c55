//! Pauses after failures.

use core::time::Duration;

/// Doubling pauses, each cut by up to a half so that contenders do not stay in step.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// The dice: equal seeds, equal pauses.
    state: u64,
}

impl Backoff {
    pub(super) const fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, next: first, state: seed }
    }

    /// The next failure is the first again.
    pub(super) const fn reset(&mut self) {
        self.next = self.first;
    }

    /// How long to pause now.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        let half = u64::try_from(pause.as_millis() / 2).unwrap_or(u64::MAX);
        let cut = self.roll() % half.saturating_add(1);
        pause.saturating_sub(Duration::from_millis(cut))
    }

    /// One number of the `SplitMix64` sequence: one addition, three mixing steps.
    const fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = self.state;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
