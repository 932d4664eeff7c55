//! A store with a journal: responses wait for durability, and persisted state is restored.

use std::future::IntoFuture as _;
use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::limits::StoreLimits;
use statestore_proto::store::{Durability, Record, encode_records};
use statestore_testkit::process::Log;
use statestore_tokio::service::StoreConfig;
use statestore_tokio::{Error, Refusal, ServiceError, StateStore, Status, StoreService};

use super::client;
use super::disk::{Disk, Lingering, State};

pub(crate) fn all() -> StoreConfig {
    StoreConfig::new(7).durability(Durability::All)
}

/// A running store on a disk, with a client.
pub(crate) struct Started {
    pub(crate) disk: Disk,
    pub(crate) store: StateStore,
    pub(crate) service: StoreService,
    _hub: Hub,
}

/// Starts a store with this configuration, on a disk in this state.
pub(crate) async fn started(config: StoreConfig, prepare: impl FnOnce(&mut State)) -> Started {
    let (hub, disk) = (Hub::new(), Disk::new());
    disk.with(prepare);
    let service = disk.service(&hub, config);
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    Started { disk, store, service, _hub: hub }
}

impl Started {
    /// Sends SETs during a commit that is held, then ends the commit. Returns how many are refused.
    async fn burst(&self, count: usize, value: &[u8]) -> usize {
        let sets: Vec<_> = (0..count)
            .map(|at| tokio::spawn(self.store.set(format!("k{at}"), value.to_vec()).into_future()))
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.disk.with(|state| state.holds = false);
        self.disk.permit_commits(1);
        let mut refused = 0;
        for set in sets {
            refused += usize::from(set.await.expect("no panic").is_err());
        }
        refused
    }
}

