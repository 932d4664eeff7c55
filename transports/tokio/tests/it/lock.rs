//! Locks and elections, in simulated time, so that leases run out at once.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::client::RequestError;
use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{HolderStatus, LossReason, NotAcquired};
use statestore_proto::transport::ReasonCode;
use statestore_tokio::{
    Backoff, Error, HolderWatch, LeasedLock, LockConfigError, LockError, LockGuard, LockLost,
    StateStore, Update,
};
use tokio::time::{Instant, sleep};

use super::{client, service};

const LEASE: Duration = Duration::from_secs(10);

fn lock(store: &StateStore) -> LeasedLock {
    store.lock("lock").lease(LEASE)
}

fn token(guard: &LockGuard) -> FencingToken {
    guard.token().expect("it is held")
}

/// The duration of a future in simulated time.
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let done = future.await;
    (done, start.elapsed())
}

/// A broker with a store, and the clients `a` and `b`.
async fn three() -> (Hub, statestore_tokio::StoreService, StateStore, StateStore) {
    let broker = Hub::new();
    let service = service(broker.store_link("statestore")).await;
    let (a, b) = (client(broker.link("a")).await, client(broker.link("b")).await);
    (broker, service, a, b)
}

#[tokio::test(start_paused = true)]
async fn lock_has_one_holder_at_a_time_and_growing_tokens() {
    let (_broker, service, a, b) = three().await;
    let first = lock(&a).try_acquire().await.unwrap().expect("free");
    assert!(lock(&b).try_acquire().await.unwrap().is_none(), "taken");
    assert!(lock(&a).try_acquire().await.unwrap().is_none(), "by another lock of the same client");
    let holder = lock(&b).holder().await.unwrap().expect("held");
    assert_eq!(holder.name(), b"a");
    let old = token(&first);
    assert_eq!(first.release().await, Ok(true));
    assert_eq!(lock(&b).holder().await, Ok(None));
    let second = lock(&b).name("second").acquire().await.unwrap();
    assert!(token(&second) > old);
    assert_eq!(lock(&a).holder().await.unwrap().expect("held").name(), b"second");
    drop(second);
    lock(&a).acquire().await.unwrap().release().await.unwrap();
    assert_eq!(
        (service.stats().keys, service.stats().registrations),
        (0, 0),
        "keys and registrations are removed"
    );
}

