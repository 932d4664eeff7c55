//! Persists a store in its journal: one commit at a time, which may contain a part of a snapshot.

use std::time::Duration;

use statestore_capture::CapturedStore;
use statestore_proto::store::{BatchId, SnapshotPosition};
use statestore_proto::time::Now;
use tokio::time::Instant;

use crate::journal::{Commit, DynJournal, JournalError, JournalFuture, SnapshotPart};
use crate::service::capture::Capture;

/// Bytes of one part of a snapshot, in addition to the records of its commit.
const PART_BYTES: usize = 64 << 10;

/// The journal of a store with its state.
pub(crate) struct Persistence {
    state: State,
    /// The position of the snapshot in progress.
    snapshot: Option<SnapshotPosition>,
    /// Set if no further snapshot may begin.
    is_ending: bool,
}

enum State {
    Idle(Box<dyn DynJournal>),
    Busy {
        commit: JournalFuture<()>,
        /// The batch of records that is durable after the commit.
        batch: Option<BatchId>,
        since: Instant,
    },
    /// The journal has failed, or is being moved.
    Gone,
}

impl Persistence {
    /// Restores a new store from the journal.
    pub(crate) async fn load(
        mut journal: Box<dyn DynJournal>,
        store: &mut CapturedStore,
        capture: Option<&Capture>,
        now: impl Fn() -> Now,
    ) -> Result<Self, JournalError> {
        loop {
            let (same, portion) = journal.load().await;
            journal = same;
            let Some(records) = portion? else {
                return Ok(Self { state: State::Idle(journal), snapshot: None, is_ending: false });
            };
            let now = now();
            records.iter().for_each(|record| store.restore(now, record));
            if let Some(capture) = capture {
                capture.send_waiting(store).await;
            }
            // Other tasks may need this thread.
            tokio::task::yield_now().await;
        }
    }

    /// Begins a commit if there are records to persist and no commit is in progress.
    pub(crate) fn begin_commit(&mut self, now: Now, store: &mut CapturedStore) {
        let State::Idle(journal) = &self.state else { return };
        if self.snapshot.is_none() && !self.is_ending && journal.wants_snapshot() {
            self.snapshot = Some(SnapshotPosition::default());
        }
        let batch = store.poll_records();
        let snapshot = self.snapshot.take().map(|position| {
            let is_first = position == SnapshotPosition::default();
            let (records, next) = store.store().snapshot_part(now, &position, PART_BYTES);
            self.snapshot = next;
            SnapshotPart { records, is_first, is_last: self.snapshot.is_none() }
        });
        if batch.is_none() && snapshot.is_none() {
            return;
        }
        let (id, records) = match batch {
            Some(batch) => (Some(batch.id), batch.records),
            None => (None, Vec::new()),
        };
        if let State::Idle(journal) = core::mem::replace(&mut self.state, State::Gone) {
            let commit = journal.commit(Commit { records, snapshot });
            self.state = State::Busy { commit, batch: id, since: Instant::now() };
        }
    }

    /// Abandons the snapshot in progress; the next run of the store makes another.
    pub(crate) fn end_snapshot(&mut self) {
        self.is_ending = true;
        self.snapshot = None;
    }

    /// Returns whether no commit is in progress.
    pub(crate) const fn is_idle(&self) -> bool {
        !matches!(self.state, State::Busy { .. })
    }

    /// Waits until a commit is done, and returns its duration; forever if no commit is in progress.
    /// May be dropped at any await without losing anything.
    pub(crate) async fn wait_done(&mut self) -> Result<(Option<BatchId>, Duration), JournalError> {
        let State::Busy { commit, batch, since } = &mut self.state else {
            return core::future::pending().await;
        };
        let (journal, result) = commit.await;
        let (batch, took) = (*batch, since.elapsed());
        // A failed journal is not called again.
        self.state = match result {
            Ok(()) => State::Idle(journal),
            Err(_) => State::Gone,
        };
        result.map(|()| (batch, took))
    }
}
