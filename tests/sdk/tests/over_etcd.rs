//! The SDK's clients beside mosquitto, while one store over etcd follows the other.

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

/// Of the lead, and longer than two fail-overs.
const LEASE: Duration = Duration::from_secs(2);
const TERM: Duration = Duration::from_secs(60);

/// A store that stands by, or leads.
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
async fn locks_values_and_observations_go_on_with_the_next_store() {
    let test = "over_etcd";
    let (Some(etcd), Some(broker)) = (Etcd::start(test), Mosquitto::start(test)) else { return };
    let (first, _) = store(&etcd, broker.port());
    first.wait_connected().await.expect("it leads");
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
    let (told, _) = observed.recv_notification().await.expect("it goes on");
    assert_eq!(told.operation, Operation::Set(b"1".to_vec()));

    // It ends without handing over, so the other waits for the lease.
    drop(first);
    assert!(matches!(role.settled().await, Some(Role::Leading { epoch: 2, .. })));
    second.wait_connected().await.expect("it leads");

    let found = two.client.get(b"k".into(), TIMEOUT).await.expect("get");
    assert_eq!(found.response.as_deref(), Some(&b"1"[..]));
    let order = |clock: &dyn ToString| clock.to_string().parse::<Hlc>().expect("a clock");
    let renewed = lease.acquire(TERM, TIMEOUT, None).await.expect("its own still");
    assert!(order(&renewed) > order(&before));
    // Whoever had the lock has it, and whoever waits for it waits.
    assert!(set("2", Some(token.clone())).await.expect("set").response, "its token is good");
    let (told, _) = observed.recv_notification().await.expect("it goes on");
    assert_eq!(
        told.operation,
        Operation::Set(b"2".to_vec()),
        "registered once, and told by the next"
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
