//! Wall clocks with errors.

use statestore_proto::time::{Instant, UnixTime};

/// Correct wall-clock time at the start of a world.
const EPOCH: u64 = 1_696_374_425_000;

/// Error of the wall clock of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Offset in milliseconds; positive if the clock is ahead.
    pub offset_ms: i64,
    /// Drift in parts per million; positive if the clock is fast.
    pub drift_ppm: i64,
}

impl Clock {
    /// Returns the time of this clock.
    #[must_use]
    pub fn read(&self, now: Instant) -> UnixTime {
        let elapsed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let error =
            self.offset_ms.saturating_add(elapsed.saturating_mul(self.drift_ppm) / 1_000_000);
        UnixTime::from_millis((EPOCH + now.as_millis()).saturating_add_signed(error))
    }
}