#[tokio::test(start_paused = true)]
async fn restored_versions_ahead_of_the_wall_clock_are_reported() {
    let log = Log::listen();
    let version = "99999999999999:0:StateStore".parse().expect("a version");
    let records = encode_records(&[Record::Issued { version }]);
    let running = started(all(), |state| state.log.push(records)).await;
    let warnings = log.with(&["WARN", "versions of the store are ahead", "ahead_s="]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn response_waits_until_its_record_is_durable() {
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
    disk.with(|state| state.holds = true);
    let mut set = std::pin::pin!(async { store.set("k", "v").await });
    let soon = Duration::from_millis(100);
    assert!(tokio::time::timeout(soon, &mut set).await.is_err(), "the response waits for the disk");
    assert_eq!(store.get("other").await, Ok(None), "a request about another key does not wait");
    disk.permit_commits(1);
    set.await.expect("set");
    assert_eq!(disk.with(|state| state.commits), 1);
}

#[tokio::test(start_paused = true)]
async fn durable_writes_are_refused_while_the_disk_is_almost_full() {
    let running = started(StoreConfig::new(7), |state| state.free = Some(65 << 20)).await;
    let Started { disk, store, .. } = &running;
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
    let running = started(all(), |state| (state.free, state.holds) = (Some(68 << 20), true)).await;
    let refused = running.burst(20, &[b'v'; 256 << 10]).await;
    // Each takes half a megabyte of the four that are not reserved.
    assert_eq!(refused, 20 - 8);
}

#[tokio::test(start_paused = true)]
async fn records_of_a_commit_take_at_most_record_bytes_max() {
    const VALUE: usize = 256 << 10;
    let running = started(all(), |state| state.holds = true).await;
    let Started { disk, .. } = &running;
    assert_eq!(running.burst(60, &[b'v'; VALUE]).await, 0);
    let longest = disk.with(|state| state.log.iter().map(Vec::len).max()).unwrap_or_default();
    let max = StoreLimits::default().record_bytes_max;
    assert!((max - 2 * VALUE..max + 16_384).contains(&longest), "{longest} bytes in one commit");
}

/// Keys expire even if the storage is full, and the records of expiries contain the keys.
#[tokio::test(start_paused = true)]
async fn space_to_remove_all_keys_is_reserved() {
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
    disk.with(|state| state.free = Some((64 << 20) + (1 << 20)));
    let key = |at: usize| format!("{at:020000}");
    let mut stored = 0;
    while stored < 1_000 && store.set(key(stored), "v").await.is_ok() {
        stored += 1;
    }
    // The removal of a key needs twice 20,042 bytes of the MiB. When the last SET is recorded, twice
    // the bytes of its record count too.
    assert_eq!(stored, ((1 << 20) - 2 * 20_000) / (2 * 20_042) + 1);
    for at in 0..stored {
        assert!(store.del(key(at)).await.expect("del"));
    }
    disk.with(|state| state.free = Some(80 << 20));
    store.set("k", "v").await.expect("set");
}

#[tokio::test(start_paused = true)]
async fn reads_and_deletions_are_executed_on_a_full_disk() {
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
    for key in ["a", "b", "c"] {
        store.set(key, "v").await.expect("set");
    }
    for (free, key) in [(33_u64, "a"), (1, "b")] {
        disk.with(|state| state.free = Some(free << 20));
        assert!(store.del(key).await.expect("del"), "{free} MiB free");
        store.get("c").await.expect("get");
        store.set(key, "v").await.expect_err("no space");
    }
    // 9/8 of the reserve must be free again.
    for (free, is_accepted) in [(71_u64, false), (73, true)] {
        disk.with(|state| state.free = Some(free << 20));
        assert_eq!(store.set("k", "v").await.is_ok(), is_accepted, "{free} MiB free");
    }
}

#[tokio::test(start_paused = true)]
async fn volatile_writes_need_no_space() {
    let running = started(StoreConfig::new(7).durability(Durability::Requested), |state| {
        state.free = Some((64 << 20) + (1 << 20))
    })
    .await;
    let Started { store, .. } = &running;
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
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
    for key in ["gone", "other", "third"] {
        store.set(key, "v").await.expect("set");
    }
    disk.with(|state| state.free = Some(40 << 20));
    assert!(store.del("gone").await.expect("del"));
    store.get("any").await.expect("get");
    assert_eq!(disk.with(|state| (state.snapshots, state.log.len())), (1, 1));
    tokio::time::sleep(Duration::from_secs(120)).await;
    store.get("any").await.expect("get");
    assert_eq!(disk.with(|state| state.snapshots), 1, "not without a change");
    assert!(store.del("other").await.expect("del"));
    assert_eq!(disk.with(|state| state.snapshots), 2);
    assert!(store.del("third").await.expect("del"));
    store.get("any").await.expect("get");
    assert_eq!(disk.with(|state| state.snapshots), 2, "not again within a minute");
}

/// A journal removes old records only with a commit, and a full store gets no writes.
#[tokio::test(start_paused = true)]
async fn full_storage_makes_commits_that_free_space_until_sets_are_accepted() {
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
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

/// The parts of a snapshot need a commit with all records.
#[tokio::test(start_paused = true)]
async fn snapshots_are_made_during_a_flood_of_writes() {
    let takes = Duration::from_millis(10);
    let running = started(all(), |state| (state.snapshot_after, state.takes) = (1, takes)).await;
    let Started { disk, store, .. } = &running;
    // More than a commit may contain.
    let writers: Vec<_> = (0..40)
        .map(|at| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let value = vec![b'v'; 256 << 10];
                    store.set(format!("k{at}"), value).await.expect("set");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no panic");
    }
    let (snapshots, commits) = disk.with(|state| (state.snapshots, state.commits));
    assert!(snapshots >= 2, "{snapshots} snapshots in {commits} commits");
}

/// The parts of a snapshot need the space that was free when it began.
#[tokio::test(start_paused = true)]
async fn space_for_the_rest_of_a_snapshot_is_reserved() {
    let running = started(all(), |state| state.free = Some(1 << 30)).await;
    let Started { disk, store, .. } = &running;
    for at in 0..100 {
        store.set(format!("k{at}"), vec![b'v'; 100_000]).await.expect("set");
    }
    disk.with(|state| (state.holds, state.snapshot_after) = (true, 1));
    // The first part begins, and then others follow while 10 MB are left.
    for (free, is_accepted) in [(90_u64, true), (70, false), (80, false)] {
        store.get("any").await.expect("get");
        disk.with(|state| state.free = Some(free << 20));
        // The SET of the last round is in the second commit.
        disk.permit_commits(2);
        store.get("any").await.expect("get");
        let result =
            store.set(format!("new-{free}"), "v").timeout(Duration::from_millis(100)).await;
        let is_refused = matches!(result, Err(Error::Refused { .. }));
        assert_eq!(!is_refused, is_accepted, "{free} MiB free: {result:?}");
    }
    disk.with(|state| (state.holds, state.snapshot_after) = (false, 0));
    disk.permit_commits(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(disk.with(|state| state.snapshots), 1);
    store.set("new", "v").await.expect("80 MiB are enough");
}

/// The journal never becomes idle by itself, since records always wait.
#[tokio::test(start_paused = true)]
async fn snapshots_between_small_writes_are_made_and_restored() {
    for lingers in [false, true] {
        let (hub, disk) = (Hub::new(), Disk::new());
        disk.with(|state| (state.snapshot_after, state.takes) = (20, Duration::from_millis(10)));
        let service = StoreService::builder();
        let service = match lingers {
            true => service.journal(Lingering(disk.open())),
            false => service.journal(disk.open()),
        };
        let service =
            service.config(all()).expect("a journal is set").spawn(hub.store_link("statestore"));
        let store = client(hub.link("c")).await;
        let value = |at: u64, round: u64| format!("{at}-{round}").repeat(500);
        let writers: Vec<_> = (0..8)
            .map(|at| {
                let store = store.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(at)).await;
                    for round in 0..200 {
                        store.set(format!("k{at}"), value(at, round)).await.expect("set");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("no panic");
        }
        service.shutdown().await;
        let (snapshots, commits) = disk.with(|state| (state.snapshots, state.commits));
        // A snapshot is due after twenty commits, and has parts in about ten.
        assert!(snapshots > 5, "{snapshots} snapshots in {commits} commits");
        let service = disk.service(&hub, all());
        service.wait_connected().await.expect("the store connects");
        for at in 0..8 {
            let found = store.get(format!("k{at}")).await.expect("get").expect("it was persisted");
            assert_eq!(found.value, value(at, 199).as_bytes());
        }
    }
}

/// A part ends with the record that reaches its size, and small records permit a part of 64 KiB.
#[tokio::test(start_paused = true)]
async fn part_of_a_snapshot_has_one_long_value_however_many_batches_its_commit_has() {
    let running = started(all(), |_| ()).await;
    let Started { disk, store, .. } = &running;
    for at in 0..20 {
        store.set(format!("long{at}"), vec![b'v'; 300_000]).await.expect("set");
    }
    disk.with(|state| (state.snapshot_after, state.holds) = (1, true));
    let mut sets = Vec::new();
    for at in 0..30 {
        sets.push(tokio::spawn(store.set(format!("k{at}"), vec![b'v'; 1_000]).into_future()));
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    disk.with(|state| (state.snapshot_after, state.holds) = (0, false));
    disk.permit_commits(1);
    for set in sets {
        set.await.expect("no panic").expect("set");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let longest = disk.with(|state| state.parts.iter().map(Vec::len).max());
    assert!((300_000..400_000).contains(&longest.unwrap_or(0)), "{longest:?} bytes in a part");
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