#[tokio::test(start_paused = true)]
async fn waiter_acquires_the_lock_as_soon_as_it_is_free() {
    let (_broker, _service, a, b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { timed(lock(&b).acquire()).await });
    sleep(Duration::from_secs(60)).await;
    assert!(guard.is_held(), "the lock is renewed");
    assert_eq!(guard.release().await, Ok(true));
    let (acquired, took) = waiting.await.unwrap();
    assert!(acquired.unwrap().is_held());
    assert!(took < Duration::from_millis(60_010), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn acquisition_without_a_store_names_the_missing_store() {
    let broker = Hub::new();
    let store = client(broker.link("c")).await;
    let short = lock(&store).acquire_timeout(Duration::from_secs(3));
    let undelivered = RequestError::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(
        short.acquire().await.unwrap_err(),
        LockError::NotAcquired(NotAcquired::Unreachable(undelivered))
    );
}

#[tokio::test(start_paused = true)]
async fn acquisition_fails_at_its_time_limit() {
    let (_broker, service, a, b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    let (refused, took) = timed(lock(&b).acquire_timeout(Duration::from_secs(3)).acquire()).await;
    assert_eq!(refused.unwrap_err(), LockError::NotAcquired(NotAcquired::Deadline));
    assert_eq!(took.as_secs(), 3);
    drop(guard);
    // A dropped future leaves no key and no registration.
    let guard = lock(&a).acquire().await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_secs(1), lock(&b).acquire()).await;
    assert!(given_up.is_err());
    assert_eq!(guard.release().await, Ok(true));
    sleep(LEASE).await;
    assert_eq!((service.stats().keys, service.stats().registrations), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn renewals_have_greater_tokens() {
    let (_broker, _service, a, _b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    let mut last = token(&guard);
    for _ in 0..10 {
        sleep(LEASE / 3 + Duration::from_millis(10)).await;
        assert!(guard.held_until().unwrap() > Instant::now() + LEASE / 2);
        assert!(token(&guard) > last);
        last = token(&guard);
    }
}

#[tokio::test(start_paused = true)]
async fn holder_without_a_store_loses_the_lock_a_margin_before_its_lease_ends() {
    let (broker, _service, a, b) = three().await;
    let guard = lock(&a).margin(Duration::from_secs(1)).acquire().await.unwrap();
    let until = guard.held_until().unwrap();
    assert_eq!(until - Instant::now(), Duration::from_secs(9));
    broker.stop();
    let (lost, took) = timed(guard.wait_lost()).await;
    assert_eq!(lost, LockLost::Lost(LossReason::Expired));
    assert_eq!(took, Duration::from_secs(9));
    assert!(!guard.is_held() && guard.token().is_none());
    let expired = LockLost::Lost(LossReason::Expired);
    assert_eq!(guard.set("valve", "open").await, Err(Error::LockLost(expired)));
    assert_eq!(guard.release().await, Err(LockLost::Lost(LossReason::Expired)));
    broker.restart();
    assert!(lock(&b).acquire().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn waiter_acquires_the_lock_after_the_holder_dies() {
    let (_broker, _service, a, b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    let old = token(&guard);
    a.shutdown().await;
    let (next, took) = timed(lock(&b).acquire()).await;
    assert!(token(&next.unwrap()) > old);
    assert!(took <= LEASE + Duration::from_millis(10), "{took:?}");
    assert!(
        matches!(guard.wait_lost().await, LockLost::Closed(_)),
        "the lock is no longer renewed"
    );
}

#[tokio::test(start_paused = true)]
async fn guarded_writes_carry_the_newest_token() {
    let (_broker, _service, a, b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    let old = token(&guard);
    assert!(guard.set("valve", "open").await.is_ok());
    sleep(LEASE).await;
    assert_eq!(
        guard.set("valve", "half").if_absent().await,
        Ok(None),
        "options apply to guarded writes"
    );
    assert!(guard.set("valve", "shut").expires_after(LEASE * 9).await.is_ok());
    let stale = b.set("valve", "open").fencing_token(old).await;
    assert!(matches!(stale, Err(Error::Refused { .. })), "{stale:?}");
    assert!(
        matches!(b.del("valve").await, Err(Error::Refused { .. })),
        "the fence requires a token"
    );
    assert_eq!(guard.vdel("valve", "open").await, Ok(statestore_tokio::Removal::NotApplied));
    assert_eq!(guard.del("valve").await, Ok(true));
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn fenced_out_write_loses_the_lock() {
    let (_broker, _service, a, b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    // Any later version serves as the token of a newer holder.
    sleep(Duration::from_millis(20)).await;
    let newer = b.set("other", "lock").await.unwrap().to_fencing_token();
    b.set("valve", "shut").fencing_token(newer).await.unwrap();
    let fenced_out = LockLost::Lost(LossReason::FencedOut);
    assert_eq!(guard.set("valve", "open").await, Err(Error::LockLost(fenced_out)));
    assert_eq!(guard.wait_lost().await, LockLost::Lost(LossReason::FencedOut));
    assert_eq!(&b.get("valve").await.unwrap().unwrap().value[..], b"shut");
}

#[tokio::test(start_paused = true)]
async fn lock_held_for_a_second_is_lost_as_soon_as_its_key_is_deleted() {
    let (_broker, service, a, b) = three().await;
    let mut watched = a.watch("lock").await.unwrap();
    let guard = lock(&a).renew_after(Duration::from_secs(4)).acquire().await.unwrap();
    sleep(Duration::from_millis(900)).await;
    assert!(watched.next().await.is_some(), "the application may watch the key too");
    sleep(Duration::from_millis(200)).await;
    assert!(b.del("lock").await.unwrap());
    let (lost, took) = timed(guard.wait_lost()).await;
    assert_eq!(lost, LockLost::Lost(LossReason::Deleted));
    assert!(took < Duration::from_millis(10), "{took:?}");
    drop(watched);
    sleep(LEASE).await;
    assert_eq!((service.stats().keys, service.stats().registrations), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn lock_whose_key_is_deleted_in_its_first_second_is_lost_when_the_watch_begins() {
    let (_broker, _service, a, b) = three().await;
    let guard = lock(&a).renew_after(Duration::from_secs(4)).acquire().await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert!(b.del("lock").await.unwrap());
    let (lost, took) = timed(guard.wait_lost()).await;
    assert_eq!(lost, LockLost::Lost(LossReason::Deleted));
    assert!(took < Duration::from_millis(600), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn concurrent_edits_are_serialized() {
    let (_broker, service, a, b) = three().await;
    let add = |found: Option<statestore_tokio::VersionedValue>| {
        let old = found.map_or(0, |found| str::from_utf8(&found.value).unwrap().parse().unwrap());
        Update::Set((old + 1_u32).to_string().into())
    };
    let edits: Vec<_> = [a.clone(), b]
        .into_iter()
        .cycle()
        .take(20)
        .map(|store| tokio::spawn(async move { lock(&store).edit("count", add).await }))
        .collect();
    for edit in edits {
        assert!(edit.await.unwrap().unwrap().is_some());
    }
    assert_eq!(&a.get("count").await.unwrap().unwrap().value[..], b"20");
    assert_eq!(lock(&a).edit("count", |_| Update::Keep).await, Ok(None));
    assert_eq!(lock(&a).edit("count", |_| Update::Delete).await, Ok(None));
    assert_eq!((service.stats().keys, service.stats().registrations), (0, 0));
}

/// The name of the next reported leader: `None` without a leader, `?` if unknown.
async fn leader(changes: &mut HolderWatch) -> Option<String> {
    match changes.next().await.expect("the watch continues") {
        HolderStatus::Held(holder) => Some(String::from_utf8_lossy(holder.name()).into_owned()),
        HolderStatus::Free => None,
        HolderStatus::Unknown => Some("?".to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn candidate_becomes_leader_after_a_resignation() {
    let (broker, _service, a, b) = three().await;
    let election =
        |store: &StateStore, name: &str| store.election("leader").name(name).lease(LEASE);
    let mut changes = election(&b, "").watch().await.unwrap();
    assert_eq!(leader(&mut changes).await, None);
    assert_eq!(election(&a, "").leader().await, Ok(None));
    let one = election(&a, "one").campaign().await.unwrap();
    assert_eq!(leader(&mut changes).await.as_deref(), Some("one"));
    let second = election(&b, "two");
    let campaign = tokio::spawn(async move { second.campaign().await });
    sleep(LEASE * 2).await;
    assert_eq!(one.resign().await, Ok(true));
    let two = campaign.await.unwrap().unwrap();
    assert_eq!(leader(&mut changes).await, None, "renewals are not reported");
    assert_eq!(leader(&mut changes).await.as_deref(), Some("two"));
    assert!(two.set("plan", "night").await.is_ok(), "a leader can write");
    broker.stop();
    assert_eq!(leader(&mut changes).await.as_deref(), Some("?"));
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn closed_handle_acquires_no_lock() {
    let (_broker, _service, a, _b) = three().await;
    a.clone().shutdown().await;
    let refused = lock(&a).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Request(Error::Closed(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_locks_with_dropped_guards() {
    let (_broker, service, a, b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    drop(guard);
    a.shutdown().await;
    assert_eq!(service.stats().keys, 0, "the lock was released");
    // A lock that is still held is not released, and stays until its lease runs out.
    let guard = lock(&b).acquire().await.unwrap();
    b.clone().shutdown().await;
    assert_eq!(service.stats().keys, 1);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_an_unreachable_store() {
    let (broker, _service, a, _b) = three().await;
    let guard = lock(&a).acquire().await.unwrap();
    broker.stop();
    drop(guard);
    let ((), took) = timed(a.shutdown()).await;
    assert!(took <= Duration::from_secs(3), "{took:?}");
}

/// Time until a waiter has the lock after a store has started.
async fn wait_for_store(change: impl FnOnce(LeasedLock) -> LeasedLock) -> Duration {
    let broker = Hub::new();
    let a = client(broker.link("a")).await;
    let waiter = change(lock(&a));
    let acquired = tokio::spawn(async move { waiter.acquire().await.map(|_| Instant::now()) });
    sleep(Duration::from_secs(100)).await;
    let _service = service(broker.store_link("statestore")).await;
    let since = Instant::now();
    let at = acquired.await.expect("no panic").expect("the lock is free");
    at.duration_since(since)
}

#[tokio::test(start_paused = true)]
async fn retry_sets_the_pauses_of_a_waiter_without_a_store() {
    let usual = wait_for_store(|lock| lock).await;
    assert!(usual <= LEASE / 4, "{usual:?}");
    let pause = Duration::from_secs(1_000);
    let pauses = Backoff { first: pause, longest: pause };
    let patient = wait_for_store(|lock| lock.retry(pauses)).await;
    assert!(patient > pause / 2 - Duration::from_secs(101) && patient <= pause, "{patient:?}");
    let (_broker, _service, a, _) = three().await;
    let wrong = lock(&a).retry(Backoff { first: 2 * pause, longest: pause }).acquire().await;
    assert!(
        matches!(wrong, Err(LockError::Config(LockConfigError::RetryOrder))),
        "{:?}",
        wrong.err()
    );
}
