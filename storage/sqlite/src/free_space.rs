//! Free space for a journal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::checkpoint::LOG_BYTES_MAX;
use crate::files::LOG;

/// How long a measurement is valid without a commit.
const MEASURED_FOR: Duration = Duration::from_millis(500);

/// A measurement of the disk, in bytes.
#[derive(Clone, Copy, Debug)]
struct Disk {
    free: u64,
    /// Size of the write-ahead log, whose space is reused.
    log: u64,
}

impl Disk {
    /// Returns how many bytes can still be written if `reusable` bytes are free in the database.
    /// These count only if the disk has space for the whole log, because commits go there first.
    const fn free_bytes(self, reusable: u64) -> u64 {
        if self.free.saturating_add(self.log) < LOG_BYTES_MAX.unsigned_abs() {
            return self.free;
        }
        self.free.saturating_add(reusable)
    }
}

/// The free bytes of the disk and of the database.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    directory: PathBuf,
    /// Bytes that are free in the database.
    reusable: AtomicU64,
    /// Set by each commit.
    is_outdated: AtomicBool,
    /// When the disk was measured last, and the result.
    disk: Mutex<Option<(Instant, Option<Disk>)>>,
}

impl FreeSpace {
    pub(crate) fn new(directory: &Path, reusable: u64) -> Self {
        let (directory, reusable) = (directory.to_owned(), AtomicU64::new(reusable));
        Self { directory, reusable, is_outdated: AtomicBool::new(false), disk: Mutex::default() }
    }

    /// Requests a new measurement of the disk, after a commit.
    pub(crate) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Sets the bytes that are free in the database. The service may use the bytes of one commit
    /// earlier.
    pub(crate) fn set_reusable(&self, bytes: u64) {
        self.reusable.store(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes can still be written; `None` if that cannot be measured.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        Some(self.disk()?.free_bytes(self.reusable.load(Ordering::Relaxed)))
    }

    #[expect(clippy::disallowed_methods, reason = "only limits how often the disk is measured")]
    fn disk(&self) -> Option<Disk> {
        let mut measured = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let is_outdated = self.is_outdated.swap(false, Ordering::AcqRel);
        match *measured {
            Some((at, disk)) if !is_outdated && at.elapsed() < MEASURED_FOR => disk,
            _ => {
                let log = self.directory.join(LOG);
                let log = fs::metadata(log).map_or(0, |meta| meta.len());
                let disk = statvfs(&self.directory).ok().map(|status| Disk {
                    free: status.f_bavail.saturating_mul(status.f_frsize),
                    log,
                });
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

    #[test]
    fn space_in_the_database_counts_only_if_the_log_has_space() {
        for (free, log, reusable, expected) in [
            (100, 0, 50, 150),
            (64, 0, 50, 114),
            (63, 0, 50, 63),
            (63, 1, 50, 113),
            (0, 64, 50, 50),
            (0, 4, 50, 0),
        ] {
            let disk = Disk { free: free * MIB, log: log * MIB };
            assert_eq!(disk.free_bytes(reusable * MIB), expected * MIB, "{disk:?}");
        }
    }

    #[test]
    fn disk_of_a_directory_is_measured() {
        let space = FreeSpace::new(&std::env::temp_dir(), 0);
        assert!(space.free_bytes().is_some_and(|bytes| bytes > 0));
        assert_eq!(FreeSpace::new(Path::new("/no/such/directory"), 1).free_bytes(), None);
    }
}
