//! Errors of requests.

use bytes::Bytes;

use crate::message::{PeerError, Refusal, ServiceError};
use crate::transport::ReasonCode;

/// The reason why a request was not accepted. Nothing was sent, and the client stays usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The limit of outstanding requests or watches is reached. Poll events and try again.
    #[error("too many requests or watches are outstanding")]
    Full,
    /// The key is empty.
    #[error("the key is empty")]
    EmptyKey,
    /// The pattern of a SCAN is empty.
    #[error("the pattern is empty")]
    EmptyPattern,
    /// The key does not fit into a notification topic.
    #[error("the key is too long")]
    KeyTooLong,
    /// The expiry of a value is zero.
    #[error("the expiry is zero")]
    ZeroExpiry,
    /// The time limit is zero.
    #[error("the time limit is zero")]
    ZeroTimeout,
    /// Only SET, DEL and VDEL have a fencing token.
    #[error("a request that does not write has a fencing token")]
    FencingTokenOnRead,
    /// Only a SET can ask the store to persist the key.
    #[error("a request that is not a SET asks the store to persist the key")]
    PersistWithoutSet,
    /// The key is watched already.
    #[error("the key is watched already")]
    AlreadyWatched,
    /// KEYNOTIFY is sent by a watch: use [`watch`](super::Client::watch) and
    /// [`unwatch`](super::Client::unwatch).
    #[error("KEYNOTIFY is sent by a watch: use `watch` and `unwatch`")]
    WatchCommand,
}

/// The reason why a request failed: the error of
/// [`Outcome::into_value`](super::Outcome::into_value) and similar methods. The client stays
/// usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The store refused the request. Nothing has changed.
    #[error("the store refused: {0}")]
    Refused(ServiceError<Bytes>),
    /// The broker did not deliver the request: it rejected the request, or no store is subscribed.
    /// Nothing has changed.
    #[error("the broker did not deliver the request: {0}")]
    Undelivered(ReasonCode),
    /// The time limit passed before there was a connection to send the request. Nothing has
    /// changed.
    #[error("there was no connection to send the request in time")]
    NotSent,
    /// No response arrived in time. A write may have been applied, or may still be.
    #[error("no response in time; the request may have been applied")]
    TimedOut,
    /// The application cancelled the request.
    #[error("cancelled{}", if *sent { "; the request may have been applied" } else { " before it was sent" })]
    Cancelled {
        /// True if the request was sent, so that it may have been applied or may still be.
        sent: bool,
    },
    /// The connection was lost before the response. A write may have been applied, or may still be.
    #[error("the connection was lost before the response; the request may have been applied")]
    ConnectionLost,
    /// The response is malformed or does not fit the request. A write may have been applied.
    #[error("malformed response: {0}")]
    Malformed(PeerError),
    /// A SET was applied, but its response lacks the version.
    #[error("the response to the SET has no version")]
    NoVersion,
    /// The response belongs to another kind of request than the one it was read for.
    #[error("the response is to another kind of request")]
    OtherCommand,
}

impl RequestError {
    /// The refusal of the store; `None` for other errors, and for a refusal that this crate does
    /// not know.
    ///
    /// ```
    /// use statestore_proto::client::RequestError;
    /// use statestore_proto::message::Refusal;
    ///
    /// let error = RequestError::Refused(Refusal::FencingTokenLower.into());
    /// assert_eq!(error.refusal(), Some(Refusal::FencingTokenLower));
    /// assert_eq!(RequestError::TimedOut.refusal(), None);
    /// ```
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(error) => error.known(),
            _ => None,
        }
    }

    /// Returns whether a write with this outcome may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Undelivered(_) | Self::NotSent => false,
            Self::Cancelled { sent } => *sent,
            Self::TimedOut
            | Self::ConnectionLost
            | Self::Malformed(_)
            | Self::NoVersion
            | Self::OtherCommand => true,
        }
    }
}
