//! Error of a request, sorted by who must act.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use statestore_proto::client::{RequestError, SubmitError};
use statestore_proto::message::{PeerError, PeerErrorKind, ServiceError};
use statestore_proto::transport::ReasonCode;

use crate::client::fence::LockLost;
use crate::closed::StoreClosed;
use crate::link::LinkError;

/// Error of a request. The handle stays usable after each of them except [`Closed`](Self::Closed).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid or exceeds a limit. Nothing was sent.
    #[error("request not accepted: {0}")]
    Invalid(SubmitError),
    /// The store refused the request. Nothing has changed.
    #[error("the store refused: {error}{}", Explanation(.reason.as_deref()))]
    Refused {
        /// The error of the store.
        error: ServiceError<Bytes>,
        /// The reason, at most 256 bytes, from a store that
        /// [explains](statestore_proto::store::StoreConfig::explain) refusals. The store chooses
        /// this text. The `Display` of this error replaces its control characters, and a program
        /// that prints the field must do so too.
        reason: Option<Arc<str>>,
    },
    /// The broker did not deliver the request. Nothing has changed.
    #[error("the broker did not deliver the request: {}{}", .0, advice(*.0))]
    Undelivered(ReasonCode),
    /// The time limit passed before the request was sent. Nothing has changed.
    #[error("not sent: {}", NoConnection(.last_error.as_ref()))]
    NotSent {
        /// The error of the last attempt to connect, or of the last connection, if any.
        last_error: Option<LinkError>,
    },
    /// No response arrived in time. The write may have been applied, or may still be.
    #[error("no response in time; the request may have been applied")]
    TimedOut,
    /// No response arrived in time, and none has arrived on this connection so far. The write may
    /// have been applied, or may still be.
    ///
    /// A broker may accept requests although no store is subscribed. Some brokers also grant a
    /// subscription and then withhold its messages because of their access rules.
    #[error(
        "no response in time, and none on this connection so far: no store is subscribed at this \
         broker, the store is slow, or the access rules of the broker do not let this client read \
         {response_topic}; the request may have been applied"
    )]
    Unanswered {
        /// The topic of responses, which this client must be allowed to read.
        response_topic: Arc<str>,
    },
    /// The connection was lost before the response. The write may have been applied, or may still
    /// be.
    #[error("the connection was lost before the response; the request may have been applied")]
    ConnectionLost,
    /// The response is undecodable or does not fit the command. A write may have been applied.
    #[error("invalid response: {0}")]
    Malformed(PeerError),
    /// A SET was applied, but its response contains no version.
    #[error("the response of the store contains no version")]
    NoVersion,
    /// The lock of a guarded write is lost. Nothing has changed.
    #[error(transparent)]
    LockLost(LockLost),
    /// The handle was shut down, or its link failed permanently, before the request was sent.
    /// Nothing has changed.
    #[error(transparent)]
    Closed(StoreClosed),
}

/// Advice for a request that the broker did not deliver.
const fn advice(reason: ReasonCode) -> &'static str {
    match reason {
        ReasonCode::NO_MATCHING_SUBSCRIBERS => {
            "; no store listens at this broker: start one, for example with `statestore serve`"
        }
        _ => "",
    }
}

/// Shows the reason of a refusal, on one line.
struct Explanation<'a>(Option<&'a str>);

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(reason) = self.0 else { return Ok(()) };
        let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        write!(f, " ({})", reason.chars().map(printable).collect::<String>())
    }
}

/// Shows the reason for the missing connection.
struct NoConnection<'a>(Option<&'a LinkError>);

impl fmt::Display for NoConnection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(error) => write!(f, "no connection: {error}"),
            None => f.write_str("no connection in time"),
        }
    }
}

impl Error {
    /// Returns whether a write with this error may have been applied, now or later.
    #[must_use]
    pub const fn may_be_applied(&self) -> bool {
        match self {
            Self::Invalid(_)
            | Self::Refused { .. }
            | Self::Undelivered(_)
            | Self::NotSent { .. }
            | Self::LockLost(_)
            | Self::Closed(_) => false,
            Self::TimedOut
            | Self::Unanswered { .. }
            | Self::ConnectionLost
            | Self::Malformed(_)
            | Self::NoVersion => true,
        }
    }
}

impl Error {
    /// A page of a listing has the token of an earlier page.
    pub(crate) const fn repeated_token() -> Self {
        Self::Malformed(PeerError { kind: PeerErrorKind::RepeatedToken, at: 0 })
    }

    /// The reply does not fit its command.
    pub(crate) const fn unexpected_reply() -> Self {
        Self::Malformed(PeerError { kind: PeerErrorKind::UnexpectedReply, at: 0 })
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(error) => Self::Refused { error, reason: None },
            RequestError::Undelivered(reason) => Self::Undelivered(reason),
            RequestError::NotSent | RequestError::Cancelled { sent: false } => {
                Self::NotSent { last_error: None }
            }
            RequestError::TimedOut | RequestError::Cancelled { sent: true } => Self::TimedOut,
            RequestError::Malformed(error) => Self::Malformed(error),
            RequestError::NoVersion => Self::NoVersion,
            RequestError::ConnectionLost => Self::ConnectionLost,
            // `OtherCommand` cannot occur: each outcome is read as that of its own request.
            _ => Self::unexpected_reply(),
        }
    }
}
