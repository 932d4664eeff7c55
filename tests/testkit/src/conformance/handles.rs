//! Guarantees of handles over every transport, as a list of cases. Each case uses a separate broker
//! with its links. The conformance suite tests the stores over the same transports.
//!
//! A case asserts what the handles promise and nothing that depends on the transport, so that an
//! application can change its MQTT library by changing one constructor.

mod locks;
mod patterns;

use std::pin::Pin;
use std::time::Duration;

use statestore_proto::client::WatchEvent;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Refusal, ServiceError};
use statestore_proto::store::StoreConfig;
use statestore_proto::transport::ReasonCode;
use statestore_tokio::{Error, Link, Removal, StateStore, StoreService, Version, Watch};

use crate::process::HANGS;

/// Maximum time of a case.
const PATIENCE: Duration = HANGS;

/// Time-out of a request without a store: not every transport reports a topic without subscriber.
const SOON: Duration = Duration::from_secs(5);

/// A broker and links to it.
pub trait Stage {
    /// The links.
    type Link: Link;
    /// Maximum Packet Size of the broker, if it has one.
    const PACKET_BYTES_MAX: Option<usize> = None;

    /// A link for a client.
    fn link(&self, client_id: &str) -> Self::Link;
    /// A link for a store.
    fn store_link(&self, client_id: &str) -> Self::Link;
    /// A link for a client with small queues, if the transport supports it.
    fn narrow_link(&self, client_id: &str) -> Self::Link {
        self.link(client_id)
    }
    /// A link for a store with small queues.
    fn narrow_store_link(&self, client_id: &str) -> Self::Link {
        self.store_link(client_id)
    }
    /// Ends every connection like a crash of the broker, and accepts new ones.
    fn restart(&mut self);
}

/// A case, which runs on a stage.
type Case<S> = for<'a> fn(&'a mut S) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Every case with its name.
#[must_use]
pub fn cases<S: Stage>() -> Vec<(&'static str, Case<S>)> {
    vec![
        ("every_command", |stage| Box::pin(every_command(stage))),
        ("large_values_and_binary_keys", |stage| Box::pin(large_values_and_binary_keys(stage))),
        ("keys_are_listed", |stage| Box::pin(keys_are_listed(stage))),
        ("many_in_flight", |stage| Box::pin(many_in_flight(stage))),
        ("narrow_links", |stage| Box::pin(narrow_links(stage))),
        ("too_large_for_the_broker", |stage| Box::pin(too_large_for_the_broker(stage))),
        ("watch_since_a_version", |stage| Box::pin(watch_since_a_version(stage))),
        ("watch_over_a_restart", |stage| Box::pin(watch_over_a_restart(stage))),
        ("requests_over_a_restart", |stage| Box::pin(requests_over_a_restart(stage))),
        ("pattern_is_watched", |stage| Box::pin(patterns::pattern_is_watched(stage))),
        ("pattern_is_watched_over_a_restart", |stage| {
            Box::pin(patterns::pattern_is_watched_over_a_restart(stage))
        }),
        ("locks", |stage| Box::pin(locks::locks(stage))),
        ("locks_over_a_restart", |stage| Box::pin(locks::locks_over_a_restart(stage))),
        ("elections", |stage| Box::pin(locks::elections(stage))),
        ("expiry_is_told", |stage| Box::pin(locks::expiry_is_told(stage))),
        ("no_store", |stage| Box::pin(no_store(stage))),
        ("shutdown", |stage| Box::pin(shutdown(stage))),
    ]
}

/// Runs one case with a time limit.
///
/// # Panics
/// If the case panics or hangs.
pub async fn run<S: Stage>(name: &str, case: Case<S>, stage: &mut S) {
    let done = tokio::time::timeout(PATIENCE, case(stage)).await;
    assert!(done.is_ok(), "{name} is stuck");
}

