//! A journal on a simulated disk.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::store::{Record, decode_records, encode_records};
use statestore_tokio::service::{Commit, CommitQueue, Journal, SnapshotPart, StoreConfig};
use statestore_tokio::{JournalError, StoreService};
use tokio::sync::Semaphore;

/// The content of a disk, shared by all journals on it.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Permits for commits; used only while `holds` is set.
    commits: Semaphore,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) holds: bool,
    pub(crate) fails: bool,
    /// Number of further commits before all fail.
    pub(crate) fails_after: Option<usize>,
    /// Duration of each commit.
    pub(crate) takes: Duration,
    pub(crate) commits: usize,
    pub(crate) snapshot_after: usize,
    pub(crate) since_snapshot: usize,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) parts: Vec<Vec<u8>>,
    pub(crate) making: Option<(usize, Vec<Vec<u8>>)>,
    pub(crate) snapshots: usize,
    pub(crate) free: Option<u64>,
    /// Bytes that the next commits make free, one item for each.
    pub(crate) to_free: Vec<u64>,
    pub(crate) loaded: usize,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), commits: Semaphore::new(0) }))
    }

    /// Lets commits finish while `holds` is set.
    pub(crate) fn permit_commits(&self, count: usize) {
        self.0.commits.add_permits(count);
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.state.lock().expect("no panic elsewhere"))
    }

    /// Opens the journal as a new process would.
    pub(crate) fn open(&self) -> OnDisk {
        self.with(|state| {
            state.making = None;
            state.loaded = 0;
        });
        OnDisk(self.clone())
    }

    pub(crate) fn service(&self, hub: &Hub, config: StoreConfig) -> StoreService {
        let service = StoreService::builder().journal(self.open()).config(config);
        service.expect("a journal is set").spawn(hub.store_link("statestore"))
    }
}

pub(crate) struct OnDisk(Disk);

/// Checks that a snapshot contains each key once.
fn check_keys(parts: &[Vec<u8>]) {
    let mut keys = BTreeSet::new();
    for record in parts.iter().flat_map(|part| decode_records(part).expect("valid records")) {
        if let Record::Put { key, .. } = record {
            assert!(keys.insert(key.clone()), "two snapshots in one: {key:?}");
        }
    }
}

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
        let takes = self.0.with(|state| state.takes);
        if takes > Duration::ZERO {
            tokio::time::sleep(takes).await;
        }
        self.0.with(|state| {
            let may_fail = state.fails_after.as_mut();
            let fails =
                may_fail.is_some_and(|left| core::mem::replace(left, left.saturating_sub(1)) == 0);
            if state.fails || fails {
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
                check_keys(&parts);
                state.parts = parts;
                state.log.drain(..before);
                state.since_snapshot = 0;
                state.snapshots += 1;
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

/// A journal that needs a millisecond to return after its last commit, as one with a thread does.
pub(crate) struct Lingering(pub(crate) OnDisk);

impl Journal for Lingering {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        self.0.load().await
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        self.0.commit(commit).await
    }

    async fn commit_queued(&mut self, queue: &CommitQueue) -> Result<(), JournalError> {
        self.0.commit_queued(queue).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    fn wants_snapshot(&self) -> bool {
        self.0.wants_snapshot()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.free_bytes()
    }

    fn can_free_space(&self) -> bool {
        self.0.can_free_space()
    }
}

/// A journal that takes no commit.
pub(crate) struct Idle;

impl Journal for Idle {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        Ok(None)
    }

    async fn commit(&mut self, _: Commit) -> Result<(), JournalError> {
        Ok(())
    }

    async fn commit_queued(&mut self, _: &CommitQueue) -> Result<(), JournalError> {
        Ok(())
    }
}
