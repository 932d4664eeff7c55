//! The journal and its thread, which executes the blocking operations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use statestore_proto::store::Record;
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, CommitQueue, Journal};
use tokio::sync::{mpsc, oneshot};

use crate::directory::Directory;
use crate::error::OpenError;
use crate::free_space::FreeSpace;
use crate::writer::Writer;

/// Capacity of the thread's queue. The service waits for each job, so a second job can only be
/// queued after the caller has dropped the future of the first.
const JOBS_MAX: usize = 1;

/// A portion of the records; `None` at the end.
type Loaded = Result<Option<Vec<Record>>, OpenError>;

enum Job {
    Load(oneshot::Sender<Loaded>),
    Commit(CommitQueue, oneshot::Sender<Result<(), OpenError>>),
}

/// What the journal needs from further commits, as of its last one.
#[derive(Default)]
struct Needs {
    wants_snapshot: AtomicBool,
    can_free_space: AtomicBool,
}

impl Needs {
    fn update(&self, writer: &Writer) {
        self.wants_snapshot.store(writer.wants_snapshot(), Ordering::Release);
        self.can_free_space.store(writer.can_free_space(), Ordering::Release);
    }
}

/// A journal in a directory. See the [crate documentation](crate).
///
/// Blocking operations run on a separate thread, so any runtime can be used. A commit that has
/// returned is durable. A commit whose future is dropped is written as a whole or not at all. After
/// the future of a load was dropped, the next load returns its portion. Dropping the journal waits
/// for the jobs of the thread, at most two commits or two portions of a load, and for a copy of the
/// log into the database that is in progress. It unlocks the directory.
pub struct SqliteJournal {
    jobs: Option<mpsc::Sender<Job>>,
    /// The result of a load. A dropped future leaves it here for the next call.
    loading: Option<oneshot::Receiver<Loaded>>,
    needs: Arc<Needs>,
    space: Arc<FreeSpace>,
    thread: Option<JoinHandle<()>>,
}

impl SqliteJournal {
    /// Opens the journal in this directory and locks the directory. Creates both if they are
    /// missing; the directory with access for this user only. Blocks while it reads the whole
    /// database once.
    ///
    /// # Errors
    /// [`OpenError`], whose text contains the remedy. An existing journal is unchanged.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        let mut writer = Writer::open(Directory::lock(dir)?)?;
        let (needs, space) = (Arc::new(Needs::default()), writer.space());
        needs.update(&writer);
        let thread_needs = Arc::clone(&needs);
        let (jobs, mut received) = mpsc::channel(JOBS_MAX);
        let thread = thread::Builder::new()
            .name("statestore-journal".to_owned())
            .spawn(move || {
                let mut read_ahead = None;
                while let Some(job) = received.blocking_recv() {
                    match job {
                        Job::Load(sender) => read_ahead = run_load(&mut writer, read_ahead, sender),
                        Job::Commit(queue, sender) => {
                            let _ = sender.send(run_commits(&mut writer, &queue, &thread_needs));
                        }
                    }
                }
            })
            .map_err(|error| OpenError::from_io(dir, error))?;
        Ok(Self { jobs: Some(jobs), loading: None, needs, space, thread: Some(thread) })
    }

    async fn send(&self, job: Job) -> Result<(), JournalError> {
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(job).await.map_err(|_| ended())
    }
}

fn ended() -> JournalError {
    JournalError::new("journal failed: its thread has ended; start again")
}

/// Sends the next portion of records. Then, while the store restores it, reads the portion after it
/// and returns that portion.
fn run_load(
    writer: &mut Writer,
    read_ahead: Option<Loaded>,
    sender: oneshot::Sender<Loaded>,
) -> Option<Loaded> {
    let portion = read_ahead.unwrap_or_else(|| writer.load());
    let continues = matches!(portion, Ok(Some(_)));
    let _ = sender.send(portion);
    continues.then(|| writer.load())
}

fn run_commits(writer: &mut Writer, queue: &CommitQueue, needs: &Needs) -> Result<(), OpenError> {
    while let Some(commit) = queue.take() {
        let result = writer.commit(&commit);
        needs.update(writer);
        writer.space().set_outdated();
        result?;
        queue.report_durable();
        writer.after_commit();
    }
    Ok(())
}

impl Journal for SqliteJournal {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        let receiver = match &mut self.loading {
            Some(receiver) => receiver,
            None => {
                let (sender, receiver) = oneshot::channel();
                self.send(Job::Load(sender)).await?;
                self.loading.insert(receiver)
            }
        };
        let portion = receiver.await;
        self.loading = None;
        Ok(portion.map_err(|_| ended())??)
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        self.commit_queued(&CommitQueue::from(commit)).await
    }

    async fn commit_queued(&mut self, queue: &CommitQueue) -> Result<(), JournalError> {
        let (sender, receiver) = oneshot::channel();
        self.send(Job::Commit(queue.clone(), sender)).await?;
        Ok(receiver.await.map_err(|_| ended())??)
    }

    fn wants_snapshot(&self) -> bool {
        self.needs.wants_snapshot.load(Ordering::Acquire)
    }

    fn can_free_space(&self) -> bool {
        self.needs.can_free_space.load(Ordering::Acquire) && self.space.can_remove_rows()
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