async fn service<S: Stage>(stage: &S) -> StoreService {
    let service = StoreService::builder().spawn(stage.store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    service
}

async fn client<S: Stage>(stage: &S, client_id: &str) -> StateStore {
    let store = StateStore::builder().spawn(stage.link(client_id)).expect("a client id");
    store.wait_connected().await.expect("the client connects");
    store
}

async fn impatient_client<S: Stage>(stage: &S, client_id: &str) -> StateStore {
    let builder = StateStore::builder().timeout(SOON);
    let store = builder.spawn(stage.link(client_id)).expect("a client id");
    store.wait_connected().await.expect("the client connects");
    store
}

async fn every_command<S: Stage>(stage: &S) {
    let (service, store) = (service(stage).await, client(stage, "a").await);
    assert_eq!(store.get("k").await, Ok(None));
    let first = store.set("k", "1").await.expect("set");
    let found = store.get("k").await.expect("get").expect("it was set");
    assert_eq!((&found.value[..], found.version), (&b"1"[..], Some(first.clone())));
    assert_eq!(store.set("k", "2").if_absent().await, Ok(None));
    assert_eq!(store.set("k", "2").if_absent_or_equal().await, Ok(None));
    let second = store.set("k", "1").if_absent_or_equal().await.expect("set").expect("equal");
    assert!(second > first, "{second} after {first}");
    assert_eq!(store.vdel("k", "2").await, Ok(Removal::NotApplied));
    assert_eq!(store.vdel("k", "1").await, Ok(Removal::Removed));
    assert_eq!(store.vdel("k", "1").await, Ok(Removal::NothingRemoved));
    assert_eq!(store.del("k").await, Ok(false));
    store.set("k", "3").await.expect("set");
    assert_eq!(store.del("k").await, Ok(true));
    assert_eq!(service.stats().keys, 0);
}

async fn large_values_and_binary_keys<S: Stage>(stage: &S) {
    let (_service, store) = (service(stage).await, client(stage, "a").await);
    let value: Vec<u8> = (0..=255).cycle().take(65_000).collect();
    let key: Vec<u8> = (0..=255).rev().cycle().take(6_500).collect();
    store.set(key.clone(), value.clone()).await.expect("set");
    assert_eq!(store.get(key.clone()).await.expect("get").expect("it was set").value, value);
    let mut changes = store.watch(key.clone()).await.expect("watch");
    assert_eq!(change(&mut changes).await, Some(value));
    assert_eq!(store.del(key).await, Ok(true));
    assert_eq!(change(&mut changes).await, None, "deleted");
}

/// Waits for the value of the next change.
async fn change(changes: &mut Watch) -> Option<Vec<u8>> {
    loop {
        match changes.next().await.expect("the watch goes on") {
            WatchEvent::Changed { value, .. } => return value.map(|value| value.to_vec()),
            WatchEvent::Live | WatchEvent::Gap => {}
            other => panic!("ended, or an unknown event: {other:?}"),
        }
    }
}

async fn keys_are_listed<S: Stage>(stage: &S) {
    let limits = StoreLimits { page_bytes_max: 100, ..StoreLimits::default() };
    let config = StoreConfig::new(7).limits(limits);
    let link = stage.store_link("statestore");
    let service = StoreService::builder().config(config).expect("nothing durable").spawn(link);
    service.wait_connected().await.expect("the store connects");
    let store = client(stage, "a").await;
    let mut expected = Vec::new();
    for number in 0..40 {
        let key = format!("rooms/{number}/\u{1f321}");
        store.set(&key, "21").await.expect("set");
        expected.push(key);
    }
    store.set("rooms", "40").await.expect("set");
    let mut found = Vec::new();
    let mut keys = store.scan("rooms/*/?");
    while let Some(key) = keys.next().await.expect("a page") {
        found.push(String::from_utf8(key.to_vec()).expect("what was set"));
    }
    assert_eq!(keys.next().await, Ok(None), "it is over");
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let refused = store.scan("rooms/[").next().await;
    let error = ServiceError::Known(Refusal::Syntax);
    assert_eq!(refused, Err(Error::Refused { error, reason: None }));
}

async fn many_in_flight<S: Stage>(stage: &S) {
    let (service, store) = (service(stage).await, client(stage, "a").await);
    sets_at_once(&service, &store).await;
}

async fn narrow_links<S: Stage>(stage: &S) {
    let service = StoreService::builder().spawn(stage.narrow_store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    let link = stage.narrow_link("a");
    let store = StateStore::builder().spawn(link).expect("a client id");
    store.wait_connected().await.expect("the client connects");
    sets_at_once(&service, &store).await;
}

async fn sets_at_once(service: &StoreService, store: &StateStore) {
    let sets = (0..512).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { store.set(format!("k{number}"), "v").await })
    });
    let sets: Vec<_> = sets.collect();
    let mut versions = Vec::new();
    for set in sets {
        versions.push(set.await.expect("no panic").expect("set"));
    }
    versions.sort();
    versions.dedup();
    assert_eq!((versions.len(), service.stats().keys), (512, 512), "each its own version");
}

async fn too_large_for_the_broker<S: Stage>(stage: &S) {
    let Some(packet_bytes_max) = S::PACKET_BYTES_MAX else { return };
    let (_service, store) = (service(stage).await, client(stage, "a").await);
    let mut changes = store.watch("k").await.expect("watch");
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    let too_large = store.set("k", vec![0; packet_bytes_max]).await;
    assert_eq!(too_large, Err(Error::Undelivered(ReasonCode::PACKET_TOO_LARGE)));
    store.set("k", "small").await.expect("set");
    // A lost connection in between would have caused a gap.
    assert!(matches!(changes.next().await, Some(WatchEvent::Changed { .. })));
}

