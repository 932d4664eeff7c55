//! Tests of the embedded broker and its store, with clients over the network.

mod certificates;
mod conformance;
mod deployed;
mod handshakes;
mod identity;
mod limits;
mod listeners;
mod log;
mod login;
mod notifications;
mod policy;
mod reload;
mod renewal;
#[cfg(feature = "server")]
mod secrets;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "service-accounts")]
mod service_accounts;
mod standby;
mod suite;
mod topics;
#[cfg(feature = "websocket")]
mod websocket;

use std::net::Ipv4Addr;

use statestore_server::{Broker, Listener, Options, ServerTls};
use statestore_testkit::process::Port;
use statestore_testkit::wire::raw::{Hello, Raw, response_topic};
use statestore_tokio::{StateStore, StoreService};

/// Options with a free port of the loopback address.
fn options() -> Options {
    Options::new((Ipv4Addr::LOCALHOST, 0))
}

/// Options with a reserved port, for a broker that is restarted.
fn options_at(port: &Port) -> Options {
    Options::new((Ipv4Addr::LOCALHOST, port.number()))
}

/// Options with a free port of the loopback address, with TLS.
fn secured(tls: ServerTls) -> Options {
    Options::new(Listener::new((Ipv4Addr::LOCALHOST, 0)).tls(tls))
}

async fn start(options: Options) -> (Broker, StoreService) {
    let (broker, service) = statestore_server::serve(options).await.expect("serve");
    service.wait_connected().await.expect("the store connects");
    (broker, service)
}

/// Client options with the address of the broker.
fn at(broker: &Broker, client_id: &str) -> statestore_client::Options {
    statestore_client::Options::new(client_id, "127.0.0.1", broker.local_addr().port())
}

/// Connects a client over the network.
async fn client(broker: &Broker, client_id: &str) -> StateStore {
    let store = statestore_client::connect(at(broker, client_id)).expect("a client id");
    store.wait_connected().await.expect("the client connects");
    store
}

/// Connects a raw client that subscribes to its responses only. It blocks, so the broker needs
/// another thread.
fn raw(broker: &Broker, client_id: &str) -> Raw {
    let mut raw = open(broker, client_id, Hello::default());
    raw.subscribe(&response_topic(client_id));
    raw
}

/// Connects a raw client without subscriptions.
fn open(broker: &Broker, client_id: &str, hello: Hello<'_>) -> Raw {
    Raw::open(broker.local_addr().port(), client_id, hello)
}
