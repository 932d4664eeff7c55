//! What a client tells.

use alloc::sync::Arc;
use core::fmt;

use bytes::Bytes;

use super::RequestError;
use crate::debug;
use crate::hlc::{ClockDriftError, Version};
use crate::message::{Incarnation, Page, PeerError, Reply, ServiceError};
use crate::mqtt::ReasonCode;

/// Names an accepted request until its completion is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// Names a watch until its end is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(super) u64);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The store answered.
    Replied {
        /// The answer.
        reply: Reply<Bytes>,
        /// The version that came with it.
        version: Option<Version>,
        /// Which incarnation of the store answered, if it says so.
        incarnation: Option<Incarnation>,
    },
    /// The store answered a request for a page of keys with one. A refusal is [`Replied`](Self::Replied), as always.
    Listed {
        /// The page.
        page: Page<Bytes>,
        /// Which incarnation of the store answered, if it says so.
        incarnation: Option<Incarnation>,
    },
    /// The broker did not pass the request on: it refused it, or no store is subscribed.
    Rejected(ReasonCode),
    /// No answer came in time.
    TimedOut {
        /// Whether the request had been sent, so that it may have been applied or may still be.
        sent: bool,
    },
    /// The connection was lost with the request sent and unanswered: it may have been applied or may still be.
    Unknown,
    /// The caller gave it up.
    Cancelled {
        /// Whether the request had been sent, so that it may have been applied or may still be.
        sent: bool,
    },
    /// An answer came whose payload cannot be read, or is none that this command has. The store has done something, or
    /// nothing; a GET tells.
    Malformed(PeerError),
}

impl Outcome {
    /// Whether a write with this outcome may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Replied { reply, .. } => matches!(reply, Reply::Done | Reply::Removed),
            Self::Listed { .. } | Self::Rejected(_) => false,
            Self::TimedOut { sent } | Self::Cancelled { sent } => *sent,
            Self::Unknown | Self::Malformed(_) => true,
        }
    }

    /// Reads the answer to a GET: the value, or `None` when there is none.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_value(self) -> Result<Option<VersionedValue>, RequestError> {
        match self {
            Self::Replied { reply: Reply::Value(value), version, .. } => {
                Ok(Some(VersionedValue { value, version }))
            }
            Self::Replied { reply: Reply::Absent, .. } => Ok(None),
            other => Err(other.into_error()),
        }
    }

    /// Reads the answer to a SET: the version of the value, or `None` when the condition did not hold.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_version(self) -> Result<Option<Version>, RequestError> {
        match self {
            Self::Replied { reply: Reply::Done, version, .. } => {
                version.map(Some).ok_or(RequestError::NoVersion)
            }
            Self::Replied { reply: Reply::NotApplied, .. } => Ok(None),
            other => Err(other.into_error()),
        }
    }

    /// Reads the answer to a DEL or VDEL.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_removal(self) -> Result<Removal, RequestError> {
        match self {
            Self::Replied { reply: Reply::Removed, .. } => Ok(Removal::Removed),
            Self::Replied { reply: Reply::NothingRemoved, .. } => Ok(Removal::Absent),
            Self::Replied { reply: Reply::NotApplied, .. } => Ok(Removal::Different),
            other => Err(other.into_error()),
        }
    }

    /// Reads the answer to a request for a page of keys.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_page(self) -> Result<Page<Bytes>, RequestError> {
        match self {
            Self::Listed { page, .. } => Ok(page),
            other => Err(other.into_error()),
        }
    }

    /// Why there is no answer that could be used.
    fn into_error(self) -> RequestError {
        match self {
            Self::Replied { reply: Reply::Error(error), .. } => RequestError::Refused(error),
            Self::Replied { .. } | Self::Listed { .. } => RequestError::OtherCommand,
            Self::Rejected(reason) => RequestError::Undelivered(reason),
            Self::TimedOut { sent: false } | Self::Cancelled { sent: false } => {
                RequestError::NotSent
            }
            Self::TimedOut { sent: true } => RequestError::TimedOut,
            Self::Cancelled { sent: true } => RequestError::Cancelled,
            Self::Unknown => RequestError::Unknown,
            Self::Malformed(error) => RequestError::Malformed(error),
        }
    }
}

/// A value and its version.
#[derive(Clone, PartialEq, Eq)]
pub struct VersionedValue {
    /// The value.
    pub value: Bytes,
    /// Its version, where the store says it.
    pub version: Option<Version>,
}

impl fmt::Debug for VersionedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedValue")
            .field("value", &debug::Value(&self.value))
            .field("version", &self.version)
            .finish()
    }
}

/// What a deletion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// The key is gone.
    Removed,
    /// There was no such key.
    Absent,
    /// The key has another value than a VDEL named, and stays.
    Different,
}

