//! A snapshot in the place of a log.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use statestore_proto::store::{Durability, SnapshotPosition, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_sqlite::{JournalStatus, Reader, SqliteJournal};
use statestore_tokio::service::{Commit, Journal as _, SnapshotPart};

use super::directory;
use crate::failure::Failure;
use crate::output;
use crate::progress::{Progress, bytes};

/// Bytes of one part of a snapshot.
const PART_BYTES: usize = 256 << 10;

pub(super) async fn run(dir: PathBuf) -> Result<ExitCode, Failure> {
    // First, since opening makes what is not there.
    let before = status(&dir)?;
    let mut journal = SqliteJournal::open(&dir).map_err(|error| Failure::directory(&error))?;
    let now = now();
    let mut store = whole_store();
    let progress = Progress::records("reading");
    while let Some(records) = journal.load().await.map_err(Failure::bad_input)? {
        progress.advance(records.len());
        records.iter().for_each(|record| store.restore(now, record));
    }
    drop(progress);
    let progress = Progress::records("writing");
    let (mut position, mut is_first) = (Some(SnapshotPosition::default()), true);
    while let Some(from) = position {
        let (records, next) = store.snapshot_part(now, &from, PART_BYTES);
        progress.advance(records.len());
        let snapshot = Some(SnapshotPart { records, is_first, is_last: next.is_none() });
        let commit = Commit { records: Vec::new(), snapshot };
        let done = journal.commit(commit).await;
        done.map_err(|error| Failure::Storage(error.to_string()))?;
        (position, is_first) = (next, false);
    }
    drop((progress, journal));
    let after = status(&dir)?;
    let gained = gained(size(before), size(after));
    let on_disk = bytes(directory::bytes_on_disk(&dir)?);
    let line =
        format!("{gained}; the files have {on_disk}, and what is free in them is used again\n");
    output::raw(line.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What came of it, from bytes before and after.
fn gained(before: u64, after: u64) -> String {
    match (bytes(before), bytes(after)) {
        (was, is) if was == is => format!("nothing was gained: a store reads {is}, as before"),
        (was, is) if after > before => {
            format!("nothing was gained: a store reads {is}, and it was {was} before")
        }
        (was, is) => format!("a store reads {is} instead of {was}"),
    }
}

/// A store that keeps all that it is given.
fn whole_store() -> Store {
    // Without an incarnation it would forget which registrations want to be told.
    let config = StoreConfig::new(fastrand::u64(..)).incarnation(1);
    Store::new(config.durability(Durability::All).durable_registrations(true))
}

fn status(dir: &std::path::Path) -> Result<JournalStatus, Failure> {
    Ok(Reader::open(dir).map_err(|error| Failure::directory(&error))?.status())
}

/// Bytes of what a store reads when it starts.
fn size(status: JournalStatus) -> u64 {
    status.log_bytes + status.snapshot.map_or(0, |snapshot| snapshot.bytes)
}

pub(super) fn now() -> Now {
    Now::new(Instant::from_millis(0), unix_now())
}

/// What the wall clock shows.
pub(super) fn unix_now() -> UnixTime {
    #[expect(clippy::disallowed_methods, reason = "the edge of the program: here time is read")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_epoch(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_gain_is_told_as_none() {
        for (before, after, text) in [
            (395 << 10, 3 << 10, "a store reads 3.00 KiB instead of 395.00 KiB"),
            (100, 100, "nothing was gained: a store reads 100 B, as before"),
            (100 << 20, (100 << 20) - 1, "nothing was gained: a store reads 100.00 MiB, as before"),
            (100, 120, "nothing was gained: a store reads 120 B, and it was 100 B before"),
            (0, 0, "nothing was gained: a store reads 0 B, as before"),
        ] {
            assert_eq!(gained(before, after), text);
        }
    }
}
