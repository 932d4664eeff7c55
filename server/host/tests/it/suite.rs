//! The shared test suite of in-process links.

use statestore_server::{BindError, Broker, EmbeddedLink};
use statestore_testkit::links::local_suite::LocalBroker;
use statestore_testkit::local_link_suite;
use statestore_testkit::process::Port;

use crate::options_at;

struct Embedded {
    broker: Broker,
    _port: Port,
}

impl LocalBroker for Embedded {
    type Link = EmbeddedLink;

    const RESULTS_MAX: u64 = 256;
    const KEEPS_REQUESTS: bool = true;

    async fn start() -> Self {
        let port = Port::free();
        let broker = Broker::bind(options_at(&port)).await.expect("a free port");
        Self { broker, _port: port }
    }

    fn link(&self, client_id: &str) -> EmbeddedLink {
        self.broker.link(client_id)
    }

    fn store_link(&self) -> EmbeddedLink {
        self.broker.store_link()
    }

    async fn stop(&self) {
        self.broker.stop().await;
    }

    async fn restart(&self) {
        // Another test may start a process, which has a copy of the listener for a moment.
        while let Err(error) = self.broker.start().await {
            assert!(matches!(error, BindError::InUse(_)), "restart: {error:?}");
            tokio::task::yield_now().await;
        }
    }
}

local_link_suite!(Embedded);
local_link_suite!(Embedded: request_expired_in_the_queue_is_not_delivered);
