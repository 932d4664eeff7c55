//! Why a request was not accepted, and why it has no answer.

use bytes::Bytes;

use crate::hlc::ClockDriftError;
use crate::message::{PeerError, ServiceError};
use crate::mqtt::ReasonCode;

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
    /// The pattern of a listing has no bytes.
    #[error("the pattern is empty")]
    EmptyPattern,
    /// The key does not fit a notification topic.
    #[error("the key is too long")]
    KeyTooLong,
    /// A value that is to expire after no time at all.
    #[error("the value expires after no time")]
    ZeroExpiry,
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

/// Why a request has no answer that can be used: what [`Outcome::into_value`](super::Outcome::into_value) and the like
/// find in an outcome instead. The client is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The store refused. Nothing has changed.
    #[error("the store refused: {0}")]
    Refused(ServiceError<Bytes>),
    /// The broker did not pass the request on: it refused it, or no store is subscribed. Nothing has changed.
    #[error("the broker did not deliver the request: {0}")]
    Undelivered(ReasonCode),
    /// The request was never sent: there was no connection in time, or it was given up before. Nothing has changed.
    #[error("there was no connection to send the request in time")]
    NotSent,
    /// No answer came in time. A write may have been applied, or may still be.
    #[error("no answer in time; the request may have been applied")]
    TimedOut,
    /// It was given up after it was sent. A write may have been applied, or may still be.
    #[error("given up; the request may have been applied")]
    Cancelled,
    /// The connection was lost before the answer came. A write may have been applied, or may still be.
    #[error("the connection was lost before the answer; the request may have been applied")]
    Unknown,
    /// An answer came that cannot be read, or is none that this command has. A write may have been applied.
    #[error("the answer cannot be read: {0}")]
    Malformed(PeerError),
    /// A SET was applied, and the store did not say which version it gave the value.
    #[error("the store did not say the version of what it stored")]
    NoVersion,
    /// The answer belongs to another kind of command than it was read for.
    #[error("the answer is to another kind of command")]
    OtherCommand,
}

impl RequestError {
    /// Whether a write with this outcome may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Undelivered(_) | Self::NotSent => false,
            Self::TimedOut
            | Self::Cancelled
            | Self::Unknown
            | Self::Malformed(_)
            | Self::NoVersion
            | Self::OtherCommand => true,
        }
    }
}
