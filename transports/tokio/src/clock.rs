//! The one place that reads clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use statestore_proto::time::{Instant, Now, UnixTime};

/// Both clocks, the monotonic one counted from when this was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        #[expect(clippy::disallowed_methods, reason = "the edge of the program: here time is read")]
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::new(self.instant(tokio::time::Instant::now()), UnixTime::from_millis(millis(unix)))
    }

    /// A reading of the runtime's clock as the machines count.
    pub(crate) fn instant(&self, at: tokio::time::Instant) -> Instant {
        Instant::from_millis(millis(at.saturating_duration_since(self.origin)))
    }

    /// A reading of the machines' clock as the runtime counts.
    pub(crate) fn at(&self, instant: Instant) -> tokio::time::Instant {
        self.origin + Duration::from_millis(instant.as_millis())
    }

    /// Waits until then; for ever when there is no then. A deadline is met late rather than early, since machines count
    /// in whole milliseconds.
    pub(crate) async fn sleep_until(&self, deadline: Option<Instant>) {
        match deadline {
            Some(at) => tokio::time::sleep_until(self.at(at)).await,
            None => std::future::pending().await,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
