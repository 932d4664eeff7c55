//! The SDK's clients with mosquitto, during a failover between stores over etcd.

use std::time::Duration;

use azure_iot_operations_services::leased_lock::{lease, lock};
use azure_iot_operations_services::state_store::{Operation, SetOptions};
use statestore_client::{ClientLink, Options};
use statestore_etcd::{EtcdJournal, Role, RoleWatch};
use statestore_proto::hlc::Hlc;
use statestore_proto::store::{Durability, StoreConfig};
use statestore_sdk_tests::{Application, TIMEOUT};
use statestore_testkit::brokers::Etcd;
use statestore_testkit::brokers::Mosquitto;
use statestore_tokio::StoreService;

/// Lease of the leader. A lock must outlive two failovers.
const LEASE: Duration = Duration::from_secs(2);
const TERM: Duration = Duration::from_secs(60);

/// Starts a store, which leads or becomes a standby.
fn store(etcd: &Etcd, port: u16) -> (StoreService, RoleWatch) {
    let options = statestore_etcd::Options::new([etcd.url()]).lease(LEASE);
    let journal = EtcdJournal::new(options).expect("options");
    let role = journal.role();
    let config = StoreConfig::new(7)
        .durability(Durability::All)
        .durable_registrations(true)
        .linearizable_reads(true);
    let service = StoreService::builder().journal(journal).config(config).expect("a journal");
    let link = ClientLink::for_store(Options::new("statestore", "127.0.0.1", port));
    (service.spawn(link), role)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_values_and_observations_survive_a_failover() {
    let test = "over_etcd";
    let (Some(etcd), Some(broker)) = (Etcd::start(test), Mosquitto::start(test)) else { return };
    let (first, _) = store(&etcd, broker.port());
    first.wait_connected().await.expect("the store leads");
    let (second, mut role) = store(&etcd, broker.port());

    let one = Application::connect("sdk-1", broker.port());
    let two = Application::connect("sdk-2", broker.port());
    let lock_of = |application: &Application, holder: &str| {
        lock::Client::new(application.client.clone(), b"lock".into(), holder.into())
            .expect("a lock")
    };
    let (holder, waiter) = (lock_of(&one, "sdk-1"), lock_of(&two, "sdk-2"));
    let token = holder.lock(TERM, TIMEOUT, None).await.expect("free");
    let lease = lease::Client::new(one.client.clone(), b"lease".into(), b"sdk-1".into());
    let lease = lease.expect("a lease");
    let before = lease.acquire(TERM, TIMEOUT, None).await.expect("free");
    let mut observed = two.client.observe(b"k".into(), TIMEOUT).await.expect("observe").response;
    let set = |value: &'static str, token| {
        let options = SetOptions::default();
        one.client.set(b"k".into(), value.into(), TIMEOUT, token, options)
    };
    assert!(set("1", Some(token.clone())).await.expect("set").response);
    let (notified, _) = observed.recv_notification().await.expect("a notification");
    assert_eq!(notified.operation, Operation::Set(b"1".to_vec()));

    // The store ends without handing over, so the standby waits for the lease.
    drop(first);
    assert!(matches!(role.settled().await, Some(Role::Leading { epoch: 2, .. })));
    second.wait_connected().await.expect("the store leads");

    let found = two.client.get(b"k".into(), TIMEOUT).await.expect("get");
    assert_eq!(found.response.as_deref(), Some(&b"1"[..]));
    let order = |clock: &dyn ToString| clock.to_string().parse::<Hlc>().expect("a clock");
    let renewed = lease.acquire(TERM, TIMEOUT, None).await.expect("renewed by its holder");
    assert!(order(&renewed) > order(&before));
    // The lock has the same holder, and the other client still waits.
    assert!(set("2", Some(token.clone())).await.expect("set").response, "a valid token");
    let (notified, _) = observed.recv_notification().await.expect("a notification");
    assert_eq!(
        notified.operation,
        Operation::Set(b"2".to_vec()),
        "the next store has the registration"
    );
    let waiting = tokio::spawn(async move { waiter.lock(TERM, TIMEOUT, None).await });
    while lease::Client::new(two.client.clone(), b"lock".into(), b"x".into())
        .expect("a lease")
        .get_holder(TIMEOUT)
        .await
        .expect("a query")
        .as_deref()
        != Some(b"sdk-1")
    {}
    holder.unlock(TIMEOUT).await.expect("unlock");
    let next = waiting.await.expect("no panic").expect("free after the release");
    assert!(order(&next) > order(&token), "a new holder has a newer token");
    assert!(set("3", Some(next)).await.expect("set").response);
    assert!(set("4", Some(token)).await.is_err(), "an old token");
    one.close().await;
    two.close().await;
    second.shutdown().await;
}
