//! Conformance of the embedded store, for clients over the network and in the process.

use std::sync::Arc;

use statestore_client::ClientLink;
use statestore_server::{BindError, Broker, EmbeddedLink};
use statestore_testkit::conformance::handles::{Stage, cases, run};
use statestore_testkit::conformance::suite::{assert_conformant, every_case};
use statestore_testkit::links::Either;
use statestore_testkit::process::{Port, timely};
use statestore_tokio::StoreService;
use statestore_verify::over_client;

use crate::{at, options, options_at};

/// Restarts a broker from synchronous code, such as a stage of the suite.
fn restart(broker: &Broker) {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        runtime.block_on(async {
            // Another test may start a process, which has a copy of the listener for a moment.
            timely(async {
                while let Err(error) = broker.start().await {
                    assert!(matches!(error, BindError::InUse(_)), "restart: {error:?}");
                    tokio::task::yield_now().await;
                }
            })
            .await;
        });
    });
}

/// Clients over the network.
struct Network(Broker);

impl Stage for Network {
    type Link = Either<ClientLink, EmbeddedLink>;

    fn link(&self, client_id: &str) -> Self::Link {
        Either::Client(ClientLink::for_client(at(&self.0, client_id)))
    }

    fn store_link(&self, _: &str) -> Self::Link {
        Either::Store(self.0.store_link())
    }

    fn restart(&mut self) {
        restart(&self.0);
    }
}

/// Clients in the process.
struct Process(Broker);

impl Stage for Process {
    type Link = EmbeddedLink;

    fn link(&self, client_id: &str) -> EmbeddedLink {
        self.0.link(client_id)
    }

    fn store_link(&self, _: &str) -> EmbeddedLink {
        self.0.store_link()
    }

    fn restart(&mut self) {
        restart(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_over_the_network_pass_the_conformance_suite() {
    for (name, case) in cases::<Network>() {
        let port = Port::free();
        let broker = Broker::bind(options_at(&port)).await.expect("bind");
        run(name, case, &mut Network(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_in_the_process_pass_the_conformance_suite() {
    for (name, case) in cases::<Process>() {
        let port = Port::free();
        let broker = Broker::bind(options_at(&port)).await.expect("bind");
        run(name, case, &mut Process(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_store_passes_the_conformance_suite() {
    let broker = Broker::bind(options()).await.expect("bind");
    let service = StoreService::builder().spawn(broker.store_link());
    service.wait_connected().await.expect("the store connects");
    let target = over_client::Broker(at(&broker, ""));
    assert_conformant(&every_case(Arc::new(target)).await, &[]);
    assert_eq!(service.stats().keys, 0);
}
