//! The space that is left for a journal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

/// How long a measurement is valid.
const MEASURED_FOR: Duration = Duration::from_millis(500);

/// Free bytes of the disk below which space in the database does not count: commits first go to the
/// write-ahead log, which may have to grow.
const LOG_RESERVE: u64 = 16 << 20;

/// The free bytes of the disk and of the database.
#[derive(Debug)]
pub(crate) struct Space {
    directory: PathBuf,
    /// Bytes that are free in the database.
    reusable: AtomicU64,
    /// When the free bytes of the disk were measured last, and their number.
    disk: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Space {
    pub(crate) fn new(directory: &Path, reusable: u64) -> Self {
        let (directory, reusable) = (directory.to_owned(), AtomicU64::new(reusable));
        Self { directory, reusable, disk: Mutex::default() }
    }

    pub(crate) fn set_reusable(&self, bytes: u64) {
        self.reusable.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that can still be written; `None` if the system does not tell.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let disk = self.disk_bytes()?;
        let reusable = self.reusable.load(Ordering::Relaxed);
        Some(if disk < LOG_RESERVE { disk } else { disk.saturating_add(reusable) })
    }

    #[expect(clippy::disallowed_methods, reason = "only limits how often the disk is measured")]
    fn disk_bytes(&self) -> Option<u64> {
        let mut measured = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        match *measured {
            Some((at, bytes)) if at.elapsed() < MEASURED_FOR => bytes,
            _ => {
                let status = statvfs(&self.directory).ok();
                let bytes = status.map(|status| status.f_bavail.saturating_mul(status.f_frsize));
                *measured = Some((Instant::now(), bytes));
                bytes
            }
        }
    }
}
