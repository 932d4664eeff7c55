//! The link against a scripted broker, and against mosquitto where it is installed.

mod acks;
mod conformance;
mod deployed;
mod faults;
mod mosquitto;
mod real;
mod requests;
mod scripted;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

/// Nothing here waits that long unless it hangs.
const HANGS: Duration = Duration::from_secs(20);

/// Runs a test, and ends it when it hangs.
async fn timely<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, test).await.expect("something hangs")
}
