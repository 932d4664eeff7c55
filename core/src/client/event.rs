//! Events of a client.

use alloc::sync::Arc;
use core::fmt;
use core::str::Utf8Error;

use bytes::Bytes;

use super::RequestError;
use crate::debug::{Value, show};
use crate::hlc::{ClockDriftError, Version};
use crate::message::{Incarnation, Page, PeerError, Reply, Response, ServiceError};
use crate::transport::ReasonCode;

/// Identifies an accepted request until its completion is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// Identifies a watch until its end is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(super) u64);

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The store responded.
    Responded {
        /// The reply, or the page of keys.
        response: Response<Bytes>,
        /// The version in the response.
        version: Option<Version>,
        /// The incarnation of the store, if the store reports one.
        incarnation: Option<Incarnation>,
    },
    /// The broker did not deliver the request: it rejected the request, or no store is subscribed.
    Undelivered(ReasonCode),
    /// No response arrived in time.
    TimedOut {
        /// True if the request was sent, so that it may have been applied or may still be.
        sent: bool,
    },
    /// The connection was lost after the request was sent: it may have been applied or may still
    /// be.
    ConnectionLost,
    /// The caller cancelled the request.
    Cancelled {
        /// True if the request was sent, so that it may have been applied or may still be.
        sent: bool,
    },
    /// The response is undecodable or does not fit the command. Whether the request was applied is
    /// unknown; a GET shows it.
    Malformed(PeerError),
}

impl Outcome {
    /// Returns whether a write with this outcome may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Responded { response, .. } => {
                matches!(response, Response::Reply(Reply::Done | Reply::Removed))
            }
            Self::Undelivered(_) => false,
            Self::TimedOut { sent } | Self::Cancelled { sent } => *sent,
            Self::ConnectionLost | Self::Malformed(_) => true,
        }
    }

    /// Reads the response to a GET: the value, or `None` if the key is absent.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_value(self) -> Result<Option<VersionedValue>, RequestError> {
        match self {
            Self::Responded { response: Response::Reply(Reply::Value(value)), version, .. } => {
                Ok(Some(VersionedValue { value, version }))
            }
            Self::Responded { response: Response::Reply(Reply::Absent), .. } => Ok(None),
            other => Err(other.into_error()),
        }
    }

    /// Reads the response to a SET: the version of the value, or `None` if the condition did not
    /// hold.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_version(self) -> Result<Option<Version>, RequestError> {
        match self {
            Self::Responded { response: Response::Reply(Reply::Done), version, .. } => {
                version.map(Some).ok_or(RequestError::NoVersion)
            }
            Self::Responded { response: Response::Reply(Reply::NotApplied), .. } => Ok(None),
            other => Err(other.into_error()),
        }
    }

    /// Reads the response to a DEL or VDEL.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_removal(self) -> Result<Removal, RequestError> {
        match self {
            Self::Responded { response: Response::Reply(Reply::Removed), .. } => {
                Ok(Removal::Removed)
            }
            Self::Responded { response: Response::Reply(Reply::NothingRemoved), .. } => {
                Ok(Removal::NothingRemoved)
            }
            Self::Responded { response: Response::Reply(Reply::NotApplied), .. } => {
                Ok(Removal::NotApplied)
            }
            other => Err(other.into_error()),
        }
    }

    /// Reads the response to a SCAN.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn into_page(self) -> Result<Page<Bytes>, RequestError> {
        match self {
            Self::Responded { response: Response::Page(page), .. } => Ok(page),
            other => Err(other.into_error()),
        }
    }

    /// The error of an outcome without a usable response.
    fn into_error(self) -> RequestError {
        match self {
            Self::Responded { response: Response::Reply(Reply::Error(error)), .. } => {
                RequestError::Refused(error)
            }
            Self::Responded { .. } => RequestError::OtherCommand,
            Self::Undelivered(reason) => RequestError::Undelivered(reason),
            Self::TimedOut { sent: false } => RequestError::NotSent,
            Self::TimedOut { sent: true } => RequestError::TimedOut,
            Self::Cancelled { sent } => RequestError::Cancelled { sent },
            Self::ConnectionLost => RequestError::ConnectionLost,
            Self::Malformed(error) => RequestError::Malformed(error),
        }
    }
}

/// A value and its version.
#[derive(Clone, PartialEq, Eq)]
pub struct VersionedValue {
    /// The value.
    pub value: Bytes,
    /// The version, if the response has one.
    pub version: Option<Version>,
}

impl VersionedValue {
    /// The value as text.
    ///
    /// # Errors
    /// If it is not UTF-8. The error does not contain the value.
    ///
    /// ```
    /// use statestore_proto::client::VersionedValue;
    ///
    /// let found = VersionedValue { value: "21.5".into(), version: None };
    /// assert_eq!(found.text()?.parse(), Ok(21.5));
    /// # Ok::<(), core::str::Utf8Error>(())
    /// ```
    pub fn text(&self) -> Result<&str, Utf8Error> {
        core::str::from_utf8(&self.value)
    }
}

