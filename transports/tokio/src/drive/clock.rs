//! Reads the monotonic clock and the wall clock for the machines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use statestore_proto::time::{Instant, Now, UnixTime};

/// Both clocks. Monotonic time is counted from the creation of this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        #[expect(clippy::disallowed_methods, reason = "machines get the time from here")]
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::new(self.instant(tokio::time::Instant::now()), UnixTime::from_epoch(unix))
    }

    /// Converts an instant of the runtime to one of the machines.
    pub(crate) fn instant(&self, at: tokio::time::Instant) -> Instant {
        Instant::from_origin(at.saturating_duration_since(self.origin))
    }

    /// Converts an instant of the machines to one of the runtime.
    pub(crate) fn at(&self, instant: Instant) -> tokio::time::Instant {
        self.origin + Duration::from_millis(instant.as_millis())
    }

    /// Waits until the deadline; forever without a deadline. Never returns before the deadline,
    /// although machines count in whole milliseconds.
    pub(crate) async fn sleep_until(&self, deadline: Option<Instant>) {
        match deadline {
            Some(at) => tokio::time::sleep_until(self.at(at)).await,
            None => std::future::pending().await,
        }
    }
}
