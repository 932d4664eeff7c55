//! Handles whose store is replaced by another one.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::client::WatchEvent;
use statestore_proto::lock::LossReason;
use statestore_tokio::{Error, LockLost, StateStore, Watch};
use tokio::time::{Instant, timeout};

use super::{client, service};

/// A broker with a client and a store that is replaced, unannounced, by another, empty one.
async fn replaced<T>(with: impl AsyncFnOnce(&StateStore) -> T) -> (StateStore, T, Instant) {
    let broker = Hub::new();
    let first = service(broker.store_link("first")).await;
    let store = client(broker.link("a")).await;
    let had = with(&store).await;
    // The client stays connected: only the store is replaced.
    first.shutdown().await;
    let second = service(broker.store_link("second")).await;
    // The store lives as long as its runtime.
    std::mem::forget(second);
    (store, had, Instant::now())
}

async fn next(changes: &mut Watch) -> WatchEvent {
    changes.next().await.expect("the watch continues")
}

#[tokio::test(start_paused = true)]
async fn all_locks_of_a_handle_are_lost_at_the_first_response_of_another_store() {
    let (store, (one, two), when) = replaced(async |store: &StateStore| {
        let one = store.lock("one").acquire().await.unwrap();
        (one, store.lock("two").acquire().await.unwrap())
    })
    .await;
    assert!(one.is_held() && two.is_held(), "no response has arrived yet");
    assert_eq!(store.get("whatever").await, Ok(None));
    for guard in [&one, &two] {
        let lost = timeout(Duration::from_secs(1), guard.wait_lost()).await;
        assert_eq!(lost, Ok(LockLost::Lost(LossReason::StoreReplaced)));
        assert_eq!(
            guard.set("valve", "open").await,
            Err(Error::LockLost(LockLost::Lost(LossReason::StoreReplaced)))
        );
    }
    assert!(when.elapsed() < Duration::from_secs(1));
    assert!(store.lock("one").acquire().await.unwrap().is_held(), "the lock can be acquired again");
}

#[tokio::test(start_paused = true)]
async fn idle_lock_is_lost_at_its_renewal() {
    let (_store, guard, when) =
        replaced(async |store: &StateStore| store.lock("one").acquire().await.unwrap()).await;
    assert_eq!(guard.wait_lost().await, LockLost::Lost(LossReason::StoreReplaced));
    let after = when.elapsed();
    assert!(after < Duration::from_secs(4), "{after:?} of a lease of ten seconds");
}

#[tokio::test(start_paused = true)]
async fn watch_reports_a_gap_and_the_value_in_the_other_store() {
    let (store, mut changes, _) = replaced(async |store: &StateStore| {
        store.set("k", "v").await.unwrap();
        let mut changes = store.watch("k").await.unwrap();
        assert!(matches!(next(&mut changes).await, WatchEvent::Changed { value: Some(_), .. }));
        assert_eq!(next(&mut changes).await, WatchEvent::Live);
        changes
    })
    .await;
    store.set("other", "w").await.unwrap();
    assert_eq!(next(&mut changes).await, WatchEvent::Gap);
    assert!(matches!(next(&mut changes).await, WatchEvent::Changed { value: None, .. }));
    assert_eq!(next(&mut changes).await, WatchEvent::Live);
    store.set("k", "w").await.unwrap();
    assert!(matches!(next(&mut changes).await, WatchEvent::Changed { value: Some(_), .. }));
}

#[tokio::test(start_paused = true)]
async fn replacement_is_reported_at_the_first_response_of_another_store() {
    let (store, mut replacements, _) = replaced(async |store: &StateStore| {
        store.set("k", "v").await.unwrap();
        store.replacements()
    })
    .await;
    let silent = timeout(Duration::from_secs(60), replacements.next()).await;
    assert!(silent.is_err(), "no request, no watch");
    assert_eq!(store.get("k").await, Ok(None));
    let replaced = replacements.next().await.expect("the handle continues");
    assert!(replaced.incarnation.is_some());
    // One that begins later reports later replacements only.
    let mut later = store.replacements();
    assert_eq!(store.get("k").await, Ok(None));
    store.shutdown().await;
    assert_eq!((replacements.next().await, later.next().await), (None, None));
}
