//! Wall clocks that are wrong.

use statestore_proto::time::{Instant, UnixTime};

/// When a world begins, by a wall clock that is right.
const EPOCH: u64 = 1_696_374_425_000;

/// How far the wall clock of a node is from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Ahead by so many milliseconds, or behind.
    pub offset_ms: i64,
    /// Gains so many milliseconds in a million, or loses.
    pub drift_ppm: i64,
}

impl Clock {
    /// What this clock shows.
    #[must_use]
    pub fn read(&self, now: Instant) -> UnixTime {
        let elapsed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let error =
            self.offset_ms.saturating_add(elapsed.saturating_mul(self.drift_ppm) / 1_000_000);
        UnixTime::from_millis((EPOCH + now.as_millis()).saturating_add_signed(error))
    }
}
