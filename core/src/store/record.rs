//! Writes as records: what an embedder keeps on disk, and what a store is rebuilt from.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::debug;
use crate::hlc::{FencingToken, Version};
use crate::message::Expiry;
use crate::time::UnixTime;

/// One applied write. The last record of a key says what the key holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Box<[u8]>,
    /// What became of it.
    pub change: RecordChange,
}

/// What a write made of its key.
#[derive(Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// The key has this value.
    Put {
        /// The value.
        value: Box<[u8]>,
        /// Its version.
        version: Version,
        /// The token that fences the key.
        fencing_token: Option<FencingToken>,
        /// When the value expires.
        expires: Option<RecordedExpiry>,
        /// Whether the requester asked for durability.
        persist: bool,
    },
    /// The key is gone: deleted, expired, or not to be kept any more.
    Removed {
        /// The version of the value that was removed. A rebuilt clock must be past it.
        version: Version,
    },
}

/// When a recorded value expires.
///
/// A running store counts by its monotonic clock, which means nothing to the next one; the wall clock may be set
/// between the two. [`rest`](Self::rest) says what is made of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedExpiry {
    /// What the wall clock showed when the value was set or a snapshot taken, plus [`after`](Self::after).
    pub at: UnixTime,
    /// The time that the value was given, or what a snapshot found left of it.
    pub after: Expiry,
    /// Whether it was set on a condition (NX or NEX), as locks are.
    pub is_lease: bool,
}

impl RecordedExpiry {
    /// What is left to a value that is restored at `now`: never more than it was given.
    ///
    /// A lease gets all of it again. Its holder counts by its own clock and must not find the lock given away early,
    /// and no clock tells how long the store was away: a lock whose holder is gone stays held for at most one more
    /// lease after each start. Any other value has what the wall clock says; a wall clock that was set meanwhile ends it early or keeps
    /// it longer by as much, and by no more than it was given.
    ///
    /// ```
    /// use core::time::Duration;
    /// use statestore_proto::message::Expiry;
    /// use statestore_proto::store::RecordedExpiry;
    /// use statestore_proto::time::UnixTime;
    ///
    /// let after = Expiry::from_millis(10_000).ok_or("not zero")?;
    /// let value = RecordedExpiry { at: UnixTime::from_millis(70_000), after, is_lease: false };
    /// assert_eq!(value.rest(UnixTime::from_millis(64_000)), Duration::from_secs(6));
    /// assert_eq!(value.rest(UnixTime::from_millis(5_000)), Duration::from_secs(10));
    /// assert_eq!(value.rest(UnixTime::from_millis(99_000)), Duration::ZERO);
    /// let lease = RecordedExpiry { is_lease: true, ..value };
    /// assert_eq!(lease.rest(UnixTime::from_millis(99_000)), Duration::from_secs(10));
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn rest(&self, now: UnixTime) -> Duration {
        let whole = self.after.as_duration();
        if self.is_lease { whole } else { self.at.duration_since(now).min(whole) }
    }
}

/// Names a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub(super) u64);

/// Records of consecutive writes, in order, to be persisted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// To be reported when all of it is persisted.
    pub id: BatchId,
    /// At least one.
    pub records: Vec<Record>,
}

impl Record {
    /// Bytes of key and value.
    pub(super) fn len(&self) -> usize {
        let value = match &self.change {
            RecordChange::Put { value, .. } => value.len(),
            RecordChange::Removed { .. } => 0,
        };
        self.key.len() + value
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &debug::Key(&self.key))
            .field("change", &self.change)
            .finish()
    }
}

impl fmt::Debug for RecordChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { value, version, fencing_token, expires, persist } => f
                .debug_struct("Put")
                .field("value", &debug::Value(value))
                .field("version", version)
                .field("fencing_token", fencing_token)
                .field("expires", expires)
                .field("persist", persist)
                .finish(),
            Self::Removed { version } => {
                f.debug_struct("Removed").field("version", version).finish()
            }
        }
    }
}
