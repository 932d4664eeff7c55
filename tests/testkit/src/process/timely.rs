//! A bound on every wait of a test.

use std::time::Duration;

/// No test waits that long for one thing unless it hangs.
pub const HANGS: Duration = Duration::from_secs(20);

/// Runs a test, and ends it when it hangs.
///
/// # Panics
/// When it hangs.
pub async fn timely<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, test).await.expect("something hangs")
}