/// What a client tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The response topic is subscribed; requests go out.
    Ready,
    /// The broker refused a subscription. Requests or watches wait for the next connection, or for their time-out.
    SubscribeFailed {
        /// The filter.
        filter: Arc<str>,
        /// The broker's reason.
        reason: ReasonCode,
    },
    /// Another store answers than before: it was started anew, or another took its place. What was registered with the one
    /// before is gone, and so is whatever it did not keep elsewhere. Watches tell a gap and register again by themselves;
    /// tell locks, with [`Lock::handle_incarnation`](crate::lock::Lock::handle_incarnation).
    ///
    /// Of several for which there was no room only the last is told.
    StoreReplaced {
        /// Its incarnation; `None` when it does not say.
        incarnation: Option<Incarnation>,
    },
    /// An accepted request has come to its end. There is exactly one of these for each.
    Completed {
        /// The request.
        id: RequestId,
        /// What became of it.
        outcome: Outcome,
    },
    /// A store that [explains](crate::store::StoreConfig::explain) says why it has refused a request. Its
    /// [`Completed`](Self::Completed) comes next. Dropped where there is no room.
    Explained {
        /// The request.
        id: RequestId,
        /// Why, in the words of the store, for people: of 256 bytes at most.
        reason: Arc<str>,
    },
    /// Something about a watch.
    Watch {
        /// The watch.
        id: WatchId,
        /// What.
        event: WatchEvent,
    },
    /// A message that belongs to nothing outstanding: the duplicate of an answer, a late one, or a stranger's.
    Stale(Stale),
    /// A timestamp of the store is too far ahead of the wall clock here. The message it came with was delivered; the
    /// clock did not follow.
    ClockDrift(ClockDriftError),
}

/// What about a watch.
///
/// A watch begins with the value of its key, if it has one, and then [`Live`](Self::Live). From there on every change is
/// reported, until a [`Gap`](Self::Gap), after which the value is reported again if it moved, and `Live` closes the gap. When
/// another store has taken the place of the one before, whose versions say nothing about its own, a value is reported again
/// in any case.
#[derive(Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The key has this value, or none any more.
    Changed {
        /// The value; `None` when the key was deleted or has expired.
        value: Option<Bytes>,
        /// The version of the value, or of the one deleted where that is known.
        version: Option<Version>,
    },
    /// What was reported is current, and changes from here on will be reported.
    Live,
    /// Changes may be missed from here on: what was reported may be out of date.
    Gap,
    /// The watch is over; nothing follows.
    Ended(WatchEnd),
}

/// Where a watch stands: what it waits for next. An application needs its [events](WatchEvent) only; this is for a screen or
/// a log. One that has ended has no phase.
///
/// | from | what happens | to |
/// |---|---|---|
/// | waiting | a connection; the time of a retry | registering |
/// | registering | KEYNOTIFY is answered | reading |
/// | reading | GET is answered | live |
/// | reading | GET does not find a value that was heard since | reading |
/// | registering, reading | no answer in time | registering |
/// | registering, reading | nobody listens; the answer makes no sense | waiting |
/// | live | a renewal finds that changes may be missing; events are lost | reading |
/// | live | a silent store tells a change before it answers a renewal's KEYNOTIFY | registering |
/// | live | a silent store tells a change before it answers a renewal's GET | reading |
/// | registering, reading, live | another store answers | registering |
/// | registering, reading, live | another store answers just after another | waiting |
/// | registering, reading, live | the connection is lost | waiting |
/// | registering, reading, live | the store refuses | ended |
/// | waiting, registering | it is ended before SUBACK | ended |
/// | waiting, registering, reading, live | it is ended | stopping |
/// | stopping | STOP is answered; nobody listens; no answer in time; the connection is lost | ended |
///
/// A silent store is one that does not say its [incarnation](crate::message::Incarnation). A renewal that is not answered
/// leaves a watch live, and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchPhase {
    /// It waits for a connection, or for the time of a retry.
    Waiting,
    /// KEYNOTIFY is outstanding.
    Registering,
    /// GET is outstanding.
    Reading,
    /// Changes are reported as they are heard.
    Live,
    /// STOP is outstanding.
    Stopping,
}

/// Why a watch is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEnd {
    /// The application ended it.
    Stopped,
    /// The store refused it.
    Refused(ServiceError<Bytes>),
}

impl fmt::Debug for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { value, version } => {
                let value = value.as_deref().map(debug::Value);
                f.debug_struct("Changed").field("value", &value).field("version", version).finish()
            }
            Self::Live => f.write_str("Live"),
            Self::Gap => f.write_str("Gap"),
            Self::Ended(end) => f.debug_tuple("Ended").field(end).finish(),
        }
    }
}

/// A message that belongs to nothing outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// An answer to a request of this client that is complete: a duplicate, or too late.
    Reply(RequestId),
    /// An answer to a request of somebody else, or of an earlier run.
    StrangersReply,
    /// A notification of a key that is not watched, or one that is older than what was reported.
    Notification,
    /// A notification that cannot be read.
    MalformedNotification(PeerError),
    /// A message on another topic.
    Topic,
}
