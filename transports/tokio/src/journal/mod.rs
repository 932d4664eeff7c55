//! The interface to the storage of a store's records.

mod commit;
mod queue;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use statestore_proto::store::Record;

use crate::chain::skip_shown;

pub use commit::{Commit, SnapshotPart};
pub use queue::CommitQueue;
pub(crate) use queue::{CommitBytes, DurableCommit};

/// Persists the records of a store, so that the next run of the store can restore its state.
///
/// The drive loop calls [`load`](Self::load) before the first connection until no records are left.
/// Then it calls [`commit_queued`](Self::commit_queued), one call at a time, which calls
/// [`commit`](Self::commit) unless an engine replaces it. The records that the store writes during
/// a commit form the next commit, so engines need no timer to group writes. No response,
/// acknowledgement or notification that depends on a commit is sent before the commit is durable.
/// An error is final: the [service](crate::StoreService) passes the responses of durable commits to
/// its link, and ends. An external broker redelivers the requests that were not acknowledged to the
/// next store. With an embedded broker or the loopback, their clients get no response.
///
/// [`shutdown`](crate::StoreService::shutdown) waits for all commits. If the service is dropped, the
/// call in progress is completed in the background before the journal is dropped, so an engine
/// locks its storage. The end of the runtime drops the future of a call. A journal returns errors
/// and does not panic.
///
/// Engines persist [records](Record) in the form of
/// [`encode_records`](statestore_proto::store::encode_records), and depend neither on MQTT nor on
/// the rules of the protocol. The following journal loses its records when it is dropped, which is
/// enough for tests:
///
/// ```
/// use statestore_tokio::service::{Commit, Journal};
/// use statestore_tokio::{JournalError, StoreService};
/// use statestore_tokio::proto::store::Record;
///
/// #[derive(Default)]
/// struct InMemory(Vec<Record>);
///
/// impl Journal for InMemory {
///     async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
///         Ok(None)
///     }
///
///     async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
///         self.0.extend(commit.records);
///         Ok(())
///     }
/// }
///
/// let service = StoreService::builder().journal(InMemory::default());
/// # let _ = service;
/// ```
///
/// It may ignore the parts of snapshots, since the earlier records remain valid.
/// [`CommitQueue`] has an example of an engine with a thread. A journal that wraps another forwards
/// every method, also those with a default.
pub trait Journal: Send + 'static {
    /// Returns the next persisted records, oldest first, in portions of some hundred kilobytes that
    /// are not empty; `None` when no records are left.
    ///
    /// # Errors
    /// [`JournalError`] if the records cannot be read. The service does not start without them.
    fn load(&mut self) -> impl Future<Output = Result<Option<Vec<Record>>, JournalError>> + Send;

    /// Returns when the whole commit is durable. A commit is atomic: after a crash all of it is
    /// found, or nothing. An engine that splits long commits keeps the records of a request
    /// together. Never called if the engine replaces [`commit_queued`](Self::commit_queued).
    ///
    /// # Errors
    /// [`JournalError`] if durability cannot be confirmed. The journal is not called again.
    fn commit(&mut self, commit: Commit) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Persists the commits of a queue until none waits: one after the other with
    /// [`commit`](Self::commit) by default. An engine with a thread of its own replaces this
    /// method, so that its thread takes each commit: [`CommitQueue`] has an example.
    ///
    /// For 20 ms of a call, the service puts a further commit into the queue when the last one was
    /// taken. A commit that waits still gets records, also after that. All commits of a call
    /// together have at most 1 MiB of records, unless the first alone has more.
    ///
    /// Report each durable commit with [`CommitQueue::report_durable`]. If this method returns
    /// without an error, every commit that it has taken counts as durable. It returns when no
    /// commit waits, and takes none after that. Each call takes at least one commit, or the service
    /// ends with an error.
    ///
    /// # Errors
    /// As [`commit`](Self::commit). Commits that were not reported may be durable or not.
    fn commit_queued(
        &mut self,
        queue: &CommitQueue,
    ) -> impl Future<Output = Result<(), JournalError>> + Send {
        async move {
            while let Some(commit) = queue.take() {
                self.commit(commit).await?;
                queue.report_durable();
            }
            Ok(())
        }
    }

    /// Returns whether a snapshot is due, so that older records can be dropped. Called while no
    /// commit is in progress, possibly often, so it must be cheap. The result does not matter
    /// during a snapshot. `false` by default.
    fn wants_snapshot(&self) -> bool {
        false
    }

    /// Returns how many more bytes the storage can store, if that is known. Called while no commit
    /// is in progress, possibly often and on a thread of the runtime, so it must be cheap and must
    /// not block for long. `None` by default.
    ///
    /// Below the [reserve](crate::service::ServiceBuilder::storage_reserve), the service refuses
    /// durable writes with the quota error. It begins a snapshot only if it fits. It counts the
    /// bytes of a record twice, because an engine may need space in a log and in a database. Return
    /// 0 if the storage cannot hold one [commit](Commit) of 8 MiB: then only expiries and
    /// registrations that end cause commits.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns whether a commit without records frees space: for example, because each commit
    /// removes some records that a snapshot has replaced. Called like
    /// [`free_bytes`](Self::free_bytes). `false` by default.
    ///
    /// While the service refuses durable writes, it makes such commits until this returns `false`.
    fn can_free_space(&self) -> bool {
        false
    }
}

/// Error of persisting or reading records. Two errors are equal if their texts are.
#[derive(Clone, Debug)]
pub struct JournalError {
    message: Box<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl JournalError {
    /// An error with this text for the reader of a log: what failed and what to do.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string().into(), source: None }
    }

    /// An error with the text of its source.
    #[must_use]
    pub fn from_source(source: impl Error + Send + Sync + 'static) -> Self {
        Self { message: source.to_string().into(), source: Some(Arc::new(source)) }
    }

    /// Sets the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The cause, whether or not the text of this error contains its text.
    /// [`Error::source`] returns only causes whose text does not repeat that of this error.
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for JournalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.get_ref().map(|source| source as &(dyn Error + 'static));
        skip_shown(&self.message, source)
    }
}

impl PartialEq for JournalError {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for JournalError {}

/// A call of a journal in progress. It returns the journal with the result.
pub(crate) type JournalFuture<T> =
    Pin<Box<dyn Future<Output = (Box<dyn DynJournal>, Result<T, JournalError>)> + Send>>;

/// A type-erased [`Journal`].
pub(crate) trait DynJournal: Send {
    fn load(self: Box<Self>) -> JournalFuture<Option<Vec<Record>>>;

    fn commit_queued(self: Box<Self>, queue: CommitQueue) -> JournalFuture<()>;

    fn wants_snapshot(&self) -> bool;

    fn free_bytes(&self) -> Option<u64>;

    fn can_free_space(&self) -> bool;
}

impl<J: Journal> DynJournal for J {
    fn load(mut self: Box<Self>) -> JournalFuture<Option<Vec<Record>>> {
        Box::pin(async move {
            let result = Journal::load(&mut *self).await;
            (self as Box<dyn DynJournal>, result)
        })
    }

    fn commit_queued(mut self: Box<Self>, queue: CommitQueue) -> JournalFuture<()> {
        Box::pin(async move {
            let result = Journal::commit_queued(&mut *self, &queue).await;
            (self as Box<dyn DynJournal>, result)
        })
    }

    fn wants_snapshot(&self) -> bool {
        Journal::wants_snapshot(self)
    }

    fn free_bytes(&self) -> Option<u64> {
        Journal::free_bytes(self)
    }

    fn can_free_space(&self) -> bool {
        Journal::can_free_space(self)
    }
}
