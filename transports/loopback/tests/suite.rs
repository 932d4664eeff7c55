//! The suite of links without a network.

use statestore_loopback::{Hub, HubLink};
use statestore_testkit::links::local_suite::LocalBroker;
use statestore_testkit::local_link_suite;

struct Loopback(Hub);

impl LocalBroker for Loopback {
    type Link = HubLink;

    /// The one that exceeds the limit of 65,536 is still received.
    const RESULTS_MAX: u64 = 65_537;
    const KEEPS_REQUESTS: bool = false;

    async fn start() -> Self {
        Self(Hub::new())
    }

    fn link(&self, client_id: &str) -> HubLink {
        self.0.link(client_id)
    }

    fn store_link(&self) -> HubLink {
        self.0.store_link("statestore")
    }

    async fn stop(&self) {
        self.0.stop();
    }

    async fn restart(&self) {
        self.0.restart();
    }
}

local_link_suite!(Loopback);
