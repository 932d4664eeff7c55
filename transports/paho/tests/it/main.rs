//! The link against a scripted broker, and against mosquitto where it is installed.

mod conformance;
mod faults;
mod links;
mod real;
mod scripted;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use statestore_paho::Options;
use statestore_tests::mosquitto::Mosquitto;

/// Nothing here waits that long unless it hangs.
const HANGS: Duration = Duration::from_secs(20);

/// Runs a test, and ends it when it hangs.
async fn timely<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, test).await.expect("something hangs")
}

/// Options for a client of a real broker.
trait Connects {
    fn options(&self, client_id: &str) -> Options;
}

impl Connects for Mosquitto {
    fn options(&self, client_id: &str) -> Options {
        Options::new(client_id, "127.0.0.1", self.port())
    }
}
