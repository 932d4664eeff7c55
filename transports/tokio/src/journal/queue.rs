//! The next commit, which the service fills and the journal takes.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_proto::store::{Batch, BatchId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::journal::commit::{Commit, SnapshotPart};
use crate::metrics::stats::lock_mutex;

/// A queue with at most one commit, which the journal persists next.
///
/// The service adds records to this commit until the journal [takes](Self::take) it. So the commit
/// can begin as soon as the previous one is durable, also if the service is busy or its thread
/// sleeps. Clones are the same queue.
///
/// An engine with a thread persists commits like this:
///
/// ```
/// use statestore_tokio::JournalError;
/// use statestore_tokio::proto::store::Record;
/// use statestore_tokio::service::{Commit, CommitQueue, Journal};
/// use tokio::sync::{mpsc, oneshot};
///
/// /// A call for the thread, and where to send its result.
/// type Call = (CommitQueue, oneshot::Sender<Result<(), JournalError>>);
///
/// struct Engine(mpsc::Sender<Call>);
///
/// impl Engine {
///     fn open() -> Self {
///         let (calls, mut received) = mpsc::channel::<Call>(1);
///         std::thread::spawn(move || {
///             while let Some((queue, result)) = received.blocking_recv() {
///                 let _ = result.send(persist(&queue));
///             }
///         });
///         Self(calls)
///     }
/// }
///
/// fn persist(queue: &CommitQueue) -> Result<(), JournalError> {
///     while let Some(commit) = queue.take() {
///         write_and_flush(&commit)?;
///         queue.report_durable();
///     }
///     Ok(())
/// }
/// # fn write_and_flush(_: &Commit) -> Result<(), JournalError> { Ok(()) }
///
/// fn ended() -> JournalError {
///     JournalError::new("the thread of the journal has ended")
/// }
///
/// impl Journal for Engine {
///     async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
///         // Return the stored records.
///         Ok(None)
///     }
///
///     async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
///         self.commit_queued(&CommitQueue::from(commit)).await
///     }
///
///     async fn commit_queued(&mut self, queue: &CommitQueue) -> Result<(), JournalError> {
///         let (sender, result) = oneshot::channel();
///         self.0.send((queue.clone(), sender)).await.map_err(|_| ended())?;
///         // Do not return before the thread has finished.
///         result.await.map_err(|_| ended())?
///     }
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(Engine::open().commit(Commit::default()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct CommitQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    on_durable: Notify,
}

#[derive(Default)]
struct State {
    waiting: Option<Waiting>,
    /// Commits that were taken and are not durable, oldest first: one, for a journal that persists
    /// one at a time.
    taken: Vec<TakenCommit>,
    /// Durable commits that the service has not processed: at most those of one call of the
    /// journal.
    durable: Vec<DurableCommit>,
}

#[derive(Default)]
struct Waiting {
    commit: Commit,
    last_batch: Option<BatchId>,
    bytes: CommitBytes,
}

/// Bytes of a commit.
#[derive(Clone, Copy, Default)]
pub(crate) struct CommitBytes {
    pub(crate) records: usize,
    /// Maximum bytes of the part of a snapshot, if the commit has one.
    pub(crate) part: Option<usize>,
}

struct TakenCommit {
    last_batch: Option<BatchId>,
    since: Instant,
}

/// A commit that is durable.
pub(crate) struct DurableCommit {
    pub(crate) last_batch: Option<BatchId>,
    pub(crate) took: Duration,
}

impl CommitQueue {
    /// Takes the next commit. The service adds nothing more to it. Returns `None` if no commit
    /// waits.
    #[must_use]
    pub fn take(&self) -> Option<Commit> {
        let state = &mut *lock_mutex(&self.0.state);
        let Waiting { commit, last_batch, .. } = state.waiting.take()?;
        state.taken.push(TakenCommit { last_batch, since: Instant::now() });
        Some(commit)
    }

    /// Reports that all commits that were taken are durable. So take the next commit after this.
    pub fn report_durable(&self) {
        let State { taken, durable, .. } = &mut *lock_mutex(&self.0.state);
        if taken.is_empty() {
            return;
        }
        durable.extend(taken.drain(..).map(|TakenCommit { last_batch, since }| DurableCommit {
            last_batch,
            took: since.elapsed(),
        }));
        self.0.on_durable.notify_one();
    }

    /// Adds a batch to the next commit, and a portion of a snapshot, with its bytes, to the part in
    /// it. No portion may follow the last one of a snapshot in the same commit.
    pub(crate) fn add(&self, batch: Option<Batch>, portion: Option<(SnapshotPart, usize)>) {
        let state = &mut *lock_mutex(&self.0.state);
        let Waiting { commit, last_batch, bytes } = state.waiting.get_or_insert_default();
        if let Some(batch) = batch {
            *last_batch = Some(batch.id);
            bytes.records = bytes.records.saturating_add(batch.bytes);
            commit.records.extend(batch.records);
        }
        if let Some((portion, length)) = portion {
            bytes.part = Some(bytes.part.unwrap_or(0).saturating_add(length));
            match &mut commit.snapshot {
                Some(part) => {
                    part.records.extend(portion.records);
                    part.is_last = portion.is_last;
                }
                None => commit.snapshot = Some(portion),
            }
        }
    }

    /// Bytes of the commit that waits; `None` if none waits.
    pub(crate) fn waiting_bytes(&self) -> Option<CommitBytes> {
        lock_mutex(&self.0.state).waiting.as_ref().map(|waiting| waiting.bytes)
    }

    /// Waits until commits are reported as durable, and returns them, oldest first.
    pub(crate) async fn wait_durable(&self) -> Vec<DurableCommit> {
        loop {
            let durable = self.take_durable();
            if !durable.is_empty() {
                return durable;
            }
            self.0.on_durable.notified().await;
        }
    }

    /// Commits that were reported as durable since the last call, oldest first.
    pub(crate) fn take_durable(&self) -> Vec<DurableCommit> {
        core::mem::take(&mut lock_mutex(&self.0.state).durable)
    }
}

/// A queue with one commit.
impl From<Commit> for CommitQueue {
    fn from(commit: Commit) -> Self {
        let queue = Self::default();
        lock_mutex(&queue.0.state).waiting = Some(Waiting { commit, ..Waiting::default() });
        queue
    }
}

impl fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitQueue").finish_non_exhaustive()
    }
}
