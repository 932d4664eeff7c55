//! The journal, and the thread that does what blocks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use statestore_proto::store::Record;
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, Journal};
use tokio::sync::{mpsc, oneshot};

use crate::directory::Directory;
use crate::error::OpenError;
use crate::space::Space;
use crate::writer::Writer;

/// Jobs that wait for the thread: a journal is asked one thing at a time, so this is one that was given up, at most.
const JOBS_MAX: usize = 1;

enum Job {
    Load(oneshot::Sender<Result<Option<Vec<Record>>, OpenError>>),
    Commit(Commit, oneshot::Sender<Result<(), OpenError>>),
}

/// A journal in a directory. See the [crate's documentation](crate).
///
/// A thread of its own does what blocks, so it may be used on any runtime. A commit that is given up while it is awaited
/// is written or not, as a whole; one that was answered is safe. Dropping the journal waits until the thread is done with
/// what it does, which is one commit at most, and gives the directory back.
pub struct SqliteJournal {
    jobs: Option<mpsc::Sender<Job>>,
    wants_snapshot: Arc<AtomicBool>,
    space: Arc<Space>,
    thread: Option<JoinHandle<()>>,
}

impl SqliteJournal {
    /// Opens the journal in this directory, which nobody else may have; makes both if they are missing, the directory
    /// for this user alone. Reads the whole file once, so it blocks for as long as that takes.
    ///
    /// # Errors
    /// [`OpenError`], with what is to be done. Nothing was changed then.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        let mut writer = Writer::open(Directory::claim(dir)?)?;
        let wants_snapshot = Arc::new(AtomicBool::new(writer.wants_snapshot()));
        let space = Arc::new(Space::new(dir, writer.reusable_bytes()));
        let (its, its_space) = (Arc::clone(&wants_snapshot), Arc::clone(&space));
        let (jobs, mut queue) = mpsc::channel(JOBS_MAX);
        let thread = thread::Builder::new()
            .name("statestore-journal".to_owned())
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    work(&mut writer, job, &its, &its_space);
                }
            })
            .map_err(|error| OpenError::of_io(dir, error))?;
        Ok(Self { jobs: Some(jobs), wants_snapshot, space, thread: Some(thread) })
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, OpenError>>) -> Job,
    ) -> Result<T, JournalError> {
        let (answer, answered) = oneshot::channel();
        let gone = || JournalError::new("the thread of the journal has ended: start again");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job(answer)).await.map_err(|_| gone())?;
        Ok(answered.await.map_err(|_| gone())??)
    }
}

fn work(writer: &mut Writer, job: Job, wants_snapshot: &AtomicBool, space: &Space) {
    match job {
        Job::Load(answer) => {
            let _ = answer.send(writer.load());
        }
        Job::Commit(commit, answer) => {
            let result = writer.commit(&commit);
            wants_snapshot.store(writer.wants_snapshot(), Ordering::Release);
            space.set_reusable(writer.reusable_bytes());
            let is_safe = result.is_ok();
            let _ = answer.send(result);
            if is_safe {
                writer.after_commit();
            }
        }
    }
}

impl Journal for SqliteJournal {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        self.ask(Job::Load).await
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        self.ask(|answer| Job::Commit(commit, answer)).await
    }

    fn wants_snapshot(&self) -> bool {
        self.wants_snapshot.load(Ordering::Acquire)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.space.free_bytes()
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl std::fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteJournal").finish_non_exhaustive()
    }
}
