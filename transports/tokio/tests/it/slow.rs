//! Detection of a broker that delays small packets.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_testkit::process::Log;
use statestore_tokio::StateStore;

use crate::late::Late;
use crate::{client, service};

const WARNING: [&str; 2] = ["WARN", "set_tcp_nodelay true"];

async fn client_after(broker: &Hub, millis: u64) -> StateStore {
    client(Late::new(broker.link("c"), Duration::from_millis(millis))).await
}

async fn one_at_a_time(store: &StateStore, count: u32) {
    for _ in 0..count {
        store.get("k").await.expect("a response");
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_responses_warn_once_per_connection() {
    let log = Log::listen();
    let broker = Hub::new();
    let _service = service(broker.store_link("statestore")).await;
    let store = client_after(&broker, 44).await;
    one_at_a_time(&store, 15).await;
    assert_eq!(log.with(&WARNING), [""; 0], "too few requests");
    one_at_a_time(&store, 50).await;
    assert_eq!(log.with(&WARNING).len(), 1);
    broker.disconnect("c");
    while store.get("k").await.is_err() {}
    one_at_a_time(&store, 50).await;
    assert_eq!(log.with(&WARNING).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn other_delays_and_concurrent_requests_do_not_warn() {
    let log = Log::listen();
    let broker = Hub::new();
    let _service = service(broker.store_link("statestore")).await;
    for millis in [1, 200] {
        let store = client_after(&broker, millis).await;
        one_at_a_time(&store, 50).await;
        store.shutdown().await;
    }
    let store = client_after(&broker, 44).await;
    for _ in 0..50 {
        let (one, other) = tokio::join!(store.get("k").into_future(), store.get("l").into_future());
        assert!(one.is_ok() && other.is_ok());
    }
    assert_eq!(log.with(&WARNING), [""; 0]);
}
