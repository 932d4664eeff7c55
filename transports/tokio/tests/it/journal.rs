//! A store with a journal: responses wait for durability, and persisted state is restored.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::limits::StoreLimits;
use statestore_proto::store::{Durability, Record, decode_records, encode_records};
use statestore_tokio::service::{Commit, Journal, SnapshotPart, StoreConfig};
use statestore_tokio::{Error, JournalError, Refusal, ServiceError, Status, StoreService};
use tokio::sync::Semaphore;

use super::client;

/// The content of a disk, shared by all journals on it.
#[derive(Clone)]
struct Disk(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Permits for commits; used only while `holds` is set.
    commits: Semaphore,
}

#[derive(Default)]
struct State {
    holds: bool,
    fails: bool,
    commits: usize,
    snapshot_after: usize,
    since_snapshot: usize,
    log: Vec<Vec<u8>>,
    parts: Vec<Vec<u8>>,
    making: Option<(usize, Vec<Vec<u8>>)>,
    free: Option<u64>,
    /// Bytes that the next commits make free, one item for each.
    to_free: Vec<u64>,
    loaded: usize,
}

impl Disk {
    fn new() -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), commits: Semaphore::new(0) }))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.state.lock().expect("no panic elsewhere"))
    }

    /// Opens the journal as a new process would.
    fn open(&self) -> OnDisk {
        self.with(|state| {
            state.making = None;
            state.loaded = 0;
        });
        OnDisk(self.clone())
    }

    fn service(&self, hub: &Hub, config: StoreConfig) -> StoreService {
        let service = StoreService::builder().journal(self.open()).config(config);
        service.expect("a journal is set").spawn(hub.store_link("statestore"))
    }
}

struct OnDisk(Disk);

impl Journal for OnDisk {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        self.0.with(|state| {
            let next = state.parts.iter().chain(&state.log).nth(state.loaded);
            state.loaded += 1;
            let next = next.map(|bytes| decode_records(bytes).map_err(JournalError::new));
            next.transpose()
        })
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        if self.0.with(|state| state.holds) {
            self.0.0.commits.acquire().await.expect("never closed").forget();
        }
        self.0.with(|state| {
            if state.fails {
                return Err(JournalError::new("the disk is full: free space and restart"));
            }
            state.commits += 1;
            state.since_snapshot += 1;
            if let (Some(free), Some(more)) = (&mut state.free, state.to_free.pop()) {
                *free += more;
            }
            let before = state.log.len();
            if !commit.records.is_empty() {
                state.log.push(encode_records(&commit.records));
            }
            let Some(SnapshotPart { records, is_first, is_last }) = commit.snapshot else {
                return Ok(());
            };
            if is_first {
                state.making = Some((before, Vec::new()));
            }
            let (_, parts) = state.making.as_mut().expect("begun");
            parts.push(encode_records(&records));
            if is_last && let Some((before, parts)) = state.making.take() {
                state.parts = parts;
                state.log.drain(..before);
                state.since_snapshot = 0;
            }
            Ok(())
        })
    }

    fn wants_snapshot(&self) -> bool {
        self.0
            .with(|state| state.snapshot_after > 0 && state.since_snapshot >= state.snapshot_after)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.with(|state| state.free)
    }

    fn can_free_space(&self) -> bool {
        self.0.with(|state| !state.to_free.is_empty())
    }
}

fn all() -> StoreConfig {
    StoreConfig::new(7).durability(Durability::All)
}

#[tokio::test(start_paused = true)]
async fn response_waits_until_its_record_is_durable() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    disk.with(|state| state.holds = true);
    let mut set = std::pin::pin!(async { store.set("k", "v").await });
    let soon = Duration::from_millis(100);
    assert!(tokio::time::timeout(soon, &mut set).await.is_err(), "the response waits for the disk");
    assert_eq!(store.get("other").await, Ok(None), "a request about another key does not wait");
    disk.0.commits.add_permits(1);
    set.await.expect("set");
    assert_eq!(disk.with(|state| state.commits), 1);
}

#[tokio::test(start_paused = true)]
async fn durable_writes_are_refused_while_the_disk_is_almost_full() {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| state.free = Some(65 << 20));
    let service = disk.service(&hub, StoreConfig::new(7));
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    store.set("kept", "v").persist().await.expect("set");
    store.set("gone", "v").persist().await.expect("set");
    for free in [(64 << 20) - 1, 0] {
        disk.with(|state| state.free = Some(free));
        let refused = store.set("k", "v").persist().await.expect_err("no space");
        assert!(matches!(
            refused,
            Error::Refused { error: ServiceError::Known(Refusal::QuotaExceeded), .. }
        ));
        store.set("in memory", "v").await.expect("set");
    }
    disk.with(|state| state.free = Some(40 << 20));
    assert!(store.del("gone").await.expect("a deletion needs little"));
    disk.with(|state| state.free = Some(1 << 30));
    store.set("k", "v").persist().await.expect("set");
}

