//! Records: what an embedder persists, and what a store is restored from.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::debug::{Key, Value, show};
use crate::hlc::{FencingToken, Hlc, Version};
use crate::message::{Dialect, Expiry};
use crate::store::Principal;
use crate::time::UnixTime;
use crate::transport::{Correlation, token};

/// One change of a store that must be durable. A later record about the same key, request or
/// registration replaces it.
///
/// [`encode_records`](crate::store::encode_records) turns records into bytes.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A value was stored.
    Put {
        /// The key.
        key: Box<[u8]>,
        /// The value.
        value: Box<[u8]>,
        /// Its version.
        version: Version,
        /// The fence of the key.
        fencing_token: Option<FencingToken>,
        /// When the value expires.
        expires: Option<RecordedExpiry>,
        /// True if the requester asked for durability.
        persist: bool,
    },
    /// A value was deleted, has expired, or is not durable any more.
    Removed {
        /// The key.
        key: Box<[u8]>,
        /// The version of the removed value. A restored clock must be past it.
        version: Version,
    },
    /// A request got its response. If it is redelivered, it gets the same response and is
    /// not applied again.
    Response(RecordedResponse),
    /// A client is registered for the notifications of a key.
    Registered {
        /// The MQTT client id.
        client_id: Box<str>,
        /// The key.
        key: Box<[u8]>,
        /// True if the client id is verified.
        verified: bool,
        /// The dialect of its notifications.
        dialect: Dialect,
        /// True if its notifications carry the [incarnation](crate::message::Incarnation).
        wants_incarnation: bool,
        /// The request number of its KEYNOTIFY.
        order: u64,
    },
    /// A registration has ended.
    Unregistered {
        /// The MQTT client id.
        client_id: Box<str>,
        /// The key.
        key: Box<[u8]>,
    },
    /// No version up to this one may be issued again.
    Issued {
        /// The version.
        version: Version,
    },
}

/// A response, and what identifies its request.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// The MQTT client id of the requester; empty if it is unknown.
    pub client_id: Box<str>,
    /// True if the client id is verified.
    pub verified: bool,
    /// The [owner](crate::store::Principal::owner) of the requester, if it is not its client id.
    pub owner: Option<Box<str>>,
    /// The response topic.
    pub response_topic: Arc<str>,
    /// The correlation data.
    pub correlation: Correlation,
    /// A hash of the payload and the timestamps of the request.
    pub content: u64,
    /// The payload of the response.
    pub payload: Bytes,
    /// The `__ts` of the response.
    pub timestamp: Option<Hlc>,
    /// The time in which a duplicate gets this response, from [`given_at`](Self::given_at).
    pub retention: Duration,
    /// When the response was given, in running time of the stores that continued one set of
    /// records. The time between two stores does not count, since no clock measures it; so a
    /// restored response is as old as it was when the last record was written.
    pub given_at: Duration,
    /// The request number.
    pub order: u64,
}

impl RecordedResponse {
    /// The requester.
    pub(in crate::store) fn sender(&self) -> Principal<'_> {
        Principal::recorded(&self.client_id, self.verified, self.owner.as_deref())
    }
}

/// When a recorded value expires.
///
/// A running store uses its monotonic clock, which means nothing to the next store, and the wall
/// clock may be set between the two. [`rest`](Self::rest) is the time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedExpiry {
    /// The wall clock when the value was set or the snapshot taken, plus [`after`](Self::after).
    pub at: UnixTime,
    /// The time to live of the value, or what was left of it when a snapshot was taken.
    pub after: Expiry,
    /// True if the value was set on a condition (NX or NEX), as a lock is.
    pub is_lease: bool,
}

impl RecordedExpiry {
    /// The time that is left to a value restored at `now`, never more than [`after`](Self::after).
    ///
    /// A lease gets all of its time again: no clock measures how long the store was down, and the
    /// lock must not expire before its holder expects. A lock whose holder is gone stays held for
    /// at most one more lease after each start. Other values get what is left by the wall clock, so
    /// a wall clock that was set between the two stores shortens or lengthens their time.
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

token! {
    /// Identifies a [`Batch`].
    BatchId
}

/// The greatest request number in a record. A store issues them one by one and never gets there, so
/// a greater one was not written by a store.
pub(in crate::store) const ORDER_MAX: u64 = u64::MAX >> 1;

/// Records of consecutive requests, in order, to be persisted together. The records of one request
/// are all in one batch, except those of registrations that it ends or evicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The id to report once the whole batch is persisted.
    pub id: BatchId,
    /// The records. Only with
    /// [linearizable reads](crate::store::StoreConfig::linearizable_reads) a batch may be empty.
    pub records: Vec<Record>,
    /// Bytes of the keys, values and texts in these records.
    pub bytes: usize,
}

impl Record {
    /// The key of the record, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put { key, .. }
            | Self::Removed { key, .. }
            | Self::Registered { key, .. }
            | Self::Unregistered { key, .. } => Some(key),
            Self::Response(_) | Self::Issued { .. } => None,
        }
    }

    /// The version in the record, if it has one.
    pub(super) const fn version(&self) -> Option<&Version> {
        match self {
            Self::Put { version, .. }
            | Self::Removed { version, .. }
            | Self::Issued { version } => Some(version),
            Self::Response(_) | Self::Registered { .. } | Self::Unregistered { .. } => None,
        }
    }

    /// Bytes of everything in it that a client chooses, which is nearly its encoded length.
    pub(in crate::store) fn len(&self) -> usize {
        match self {
            Self::Put { key, value, fencing_token, .. } => {
                let fence =
                    fencing_token.as_ref().map_or(0, |token| token.hlc().node().as_str().len());
                key.len() + value.len() + fence
            }
            Self::Removed { key, .. } => key.len(),
            Self::Response(response) => {
                let correlation = response.correlation.as_bytes().len();
                let owner = response.owner.as_ref().map_or(0, |owner| owner.len());
                let texts = response.client_id.len() + owner + response.response_topic.len();
                texts + correlation + response.payload.len()
            }
            Self::Registered { client_id, key, .. } | Self::Unregistered { client_id, key } => {
                client_id.len() + key.len()
            }
            Self::Issued { .. } => 0,
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value, version, fencing_token, expires, persist } => show!(f, Put {
                key = Key(key), value = Value(value), version, fencing_token, expires, persist
            }),
            Self::Removed { key, version } => show!(f, Removed { key = Key(key), version }),
            Self::Response(response) => fmt::Debug::fmt(response, f),
            Self::Registered { client_id, key, order, .. } => {
                show!(f, Registered { client_id, key = Key(key), order })
            }
            Self::Unregistered { client_id, key } => {
                show!(f, Unregistered { client_id, key = Key(key) })
            }
            Self::Issued { version } => show!(f, Issued { version }),
        }
    }
}

impl fmt::Debug for RecordedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client_id, verified, owner, response_topic, correlation, payload, .. } = self;
        let Self { timestamp, retention, given_at, order, .. } = self;
        show!(f, RecordedResponse {
            client_id, verified, owner, response_topic, correlation, payload = Value(payload),
            timestamp, retention, given_at, order
        })
    }
}
