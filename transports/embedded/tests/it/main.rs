//! The broker with its store, and clients that reach it over the network.

mod certificates;
mod conformance;
mod deployed;
mod identity;
mod limits;
mod log;
mod login;
mod notifications;
mod policy;
#[cfg(feature = "service-accounts")]
mod service_accounts;
mod standby;
mod topics;
#[cfg(feature = "websocket")]
mod websocket;

use std::net::Ipv4Addr;

use statestore_embedded::{Broker, Options};
use statestore_tests::raw::{Hello, Raw, response_topic};
use statestore_tokio::{StateStore, StoreService};

/// On a free port of this machine.
fn options() -> Options {
    Options::new((Ipv4Addr::LOCALHOST, 0))
}

async fn start(options: Options) -> (Broker, StoreService) {
    let (broker, service) = statestore_embedded::serve(options).await.expect("it listens");
    service.connected().await.expect("the store connects");
    (broker, service)
}

/// Where a client finds it.
fn at(broker: &Broker, client_id: &str) -> statestore_rumqttc::Options {
    statestore_rumqttc::Options::new(client_id, "127.0.0.1", broker.local_addr().port())
}

/// A client over the network.
async fn client(broker: &Broker, client_id: &str) -> StateStore {
    let store = statestore_rumqttc::connect(at(broker, client_id)).expect("a client id");
    store.connected().await.expect("the client connects");
    store
}

/// A client without a handle, subscribed to its replies and to nothing else. It blocks, so the broker must have another
/// thread.
fn raw(broker: &Broker, client_id: &str) -> Raw {
    let mut raw = open(broker, client_id, Hello::default());
    raw.subscribe(&response_topic(client_id));
    raw
}

/// The same, connected as it says, and subscribed to nothing.
fn open(broker: &Broker, client_id: &str, hello: Hello<'_>) -> Raw {
    Raw::open(broker.local_addr().port(), client_id, hello)
}
