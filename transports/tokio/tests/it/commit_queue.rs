//! Commits that the journal takes itself.

use std::future::IntoFuture as _;
use std::time::Duration;

use statestore_loopback::{Hub, HubLink};
use statestore_proto::transport::Transmit;
use statestore_tokio::{
    Connected, Error, Link, LinkError, LinkEvent, StateStore, Status, StoreService,
};
use tokio::task::JoinHandle;

use super::client;
use super::disk::{Disk, Idle};
use super::journal::{Started, all, started};

const SOON: Duration = Duration::from_millis(5);

type Set = JoinHandle<Result<(), Error>>;

/// Spawns SETs of keys, one after the other.
async fn spawn_sets<const N: usize>(store: &StateStore, keys: [&'static str; N]) -> [Set; N] {
    let mut sets = Vec::new();
    for key in keys {
        let set = store.set(key, "v").into_future();
        sets.push(tokio::spawn(async { set.await.map(drop) }));
        tokio::time::sleep(SOON).await;
    }
    sets.try_into().expect("one for each key")
}

#[tokio::test(start_paused = true)]
async fn waiting_records_form_one_commit() {
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
    disk.with(|state| state.holds = true);
    let [first] = spawn_sets(store, ["first"]).await;
    let mut sets = vec![first];
    sets.extend((0..100).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { store.set(format!("k{number}"), "v").await.map(drop) })
    }));
    tokio::time::sleep(Duration::from_millis(100)).await;
    disk.permit_commits(2);
    for set in sets {
        assert_eq!(set.await.expect("it ends"), Ok(()));
    }
    assert_eq!(
        disk.with(|state| state.commits),
        2,
        "the first record, and all later ones together"
    );
}

#[tokio::test(start_paused = true)]
async fn responses_of_queued_commits_are_sent_in_turn() {
    let running = started(all(), |state| state.holds = true).await;
    let Started { disk, store, .. } = &running;
    let [first, mut second] = spawn_sets(store, ["a", "b"]).await;
    assert!(!first.is_finished() && !second.is_finished());
    disk.permit_commits(1);
    first.await.expect("no panic").expect("the first commit is durable");
    assert!(tokio::time::timeout(SOON, &mut second).await.is_err(), "the second is not");
    disk.permit_commits(1);
    second.await.expect("no panic").expect("the second commit is durable");
    assert_eq!(disk.with(|state| state.commits), 2);
}

#[tokio::test(start_paused = true)]
async fn record_joins_the_commit_that_waits_for_a_slow_disk() {
    let running = started(all(), |state| state.holds = true).await;
    let Started { disk, store, .. } = &running;
    let mut sets = Vec::new();
    for (key, pause) in [("first", 5), ("second", 100), ("third", 100)] {
        sets.push(tokio::spawn(store.set(key, "v").into_future()));
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    disk.permit_commits(2);
    for set in sets {
        set.await.expect("no panic").expect("set");
    }
    assert_eq!(disk.with(|state| state.commits), 2);
}

/// A link that sends when it waits for an event, as one with an MQTT session does.
struct Buffering(HubLink, Vec<Transmit>);

impl Buffering {
    fn flush(&mut self) {
        for transmit in self.1.drain(..) {
            assert!(self.0.try_send(transmit).is_ok(), "a hub accepts every packet");
        }
    }
}

impl Link for Buffering {
    type Message = <HubLink as Link>::Message;

    fn client_id(&self) -> &str {
        self.0.client_id()
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.0.connect().await
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        self.1.push(transmit);
        Ok(())
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Self::Message>, LinkError> {
        self.flush();
        self.0.next_event(messages).await
    }

    async fn disconnect(&mut self) {
        self.flush();
        self.0.disconnect().await;
    }
}

/// The service chooses at random whether it serves the link or the journal first.
#[tokio::test(start_paused = true)]
async fn response_of_a_durable_commit_is_sent_although_the_next_commit_fails() {
    for _ in 0..20 {
        let (hub, disk) = (Hub::new(), Disk::new());
        disk.with(|state| state.holds = true);
        let service = StoreService::builder().journal(disk.open()).config(all());
        let link = Buffering(hub.store_link("statestore"), Vec::new());
        let service = service.expect("a journal is set").spawn(link);
        service.wait_connected().await.expect("the store connects");
        let store = client(hub.link("c")).await;
        let [first, second] = spawn_sets(&store, ["a", "b"]).await;
        disk.with(|state| state.fails_after = Some(1));
        disk.permit_commits(2);
        assert_eq!(first.await.expect("no panic"), Ok(()), "its commit is durable");
        assert_eq!(second.await.expect("no panic"), Err(Error::TimedOut));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_commit_is_persisted_before_the_service_ends() {
    let Started { disk, store, service, .. } = started(all(), |state| state.holds = true).await;
    let sets = spawn_sets(&store, ["a", "b"]).await;
    let ending = tokio::spawn(service.shutdown());
    tokio::time::sleep(SOON).await;
    disk.permit_commits(2);
    ending.await.expect("no panic");
    for set in sets {
        assert_eq!(set.await.expect("no panic"), Ok(()));
    }
    let log = disk.with(|state| core::mem::take(&mut state.log));
    assert_eq!(log.len(), 2, "a commit for each SET");
}

#[tokio::test(start_paused = true)]
async fn status_has_the_error_of_a_commit_that_fails_during_a_shutdown() {
    let Started { disk, store, service, .. } = started(all(), |state| state.holds = true).await;
    let [set] = spawn_sets(&store, ["a"]).await;
    let mut status = service.status();
    let ending = tokio::spawn(service.shutdown());
    tokio::time::sleep(SOON).await;
    disk.with(|state| state.fails = true);
    disk.permit_commits(1);
    ending.await.expect("no panic");
    assert!(set.await.expect("no panic").is_err());
    let status = status.current();
    assert!(matches!(&status, Status::Failed(reason) if reason.is_journal()), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn journal_that_does_not_take_the_next_commit_ends_the_service() {
    let hub = Hub::new();
    let service = StoreService::builder().journal(Idle).config(all());
    let service = service.expect("a journal is set").spawn(hub.store_link("statestore"));
    let store = client(hub.link("c")).await;
    assert!(store.set("k", "v").await.is_err());
    let reason = service.wait_closed().await.reason.expect("a reason");
    assert!(reason.is_journal() && reason.to_string().contains("next commit"), "{reason}");
}