/// The disk is measured between commits, and a burst comes during one.
#[tokio::test(start_paused = true)]
async fn burst_of_durable_writes_is_refused_before_the_disk_is_full() {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| (state.free, state.holds) = (Some(68 << 20), true));
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    let value = vec![b'v'; 256 << 10];
    let sets: Vec<_> = (0..20)
        .map(|at| tokio::spawn(store.set(format!("k{at}"), value.clone()).into_future()))
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    disk.with(|state| state.holds = false);
    disk.0.commits.add_permits(1);
    let mut refused = 0;
    for set in sets {
        refused += usize::from(set.await.expect("no panic").is_err());
    }
    // Each takes half a megabyte of the four that are not reserved.
    assert_eq!(refused, 20 - 8);
}

#[tokio::test(start_paused = true)]
async fn records_of_a_commit_take_at_most_record_bytes_max() {
    const VALUE: usize = 256 << 10;
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| state.holds = true);
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    let sets: Vec<_> = (0..60)
        .map(|at| tokio::spawn(store.set(format!("k{at}"), vec![b'v'; VALUE]).into_future()))
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    disk.with(|state| state.holds = false);
    disk.0.commits.add_permits(1);
    for set in sets {
        set.await.expect("no panic").expect("set");
    }
    let longest = disk.with(|state| state.log.iter().map(Vec::len).max()).unwrap_or_default();
    let max = StoreLimits::default().record_bytes_max;
    assert!((max - 2 * VALUE..max + 16_384).contains(&longest), "{longest} bytes in one commit");
}

/// Keys expire even if the storage is full, and the records of expiries contain the keys.
#[tokio::test(start_paused = true)]
async fn space_to_remove_all_keys_is_reserved() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    disk.with(|state| state.free = Some((64 << 20) + (1 << 20)));
    let key = |at: usize| format!("{at:020000}");
    let mut stored = 0;
    while stored < 1_000 && store.set(key(stored), "v").await.is_ok() {
        stored += 1;
    }
    // A key takes 20,058 bytes of the MiB. The last record still counts with twice its bytes.
    assert_eq!(stored, ((1 << 20) - 2 * 20_000) / 20_058 + 1);
    for at in 0..stored {
        assert!(store.del(key(at)).await.expect("del"));
    }
    disk.with(|state| state.free = Some(80 << 20));
    store.set("k", "v").await.expect("set");
}

#[tokio::test(start_paused = true)]
async fn deletions_are_refused_below_half_of_the_reserve() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    for key in ["a", "b", "c"] {
        store.set(key, "v").await.expect("set");
    }
    // After a limit was reached, 9/8 of it must be free.
    for (free, key, is_deleted) in
        [(33_u64, "a", true), (31, "b", false), (33, "b", false), (37, "b", true)]
    {
        disk.with(|state| state.free = Some(free << 20));
        let result = store.del(key).await;
        assert_eq!(result.is_ok(), is_deleted, "{free} MiB free: {result:?}");
        store.get("c").await.expect("get");
    }
    disk.with(|state| state.free = Some(80 << 20));
    store.set("k", "v").await.expect("set");
}

#[tokio::test(start_paused = true)]
async fn volatile_writes_need_no_space() {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| state.free = Some((64 << 20) + (1 << 20)));
    let service = disk.service(&hub, StoreConfig::new(7).durability(Durability::Requested));
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    let value = vec![b'v'; 1 << 20];
    let sets = ["a", "b", "c"].map(|key| tokio::spawn(store.set(key, value.clone()).into_future()));
    store.set("durable", "v").persist().await.expect("a durable set");
    for set in sets {
        set.await.expect("no panic").expect("a volatile set");
    }
}

/// What is deleted is free after a snapshot, which is not due otherwise.
#[tokio::test(start_paused = true)]
async fn full_storage_makes_a_snapshot_after_changes() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    store.set("gone", "v").await.expect("set");
    disk.with(|state| state.free = Some(40 << 20));
    assert!(store.del("gone").await.expect("del"));
    store.get("any").await.expect("get");
    assert_eq!(disk.with(|state| (state.parts.len(), state.log.len())), (1, 1));
    // Not again at once, and not without a change.
    assert!(!store.del("gone").await.expect("del"));
    tokio::time::sleep(Duration::from_secs(120)).await;
    store.get("any").await.expect("get");
    assert_eq!(disk.with(|state| state.parts.len()), 1);
}

/// A journal removes old records only with a commit, and a full store gets no writes.
#[tokio::test(start_paused = true)]
async fn full_storage_makes_commits_that_free_space_until_sets_are_accepted() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    store.set("k", "v").await.expect("set");
    let commits = disk.with(|state| state.commits);
    disk.with(|state| {
        // A snapshot does not fit.
        state.free = Some(16 << 20);
        state.to_free = vec![8 << 20; 10];
    });
    store.get("any").await.expect("get");
    tokio::time::sleep(Duration::from_millis(100)).await;
    // 9/8 of the reserve, which are 72 MiB, and the bytes of the record that removes the key are free
    // after eight commits.
    assert_eq!(disk.with(|state| (state.commits - commits, state.to_free.len())), (8, 2));
    store.set("k", "w").await.expect("space is free again");
}

