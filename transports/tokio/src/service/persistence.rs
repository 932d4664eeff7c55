//! Persists a store in its journal: one commit at a time, which may contain a part of a snapshot.

use std::time::Duration;

use statestore_capture::CapturedStore;
use statestore_proto::store::{BatchId, SnapshotPosition};
use statestore_proto::time::Now;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::journal::{Commit, DynJournal, JournalError, JournalFuture, SnapshotPart};
use crate::service::capture::Capture;

/// Bytes of one part of a snapshot in a commit without records, and the limit in a commit with few.
const PART_BYTES: usize = 64 << 10;

/// Minimum bytes of one part.
const PART_BYTES_MIN: usize = 8 << 10;

/// Bytes of one part for each byte of records in the same commit, up to [`PART_BYTES`]. So requests
/// wait for few bytes besides their own, and the log grows by a quarter of the snapshot.
const PART_PER_RECORD_BYTE: usize = 4;

/// Maximum bytes of one part. If the records in the same commit exceed [`PART_BYTES`], the part is
/// as long as they are, so the log grows by no more than the snapshot.
const PART_BYTES_MAX: usize = 1 << 20;

/// Bytes of a record besides the payload of its request: its key, client id, topic and version.
const RECORD_BYTES: usize = 128;

/// Free bytes that a snapshot must leave: for records that are written during the snapshot, and for
/// a log that grows during it. The log of `statestore-sqlite` takes 16 MiB, unless commits follow
/// each other without a pause.
const SNAPSHOT_RESERVE: u64 = 20 << 20;

/// Minimum time between two snapshots that are made to free space.
const FULL_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(60);

/// The journal of a store with its state.
pub(crate) struct Persistence {
    state: State,
    /// The position of the snapshot in progress.
    snapshot: Option<SnapshotPosition>,
    /// Set if no further snapshot may begin, and no commit is made only to free space.
    is_ending: bool,
    /// Free bytes of the storage below which durable writes are refused.
    reserve: u64,
    is_full: bool,
    /// Free bytes of the storage, if known. Measured before the latest commit began, or after it.
    free: Option<u64>,
    /// Bytes of writes that this measurement may not contain.
    unwritten: u64,
    /// Those of them that are in the latest commit.
    in_commit: u64,
    last_snapshot: Option<Instant>,
    /// Set if records were committed since the last snapshot began.
    has_changed: bool,
}

