//! The outcome of a message.

use alloc::boxed::Box;
use core::time::Duration;

use super::Refused;
use crate::message::{Reply, RequestKind, RequestPayload};
use crate::topic::TopicError;

/// The result of a message that was handed to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handled<'a> {
    /// The decoded request; `None` when the message is not a request or cannot be decoded.
    pub request: Option<RequestPayload<&'a [u8]>>,
    /// The outcome.
    pub outcome: RequestOutcome,
    /// The lead of the store's clock over the wall clock, if the request moved the clock by more
    /// than [`CLOCK_ADVANCE_REPORTED`](crate::limits::CLOCK_ADVANCE_REPORTED). It points to a
    /// client whose clock is wrong, or to a hostile one.
    pub clock_advance: Option<ClockAdvance>,
    /// The number of this message among all that were handed to the store; the first is 1. The
    /// response [names it](crate::transport::Publish::answers).
    pub number: u64,
}

/// A write whose timestamp moved the store's clock ahead of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockAdvance {
    /// The lead of the version of the write. Later versions are ahead as well, until the wall
    /// clock has caught up.
    pub by: Duration,
    /// True if the fencing token is as far ahead. The key then refuses earlier tokens.
    pub is_fence: bool,
}

/// The outcome of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The request was executed: a value was read, written or removed, keys were listed, or a
    /// registration was made or ended.
    Applied,
    /// The condition of the write did not hold.
    NotApplied,
    /// The key, or the registration to end, does not exist.
    Absent,
    /// The request was refused with an error and did not change its key. The detail is on the heap,
    /// so that the outcome of all other requests is small.
    Refused(Box<Refused>),
    /// The request is a duplicate and got its first response again.
    Duplicate,
    /// The message got no response.
    Dropped(DropReason),
}

/// The reason to drop a message without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DropReason {
    /// The message is not a request, or it is a retained one, which was sent long ago and would be
    /// delivered again on each connection.
    #[error("the message is not a request, or it is retained")]
    NotARequest,
    /// The request lacks a response topic.
    #[error("the request has no response topic")]
    NoResponseTopic,
    /// The response topic is forbidden.
    #[error("the response topic is forbidden: {0}")]
    ForbiddenResponseTopic(TopicError),
    /// The message expiry interval has passed.
    #[error("the message expiry interval has passed")]
    Expired,
    /// The store could not receive; it did not acknowledge the message either.
    #[error("the output queue of the store is full")]
    Overloaded,
}

impl DropReason {
    /// The name in lower case, as a metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotARequest => "not_a_request",
            Self::NoResponseTopic => "unanswerable",
            Self::ForbiddenResponseTopic(_) => "forbidden",
            Self::Expired => "expired",
            Self::Overloaded => "overloaded",
        }
    }
}

impl Handled<'_> {
    /// The kind of the request; `None` when the message is not a request or cannot be decoded.
    #[must_use]
    pub fn kind(&self) -> Option<RequestKind> {
        self.request.as_ref().map(RequestPayload::kind)
    }

    /// The reason why the request was refused, if it was.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match &self.outcome {
            RequestOutcome::Refused(refused) => Some(refused),
            _ => None,
        }
    }
}

impl RequestOutcome {
    /// The outcome that a reply without an error reports.
    pub(super) const fn of_reply<B>(reply: &Reply<B>) -> Self {
        match reply {
            Reply::NotApplied => Self::NotApplied,
            Reply::Absent | Reply::NothingRemoved | Reply::NotWatched => Self::Absent,
            _ => Self::Applied,
        }
    }
}
