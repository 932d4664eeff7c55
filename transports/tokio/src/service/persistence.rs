//! Persists a store in its journal: one commit after the other, which may contain a part of a
//! snapshot.

use std::time::Duration;

use statestore_capture::CapturedStore;
use statestore_proto::store::{Batch, SnapshotPosition};
use statestore_proto::time::Now;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::journal::{
    CommitBytes, CommitQueue, DurableCommit, DynJournal, JournalError, JournalFuture, SnapshotPart,
};
use crate::service::capture::Capture;

/// Bytes of one part of a snapshot in a commit without records, and the limit in a commit with few.
const PART_BYTES: usize = 64 << 10;

/// Minimum bytes of one part.
const PART_BYTES_MIN: usize = 8 << 10;

/// Bytes of one part for each byte of records in the same commit, up to [`PART_BYTES`]. So requests
/// wait for few bytes besides their own, and the log grows by a quarter of the snapshot.
const PART_PER_RECORD_BYTE: usize = 4;

/// Maximum bytes of one part. If the records in the same commit exceed [`PART_BYTES`], the part is
/// as long as they are: up to this limit, the log grows by no more than the snapshot.
const PART_BYTES_MAX: usize = 1 << 20;

/// Free bytes that a snapshot must leave, for the log of an engine, which may grow during it: that
/// of `statestore-sqlite` by 16 MiB, unless commits follow each other without a pause.
const SNAPSHOT_RESERVE: u64 = 20 << 20;

/// During one call of the journal, commits are added for at most this time, and with up to these
/// bytes of records. Then it becomes idle, and the service measures the space and begins a snapshot
/// that is due.
const QUEUEING_MAX: Duration = Duration::from_millis(20);
const QUEUED_BYTES_MAX: usize = 1 << 20;

const TOOK_NOTHING: &str = "journal failed: it returned without taking the next commit";

/// Minimum time between two snapshots that are made to free space.
const SPACE_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(60);

/// The journal of a store with its state.
pub(crate) struct Persistence {
    state: State,
    queue: CommitQueue,
    /// The start of the current call of the journal.
    call_began: Instant,
    /// The position of the snapshot in progress.
    snapshot: Option<SnapshotPosition>,
    /// Maximum bytes of its parts that were not committed when the journal was last idle.
    snapshot_left: usize,
    /// Set if the next part of a snapshot cannot be made before all records are in commits.
    /// Meanwhile the store receives nothing.
    snapshot_waits: bool,
    /// Set if no further snapshot may begin, and no commit is made only to free space.
    is_ending: bool,
    /// Free bytes of the storage below which durable writes are refused.
    reserve: u64,
    /// Set while less is free.
    is_full: bool,
    /// Free bytes of the storage, if known, when the journal was last idle.
    free: Option<u64>,
    /// Bytes of the records in the commits of the current call.
    queued_bytes: usize,
    last_snapshot: Option<Instant>,
    has_records_since_snapshot: bool,
}

/// A journal whose records are not loaded yet.
pub(crate) struct UnloadedJournal {
    pub(crate) journal: Box<dyn DynJournal>,
    /// Free bytes of the storage below which durable writes are refused.
    pub(crate) reserve: u64,
}

enum State {
    Idle(Box<dyn DynJournal>),
    /// The journal persists the commits of the queue.
    Busy {
        call: JournalFuture<()>,
        /// Whether a commit of this call is durable.
        has_durable: bool,
    },
    /// The journal is not called again. The error is returned after the commits that became durable
    /// before it. Dropping a journal may wait for its disk, so it ends with the service.
    Failed(JournalError, #[expect(dead_code, reason = "it is only dropped")] Box<dyn DynJournal>),
    Moved,
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
                    is_full: false,
                    free: journal.free_bytes(),
                    queue: CommitQueue::default(),
                    call_began: Instant::now(),
                    queued_bytes: 0,
                    state: State::Idle(journal),
                    snapshot: None,
                    snapshot_left: 0,
                    snapshot_waits: false,
                    is_ending: false,
                    reserve,
                    last_snapshot: None,
                    has_records_since_snapshot: true,
                };
                persistence.update_space(store);
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
    /// Queues a commit if there are records to persist. Has the journal persist it, unless the
    /// journal persists others.
    pub(crate) fn queue_commit(&mut self, now: Now, store: &mut CapturedStore) {
        match &self.state {
            State::Idle(journal) => {
                let (wants_snapshot, can_free_space) =
                    (journal.wants_snapshot(), journal.can_free_space());
                self.free = journal.free_bytes();
                self.begin_commits(now, store, wants_snapshot, can_free_space);
            }
            State::Busy { .. } => self.add_to_next_commit(now, store),
            State::Failed(..) | State::Moved => {}
        }
    }

