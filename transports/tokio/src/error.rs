//! Why a call failed, by who must act.

use std::sync::Arc;

use bytes::Bytes;
use statestore_proto::client::{RequestError, SubmitError};
use statestore_proto::message::{PeerError, ServiceError};
use statestore_proto::mqtt::ReasonCode;

/// Why a request failed. The handle is usable after each of them but [`Closed`](Self::Closed).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be sent as it is. Nothing was sent.
    #[error("the request cannot be sent: {0}")]
    Invalid(SubmitError),
    /// The store refused. Nothing has changed.
    #[error("the store refused: {0}")]
    Refused(ServiceError<Bytes>),
    /// The broker did not pass the request on. Nothing has changed.
    #[error("the broker did not deliver the request: {0}")]
    Undelivered(ReasonCode),
    /// No answer came in time and the request was never sent. Nothing has changed.
    #[error("there was no connection to send the request in time")]
    NotSent,
    /// No answer came in time. The write may have been applied, or may still be.
    #[error("no answer in time; the request may have been applied")]
    TimedOut,
    /// No answer came in time, nor has any come on this connection since it was made. The write may have been applied, or
    /// may still be.
    ///
    /// A broker may pass requests on to nobody without a word, and some grant a subscription that their access rules then
    /// keep silent.
    #[error(
        "no answer in time, nor any on this connection before: either no store listens behind this broker, or its access \
         rules do not let this client read {response_topic}; the request may have been applied"
    )]
    Unanswered {
        /// What this client must be able to read, since answers are published there.
        response_topic: Arc<str>,
    },
    /// The connection was lost before the answer came. The write may have been applied, or may still be.
    #[error("the connection was lost before the answer; the request may have been applied")]
    Unknown,
    /// An answer came that cannot be read, or is none that this command has. A write may have been applied.
    #[error("the answer cannot be read: {0}")]
    Malformed(PeerError),
    /// A SET was applied, and the store did not say which version it gave the value.
    #[error("the store did not say the version of what it stored")]
    NoVersion,
    /// A guarded write, and the lock is held no longer. Nothing has changed.
    #[error("the lock is held no longer")]
    LockLost,
    /// The handle was shut down, or its link failed for good.
    #[error(transparent)]
    Closed(StoreClosed),
}

/// The drive loop has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the client is closed{}{}", if .reason.is_some() { ": " } else { "" }, .reason.as_deref().unwrap_or_default())]
pub struct StoreClosed {
    /// Why, when it was not asked for.
    pub reason: Option<String>,
    /// Whether it was the [journal](crate::Journal) of a store that failed.
    pub is_journal: bool,
}

impl Error {
    /// Whether a write that failed so may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Invalid(_)
            | Self::Refused(_)
            | Self::Undelivered(_)
            | Self::NotSent
            | Self::LockLost => false,
            Self::TimedOut
            | Self::Unanswered { .. }
            | Self::Unknown
            | Self::Malformed(_)
            | Self::NoVersion
            | Self::Closed(_) => true,
        }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(error) => Self::Refused(error),
            RequestError::Undelivered(reason) => Self::Undelivered(reason),
            RequestError::NotSent => Self::NotSent,
            RequestError::TimedOut | RequestError::Cancelled => Self::TimedOut,
            RequestError::Malformed(error) => Self::Malformed(error),
            RequestError::NoVersion => Self::NoVersion,
            // What was asked is read as what it is, so no answer of another kind gets here.
            _ => Self::Unknown,
        }
    }
}
