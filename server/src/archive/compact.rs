//! Replacing the log of a data directory by a snapshot.

use std::path::Path;

use statestore_proto::store::{Durability, SnapshotPosition, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_sqlite::{JournalStatus, Reader, SqliteJournal};
use statestore_tokio::service::{Commit, Journal as _, SnapshotPart};

use super::ArchiveError;

/// Bytes of one part of a snapshot.
const PART_BYTES: usize = 256 << 10;

/// A step of [`compact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactStep {
    /// Reading the directory.
    Read,
    /// Writing the snapshot.
    Write,
}

/// Outcome of [`compact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes that a store read at its start before.
    pub bytes_before: u64,
    /// Bytes that a store reads at its start now.
    pub bytes_after: u64,
}

/// Replaces the log of a data directory by a snapshot, so that a store starts faster. No store may
/// have it open. The files keep their size; free space in them is used again.
///
/// Values that have expired at `now` are removed, and recorded responses beyond the default limits
/// of a store.
///
/// `on_progress` is called with the number of records since the last call.
///
/// # Errors
/// [`ArchiveError`]. The directory keeps its contents, also if the future is dropped.
pub async fn compact(
    dir: &Path,
    now: UnixTime,
    mut on_progress: impl FnMut(CompactStep, usize),
) -> Result<Compacted, ArchiveError> {
    // First, since opening a journal creates what does not exist.
    let before = status(dir)?;
    let mut journal = SqliteJournal::open(dir)?;
    let now = Now::new(Instant::from_millis(0), now);
    let mut store = store_of_everything();
    while let Some(records) = journal.load().await.map_err(ArchiveError::NotCompacted)? {
        on_progress(CompactStep::Read, records.len());
        records.iter().for_each(|record| store.restore(now, record));
    }
    let (mut position, mut is_first) = (Some(SnapshotPosition::default()), true);
    while let Some(from) = position {
        let (records, next) = store.snapshot_part(now, &from, PART_BYTES);
        on_progress(CompactStep::Write, records.len());
        let snapshot = Some(SnapshotPart { records, is_first, is_last: next.is_none() });
        let commit = Commit { records: Vec::new(), snapshot };
        journal.commit(commit).await.map_err(ArchiveError::NotCompacted)?;
        (position, is_first) = (next, false);
    }
    drop(journal);
    Ok(Compacted { bytes_before: read_at_start(before), bytes_after: read_at_start(status(dir)?) })
}

/// A store that keeps every record.
fn store_of_everything() -> Store {
    // Without an incarnation, it would drop the registrations that asked for one.
    let config = StoreConfig::new(fastrand::u64(..)).incarnation(1);
    Store::new(config.durability(Durability::All).durable_registrations(true))
}

fn status(dir: &Path) -> Result<JournalStatus, ArchiveError> {
    Ok(Reader::open(dir)?.status())
}

/// Bytes that a store reads when it starts.
fn read_at_start(status: JournalStatus) -> u64 {
    status.log_bytes + status.snapshot.map_or(0, |snapshot| snapshot.bytes)
}