/// A watch continues from the change that was processed before a restart of the application, over
/// new connections.
async fn watch_since_a_version<S: Stage>(stage: &mut S) {
    let (service, writer) = (service(stage).await, client(stage, "writer").await);
    let first = writer.set("k", "1").await.expect("set");
    let live = Some(WatchEvent::Live);
    let since = |version: &Version| Some(version.clone());
    let app = client(stage, "app").await;
    let mut changes = app.watch_since("k", since(&first)).await.expect("watch");
    assert_eq!(changes.next().await, live, "it was processed");
    // Another watch of the same key by the same client is not affected.
    let mut plain = app.watch("k").await.expect("watch");
    assert_eq!(change(&mut plain).await.as_deref(), Some(&b"1"[..]));
    let second = writer.set("k", "2").await.expect("set");
    assert_eq!(change(&mut changes).await.as_deref(), Some(&b"2"[..]));
    // The application ends before it has processed the change.
    app.shutdown().await;
    let app = client(stage, "app").await;
    let mut changes = app.watch_since("k", since(&first)).await.expect("watch");
    assert_eq!(change(&mut changes).await.as_deref(), Some(&b"2"[..]), "reported again");
    assert_eq!(changes.next().await, live);
    // The key is deleted while the application is down.
    app.shutdown().await;
    assert_eq!(writer.del("k").await, Ok(true));
    let app = client(stage, "app").await;
    let mut changes = app.watch_since("k", since(&second)).await.expect("watch");
    assert_eq!(change(&mut changes).await, None, "the deletion is reported");
    assert_eq!(changes.next().await, live);
    let mut changes = app.watch_since("absent", None).await.expect("watch");
    assert_eq!(changes.next().await, live, "nothing was processed, and there is nothing");
    // The connection is lost before the watch is live.
    let third = writer.set("k", "3").await.expect("set");
    app.shutdown().await;
    stage.restart();
    service.wait_connected().await.expect("again");
    let app = impatient_client(stage, "app").await;
    let mut changes = app.watch_since("k", since(&third)).await.expect("watch");
    while changes.next().await != live {}
    while writer.set("k", "4").await.is_err() {}
    assert_eq!(change(&mut changes).await.as_deref(), Some(&b"4"[..]));
}

async fn watch_over_a_restart<S: Stage>(stage: &mut S) {
    let (service, watcher) = (service(stage).await, impatient_client(stage, "a").await);
    watcher.set("k", "before").await.expect("set");
    let mut changes = watcher.watch("k").await.expect("watch");
    assert_eq!(change(&mut changes).await.as_deref(), Some(&b"before"[..]));
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    stage.restart();
    assert_eq!(changes.next().await, Some(WatchEvent::Gap));
    service.wait_connected().await.expect("again");
    let writer = impatient_client(stage, "b").await;
    while writer.set("k", "after").await.is_err() {}
    assert_eq!(change(&mut changes).await.as_deref(), Some(&b"after"[..]));
    writer.del("k").await.expect("del");
    assert_eq!(change(&mut changes).await, None);
}

async fn requests_over_a_restart<S: Stage>(stage: &mut S) {
    let (_service, store) = (service(stage).await, impatient_client(stage, "a").await);
    let sets: Vec<_> = (0..256)
        .map(|number| {
            let set = store.set(format!("k{number}"), "v");
            tokio::spawn(async move { set.await })
        })
        .collect();
    tokio::task::yield_now().await;
    stage.restart();
    for set in sets {
        // The request either succeeds or fails with a known effect; it does not hang.
        if let Err(error) = set.await.expect("no panic") {
            assert!(
                !matches!(error, Error::Refused { .. } | Error::Invalid(_) | Error::Malformed(_)),
                "{error}"
            );
        }
    }
    while store.set("again", "v").await.is_err() {}
}

async fn no_store<S: Stage>(stage: &S) {
    let store = client(stage, "a").await;
    let answer = store.get("k").timeout(Duration::from_secs(2)).await;
    let is_reported = matches!(answer, Err(Error::Undelivered(_) | Error::Unanswered { .. }));
    assert!(is_reported, "{answer:?}");
}

async fn shutdown<S: Stage>(stage: &S) {
    let (service, store) = (service(stage).await, client(stage, "a").await);
    let mut changes = store.watch("k").await.expect("watch");
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    store.clone().shutdown().await;
    assert!(matches!(store.get("k").await, Err(Error::Closed(_))));
    assert_eq!(changes.next().await, Some(WatchEvent::Gap), "changes may be missed");
    assert_eq!(changes.next().await, None, "the stream ends");
    service.shutdown().await;
}
