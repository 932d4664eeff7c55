//! The handles over the loopback, in simulated time.

mod batch;
mod capture;
mod commit_queue;
mod disk;
mod facade;
mod journal;
mod keys;
mod late;
mod lock;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod pattern_watch;
mod replaced;
mod requests;
mod seed;
mod slow;
mod stats;
mod typed;
mod update;
mod watchers;

use statestore_loopback::Hub;
use statestore_tokio::{Link, StateStore, StoreService};

/// A store that is connected.
async fn service(link: impl Link) -> StoreService {
    let service = StoreService::builder().spawn(link);
    service.wait_connected().await.expect("the store connects");
    service
}

/// A client that is connected.
async fn client(link: impl Link) -> StateStore {
    let store = StateStore::builder().spawn(link).expect("a client id");
    store.wait_connected().await.expect("the client connects");
    store
}

/// A store and a client of one broker.
async fn both(broker: &Hub) -> (StoreService, StateStore) {
    (service(broker.store_link("statestore")).await, client(broker.link("c")).await)
}
