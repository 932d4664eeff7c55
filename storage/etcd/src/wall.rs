//! The wall clock.

use std::time::SystemTime;

use statestore_proto::time::UnixTime;

/// What it shows; the beginning of 1970 where it is before that.
#[expect(clippy::disallowed_methods, reason = "whoever does I/O reads the clock")]
pub(crate) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_epoch(since)
}
