//! A time limit for every wait of a test.

use std::time::Duration;

/// Maximum time of one step of a test. It only ends tests that hang: an idle machine needs a few
/// seconds.
pub const HANGS: Duration = Duration::from_secs(120);

/// Runs a test with the time limit.
///
/// # Panics
/// If the test hangs.
pub async fn timely<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, test).await.expect("no hang")
}