impl fmt::Debug for VersionedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show!(f, VersionedValue { value = Value(&self.value), version = self.version })
    }
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// The key was removed.
    Removed,
    /// The key did not exist.
    NothingRemoved,
    /// The value differs from the one of the VDEL, and the key stays.
    NotApplied,
}

/// An event of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The response topic is subscribed; requests are sent from now on.
    Ready,
    /// The broker rejected a subscription. Requests or watches wait for the next connection, or for
    /// their time limit.
    SubscribeFailed {
        /// The filter.
        filter: Arc<str>,
        /// The reason code of the broker.
        reason: ReasonCode,
    },
    /// The store has a new incarnation: it was restarted or replaced. Registrations with the
    /// previous store are lost, and so is its state that was not durable. Watches report a gap and
    /// register again. Pass the incarnation to locks with
    /// [`Lock::handle_incarnation`](crate::lock::Lock::handle_incarnation).
    ///
    /// If several such events do not fit into the queue, only the last is reported.
    StoreReplaced {
        /// The incarnation; `None` if the store does not send one.
        incarnation: Option<Incarnation>,
    },
    /// An accepted request is complete. There is exactly one such event for each request.
    Completed {
        /// The request.
        id: RequestId,
        /// The outcome.
        outcome: Outcome,
    },
    /// The reason of a refusal, from a store that [explains](crate::store::StoreConfig::explain).
    /// The [`Completed`](Self::Completed) event of the request follows. Dropped if the queue is
    /// full.
    Explained {
        /// The request.
        id: RequestId,
        /// A text of the store for people, at most 256 bytes long.
        reason: Arc<str>,
    },
    /// An event of a watch.
    Watch {
        /// The watch.
        id: WatchId,
        /// The event.
        event: WatchEvent,
    },
    /// A message that matches no request and no watch: a duplicate, a late response, or one for
    /// another client.
    Unmatched(Unmatched),
    /// A timestamp of the store is too far ahead of the local wall clock. Its message was
    /// delivered, but the clock did not follow.
    ClockDrift(ClockDriftError),
}

/// An event of a watch.
///
/// A watch reports the value of its key, if it has one, and then [`Live`](Self::Live). From then on
/// it reports every change until a [`Gap`](Self::Gap). After a gap it reports the value again if it
/// has changed, and `Live` ends the gap. If the store was replaced, it reports the value again in
/// any case, since the versions of two stores cannot be compared.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// The key has this value, or was deleted.
    Changed {
        /// The value; `None` when the key was deleted or has expired.
        value: Option<Bytes>,
        /// The version of the value, or of the deleted one if that is known.
        version: Option<Version>,
    },
    /// The reported value is current, and later changes will be reported.
    Live,
    /// Changes may be missed from now on: the reported value may be outdated.
    Gap,
    /// The watch has ended; no event follows.
    Ended(WatchEnd),
}

/// The phase of a watch: the response or time that it waits for. Applications need only its
/// [events](WatchEvent); the phase is for a user interface or a log. A watch that has ended is not
/// in a phase.
///
/// | from | what happens | to |
/// |---|---|---|
/// | waiting | a connection; the time of a retry | registering |
/// | registering | KEYNOTIFY gets a response | reading |
/// | reading | GET gets a response | live |
/// | reading | GET does not find a value of a later notification | reading |
/// | registering, reading | no response in time | registering |
/// | registering, reading | no store is subscribed; the response is unusable | waiting |
/// | live | a renewal finds that changes may be missing; events are lost | reading |
/// | live | a store without incarnation notifies before it responds to a renewal's KEYNOTIFY | registering |
/// | live | a store without incarnation notifies before it responds to a renewal's GET | reading |
/// | registering, reading, live | a new incarnation responds | registering |
/// | registering, reading, live | a new incarnation responds just after another | waiting |
/// | registering, reading, live | the connection is lost | waiting |
/// | registering, reading, live | the store refuses | ended |
/// | waiting, registering | it is ended before SUBACK | ended |
/// | waiting, registering, reading, live | it is ended | stopping |
/// | stopping | STOP gets a response; no store is subscribed; no response in time; the connection is lost | ended |
///
/// See [`Incarnation`](crate::message::Incarnation). A renewal without a response leaves a watch
/// live and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchPhase {
    /// The watch waits for a connection, or for the time of a retry.
    Waiting,
    /// KEYNOTIFY is outstanding.
    Registering,
    /// GET is outstanding.
    Reading,
    /// Changes are reported as their notifications arrive.
    Live,
    /// STOP is outstanding.
    Stopping,
}

/// The reason why a watch has ended.
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
                show!(f, Changed { value = value.as_deref().map(Value), version })
            }
            Self::Live => f.write_str("Live"),
            Self::Gap => f.write_str("Gap"),
            Self::Ended(end) => f.debug_tuple("Ended").field(end).finish(),
        }
    }
}

/// A message that matches no request and no watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmatched {
    /// A response to a request that is complete: a duplicate, or too late.
    Reply(RequestId),
    /// A response to a request of another client, or of an earlier run.
    ForeignReply,
    /// A notification of a key that is not watched, or one older than the last report.
    Notification,
    /// A malformed notification.
    MalformedNotification(PeerError),
    /// A message on another topic.
    Topic,
}