/// A snapshot that does not fit would end the store.
#[tokio::test(start_paused = true)]
async fn snapshot_waits_until_it_fits() {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| (state.snapshot_after, state.free) = (1, Some(64 << 20)));
    let reserve = StoreService::builder().journal(disk.open()).storage_reserve(0);
    let service =
        reserve.config(all()).expect("a journal is set").spawn(hub.store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    disk.with(|state| state.free = Some(4 << 20));
    for at in 0..3 {
        store.set(format!("k{at}"), "v").await.expect("set");
    }
    assert_eq!(disk.with(|state| (state.parts.len(), state.log.len())), (0, 3));
    disk.with(|state| state.free = Some(64 << 20));
    store.set("k3", "v").await.expect("set");
    store.set("k4", "v").await.expect("set");
    assert!(disk.with(|state| state.parts.len()) > 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_records_form_one_commit() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    disk.with(|state| state.holds = true);
    let sets: Vec<_> = (0..100)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.set(format!("k{number}"), "v").await.map(drop) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    disk.0.commits.add_permits(2);
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
async fn restarted_store_restores_persisted_state() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    let store = client(hub.link("c")).await;
    let version = store.set("k", "v").await.expect("set");
    store.set("gone", "v").await.expect("set");
    assert_eq!(store.del("gone").await, Ok(true));
    service.shutdown().await;
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    assert_eq!((service.stats().keys, store.get("gone").await), (1, Ok(None)));
    let found = store.get("k").await.expect("get").expect("the key was persisted");
    assert_eq!((&found.value[..], found.version), (&b"v"[..], Some(version.clone())));
    assert!(store.set("k", "w").await.expect("set") > version);
}

#[tokio::test(start_paused = true)]
async fn only_requested_keys_are_persisted_by_default() {
    for is_configured in [false, true] {
        let (hub, disk) = (Hub::new(), Disk::new());
        let journal = || {
            let service = StoreService::builder().journal(disk.open());
            if !is_configured {
                return service;
            }
            // A configuration without durability does not change the default.
            service.config(StoreConfig::new(7)).expect("a journal is set")
        };
        let service = journal().spawn(hub.store_link("statestore"));
        let store = client(hub.link("c")).await;
        store.set("plain", "v").await.expect("set");
        store.set("kept", "v").persist().await.expect("set");
        service.shutdown().await;
        let service = journal().spawn(hub.store_link("statestore"));
        service.wait_connected().await.expect("the store connects");
        assert_eq!(store.get("plain").await, Ok(None));
        assert!(store.get("kept").await.expect("get").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn failed_commit_ends_the_service_without_a_response() {
    let (hub, disk) = (Hub::new(), Disk::new());
    let service = disk.service(&hub, all());
    let store = client(hub.link("c")).await;
    store.set("k", "1").await.expect("set");
    disk.with(|state| state.fails = true);
    assert_eq!(store.set("k", "2").await, Err(Error::TimedOut));
    let closed = service.wait_closed().await;
    let reason = closed.reason.expect("a reason");
    assert!(reason.is_journal() && reason.to_string().contains("free space"), "{reason}");
    assert_eq!(service.status().current(), Status::Failed(reason));
    disk.with(|state| state.fails = false);
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    assert_eq!(store.get("k").await.expect("get").expect("the key was persisted").value, "1");
}

#[tokio::test(start_paused = true)]
async fn unreadable_journal_ends_the_service() {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| state.log.push(b"nonsense".to_vec()));
    let service = disk.service(&hub, all());
    let closed = service.wait_closed().await;
    let reason = closed.reason.expect("a reason");
    assert!(reason.is_journal() && reason.to_string().contains("corrupt"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn snapshot_replaces_the_log_of_a_running_store() {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(|state| state.snapshot_after = 50);
    let service = disk.service(&hub, all());
    let store = client(hub.link("c")).await;
    let value = |round: u32, number: u32| format!("{round}-{number}").repeat(1_000);
    for round in 0..10 {
        for number in 0..40 {
            store.set(format!("k{number}"), value(round, number)).await.expect("set");
        }
    }
    service.shutdown().await;
    let (parts, log) = disk.with(|state| (state.parts.len(), state.log.len()));
    assert!(parts > 1 && log < 200, "{parts} parts, {log} batches");
    let service = disk.service(&hub, all());
    service.wait_connected().await.expect("the store connects");
    assert_eq!(service.stats().keys, 40);
    for number in 0..40 {
        let found =
            store.get(format!("k{number}")).await.expect("get").expect("the key was persisted");
        assert!(found.value == value(9, number), "k{number}");
    }
}