    fn begin_commits(
        &mut self,
        now: Now,
        store: &mut CapturedStore,
        wants_snapshot: bool,
        can_free_space: bool,
    ) {
        // A commit waits if it was added after the journal had last looked, before it returned.
        let waiting = self.queue.waiting_bytes();
        let CommitBytes { records, part } = waiting.unwrap_or_default();
        self.queued_bytes = records;
        self.call_began = Instant::now();
        let left = self.snapshot.as_ref().map_or(0, SnapshotPosition::bytes_left);
        self.snapshot_left = left.saturating_add(part.unwrap_or(0));
        self.update_space(store);
        // The last part of a snapshot may be in the commit that waits.
        let is_making_snapshot = self.snapshot.is_some() || part.is_some();
        let is_due = !is_making_snapshot
            && !self.is_ending
            && (wants_snapshot || self.is_space_snapshot_due())
            && self.has_space_for_snapshot(store);
        let batch = if waiting.is_none() { store.poll_records() } else { None };
        let has_all_records = store.store().waiting_record_bytes() == 0;
        self.snapshot_waits = (is_due || self.snapshot.is_some()) && !has_all_records;
        let begins_snapshot = is_due && has_all_records;
        if begins_snapshot {
            self.snapshot = Some(SnapshotPosition::default());
            self.snapshot_left = store.store().snapshot_bytes();
            self.last_snapshot = Some(Instant::now());
        }
        let has_records = waiting.is_some() || batch.is_some();
        let frees_space = self.is_full && !self.is_ending && can_free_space;
        if !has_records && self.snapshot.is_none() && !frees_space {
            return;
        }
        // The first part contains the effects of the records in its commit.
        self.has_records_since_snapshot =
            !begins_snapshot && (self.has_records_since_snapshot || has_records);
        self.fill_next_commit(now, store, batch);
        if let State::Idle(journal) = core::mem::replace(&mut self.state, State::Moved) {
            let call = journal.commit_queued(self.queue.clone());
            self.state = State::Busy { call, has_durable: false };
        }
    }

    /// Adds records to the next commit while the journal persists others, and to its part of a
    /// snapshot in progress.
    fn add_to_next_commit(&mut self, now: Now, store: &mut CapturedStore) {
        // Records that join a commit do not keep the journal busy for longer, unless the journal
        // takes that commit at this moment.
        let joins = self.queue.waiting_bytes().is_some();
        let is_in_time = joins || self.call_began.elapsed() < QUEUEING_MAX;
        let bytes = self.queued_bytes.saturating_add(store.store().waiting_record_bytes());
        if self.snapshot_waits || !is_in_time || bytes > QUEUED_BYTES_MAX {
            return;
        }
        let Some(batch) = store.poll_records() else { return };
        self.has_records_since_snapshot = true;
        self.fill_next_commit(now, store, Some(batch));
    }

    /// Adds a batch to the next commit, and a portion of the snapshot in progress to its part.
    fn fill_next_commit(&mut self, now: Now, store: &CapturedStore, batch: Option<Batch>) {
        let waiting = self.queue.waiting_bytes();
        let CommitBytes { records, part } = waiting.unwrap_or_default();
        let added = batch.as_ref().map_or(0, |batch| batch.bytes);
        self.queued_bytes += added;
        let has_records = waiting.is_some() || batch.is_some();
        let part_max =
            if has_records { part_bytes(records.saturating_add(added)) } else { PART_BYTES };
        let portion = self.next_portion(now, store, part_max.saturating_sub(part.unwrap_or(0)));
        self.queue.add(batch, portion);
    }

    /// Takes the next portion of the snapshot in progress, and returns it with its bytes, which
    /// exceed `bytes_max` by at most one record. There is none before all records are in commits,
    /// since a snapshot contains no change whose record is in a later commit. A reservation of
    /// versions may wait: it has no bytes, and every snapshot contains it.
    fn next_portion(
        &mut self,
        now: Now,
        store: &CapturedStore,
        bytes_max: usize,
    ) -> Option<(SnapshotPart, usize)> {
        if bytes_max == 0 || store.store().waiting_record_bytes() > 0 {
            return None;
        }
        let position = self.snapshot.take()?;
        let is_first = position == SnapshotPosition::default();
        let left = if is_first { store.store().snapshot_bytes() } else { position.bytes_left() };
        let (records, next) = store.store().snapshot_part(now, &position, bytes_max);
        let left_after = next.as_ref().map_or(0, SnapshotPosition::bytes_left);
        self.snapshot = next;
        let part = SnapshotPart { records, is_first, is_last: self.snapshot.is_none() };
        Some((part, left.saturating_sub(left_after)))
    }

