//! The clock of the operating system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time, to compare it with the times in certificates, tokens and files.
#[expect(clippy::disallowed_methods, reason = "the server adapter reads the real clock")]
pub(crate) fn system_now() -> SystemTime {
    SystemTime::now()
}

/// Returns the current time since the Unix epoch.
pub(crate) fn unix_now() -> Duration {
    system_now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
