//! What must survive, as records: what an embedder keeps on disk, and what a store is rebuilt from.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::debug;
use crate::hlc::{FencingToken, Hlc, Version};
use crate::message::{Dialect, Expiry};
use crate::mqtt::Correlation;
use crate::time::UnixTime;

/// One thing that a store must not forget. What comes later about the same key, request or registration takes its place.
///
/// Its [bytes](crate::store::encode_records) say all of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A key has this value.
    Put {
        /// The key.
        key: Box<[u8]>,
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
    /// A key is gone: deleted, expired, or not to be kept any more.
    Removed {
        /// The key.
        key: Box<[u8]>,
        /// The version of the value that was removed. A rebuilt clock must be past it.
        version: Version,
    },
    /// A request was answered. When it is delivered again, it gets this answer and has no effect.
    Answered(Answered),
    /// A client is registered for the notifications of a key.
    Watched {
        /// The MQTT client id.
        client_id: Box<str>,
        /// The key.
        key: Box<[u8]>,
        /// Whether a broker vouched for the client id.
        verified: bool,
        /// What its notifications are written in.
        dialect: Dialect,
        /// Whether they say which [incarnation](crate::message::Incarnation) of the store sends them.
        wants_incarnation: bool,
        /// The place of its KEYNOTIFY among all requests.
        order: u64,
    },
    /// A registration has ended.
    Unwatched {
        /// The MQTT client id.
        client_id: Box<str>,
        /// The key.
        key: Box<[u8]>,
    },
    /// No version up to this one is issued again.
    Issued {
        /// The version.
        version: Version,
    },
}

/// What a request was answered, and what names that request.
#[derive(Clone, PartialEq, Eq)]
pub struct Answered {
    /// The MQTT client id of the requester; empty where none is known.
    pub client_id: Box<str>,
    /// Where it was answered.
    pub response_topic: Arc<str>,
    /// Its correlation data.
    pub correlation: Correlation,
    /// Stands for its payload and stamps.
    pub content: u64,
    /// The payload of the answer.
    pub payload: Bytes,
    /// The `__ts` of the answer.
    pub timestamp: Option<Hlc>,
    /// For how long it is remembered. A store that is restored remembers it for all of that again: no clock tells how
    /// long the request waits with the broker.
    pub kept: Duration,
    /// The place of the request among all.
    pub order: u64,
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

/// Records of consecutive requests, in order, to be persisted together. No request has records in two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// To be reported when all of it is persisted.
    pub id: BatchId,
    /// At least one, but with [linearizable reads](super::StoreConfig::linearizable_reads).
    pub records: Vec<Record>,
}

impl Record {
    /// The key that it is about, if it is about one.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put { key, .. }
            | Self::Removed { key, .. }
            | Self::Watched { key, .. }
            | Self::Unwatched { key, .. } => Some(key),
            Self::Answered(_) | Self::Issued { .. } => None,
        }
    }

    /// Bytes of keys, values, names and answers. An answer shares most of its bytes with its packet, which counts them.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Removed { key, .. } => key.len(),
            Self::Answered(answered) => answered.client_id.len(),
            Self::Watched { client_id, key, .. } | Self::Unwatched { client_id, key } => {
                client_id.len() + key.len()
            }
            Self::Issued { .. } => 0,
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value, version, fencing_token, expires, persist } => f
                .debug_struct("Put")
                .field("key", &debug::Key(key))
                .field("value", &debug::Value(value))
                .field("version", version)
                .field("fencing_token", fencing_token)
                .field("expires", expires)
                .field("persist", persist)
                .finish(),
            Self::Removed { key, version } => f
                .debug_struct("Removed")
                .field("key", &debug::Key(key))
                .field("version", version)
                .finish(),
            Self::Answered(answered) => fmt::Debug::fmt(answered, f),
            Self::Watched { client_id, key, order, .. } => f
                .debug_struct("Watched")
                .field("client_id", client_id)
                .field("key", &debug::Key(key))
                .field("order", order)
                .finish_non_exhaustive(),
            Self::Unwatched { client_id, key } => f
                .debug_struct("Unwatched")
                .field("client_id", client_id)
                .field("key", &debug::Key(key))
                .finish(),
            Self::Issued { version } => f.debug_struct("Issued").field("version", version).finish(),
        }
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered")
            .field("client_id", &self.client_id)
            .field("response_topic", &self.response_topic)
            .field("correlation", &self.correlation)
            .field("payload", &debug::Value(&self.payload))
            .field("timestamp", &self.timestamp)
            .field("kept", &self.kept)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