    /// Returns whether the store can receive messages. It receives none while a part of a snapshot
    /// waits, or a flood of writes could delay the snapshot for ever.
    pub(crate) const fn can_receive(&self) -> bool {
        !self.snapshot_waits
    }

    /// Measures the space before a request, unless a commit is in progress. Other programs may have
    /// used it since the last request.
    pub(crate) fn measure_space(&mut self, store: &mut CapturedStore) {
        if let State::Idle(journal) = &self.state {
            self.free = journal.free_bytes();
        }
        self.update_space(store);
    }

    /// Returns whether the storage has space for a snapshot and for the records of requests during
    /// it. The space to remove everything must stay free, and the reserve, unless the storage is full
    /// already.
    fn has_space_for_snapshot(&self, store: &CapturedStore) -> bool {
        let Some(free) = self.free else { return true };
        let bytes = to_u64(store.store().snapshot_bytes());
        let records = bytes / PART_PER_RECORD_BYTE as u64;
        let must_stay_free =
            if self.is_full { SNAPSHOT_RESERVE } else { self.reserve.max(SNAPSHOT_RESERVE) };
        let removal = removal_bytes(store);
        free >= [records, removal, must_stay_free].into_iter().fold(bytes, u64::saturating_add)
    }

    /// Returns whether a snapshot is due because the storage is full. It may free the space of
    /// deleted keys, for example.
    fn is_space_snapshot_due(&self) -> bool {
        let is_due = |last: Instant| last.elapsed() >= SPACE_SNAPSHOT_INTERVAL;
        let is_needed = self.is_full && self.has_records_since_snapshot;
        is_needed && self.last_snapshot.is_none_or(is_due)
    }

    /// Sets and logs whether the storage is full: less than the reserve is free. The unwritten bytes,
    /// those of the snapshot in progress, and the space to remove everything do not count as free.
    /// Then 9/8 of the reserve must be free, so that refusals do not alternate with writes.
    fn update_space(&mut self, store: &mut CapturedStore) {
        let Some(free) = self.free.filter(|_| self.reserve > 0) else { return };
        let waiting = store.store().waiting_record_bytes();
        // A record needs space in a log and in a database.
        let unwritten = to_u64(self.queued_bytes.saturating_add(waiting)).saturating_mul(2);
        let (snapshot, removal) = (to_u64(self.snapshot_left), removal_bytes(store));
        let needed = [snapshot, removal].into_iter().fold(unwritten, u64::saturating_add);
        let reserve = self.reserve;
        let more = if self.is_full { reserve / 8 } else { 0 };
        let is_full = free < needed.saturating_add(reserve).saturating_add(more);
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        store.set_storage_full(is_full);
        if is_full {
            let enough = needed.saturating_add(reserve).saturating_add(reserve / 8);
            warn!(
                free,
                needed,
                reserve,
                enough,
                "the disk has too few free bytes: durable writes get the quota error until it has \
                 enough"
            );
        } else {
            info!(free, needed, reserve, "the disk has enough free bytes again");
        }
    }

    /// Abandons the snapshot in progress; the next run of the store makes another.
    pub(crate) fn end_snapshot(&mut self) {
        self.is_ending = true;
        self.snapshot = None;
    }

    /// Returns whether no commit is in progress, and no error is left to return. Since
    /// [`queue_commit`](Self::queue_commit) was called, no commit waits either.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    /// Waits until commits are durable, or until the journal fails, and returns the commits; forever
    /// if no commit is in progress. The future can be dropped without losing the result.
    pub(crate) async fn wait_durable(&mut self) -> Result<Vec<DurableCommit>, JournalError> {
        let Self { state, queue, .. } = self;
        match state {
            State::Idle(_) | State::Moved => core::future::pending().await,
            State::Failed(error, _) => Err(error.clone()),
            State::Busy { call, has_durable } => tokio::select! {
                biased;
                durable = queue.wait_durable() => {
                    *has_durable = true;
                    Ok(durable)
                }
                (journal, result) = call => {
                    if result.is_ok() {
                        queue.report_durable();
                    }
                    let durable = queue.take_durable();
                    *state = match result {
                        Ok(()) if *has_durable || !durable.is_empty() => State::Idle(journal),
                        // It would be called again and again.
                        Ok(()) => State::Failed(JournalError::new(TOOK_NOTHING), journal),
                        Err(error) => State::Failed(error, journal),
                    };
                    Ok(durable)
                }
            },
        }
    }
}

/// Bytes to remove everything, twice: if each record is in a commit of its own, an engine may leave
/// half of its last page empty.
fn removal_bytes(store: &CapturedStore) -> u64 {
    to_u64(store.store().removal_bytes()).saturating_mul(2)
}

fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
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
