//! Services at one broker: after a failover the next store continues with the same state.

use statestore_etcd::{Leadership, Role, RoleWatch};
use statestore_loopback::Hub;
use statestore_tokio::service::{Durability, StoreConfig};
use statestore_tokio::{StateStore, Status, StoreService};

use crate::support::{Server, journal};

struct Running {
    service: StoreService,
    role: RoleWatch,
    leadership: Leadership,
}

fn start(hub: &Hub, url: &str, name: &str) -> Running {
    let journal = journal(url, name, 60);
    let (role, leadership) = (journal.role(), journal.leadership());
    let config = StoreConfig::new(7)
        .durability(Durability::All)
        .durable_registrations(true)
        .linearizable_reads(true);
    let service = StoreService::builder().journal(journal).config(config).unwrap();
    // All stores have the same client id, so they share one session.
    let service = service.spawn(hub.store_link("statestore"));
    Running { service, role, leadership }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_of_a_service_is_transparent_to_clients() {
    let Some(server) = Server::start().await else { return };
    let hub = Hub::new();
    let mut first = start(&hub, &server.url(), "first");
    first.service.wait_connected().await.unwrap();
    let client = StateStore::builder().spawn(hub.link("lamp")).unwrap();
    let version = client.set("k", "v").await.unwrap();
    client.set("gone", "v").await.unwrap();
    assert_eq!(client.del("gone").await, Ok(true));

    let mut second = start(&hub, &server.url(), "second");
    while !matches!(second.role.current(), Role::Standby { leader: Some(_), .. }) {
        second.role.changed().await.unwrap();
    }
    assert!(matches!(second.service.status().current(), Status::Offline { .. }));
    assert_eq!(client.get("k").await.unwrap().unwrap().value, "v");

    first.service.shutdown().await;
    first.leadership.resign().await.unwrap();
    assert!(matches!(second.role.settled().await, Some(Role::Leading { epoch: 2, .. })));
    second.service.wait_connected().await.unwrap();
    assert!(client.set("k", "w").await.unwrap() > version);
    assert_eq!(client.get("k").await.unwrap().unwrap().value, "w");
    assert_eq!(client.get("gone").await, Ok(None));
    assert!(matches!(first.role.current(), Role::Lost { .. }));

    // A standby shuts down without leading first.
    let third = start(&hub, &server.url(), "third");
    third.service.shutdown().await;

    // A deposed store ends with an error. A read is enough to detect this.
    server.client().await.delete("/statestore/leader", None).await.unwrap();
    let other = Hub::new();
    let fourth = start(&other, &server.url(), "fourth");
    fourth.service.wait_connected().await.unwrap();
    let read = tokio::spawn(async move { client.get("k").await });
    let closed = second.service.wait_closed().await;
    assert!(closed.to_string().contains("deposed: \"fourth\" leads in epoch 3"), "{closed}");
    assert!(matches!(second.role.current(), Role::Deposed { .. }));
    assert!(!read.is_finished(), "the read got no response");
    read.abort();
}
