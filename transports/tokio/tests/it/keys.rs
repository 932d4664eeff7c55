//! Listing keys.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_tokio::proto::message::RequestKind;
use statestore_tokio::service::{StoreConfig, StoreLimits};
use statestore_tokio::{Error, StateStore, StoreService, SubmitError, blocking};
use tokio::runtime::Runtime;

use crate::client;

/// A store with six keys, two keys per page, and a client.
async fn paged(broker: &Hub) -> (StoreService, StateStore) {
    let limits = StoreLimits { page_bytes_max: 16, ..StoreLimits::default() };
    let config = StoreConfig::new(7).limits(limits);
    let service = StoreService::builder().config(config).expect("nothing durable");
    let service = service.spawn(broker.store_link("statestore"));
    service.wait_connected().await.expect("it connects");
    let store = client(broker.link("c")).await;
    for number in 0..6 {
        store.set(format!("k{number}"), "v").await.expect("set");
    }
    (service, store)
}

fn scans(store: &StateStore) -> u64 {
    store.stats().counters.of(RequestKind::Scan).applied
}

#[tokio::test(start_paused = true)]
async fn page_is_requested_when_its_first_key_is_polled() {
    let broker = Hub::new();
    let (_service, store) = paged(&broker).await;
    let mut keys = store.scan("k*");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scans(&store), 0);
    for (requested, key) in [(1, "k0"), (1, "k1"), (2, "k2"), (2, "k3"), (3, "k4"), (3, "k5")] {
        assert_eq!(keys.next().await.expect("a page").expect("a key"), key);
        assert_eq!(scans(&store), requested, "{key}");
    }
    assert_eq!((keys.next().await, scans(&store)), (Ok(None), 3));
    assert_eq!(format!("{keys:?}"), r#"Keys { pattern: "k*", is_over: true, .. }"#);
}

#[tokio::test(start_paused = true)]
async fn listing_continues_after_a_transient_error() {
    let broker = Hub::new();
    let (service, store) = paged(&broker).await;
    let mut keys = store.scan("k*").timeout(Duration::from_secs(2));
    assert_eq!(keys.next().await.expect("a page").expect("a key"), "k0");
    broker.stop();
    assert_eq!(keys.next().await.expect("the page was received").expect("a key"), "k1");
    // The request may have been sent before the client detected the lost connection.
    let failed = keys.next().await;
    assert!(matches!(failed, Err(Error::NotSent { .. } | Error::ConnectionLost)), "{failed:?}");
    broker.restart();
    service.wait_connected().await.expect("again");
    store.wait_connected().await.expect("again");
    let mut rest = Vec::new();
    while let Some(key) = keys.next().await.expect("a page") {
        rest.push(key);
    }
    assert_eq!(rest, ["k2", "k3", "k4", "k5"]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_poll_loses_no_keys() {
    let broker = Hub::new();
    let (_service, store) = paged(&broker).await;
    let mut keys = store.scan("k*");
    // This future is polled once and dropped.
    assert!(tokio::time::timeout(Duration::ZERO, keys.next()).await.is_err());
    let mut found = Vec::new();
    while let Some(key) = keys.next().await.expect("a page") {
        found.push(key);
    }
    assert_eq!((found.len(), scans(&store)), (6, 3), "each page was requested once");
}

#[tokio::test(start_paused = true)]
async fn refusal_ends_the_listing() {
    let broker = Hub::new();
    let (_service, store) = paged(&broker).await;
    for (pattern, refused) in [("", false), ("[", true)] {
        let mut keys = store.scan(pattern);
        let error = keys.next().await.expect_err("the pattern is invalid");
        assert_eq!(matches!(error, Error::Refused { .. }), refused, "{error}");
        assert!(refused || error == Error::Invalid(SubmitError::EmptyPattern), "{error}");
        assert_eq!(keys.next().await, Ok(None));
    }
}

#[test]
fn blocking_listing_is_an_iterator() {
    let broker = Hub::new();
    let runtime = Runtime::new().expect("a runtime");
    let (_service, _) = runtime.block_on(paged(&broker));
    let store = blocking::StateStore::spawn(broker.link("d"), |builder| builder).expect("a thread");
    let keys: Result<Vec<_>, Error> =
        store.scan("k[0-4]").timeout(Duration::from_secs(9)).collect();
    assert_eq!(keys.expect("pages"), ["k0", "k1", "k2", "k3", "k4"]);
    assert_eq!(store.scan("[").map(|page| page.is_err()).collect::<Vec<_>>(), [true]);
}
