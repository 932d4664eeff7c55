//! The log goes back into the database on a thread of its own, so that no commit waits for it.
//!
//! SQLite begins its log anew with the first write after all of it was copied. While commits follow each other the copying
//! thread is always some of them behind, so the writer copies that little rest itself, after it has answered a commit.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::database;
use crate::error::OpenError;

/// Pages in the log from which on it is copied: with its pages of 4 KiB 4 MiB, which is what it takes on the disk.
const LOG_PAGES: i32 = 1024;

/// Pages that the writer copies itself.
const REST_PAGES: i32 = 64;

/// Pages at which the writer waits for the other thread, however far behind that is: 64 MiB.
const LOG_PAGES_MAX: i32 = 16 * LOG_PAGES;

/// Times the other thread tries to come close.
const PASSES: usize = 4;

pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Held while the other thread copies.
    copying: Mutex<()>,
    /// Whether the rest is the writer's.
    is_close: AtomicBool,
    /// What the other thread has failed with. A disk that fails once may say so to nobody again.
    failure: Mutex<Option<rusqlite::Error>>,
}

impl Checkpointer {
    pub(crate) fn start(path: &Path) -> Result<Self, OpenError> {
        let db = database::open(path)?;
        let shared = Arc::new(Shared::default());
        let (wake, woken) = sync_channel(1);
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("statestore-checkpoint".to_owned())
            .spawn(move || run(&db, &its, &woken))
            .map_err(|error| OpenError::of_io(path, error))?;
        Ok(Self { shared, wake: Some(wake), thread: Some(thread) })
    }

    /// Called by the writer between commits, with its connection. An error is one of either thread.
    pub(crate) fn after_commit(&self, db: &Connection) -> rusqlite::Result<()> {
        if let Some(error) = lock(&self.shared.failure).take() {
            return Err(error);
        }
        let (pages, copied) = checkpoint(db, CheckpointMode::NOOP)?;
        if pages < LOG_PAGES || copied >= pages {
            return Ok(());
        }
        if pages >= LOG_PAGES_MAX {
            let _copying = lock(&self.shared.copying);
            checkpoint(db, CheckpointMode::PASSIVE)?;
        } else if self.shared.is_close.swap(false, Ordering::Relaxed) {
            if let Ok(_copying) = self.shared.copying.try_lock() {
                checkpoint(db, CheckpointMode::PASSIVE)?;
            }
        } else if let Some(wake) = &self.wake {
            // It is awake already if there is no room.
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
        if let Err(error) = come_close(db, shared) {
            *lock(&shared.failure) = Some(error);
            return;
        }
    }
}

fn come_close(db: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    for _ in 0..PASSES {
        let copying = lock(&shared.copying);
        checkpoint(db, CheckpointMode::PASSIVE)?;
        drop(copying);
        let (pages, copied) = checkpoint(db, CheckpointMode::NOOP)?;
        if pages - copied <= REST_PAGES {
            shared.is_close.store(pages > copied, Ordering::Relaxed);
            break;
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pages in the log, and those of them that are in the database too.
fn checkpoint(db: &Connection, mode: CheckpointMode) -> rusqlite::Result<(i32, i32)> {
    match db.wal_checkpoint_v2(Some("main"), mode) {
        // Somebody else does it.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
            Ok((0, 0))
        }
        result => result,
    }
}
