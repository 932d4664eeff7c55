//! Initial keys of a store.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::message::Expiry;
use statestore_proto::store::StoreConfig;
use statestore_tokio::StoreService;

use crate::client;

#[tokio::test(start_paused = true)]
async fn seeded_keys_have_versions_that_later_writes_exceed() {
    let hub = Hub::new();
    let service = StoreService::builder().seed([("a", "1"), ("b", "2"), ("a", "ignored")]);
    let service = service.spawn(hub.store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    assert_eq!(service.stats().keys, 2, "before the first request");
    let store = client(hub.link("c")).await;
    let mut versions = Vec::new();
    for (key, value) in [("a", "1"), ("b", "2")] {
        let found = store.get(key).await.expect("a response").expect("a value");
        assert_eq!(&found.value[..], value.as_bytes());
        versions.push(found.version.expect("a version"));
    }
    versions.push(store.set("a", "3").await.expect("set"));
    let hlcs: Vec<_> = versions.iter().map(|version| version.hlc()).collect();
    assert!(hlcs.is_sorted_by(|one, other| one < other), "{versions:?}");
    assert!(store.del("b").await.expect("a response"));
}

#[tokio::test(start_paused = true)]
async fn expiry_policy_does_not_apply_to_seeded_keys() {
    let hub = Hub::new();
    let minute = Duration::from_secs(60);
    let service = StoreService::builder()
        .config(StoreConfig::new(7).expiry_policy(move |_, _| Expiry::after(minute)))
        .expect("a store in memory")
        .seed([("seeded", "1")]);
    let _service = service.spawn(hub.store_link("statestore"));
    let store = client(hub.link("c")).await;
    store.set("set", "1").await.expect("set");
    tokio::time::sleep(minute * 2).await;
    assert!(store.get("set").await.expect("a response").is_none());
    assert!(store.get("seeded").await.expect("a response").is_some());
}
