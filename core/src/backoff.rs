//! Growing pauses after failures.

use core::time::Duration;

/// Pauses that double with each failure, each shortened by up to a half so that clients that failed
/// together do not retry together.
///
/// Equal seeds give equal pauses; draw the seed at random.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::backoff::Backoff;
///
/// let millis = Duration::from_millis;
/// let mut backoff = Backoff::new(millis(100), millis(1_000), 7);
/// for longest in [100, 200, 400, 800, 1_000, 1_000] {
///     let pause = backoff.next_pause();
///     assert!(millis(longest / 2) <= pause && pause <= millis(longest));
/// }
/// backoff.reset();
/// assert!(backoff.next_pause() <= millis(100));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    random: u64,
}

impl Backoff {
    /// Starts with a pause of up to `first`; no pause is longer than `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, next: first, random: seed }
    }

    /// Returns the pause after a failure.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2).min(self.longest);
        let half = u64::try_from(pause.as_millis() / 2).unwrap_or(u64::MAX);
        let cut = self.next_random() % half.saturating_add(1);
        pause.saturating_sub(Duration::from_millis(cut))
    }

    /// Starts again with the first pause, after a success.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }

    /// The greatest length of a pause.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// The next number of the `SplitMix64` sequence.
    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = self.random;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
