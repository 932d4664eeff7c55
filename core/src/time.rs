//! Time as an argument: plain integers, so that callers need no `std` and no conversion reads a
//! clock.

use core::time::Duration;

/// A reading of a monotonic clock, in milliseconds since an origin that the caller chooses.
///
/// Only readings of the same clock can be compared. Deadlines are of this type.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::time::Instant;
///
/// let start = Instant::from_millis(5);
/// assert_eq!(start + Duration::from_micros(1500), Instant::from_millis(7)); // rounded up
/// assert_eq!(Instant::from_millis(9).duration_since(start), Duration::from_millis(4));
/// assert_eq!(start.duration_since(Instant::from_millis(9)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A reading of the wall clock, in milliseconds since the Unix epoch. The clock may step in either
/// direction.
///
/// ```
/// use statestore_proto::time::UnixTime;
///
/// assert_eq!(UnixTime::from_millis(1_696_374_425_000).as_millis(), 1_696_374_425_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

/// A reading of both clocks, taken by the driver of a machine right before a call.
///
/// ```
/// use std::time::SystemTime;
/// use statestore_proto::time::{Instant, Now, UnixTime};
///
/// /// Reads the clocks. `origin` is the same for all calls on a machine.
/// fn now(origin: std::time::Instant) -> Now {
///     let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
///     Now::new(Instant::from_origin(origin.elapsed()), UnixTime::from_epoch(unix))
/// }
///
/// assert!(now(std::time::Instant::now()).unix > UnixTime::from_millis(1_696_374_425_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub instant: Instant,
    /// For versions.
    pub unix: UnixTime,
}

impl Now {
    /// Combines the two readings.
    #[must_use]
    pub const fn new(instant: Instant, unix: UnixTime) -> Self {
        Self { instant, unix }
    }
}

impl Instant {
    /// Creates a reading from the time since the origin, rounded down to whole milliseconds and at
    /// most the greatest value.
    ///
    /// ```
    /// use core::time::Duration;
    /// use statestore_proto::time::Instant;
    ///
    /// assert_eq!(Instant::from_origin(Duration::from_micros(7_900)), Instant::from_millis(7));
    /// assert_eq!(Instant::from_origin(Duration::MAX), Instant::from_millis(u64::MAX));
    /// ```
    #[must_use]
    pub fn from_origin(elapsed: Duration) -> Self {
        Self(floor_millis(elapsed))
    }
}

impl UnixTime {
    /// Creates a reading from the time since the Unix epoch, rounded down to whole milliseconds and
    /// at most the greatest value.
    ///
    /// ```
    /// use core::time::Duration;
    /// use statestore_proto::time::UnixTime;
    ///
    /// assert_eq!(UnixTime::from_epoch(Duration::from_micros(7_900)), UnixTime::from_millis(7));
    /// assert_eq!(UnixTime::from_epoch(Duration::MAX), UnixTime::from_millis(u64::MAX));
    /// ```
    #[must_use]
    pub fn from_epoch(elapsed: Duration) -> Self {
        Self(floor_millis(elapsed))
    }
}

macro_rules! milliseconds {
    ($name:ident) => {
        impl $name {
            /// Creates a reading from whole milliseconds.
            #[must_use]
            pub const fn from_millis(millis: u64) -> Self {
                Self(millis)
            }

            /// The reading in whole milliseconds.
            #[must_use]
            pub const fn as_millis(self) -> u64 {
                self.0
            }

            /// Time from `earlier` to `self`; zero if `earlier` is later.
            #[must_use]
            pub const fn duration_since(self, earlier: Self) -> Duration {
                Duration::from_millis(self.0.saturating_sub(earlier.0))
            }
        }

        impl core::ops::Add<Duration> for $name {
            type Output = Self;

            /// Rounds up to whole milliseconds and saturates at the greatest value.
            fn add(self, rhs: Duration) -> Self {
                Self(self.0.saturating_add(whole_millis(rhs)))
            }
        }
    };
}

milliseconds!(Instant);
milliseconds!(UnixTime);

/// `duration` in milliseconds, rounded down, at most `u64::MAX`.
fn floor_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `duration` in milliseconds, rounded up, at most `u64::MAX`.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// `duration` rounded up to whole milliseconds.
#[cfg(feature = "machines")]
pub(crate) fn round_up(duration: Duration) -> Duration {
    Duration::from_millis(whole_millis(duration))
}
