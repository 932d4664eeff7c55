//! What a client is asked, and what it tells.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::debug;
use crate::hlc::{ClockDriftError, FencingToken, Version};
use crate::message::{Command, Incarnation, PeerError, Reply, ServiceError};
use crate::mqtt::ReasonCode;

/// A command and how it is to be sent.
///
/// ```
/// use core::time::Duration;
/// use bytes::Bytes;
/// use statestore_proto::client::Request;
/// use statestore_proto::message::Command;
///
/// let get = Request::new(Command::Get { key: Bytes::from_static(b"thermostat") }).timeout(Duration::from_secs(3));
/// # let _ = get;
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) command: Command<Bytes>,
    pub(super) fencing_token: Option<FencingToken>,
    pub(super) persist: bool,
    pub(super) timeout: Option<Duration>,
}

impl Request {
    /// A GET, SET, DEL or VDEL. To watch a key use [`Client::watch`](super::Client::watch).
    #[must_use]
    pub const fn new(command: Command<Bytes>) -> Self {
        Self { command, fencing_token: None, persist: false, timeout: None }
    }

    /// Carries a fencing token. Reads are never fenced and go without.
    #[must_use]
    pub fn fencing_token(mut self, token: FencingToken) -> Self {
        self.fencing_token = self.command.kind().is_write().then_some(token);
        self
    }

    /// Asks the store to keep the key of a SET on disk. No reply tells whether it does.
    #[must_use]
    pub const fn persist(mut self, persist: bool) -> Self {
        self.persist = persist;
        self
    }

    /// How long the request may take, counted from its submission; rounded up to whole milliseconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The command.
    #[must_use]
    pub const fn command(&self) -> &Command<Bytes> {
        &self.command
    }

    /// The fencing token that it carries.
    #[must_use]
    pub const fn token(&self) -> Option<&FencingToken> {
        self.fencing_token.as_ref()
    }

    /// How long it may take; `None` when that is left to the client.
    #[must_use]
    pub const fn time_limit(&self) -> Option<Duration> {
        self.timeout
    }
}

/// Names an accepted request until its completion is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// Names a watch until its end is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(super) u64);

/// Why a request was not accepted. Nothing was sent; the client is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many requests or watches as allowed are outstanding. Poll events and try again.
    #[error("too many requests or watches are outstanding")]
    Full,
    /// The key has no bytes.
    #[error("the key is empty")]
    EmptyKey,
    /// The key does not fit a notification topic.
    #[error("the key is too long")]
    KeyTooLong,
    /// The key is watched already.
    #[error("the key is watched already")]
    AlreadyWatched,
    /// KEYNOTIFY belongs to a watch: use `watch` and `unwatch`.
    #[error("watching is not a request; use a watch")]
    NotARequest,
    /// A SET needs a timestamp, and the wall clock here is too far behind to issue one.
    #[error(transparent)]
    Clock(ClockDriftError),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// An answer came that cannot be read; the store did something.
    Malformed(PeerError),
}

impl Outcome {
    /// Whether a write with this outcome may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Replied { reply, .. } => matches!(reply, Reply::Done | Reply::Removed),
            Self::Rejected(_) => false,
            Self::TimedOut { sent } | Self::Cancelled { sent } => *sent,
            Self::Unknown | Self::Malformed(_) => true,
        }
    }
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

/// Why a watch is over.
#[derive(Clone, Debug, PartialEq, Eq)]
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
