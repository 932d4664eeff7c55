//! A directory that a store begins with, and a word to whoever waits for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, SqliteJournal};
use statestore_tokio::{Commit, Journal, JournalError};
use tokio::time::Instant;

use super::{directory, named};
use crate::output::say;
use crate::progress;
use crate::supervisor::Supervisor;

/// What takes longer to be read is told of.
const LONG: Duration = Duration::from_secs(1);

/// How often it is told how far that is.
const EVERY: Duration = Duration::from_secs(5);

/// A journal that says so when reading it takes long, and then how far it is.
pub(crate) struct Announced {
    journal: SqliteJournal,
    /// `None` once it was read.
    reading: Option<Reading>,
    is_read: Arc<AtomicBool>,
    directory: PathBuf,
    records: u64,
    /// When it was said last how far it is.
    told: Option<Instant>,
    supervisor: Arc<Supervisor>,
}

impl Announced {
    /// Opens the journal in this directory, as [`SqliteJournal::open`] does.
    pub(crate) fn open(dir: &Path, supervisor: &Arc<Supervisor>) -> Result<Self, OpenError> {
        let its = dir.to_owned();
        let reading = Reading::begin(LONG, move || {
            let size = directory::bytes_on_disk(&its).unwrap_or(0);
            say(format_args!("reading {} ({})", named(&its), progress::bytes(size)));
        });
        Ok(Self {
            journal: SqliteJournal::open(dir)?,
            reading: Some(reading),
            is_read: Arc::default(),
            directory: dir.to_owned(),
            records: 0,
            told: None,
            supervisor: Arc::clone(supervisor),
        })
    }

    /// Says now and then how far it is.
    fn advance(&mut self, records: usize) {
        self.records = self.records.saturating_add(u64::try_from(records).unwrap_or(u64::MAX));
        let told = self.told.get_or_insert_with(Instant::now);
        if told.elapsed() >= EVERY {
            *told = Instant::now();
            let dir = named(&self.directory);
            say(format_args!("reading {dir}: {} records so far", self.records));
            self.supervisor.loading(self.records);
        }
    }

    /// Whether all of it was read, so that what fails from then on is a write.
    pub(crate) fn is_read(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_read)
    }
}

impl Journal for Announced {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        let portion = self.journal.load().await;
        if let Ok(Some(records)) = &portion {
            self.advance(records.len());
        }
        if !matches!(portion, Ok(Some(_))) {
            self.reading = None;
        }
        self.is_read.store(matches!(portion, Ok(None)), Ordering::Release);
        portion
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        self.journal.commit(commit).await
    }

    fn wants_snapshot(&self) -> bool {
        self.journal.wants_snapshot()
    }
}

/// Something that is under way as long as this is there. A thread waits for its end, since opening a journal blocks this
/// one.
struct Reading {
    _is_under_way: Sender<()>,
}

impl Reading {
    /// Says something if it is still under way after this time.
    fn begin(after: Duration, say: impl FnOnce() + Send + 'static) -> Self {
        let (is_under_way, ended) = channel();
        let wait = move || {
            if ended.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                say();
            }
        };
        // Without a thread nothing is said.
        let _ = thread::Builder::new().name("reading".to_owned()).spawn(wait);
        Self { _is_under_way: is_under_way }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_told_of() {
        // Nothing is heard once the thread has ended without a word.
        let (said, heard) = channel();
        let reading = Reading::begin(Duration::ZERO, move || said.send(()).expect("heard"));
        assert_eq!(heard.recv(), Ok(()), "it takes long");
        drop(reading);
        let (said, heard) = channel();
        drop(Reading::begin(Duration::from_secs(3600), move || said.send(()).expect("heard")));
        assert!(heard.recv().is_err(), "it is over");
    }
}
