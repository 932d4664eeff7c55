//! A store and its journal: one commit at a time, and snapshots in parts beside them.

use std::time::Duration;

use statestore_proto::store::recording::RecordedStore;
use statestore_proto::store::{BatchId, SnapshotPosition};
use statestore_proto::time::Now;
use tokio::time::Instant;

use crate::journal::{Commit, Doing, JournalError, Keeper, SnapshotPart};
use crate::recording::Recording;

/// Bytes of one part of a snapshot: what a commit carries beside its records.
const PART_BYTES: usize = 64 << 10;

/// The journal of a store, and what it is about.
pub(crate) struct Keeping {
    state: State,
    /// How far the snapshot has got that is being made.
    snapshot: Option<SnapshotPosition>,
    /// Whether none is begun any more.
    is_ending: bool,
}

enum State {
    Idle(Box<dyn Keeper>),
    Busy {
        commit: Doing<()>,
        /// What is safe then.
        batch: Option<BatchId>,
        since: Instant,
    },
    /// It has failed, or is being moved.
    Gone,
}

impl Keeping {
    /// Gives everything that the journal has kept to a new store.
    pub(crate) async fn load(
        mut keeper: Box<dyn Keeper>,
        store: &mut RecordedStore,
        recording: Option<&Recording>,
        now: impl Fn() -> Now,
    ) -> Result<Self, JournalError> {
        loop {
            let (same, portion) = keeper.load().await;
            keeper = same;
            let Some(records) = portion? else {
                return Ok(Self { state: State::Idle(keeper), snapshot: None, is_ending: false });
            };
            let now = now();
            records.iter().for_each(|record| store.restore(now, record));
            if let Some(recording) = recording {
                recording.pass_on_all(store).await;
            }
            // Others may run on this thread.
            tokio::task::yield_now().await;
        }
    }

    /// Begins a commit if there is anything to be kept and none is under way.
    pub(crate) fn begin(&mut self, now: Now, store: &mut RecordedStore) {
        let State::Idle(keeper) = &self.state else { return };
        if self.snapshot.is_none() && !self.is_ending && keeper.wants_snapshot() {
            self.snapshot = Some(SnapshotPosition::default());
        }
        let batch = store.poll_records();
        let snapshot = self.snapshot.take().map(|position| {
            let is_first = position == SnapshotPosition::default();
            let (records, next) = store.snapshot_part(now, &position, PART_BYTES);
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
        if let State::Idle(keeper) = core::mem::replace(&mut self.state, State::Gone) {
            let commit = keeper.commit(Commit { records, snapshot });
            self.state = State::Busy { commit, batch: id, since: Instant::now() };
        }
    }

    /// Gives up a snapshot that is being made; the next store makes another.
    pub(crate) fn end_snapshot(&mut self) {
        self.is_ending = true;
        self.snapshot = None;
    }

    /// Whether nothing waits for it.
    pub(crate) const fn is_idle(&self) -> bool {
        !matches!(self.state, State::Busy { .. })
    }

    /// Waits until a commit is done, and says how long that took; for ever when there is none. May be dropped at any await
    /// without losing anything.
    pub(crate) async fn done(&mut self) -> Result<(Option<BatchId>, Duration), JournalError> {
        let State::Busy { commit, batch, since } = &mut self.state else {
            return core::future::pending().await;
        };
        let (keeper, result) = commit.await;
        let (batch, took) = (*batch, since.elapsed());
        // One that has failed is not asked again.
        self.state = match result {
            Ok(()) => State::Idle(keeper),
            Err(_) => State::Gone,
        };
        result.map(|()| (batch, took))
    }
}
