//! Free space for a journal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::files::{DATABASE, LOG};
use crate::log_size;

/// How long a measurement is valid without a commit.
const MEASURED_FOR: Duration = Duration::from_millis(500);

/// Bytes of the longest [commit](statestore_tokio::service::Commit) of a service whose values have at
/// most 3 MiB: 4 MiB of records and, in a snapshot, 1 MiB and the value that exceeds it.
const COMMIT_BYTES: i64 = 8 << 20;

/// Bytes of a commit that only removes rows; a generous estimate of the pages that it changes.
const CLEANUP_BYTES: i64 = 2 << 20;

/// A measurement of the disk, in bytes.
#[derive(Clone, Copy, Debug)]
struct Disk {
    free: u64,
    /// Length of the file of the write-ahead log, whose space is reused.
    log: u64,
    /// Length of the file of the database.
    database: u64,
}

/// Bytes of the database, including pages that are only in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DatabaseBytes {
    pub(crate) length: u64,
    /// Free pages, which are used before the database grows.
    pub(crate) reusable: u64,
}

impl Disk {
    fn measure(directory: &Path) -> Option<Self> {
        let length = |name| fs::metadata(directory.join(name)).map_or(0, |meta| meta.len());
        // The checkpoint thread may extend the database between these calls. In this order the
        // result is then too small, and not too large.
        let (database, log) = (length(DATABASE), length(LOG));
        let status = statvfs(directory).ok()?;
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        Some(Self { free, log, database })
    }

    /// Returns the bytes that stay free when the whole log is copied into the database; `None` if
    /// the copy does not fit.
    const fn free_after_copy(self, database: DatabaseBytes) -> Option<u64> {
        self.free.checked_sub(database.length.saturating_sub(self.database))
    }

    /// Returns the bytes to which the log can grow, so that it can still be copied; 0 if it cannot.
    fn log_capacity(self, database: DatabaseBytes) -> u64 {
        self.free_after_copy(database).map_or(0, |free| free.saturating_add(self.log))
    }

    fn log_can_hold(self, database: DatabaseBytes, bytes: i64) -> bool {
        self.log_capacity(database) >= log_size::commit_bytes_max(bytes).unsigned_abs()
    }

    /// Returns how many bytes can still be written; 0 if the log cannot hold the longest commit.
    fn free_bytes(self, database: DatabaseBytes) -> u64 {
        let free =
            self.free_after_copy(database).filter(|_| self.log_can_hold(database, COMMIT_BYTES));
        free.map_or(0, |free| free.saturating_add(database.reusable))
    }
}

/// The free bytes of the disk and of the database.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    directory: PathBuf,
    /// Fields of [`DatabaseBytes`].
    length: AtomicU64,
    reusable: AtomicU64,
    /// Set by each commit.
    is_outdated: AtomicBool,
    /// When the disk was measured last, and the result.
    disk: Mutex<Option<(Instant, Option<Disk>)>>,
}

impl FreeSpace {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            length: AtomicU64::default(),
            reusable: AtomicU64::default(),
            is_outdated: AtomicBool::new(false),
            disk: Mutex::default(),
        }
    }

    /// Requests a new measurement of the disk, after a commit.
    pub(crate) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Sets the bytes of the database. The writer calls this after each commit, before the journal
    /// becomes idle.
    pub(crate) fn set_database(&self, database: DatabaseBytes) {
        self.length.store(database.length, Ordering::Relaxed);
        self.reusable.store(database.reusable, Ordering::Relaxed);
    }

    fn database(&self) -> DatabaseBytes {
        let [length, reusable] =
            [&self.length, &self.reusable].map(|bytes| bytes.load(Ordering::Relaxed));
        DatabaseBytes { length, reusable }
    }

    /// Returns how many bytes can still be written; `None` if that cannot be measured.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        Some(self.disk()?.free_bytes(self.database()))
    }

    /// Returns whether the log can hold a commit that removes rows.
    pub(crate) fn can_remove_rows(&self) -> bool {
        self.disk().is_none_or(|disk| disk.log_can_hold(self.database(), CLEANUP_BYTES))
    }

    /// Measures the bytes to which the log can grow; `None` if that cannot be measured.
    pub(crate) fn log_capacity(&self) -> Option<u64> {
        Some(Disk::measure(&self.directory)?.log_capacity(self.database()))
    }

    /// Measures the bytes of the files and the free bytes of their disk; `None` if that cannot be
    /// measured.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        let Disk { free, log, database } = Disk::measure(&self.directory)?;
        Some(free.saturating_add(log).saturating_add(database))
    }

    #[expect(clippy::disallowed_methods, reason = "only limits how often the disk is measured")]
    fn disk(&self) -> Option<Disk> {
        let mut measured = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let is_outdated = self.is_outdated.swap(false, Ordering::AcqRel);
        match *measured {
            Some((at, disk)) if !is_outdated && at.elapsed() < MEASURED_FOR => disk,
            _ => {
                let disk = Disk::measure(&self.directory);
                *measured = Some((Instant::now(), disk));
                disk
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn free_bytes(free: u64, log: u64, growth: u64, reusable: u64) -> u64 {
        let disk = Disk { free: free * MIB, log: log * MIB, database: 10 * MIB };
        let length = (10 + growth) * MIB;
        disk.free_bytes(DatabaseBytes { length, reusable: reusable * MIB })
    }

    #[test]
    fn space_is_free_only_if_the_log_can_hold_a_commit_of_8_mib() {
        for (free, log, reusable, expected) in [
            (100, 0, 50, 150),
            (63, 0, 50, 113),
            (0, 64, 50, 50),
            (0, 10, 500, 500),
            (4, 6, 500, 504),
            (9, 9, 50, 59),
            (0, 9, 500, 0),
            (3, 6, 500, 0),
            (0, 0, 50, 0),
        ] {
            let found = free_bytes(free, log, 0, reusable);
            assert_eq!(found, expected * MIB, "{free} free, {log} log, {reusable} reusable");
        }
    }

    #[test]
    fn space_for_pages_that_are_only_in_the_log_is_not_free() {
        for (free, growth, reusable, expected) in
            [(100, 30, 0, 70), (30, 30, 40, 40), (20, 30, 40, 0), (0, 0, 40, 40)]
        {
            let found = free_bytes(free, 64, growth, reusable);
            assert_eq!(found, expected * MIB, "{free} free, {growth} growth, {reusable} reusable");
        }
    }

    #[test]
    fn disk_of_a_directory_is_measured() {
        let space = FreeSpace::new(&std::env::temp_dir());
        assert!(space.free_bytes().is_some_and(|bytes| bytes > 0));
        assert_eq!(FreeSpace::new(Path::new("/no/such/directory")).free_bytes(), None);
    }
}
