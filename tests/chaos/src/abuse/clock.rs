//! The only module that reads a clock and sleeps.
#![expect(
    clippy::disallowed_methods,
    reason = "attacks take real time, and latencies are measured"
)]

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}
