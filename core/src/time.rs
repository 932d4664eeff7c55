//! Time as an argument: integers of our own, so that no caller needs `std` and no clock hides in a conversion.

use core::time::Duration;

/// A reading of a monotonic clock in milliseconds since an origin that the caller chose.
///
/// Only readings of the same clock may be compared. Deadlines are made of these.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::time::Instant;
///
/// let start = Instant::from_millis(5);
/// assert_eq!(start + Duration::from_micros(1500), Instant::from_millis(7)); // never earlier than asked
/// assert_eq!(start.duration_since(Instant::from_millis(9)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A reading of the wall clock in milliseconds since the Unix epoch. It may step in either direction.
///
/// ```
/// use statestore_proto::time::UnixTime;
///
/// assert_eq!(UnixTime::from_millis(1_696_374_425_000).as_millis(), 1_696_374_425_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

/// Both clocks, read once by whoever drives a machine.
///
/// ```
/// use statestore_proto::time::{Instant, Now, UnixTime};
///
/// let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(1_696_374_425_000));
/// assert_eq!(now.unix.as_millis(), 1_696_374_425_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub instant: Instant,
    /// For versions.
    pub unix: UnixTime,
}

impl Now {
    /// Pairs the two readings.
    #[must_use]
    pub const fn new(instant: Instant, unix: UnixTime) -> Self {
        Self { instant, unix }
    }
}

macro_rules! milliseconds {
    ($name:ident) => {
        impl $name {
            /// From whole milliseconds.
            #[must_use]
            pub const fn from_millis(millis: u64) -> Self {
                Self(millis)
            }

            /// As whole milliseconds.
            #[must_use]
            pub const fn as_millis(self) -> u64 {
                self.0
            }

            /// How much later `self` is than `earlier`; zero when it is not later.
            #[must_use]
            pub const fn duration_since(self, earlier: Self) -> Duration {
                Duration::from_millis(self.0.saturating_sub(earlier.0))
            }
        }

        impl core::ops::Add<Duration> for $name {
            type Output = Self;

            /// Rounds a fraction of a millisecond up and stops at the greatest value instead of wrapping.
            fn add(self, rhs: Duration) -> Self {
                Self(self.0.saturating_add(whole_millis(rhs)))
            }
        }
    };
}

milliseconds!(Instant);
milliseconds!(UnixTime);

/// `duration` in milliseconds, a fraction rounded up, at most `u64::MAX`.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
