//! The shared test suite of in-process links.

use statestore_server::{Broker, EmbeddedLink};
use statestore_testkit::links::local_suite::LocalBroker;
use statestore_testkit::local_link_suite;

use crate::options;

struct Embedded(Broker);

impl LocalBroker for Embedded {
    type Link = EmbeddedLink;

    const RESULTS_MAX: u64 = 256;
    const KEEPS_REQUESTS: bool = true;

    async fn start() -> Self {
        Self(Broker::bind(options()).await.expect("a free port"))
    }

    fn link(&self, client_id: &str) -> EmbeddedLink {
        self.0.link(client_id)
    }

    fn store_link(&self) -> EmbeddedLink {
        self.0.store_link()
    }

    async fn stop(&self) {
        self.0.stop().await;
    }

    async fn restart(&self) {
        self.0.start().await.expect("restart");
    }
}

local_link_suite!(Embedded);
local_link_suite!(Embedded: request_expired_in_the_queue_is_not_delivered);
