//! Timers.

use alloc::collections::BTreeSet;
use core::time::Duration;

use crate::ids::{ConnectionId, SessionId};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// CONNECT, login decision or keep-alive is overdue.
    Connection(ConnectionId),
    /// The credentials of a client expire.
    Expiry(ConnectionId),
    /// A will is published.
    Will(SessionId),
    /// A session ends.
    Session(SessionId),
}

/// All running timers. The connection or session of a timer stores its time, which is needed to
/// stop it.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Duration, Timer)>);

impl Timers {
    pub(crate) fn start(&mut self, at: Duration, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// Stops a timer that runs until `at`, if it runs.
    pub(crate) fn stop(&mut self, at: Option<Duration>, timer: Timer) {
        if let Some(at) = at {
            self.0.remove(&(at, timer));
        }
    }

    /// Stops a timer, and starts it again with another time.
    pub(crate) fn restart(
        &mut self,
        before: Option<Duration>,
        after: Option<Duration>,
        timer: Timer,
    ) {
        self.stop(before, timer);
        if let Some(at) = after {
            self.start(at, timer);
        }
    }

    /// Returns the time of the next timer.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes the next timer if it is due.
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<Timer> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
