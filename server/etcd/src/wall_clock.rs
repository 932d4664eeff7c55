//! The wall clock.

use std::time::SystemTime;

use statestore_proto::time::UnixTime;

/// Returns the time of the wall clock, or 0 if it is before 1970.
#[expect(clippy::disallowed_methods, reason = "this package does I/O, so it reads the clock")]
pub(crate) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_epoch(since)
}
