//! The journal in a data directory, with reports while it loads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, SqliteJournal};
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, CommitQueue, Journal};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::event::{Event, Observer};

/// Loading is reported when it takes longer than this.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Pause between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// A journal in a directory that reports when loading takes long.
pub(crate) struct JournalWithProgress {
    journal: SqliteJournal,
    slow: SlowReport,
    is_loaded: Arc<AtomicBool>,
    directory: PathBuf,
    records: u64,
    last_report: Option<Instant>,
    observer: Observer,
}

impl JournalWithProgress {
    /// Opens the journal in a directory.
    pub(crate) async fn open(directory: &Path, observer: &Observer) -> Result<Self, OpenError> {
        Self::open_with(directory, observer, |directory| SqliteJournal::open(directory)).await
    }

    /// Opens the journal with a function that may block. It runs on a separate thread: at a stop, a
    /// runtime waits for its blocking tasks, but not for this thread.
    async fn open_with(
        directory: &Path,
        observer: &Observer,
        open: impl FnOnce(&Path) -> Result<SqliteJournal, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let mut slow = SlowReport::new(directory, observer);
        let (sender, opened) = oneshot::channel();
        let (path, bytes) = (directory.to_owned(), Arc::clone(&slow.bytes));
        let io_error = |source| OpenError::Io { path: directory.to_owned(), source };
        thread::Builder::new()
            .name("opening".to_owned())
            .spawn(move || {
                bytes.store(bytes_on_disk(&path).unwrap_or(0), Ordering::Relaxed);
                drop(sender.send(open(&path)));
            })
            .map_err(io_error)?;
        let opened = slow.watch(opened).await;
        Ok(Self {
            journal: opened.map_err(|error| io_error(io::Error::other(error)))??,
            slow,
            is_loaded: Arc::default(),
            directory: directory.to_owned(),
            records: 0,
            last_report: None,
            observer: observer.clone(),
        })
    }

    fn advance(&mut self, records: usize) {
        self.records = self.records.saturating_add(u64::try_from(records).unwrap_or(u64::MAX));
        let last = self.last_report.get_or_insert_with(Instant::now);
        if last.elapsed() >= REPORT_INTERVAL {
            *last = Instant::now();
            let (directory, records) = (self.directory.clone(), self.records);
            self.observer.report(&Event::LoadingProgress { directory, records });
        }
    }

    /// Set when everything is loaded, so that a later error is one of a write.
    pub(crate) fn is_loaded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_loaded)
    }
}

impl Journal for JournalWithProgress {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        let portion = self.slow.watch(self.journal.load()).await;
        if let Ok(Some(records)) = &portion {
            self.advance(records.len());
        }
        self.is_loaded.store(matches!(portion, Ok(None)), Ordering::Release);
        portion
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        self.journal.commit(commit).await
    }

    async fn commit_queued(&mut self, queue: &CommitQueue) -> Result<(), JournalError> {
        self.journal.commit_queued(queue).await
    }

    fn wants_snapshot(&self) -> bool {
        self.journal.wants_snapshot()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.journal.free_bytes()
    }

    fn can_free_space(&self) -> bool {
        self.journal.can_free_space()
    }
}

impl JournalWithProgress {
    /// Returns a warning if the disk is smaller than these limits permit.
    pub(crate) fn warn_about_space(&self, bytes_max: usize) -> Option<String> {
        let status = rustix::fs::statvfs(&self.directory).ok()?;
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        // Log, snapshots and their indexes, as measured during a compaction.
        let needed = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_mul(5);
        let available = free.saturating_add(bytes_on_disk(&self.directory).unwrap_or(0));
        (available < needed).then(|| {
            format!(
                "the disk has {free} free bytes, and max-bytes = {bytes_max} may need {needed}: \
                 lower it, or use a larger disk"
            )
        })
    }
}

/// Bytes of the files in a data directory.
fn bytes_on_disk(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// Reports once if loading a directory takes long.
struct SlowReport {
    /// Time of the report. `None` after it.
    at: Option<Instant>,
    directory: PathBuf,
    /// Bytes of its files, once they are counted.
    bytes: Arc<AtomicU64>,
    observer: Observer,
}

impl SlowReport {
    fn new(directory: &Path, observer: &Observer) -> Self {
        let at = Some(Instant::now() + REPORT_AFTER);
        Self {
            at,
            directory: directory.to_owned(),
            bytes: Arc::default(),
            observer: observer.clone(),
        }
    }

    /// Waits for a part of the loading.
    async fn watch<T>(&mut self, part: impl Future<Output = T>) -> T {
        let mut part = pin!(part);
        if let Some(at) = self.at {
            if let Ok(result) = timeout_at(at, &mut part).await {
                return result;
            }
            self.at = None;
            let directory = self.directory.clone();
            let bytes = self.bytes.load(Ordering::Relaxed);
            self.observer.report(&Event::Loading { directory, bytes });
        }
        part.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Time after which a test that hangs fails.
    const HANGS: Duration = Duration::from_secs(120);

    #[tokio::test]
    async fn other_tasks_run_while_a_directory_opens() {
        let directory =
            std::env::temp_dir().join(format!("statestore-opening-{}", std::process::id()));
        let (other_ran, told) = channel();
        let observer = Observer::default();
        let opening = JournalWithProgress::open_with(&directory, &observer, move |directory| {
            told.recv_timeout(HANGS).expect("the other task runs");
            SqliteJournal::open(directory)
        });
        let other = async { other_ran.send(()).expect("the directory is not open yet") };
        let (opened, ()) = tokio::join!(opening, other);
        drop(opened.expect("a new directory"));
        fs::remove_dir_all(&directory).expect("the directory exists");
    }

    #[tokio::test(start_paused = true)]
    async fn only_slow_loading_is_reported_and_only_once() {
        let (report, reports) = channel();
        let observer = Observer::new(move |_| report.send(()).expect("received"));
        let mut slow = SlowReport::new(Path::new("/nowhere"), &observer);
        slow.watch(tokio::time::sleep(REPORT_AFTER / 2)).await;
        assert_eq!(reports.try_iter().count(), 0, "not slow yet");
        slow.watch(tokio::time::sleep(REPORT_AFTER)).await;
        slow.watch(tokio::time::sleep(REPORT_AFTER)).await;
        assert_eq!(reports.try_iter().count(), 1);
    }
}
