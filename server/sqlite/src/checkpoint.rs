//! Copies SQLite's write-ahead log into the database on a separate thread, so that commits do not
//! wait for it.
//!
//! SQLite reuses the log from its beginning after all of it was copied. While commits follow each
//! other, the checkpoint thread always lags by some of them. The writer therefore copies the last
//! few pages itself, after it has reported a commit as durable.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::database;
use crate::error::OpenError;
use crate::free_space::FreeSpace;
use crate::log_size;

/// Maximum number of bytes that the writer copies itself.
const REST_BYTES: i64 = 256 << 10;

/// Maximum number of passes of the checkpoint thread each time it is woken.
const PASSES: usize = 4;

pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    space: Arc<FreeSpace>,
    /// Limit of the log in bytes. Before a commit that would exceed it, the writer copies the log.
    limit: i64,
    /// Bytes of the log [before its reuse](bytes_before_reuse), after the last commit.
    log_bytes: i64,
}

#[derive(Default)]
struct Shared {
    /// Held during a checkpoint.
    copying: Mutex<()>,
    /// Set when at most [`REST_BYTES`] are left to copy, which the writer does.
    is_nearly_done: AtomicBool,
    /// Error of the checkpoint thread. A disk can report a failed write only once, so the error
    /// must reach the writer.
    failure: Mutex<Option<rusqlite::Error>>,
}

impl Checkpointer {
    pub(crate) fn start(path: &Path, space: Arc<FreeSpace>, limit: i64) -> Result<Self, OpenError> {
        let db = database::open(path)?;
        let log = checkpoint(&db, CheckpointMode::NOOP);
        let log = log.map_err(|error| OpenError::from_sqlite(path, error))?;
        let shared = Arc::new(Shared::default());
        let (wake, woken) = sync_channel(1);
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("statestore-checkpoint".to_owned())
            .spawn(move || run(&db, &thread_shared, &woken))
            .map_err(|error| OpenError::from_io(path, error))?;
        let log_bytes = bytes_before_reuse(log);
        Ok(Self { shared, wake: Some(wake), thread: Some(thread), space, limit, log_bytes })
    }

    /// Copies the log if a commit of `bytes` would make it exceed its limit or the disk. The writer
    /// calls this before each commit, which waits for the copy. `log_file` is the length of the
    /// log's file.
    pub(crate) fn before_commit(
        &self,
        db: &Connection,
        bytes: i64,
        log_file: u64,
    ) -> rusqlite::Result<()> {
        if self.log_bytes == 0 {
            return Ok(());
        }
        let needed = self.log_bytes.saturating_add(log_size::commit_bytes_max(bytes));
        if needed > self.limit || self.exceeds_disk(needed.unsigned_abs(), log_file) {
            let _copying = lock(&self.shared.copying);
            checkpoint(db, CheckpointMode::PASSIVE)?;
        }
        Ok(())
    }

    /// Returns whether the file of the log would need more bytes than the disk has.
    fn exceeds_disk(&self, needed: u64, log_file: u64) -> bool {
        needed > log_file && self.space.log_capacity().is_some_and(|capacity| needed > capacity)
    }

    /// Wakes the checkpoint thread or copies the rest of the log, as its length requires. The
    /// writer calls this between commits with its own connection.
    ///
    /// Returns the error of either thread.
    pub(crate) fn after_commit(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if let Some(error) = lock(&self.shared.failure).take() {
            return Err(error);
        }
        let (bytes, copied) = checkpoint(db, CheckpointMode::NOOP)?;
        self.log_bytes = bytes_before_reuse((bytes, copied));
        if bytes < self.limit / 4 || copied >= bytes {
            return Ok(());
        }
        if self.shared.is_nearly_done.swap(false, Ordering::Relaxed) {
            if let Ok(_copying) = self.shared.copying.try_lock() {
                checkpoint(db, CheckpointMode::PASSIVE)?;
            }
        } else if let Some(wake) = &self.wake {
            // A full channel means that the thread is already awake.
            let _ = wake.try_send(());
        }
        Ok(())
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(db: &Connection, shared: &Shared, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        if let Err(error) = copy_most(db, shared) {
            *lock(&shared.failure) = Some(error);
            return;
        }
    }
}

fn copy_most(db: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    for _ in 0..PASSES {
        let copying = lock(&shared.copying);
        checkpoint(db, CheckpointMode::PASSIVE)?;
        drop(copying);
        let (bytes, copied) = checkpoint(db, CheckpointMode::NOOP)?;
        if bytes - copied <= REST_BYTES {
            shared.is_nearly_done.store(bytes > copied, Ordering::Relaxed);
            break;
        }
    }
    Ok(())
}

/// Returns the bytes of a log before the next commit; 0 if all of it was copied, since that commit
/// then overwrites the log from its beginning.
const fn bytes_before_reuse((bytes, copied): (i64, i64)) -> i64 {
    if copied < bytes { bytes } else { 0 }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies pages of the log to the database, except in the mode `NOOP`. Returns the bytes of all
/// pages in the log, and the bytes of those that are copied; zeros if another connection is copying.
fn checkpoint(db: &Connection, mode: CheckpointMode) -> rusqlite::Result<(i64, i64)> {
    match db.wal_checkpoint_v2(Some("main"), mode) {
        Ok((pages, copied)) => {
            let bytes = database::page_bytes(db)?;
            Ok((bytes.saturating_mul(pages.into()), bytes.saturating_mul(copied.into())))
        }
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
            Ok((0, 0))
        }
        Err(error) => Err(error),
    }
}
