//! The clock that issues values.

use core::time::Duration;

use super::{Hlc, HlcRef, Node, NodeId};
use crate::limits::{CLOCK_DRIFT_MAX, COUNTER_MAX};
use crate::time::{UnixTime, whole_millis};

/// The next value would be further ahead of the wall clock than allowed.
///
/// The clock is unchanged and usable. It issues values again when the wall clock has caught up, or
/// for a received value that is less far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the clock would be {} ms ahead of the wall clock, {} ms allowed",
    .ahead.as_millis(), .allowed.as_millis()
)]
pub struct ClockDriftError {
    /// Distance of the next value from the wall clock.
    pub ahead: Duration,
    /// Maximum distance.
    pub allowed: Duration,
}

/// A clock whose values increase strictly.
///
/// * If the wall clock steps forward by any amount, the next value follows it at once.
/// * If it steps back by at most the allowed drift, the clock increments the counter of the last
///   value.
/// * If it steps back further, [`tick`](Self::tick) and [`receive`](Self::receive) fail until the
///   wall clock has caught up to within the drift, or [`restart_if_ahead`](Self::restart_if_ahead)
///   is called.
///
/// ```
/// use statestore_proto::hlc::{HlcRef, HybridClock, NodeId};
/// use statestore_proto::time::UnixTime;
///
/// let mut store = HybridClock::new(NodeId::new("StateStore")?);
/// let now = UnixTime::from_millis(1_696_374_425_000);
/// let version = store.receive(now, HlcRef::parse("1696374425000:0:CLIENT")?)?;
/// assert_eq!(version.to_string(), "1696374425000:1:StateStore");
/// assert_eq!(store.tick(now)?.to_string(), "1696374425000:2:StateStore");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HybridClock<N: Node = NodeId> {
    /// The greatest value issued or passed to [`advance_past`](Self::advance_past), or zero.
    last: Hlc<N>,
    drift_max: Duration,
}

impl<N: Node + Clone> HybridClock<N> {
    /// Creates a clock with the protocol's drift limit of one minute.
    #[must_use]
    pub const fn new(node: N) -> Self {
        let last = Hlc { wall: 0, counter: 0, node };
        Self { last, drift_max: CLOCK_DRIFT_MAX }
    }

    /// Sets the drift limit, rounded up to whole milliseconds.
    #[must_use]
    pub fn with_drift_max(mut self, drift_max: Duration) -> Self {
        self.drift_max = drift_max;
        self
    }

    /// Issues a value for a local event.
    ///
    /// # Errors
    /// [`ClockDriftError`] if the wall clock is further behind the last value than the drift limit.
    pub fn tick(&mut self, now: UnixTime) -> Result<Hlc<N>, ClockDriftError> {
        let next = match now.as_millis() {
            now if now > self.last.wall => Some((now, 0)),
            _ => after(self.last.position()),
        };
        self.issue(now, next)
    }

    /// Issues a value greater than `other` and than every value issued before.
    ///
    /// # Errors
    /// [`ClockDriftError`] if that value would be further ahead of `now` than the drift limit: the
    /// clock of `other` is ahead, or the local wall clock has stepped back.
    pub fn receive(&mut self, now: UnixTime, other: HlcRef<'_>) -> Result<Hlc<N>, ClockDriftError> {
        let other = other.position();
        let next = match now.as_millis() {
            now if now > self.last.wall && now > other.0 => Some((now, 0)),
            _ => after(self.last.position().max(other)),
        };
        self.issue(now, next)
    }

    /// Moves the clock past `other` regardless of the wall clock: for versions issued before a
    /// restart.
    ///
    /// If `other` is further ahead of the wall clock than the drift limit, the clock fails until
    /// the wall clock has caught up.
    pub fn advance_past(&mut self, other: HlcRef<'_>) {
        (self.last.wall, self.last.counter) = self.last.position().max(other.position());
    }

    /// Forgets the values issued so far if the last one is further ahead of the wall clock than the
    /// drift limit, as a restart of the process does.
    ///
    /// Only for a clock whose values may repeat after a restart, such as the timestamps of a client:
    /// the versions of a store may not.
    pub fn restart_if_ahead(&mut self, now: UnixTime) {
        if self.last.wall.saturating_sub(now.as_millis()) > whole_millis(self.drift_max) {
            (self.last.wall, self.last.counter) = (0, 0);
        }
    }

    /// Node id in the values of this clock.
    #[must_use]
    pub const fn node(&self) -> &N {
        &self.last.node
    }

    /// The greatest value issued or passed to [`advance_past`](Self::advance_past), or zero.
    #[must_use]
    pub const fn last(&self) -> &Hlc<N> {
        &self.last
    }

    fn issue(
        &mut self,
        now: UnixTime,
        next: Option<(u64, u64)>,
    ) -> Result<Hlc<N>, ClockDriftError> {
        // No value follows the last millisecond of 64 bits; report the greatest distance.
        let (wall, counter) = next.unwrap_or((u64::MAX, 0));
        let ahead = if next.is_some() { wall.saturating_sub(now.as_millis()) } else { u64::MAX };
        if ahead > whole_millis(self.drift_max) || next.is_none() {
            return Err(ClockDriftError {
                ahead: Duration::from_millis(ahead),
                allowed: self.drift_max,
            });
        }
        (self.last.wall, self.last.counter) = (wall, counter);
        Ok(self.last.clone())
    }
}

/// The next position: the counter plus one, or the next millisecond if the counter is exhausted.
const fn after((wall, counter): (u64, u64)) -> Option<(u64, u64)> {
    if counter < COUNTER_MAX {
        return Some((wall, counter + 1));
    }
    match wall.checked_add(1) {
        Some(wall) => Some((wall, 0)),
        None => None,
    }
}
