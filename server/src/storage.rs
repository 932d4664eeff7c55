//! The journal in a data directory, with reports while it loads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, SqliteJournal};
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, CommitQueue, Journal};
use tokio::time::Instant;

use crate::event::{Event, Observer};

/// Loading is reported when it takes longer than this.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Pause between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// A journal in a directory that reports when loading takes long.
pub(crate) struct JournalWithProgress {
    journal: SqliteJournal,
    /// `None` once it is loaded.
    slow: Option<SlowReport>,
    is_loaded: Arc<AtomicBool>,
    directory: PathBuf,
    records: u64,
    last_report: Option<Instant>,
    observer: Observer,
}

impl JournalWithProgress {
    /// Opens the journal in a directory. Blocks.
    pub(crate) fn open(directory: &Path, observer: &Observer) -> Result<Self, OpenError> {
        let (path, reporter) = (directory.to_owned(), observer.clone());
        let slow = SlowReport::start(REPORT_AFTER, move || {
            let bytes = bytes_on_disk(&path).unwrap_or(0);
            reporter.report(&Event::Loading { directory: path, bytes });
        });
        Ok(Self {
            journal: SqliteJournal::open(directory)?,
            slow: Some(slow),
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
        let portion = self.journal.load().await;
        if let Ok(Some(records)) = &portion {
            self.advance(records.len());
        } else {
            self.slow = None;
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

/// Calls a function unless it is dropped in time. A thread waits, because opening a journal blocks.
struct SlowReport {
    _is_under_way: Sender<()>,
}

impl SlowReport {
    fn start(after: Duration, report: impl FnOnce() + Send + 'static) -> Self {
        let (is_under_way, ended) = channel();
        let wait = move || {
            if ended.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                report();
            }
        };
        // Without a thread, the report is omitted.
        let _ = thread::Builder::new().name("loading".to_owned()).spawn(wait);
        Self { _is_under_way: is_under_way }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_loading_is_reported() {
        // The channel is closed without a message if the report is not made.
        let (reported, reports) = channel();
        let slow = SlowReport::start(Duration::ZERO, move || reported.send(()).expect("received"));
        assert_eq!(reports.recv(), Ok(()), "it is slow");
        drop(slow);
        let (reported, reports) = channel();
        let an_hour = Duration::from_secs(3600);
        drop(SlowReport::start(an_hour, move || reported.send(()).expect("received")));
        assert!(reports.recv().is_err(), "it is over");
    }
}
