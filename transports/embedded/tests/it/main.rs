//! The broker with its store, and clients that reach it over the network.

mod conformance;
mod deployed;
mod identity;
mod limits;
mod login;
mod notifications;
mod raw;
mod topics;

use std::net::Ipv4Addr;
use std::time::Duration;

use statestore_embedded::{Broker, Options};
use statestore_tokio::{StateStore, StoreService};

/// Nothing here waits that long unless it hangs.
const HANGS: Duration = Duration::from_secs(20);

/// Runs a test, and ends it when it hangs.
async fn timely<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, test).await.expect("something hangs")
}

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
