//! Leases in real time: locks, elections, and values that expire.

use std::time::Duration;

use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{HolderStatus, LossReason};
use statestore_tokio::{
    Error, HolderWatch, LockError, LockGuard, LockLost, StateStore, StoreService,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{PATIENCE, Stage, change, client, impatient_client, service};

/// A lease that outlasts the restart of a broker and the delays of a busy machine.
const LEASE: Duration = Duration::from_secs(20);

/// Soon enough to be waited for.
const RENEWAL: Duration = Duration::from_millis(100);

pub(super) async fn locks<S: Stage>(stage: &S) {
    let (service, a, b) =
        (service(stage).await, client(stage, "a").await, client(stage, "b").await);
    let lock = a.lock("lock").lease(LEASE).renew_after(RENEWAL);
    let held = lock.acquire().await.expect("free");
    let first = token(&held);
    assert!(b.lock("lock").try_acquire().await.expect("an answer").is_none(), "taken");
    held.set("valve", "open").await.expect("held");
    until(|| held.token().is_some_and(|token| token > first)).await;
    let renewed = token(&held);

    let waiting = waiter(&service, &b).await;
    assert_eq!(held.release().await, Ok(true));
    let held = acquired(waiting).await;
    let second = token(&held);
    assert!(second > renewed, "{second} after {renewed}");
    held.set("valve", "half").await.expect("held");

    // A holder that has waited watches its key, so it is notified of the deletion. Its next renewal
    // would be too late for this case.
    assert_eq!(a.del("lock").await, Ok(true));
    let lost = held.wait_lost().await;
    assert_eq!(lost, LockLost::Lost(LossReason::Deleted));
    let newer = a.lock("lock").acquire().await.expect("free");
    assert!(token(&newer) > second);
    newer.set("valve", "shut").await.expect("held");
    assert_eq!(held.set("valve", "open").await, Err(Error::LockLost(lost)));
    // A write that was sent before the loss and arrives late.
    let late = b.set("valve", "open").fencing_token(second).await;
    assert!(matches!(late, Err(Error::Refused { .. })), "{late:?}");
    assert_eq!(b.get("valve").await.expect("get").expect("it was set").value, "shut");
    assert_eq!(newer.release().await, Ok(true));
    assert_eq!(b.lock("lock").holder().await, Ok(None));
}

pub(super) async fn locks_over_a_restart<S: Stage>(stage: &mut S) {
    let service = service(stage).await;
    let (a, b) = (impatient_client(stage, "a").await, impatient_client(stage, "b").await);
    let lock = a.lock("lock").lease(LEASE).renew_after(RENEWAL);
    let held = lock.acquire().await.expect("free");
    let waiting = waiter(&service, &b).await;
    let before = token(&held);
    stage.restart();
    // Packets in transit may count as one renewal; the next one is of the new connection.
    let mut last = before;
    for _ in 0..2 {
        until(|| held.token().is_some_and(|token| token > last)).await;
        last = token(&held);
    }
    assert!(!waiting.is_finished(), "it is held all the time");
    assert_eq!(held.release().await, Ok(true));
    assert!(token(&acquired(waiting).await) > last);
}

pub(super) async fn elections<S: Stage>(stage: &S) {
    let (_service, watcher) = (service(stage).await, client(stage, "o").await);
    let (a, b) = (client(stage, "a").await, client(stage, "b").await);
    let mut leaders = watcher.election("leader").watch().await.expect("watch");
    assert_eq!(leaders.next().await, Some(HolderStatus::Free));
    let leads = a.election("leader").campaign().await.expect("the key is free");
    assert_eq!(leader(&mut leaders).await.as_deref(), Some("a"));
    let found = watcher.election("leader").leader().await.expect("get").expect("there is one");
    assert_eq!(found.name(), b"a");
    let candidate = b.election("leader").name("candidate");
    let campaign = tokio::spawn(async move { candidate.campaign().await });
    assert_eq!(leads.resign().await, Ok(true));
    assert_eq!(leader(&mut leaders).await, None);
    assert_eq!(leader(&mut leaders).await.as_deref(), Some("candidate"));
    drop(campaign.await.expect("no panic").expect("elected"));
    assert_eq!(leader(&mut leaders).await, None, "dropping it resigns");
}

pub(super) async fn expiry_is_told<S: Stage>(stage: &S) {
    let (service, store) = (service(stage).await, client(stage, "a").await);
    let mut changes = client(stage, "b").await.watch("k").await.expect("watch");
    let (lifetime, set_at) = (Duration::from_millis(300), Instant::now());
    store.set("k", "v").expires_after(lifetime).await.expect("set");
    assert_eq!(change(&mut changes).await.as_deref(), Some(&b"v"[..]));
    assert_eq!(change(&mut changes).await, None);
    let took = set_at.elapsed();
    // The store counts in whole milliseconds.
    assert!(took >= lifetime - Duration::from_millis(1), "too early, after {took:?}");
    assert_eq!((store.get("k").await, service.stats().keys), (Ok(None), 0));
}

fn token(guard: &LockGuard) -> FencingToken {
    guard.token().expect("it is held")
}

/// A waiter that relies on notifications alone, once it is registered: without one, it would try or
/// renew the lock only after the time limit of a case.
async fn waiter(
    service: &StoreService,
    store: &StateStore,
) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = store.lock("lock").lease(PATIENCE * 4).max_lease(PATIENCE * 2);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(|| service.stats().registrations == 1).await;
    waiting
}

async fn acquired(waiting: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    waiting.await.expect("no panic").expect("free")
}

/// Interval of polling for changes without a notification. A case that waits too long fails.
async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// The name of the next leader that is reported.
async fn leader(leaders: &mut HolderWatch) -> Option<String> {
    match leaders.next().await.expect("the watch goes on") {
        HolderStatus::Held(holder) => Some(String::from_utf8_lossy(holder.name()).into_owned()),
        HolderStatus::Free => None,
        HolderStatus::Unknown => panic!("the connection was lost"),
    }
}
