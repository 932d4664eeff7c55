//! The commits of a service that its journal takes itself.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_proto::store::{Batch, BatchId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::journal::commit::{Commit, SnapshotPart};
use crate::metrics::stats::lock_mutex;

/// The commit that a journal persists next.
///
/// The service adds records to it until the journal [takes](Self::take) it. So the next commit can
/// begin as soon as the previous one is durable, also if the service is busy or its thread sleeps.
/// Clones are the same queue.
///
/// The thread of an engine persists the commits like this:
///
/// ```
/// use statestore_tokio::service::{Commit, CommitQueue};
///
/// let queue = CommitQueue::from(Commit::default());
/// while let Some(commit) = queue.take() {
///     // Write and flush the commit.
///     # drop(commit);
///     queue.set_durable();
/// }
/// ```
#[derive(Clone, Default)]
pub struct CommitQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when commits become durable.
    durable: Notify,
}

#[derive(Default)]
struct State {
    waiting: Option<Waiting>,
    /// Commits that were taken and are not durable, oldest first: one, for a journal that persists
    /// one at a time.
    taken: Vec<Taken>,
    /// Durable commits that the service has not processed: at most those of one call of the journal.
    durable: Vec<Durable>,
}

#[derive(Default)]
struct Waiting {
    commit: Commit,
    /// The last batch in the commit.
    batch: Option<BatchId>,
    bytes: CommitBytes,
}

/// Bytes of a commit.
#[derive(Clone, Copy, Default)]
pub(crate) struct CommitBytes {
    pub(crate) records: usize,
    pub(crate) part: usize,
}

struct Taken {
    batch: Option<BatchId>,
    since: Instant,
}

/// A commit that is durable.
pub(crate) struct Durable {
    /// The last batch of records in the commit.
    pub(crate) batch: Option<BatchId>,
    pub(crate) took: Duration,
}

impl CommitQueue {
    /// Takes the next commit. The service adds nothing more to it. Returns `None` if no commit
    /// waits.
    #[must_use]
    pub fn take(&self) -> Option<Commit> {
        let state = &mut *lock_mutex(&self.0.state);
        let Waiting { commit, batch, .. } = state.waiting.take()?;
        state.taken.push(Taken { batch, since: Instant::now() });
        Some(commit)
    }

    /// Reports that all taken commits are durable.
    pub fn set_durable(&self) {
        let State { taken, durable, .. } = &mut *lock_mutex(&self.0.state);
        durable.extend(
            taken.drain(..).map(|Taken { batch, since }| Durable { batch, took: since.elapsed() }),
        );
        self.0.durable.notify_one();
    }

    /// Adds a batch to the next commit, and a portion with this many bytes to its part of a
    /// snapshot.
    pub(crate) fn add(&self, batch: Option<Batch>, portion: Option<(SnapshotPart, usize)>) {
        let state = &mut *lock_mutex(&self.0.state);
        let Waiting { commit, batch: last, bytes } = state.waiting.get_or_insert_default();
        if let Some(batch) = batch {
            *last = Some(batch.id);
            bytes.records = bytes.records.saturating_add(batch.bytes);
            commit.records.extend(batch.records);
        }
        if let Some((portion, length)) = portion {
            bytes.part = bytes.part.saturating_add(length);
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

    /// Waits until commits are durable that [`take_durable`](Self::take_durable) has not returned.
    pub(crate) async fn wait_durable(&self) {
        self.0.durable.notified().await;
    }

    /// The commits that have become durable since the last call, oldest first.
    pub(crate) fn take_durable(&self) -> Vec<Durable> {
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
