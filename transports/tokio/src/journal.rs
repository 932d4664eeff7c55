//! What keeps the records of a store.

use std::fmt;
use std::pin::Pin;

use statestore_proto::store::Record;

/// Keeps the records of a store, so that the next one has what this one had.
///
/// The drive loop calls [`load`](Self::load) until there is no more, before the first connection, and then
/// [`commit`](Self::commit), one at a time; what the store writes meanwhile is the next commit, so engines need no timer
/// to group writes. Nothing that depends on a commit is answered, acknowledged or notified before it returns. An error is
/// final: the [service](crate::StoreService) ends, and what was not acknowledged the broker delivers again.
///
/// Engines keep [records](Record), whose bytes are [`encode_records`](statestore_proto::store::encode_records), and know
/// nothing of MQTT or of rules. This one keeps nothing beyond its own end, which is of use in tests:
///
/// ```
/// use statestore_tokio::{Commit, Journal, JournalError, StoreService};
/// use statestore_proto::store::Record;
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
pub trait Journal: Send + 'static {
    /// The next records of those that were kept, the oldest first, in portions of some hundred kilobytes; `None` when
    /// there are no more.
    ///
    /// # Errors
    /// [`JournalError`] when they cannot be read. The service does not serve without them.
    fn load(&mut self) -> impl Future<Output = Result<Option<Vec<Record>>, JournalError>> + Send;

    /// Returns when all of it is safe, whatever happens to the machine. All of it is found later, or nothing.
    ///
    /// # Errors
    /// [`JournalError`] when that cannot be said. It is not called again.
    fn commit(&mut self, commit: Commit) -> impl Future<Output = Result<(), JournalError>> + Send;

    /// Whether it is time for a snapshot, so that what is older can be dropped: asked after each commit while none is being
    /// made. Never by default.
    fn wants_snapshot(&self) -> bool {
        false
    }
}

/// What becomes durable together.
#[derive(Debug, Default)]
pub struct Commit {
    /// What the store wrote, in order; none when there is only a part of a snapshot.
    pub records: Vec<Record>,
    /// A part of a snapshot that is being made.
    pub snapshot: Option<SnapshotPart>,
}

/// A part of a snapshot. Its parts, in order, and then the records of all commits from that of the first part on, say
/// everything; until the last part is there it says nothing that the records before do not.
#[derive(Debug)]
pub struct SnapshotPart {
    /// Some of what the store holds, as some 64 KiB.
    pub records: Vec<Record>,
    /// Whether a snapshot begins with it. One that was not ended is forgotten.
    pub is_first: bool,
    /// Whether the snapshot ends with it: then it takes the place of everything before its first part.
    pub is_last: bool,
}

/// Why records cannot be kept, or be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct JournalError {
    message: Box<str>,
}

impl JournalError {
    /// What the reader of a log should know, and should do.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string().into() }
    }
}

/// What a journal does now, and the journal when that is done.
pub(crate) type Doing<T> =
    Pin<Box<dyn Future<Output = (Box<dyn Keeper>, Result<T, JournalError>)> + Send>>;

/// A [`Journal`] of any type.
pub(crate) trait Keeper: Send {
    fn load(self: Box<Self>) -> Doing<Option<Vec<Record>>>;

    fn commit(self: Box<Self>, commit: Commit) -> Doing<()>;

    fn wants_snapshot(&self) -> bool;
}

impl<J: Journal> Keeper for J {
    fn load(mut self: Box<Self>) -> Doing<Option<Vec<Record>>> {
        Box::pin(async move {
            let result = Journal::load(&mut *self).await;
            (self as Box<dyn Keeper>, result)
        })
    }

    fn commit(mut self: Box<Self>, commit: Commit) -> Doing<()> {
        Box::pin(async move {
            let result = Journal::commit(&mut *self, commit).await;
            (self as Box<dyn Keeper>, result)
        })
    }

    fn wants_snapshot(&self) -> bool {
        Journal::wants_snapshot(self)
    }
}