/// A journal whose records are not loaded yet.
pub(crate) struct UnloadedJournal {
    pub(crate) journal: Box<dyn DynJournal>,
    /// Free bytes of the storage below which durable writes are refused.
    pub(crate) reserve: u64,
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

impl UnloadedJournal {
    /// Restores a new store from the journal.
    pub(crate) async fn load(
        self,
        store: &mut CapturedStore,
        capture: Option<&Capture>,
        now: impl Fn() -> Now,
    ) -> Result<Persistence, JournalError> {
        let Self { mut journal, reserve } = self;
        loop {
            let (same, portion) = journal.load().await;
            journal = same;
            let Some(records) = portion? else {
                let mut persistence = Persistence {
                    free: journal.free_bytes(),
                    unwritten: 0,
                    in_commit: 0,
                    state: State::Idle(journal),
                    snapshot: None,
                    is_ending: false,
                    reserve,
                    is_full: false,
                    last_snapshot: None,
                    has_changed: true,
                };
                persistence.check_space(store);
                return Ok(persistence);
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
}

impl Persistence {
    /// Begins a commit if there are records to persist and no commit is in progress.
    pub(crate) fn begin_commit(&mut self, now: Now, store: &mut CapturedStore) {
        let State::Idle(journal) = &self.state else { return };
        let (wants_snapshot, can_free_space) = (journal.wants_snapshot(), journal.can_free_space());
        self.free = journal.free_bytes();
        self.unwritten -= self.in_commit;
        self.in_commit = self.unwritten;
        self.check_space(store);
        if self.snapshot.is_none() && !self.is_ending {
            let fits = self.free.is_none_or(|free| self.fits_snapshot(store, free));
            if fits && (wants_snapshot || self.may_free_space()) {
                self.snapshot = Some(SnapshotPosition::default());
                (self.last_snapshot, self.has_changed) = (Some(Instant::now()), false);
            }
        }
        let batch = store.poll_records();
        let snapshot = self.snapshot.take().map(|position| {
            let is_first = position == SnapshotPosition::default();
            let bytes = batch.as_ref().map_or(PART_BYTES, |batch| {
                // An upper limit: some writes have no record.
                let payloads = usize::try_from(self.in_commit).unwrap_or(usize::MAX);
                part_bytes(payloads.saturating_add(batch.records.len() * RECORD_BYTES))
            });
            let (records, next) = store.store().snapshot_part(now, &position, bytes);
            self.snapshot = next;
            SnapshotPart { records, is_first, is_last: self.snapshot.is_none() }
        });
        let frees_space = self.is_full && !self.is_ending && can_free_space;
        if batch.is_none() && snapshot.is_none() && !frees_space {
            return;
        }
        self.has_changed |= batch.is_some();
        let (id, records) = match batch {
            Some(batch) => (Some(batch.id), batch.records),
            None => (None, Vec::new()),
        };
        if let State::Idle(journal) = core::mem::replace(&mut self.state, State::Gone) {
            let commit = journal.commit(Commit { records, snapshot });
            self.state = State::Busy { commit, batch: id, since: Instant::now() };
        }
    }

    /// Measures the space before a request, unless a commit is in progress. Other programs may have
    /// used it since the last request.
    pub(crate) fn measure_space(&mut self, store: &mut CapturedStore) {
        if let State::Idle(journal) = &self.state {
            self.free = journal.free_bytes();
            self.check_space(store);
        }
    }

    /// Counts the bytes of a write, which may have a record. Many writes may arrive during one
    /// commit, so the space is checked after each.
    pub(crate) fn count_write(&mut self, store: &mut CapturedStore, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.unwritten = self.unwritten.saturating_add(bytes);
        self.check_space(store);
    }

    /// Returns whether a snapshot fits, which is a second copy of all keys and values. The reserve
    /// must stay free, unless the storage is full already.
    fn fits_snapshot(&self, store: &CapturedStore, free: u64) -> bool {
        let bytes = u64::try_from(store.store().bytes()).unwrap_or(u64::MAX);
        let left = if self.is_full { SNAPSHOT_RESERVE } else { self.reserve.max(SNAPSHOT_RESERVE) };
        free >= bytes.saturating_add(bytes / 4).saturating_add(left)
    }

    /// Returns whether a snapshot may free space of a full storage, for example that of deleted
    /// keys.
    fn may_free_space(&self) -> bool {
        let is_due = |last: Instant| last.elapsed() >= FULL_SNAPSHOT_INTERVAL;
        self.is_full && self.has_changed && self.last_snapshot.is_none_or(is_due)
    }

    /// Refuses durable writes while the storage has fewer free bytes than the reserve and the records
    /// that remove all keys, since deletions and expiries are not refused. Accepts writes again at
    /// 9/8 of the reserve, so that refusals do not alternate with writes.
    fn check_space(&mut self, store: &mut CapturedStore) {
        if self.reserve == 0 {
            return;
        }
        // A write needs space in a log and in a database.
        let unwritten = self.unwritten.saturating_mul(2);
        let free = self.free.map(|free| free.saturating_sub(unwritten));
        let removal = u64::try_from(store.store().removal_bytes()).unwrap_or(u64::MAX);
        let reserve = if self.is_full { self.reserve / 8 * 9 } else { self.reserve };
        let reserve = reserve.saturating_add(removal);
        let is_full = free.is_some_and(|free| free < reserve);
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        store.set_storage_full(is_full);
        let free = free.unwrap_or_default();
        match is_full {
            true => warn!(
                free,
                reserve,
                "the disk has too few free bytes: durable writes get the quota error until it has more"
            ),
            false => info!(free, reserve, "the disk has enough free bytes again"),
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
    /// The future can be dropped without losing the result.
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

/// Returns the bytes of a part of a snapshot in a commit with this many bytes of records.
fn part_bytes(records: usize) -> usize {
    let multiple = records.saturating_mul(PART_PER_RECORD_BYTE);
    multiple.clamp(PART_BYTES_MIN, PART_BYTES).max(records.min(PART_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_part_is_four_times_the_records_within_its_limits() {
        const KIB: usize = 1 << 10;
        for (records, part) in
            [(0, 8), (1, 8), (2, 8), (4, 16), (16, 64), (64, 64), (500, 500), (8_192, 1_024)]
        {
            assert_eq!(part_bytes(records * KIB), part * KIB, "{records} KiB of records");
        }
        assert_eq!(part_bytes(usize::MAX), PART_BYTES_MAX);
    }
}
