//! Actions, states and events of a lock.

use bytes::Bytes;

use super::HolderStatus;
use crate::client::{Request, RequestError, SubmitError};
use crate::hlc::FencingToken;
use crate::message::ServiceError;

/// Identifies a request of a lock until its outcome is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockRequestId(pub(super) u64);

/// A step that the driver must carry out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockAction {
    /// Submit this request to the client, and pass its outcome to
    /// [`handle_outcome`](super::Lock::handle_outcome) once.
    Submit {
        /// Identifies the request.
        ticket: LockRequestId,
        /// The request.
        request: Request,
    },
    /// Watch this key with the client, and pass the events of the watch to
    /// [`handle_watch`](super::Lock::handle_watch).
    Watch(Bytes),
    /// End that watch; its remaining events need not be passed on.
    Unwatch,
}

/// State of a lock as its application sees it.
///
/// | from | what happens | to |
/// |---|---|---|
/// | free, lost, released | `acquire`; `try_acquire` | waiting |
/// | waiting | SET is applied | held |
/// | waiting | the deadline; `release`; the store refuses; SET is applied with an older version | free |
/// | waiting | the only attempt finds another holder; the only attempt gets no response | free |
/// | waiting | the only attempt gets responses from different stores | free |
/// | held | `release` | released |
/// | held | the lease runs out; another holder has it; its key is deleted | lost |
/// | held | a fenced write is refused for its token; a different store responds | lost |
/// | held | the store refuses; SET is applied with an older version | lost |
///
/// `try_acquire` makes the only attempt. A SET renews a held lock. If the store refuses a renewal
/// for now, for a quota or clock skew, the SET is sent again while the lease lasts; a waiting lock
/// gives up after any refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// Neither held nor wanted: at the start, and after giving up.
    Free,
    /// Wanted, not held.
    Waiting,
    /// Held, until [`held_until`](super::Lock::held_until) unless it is renewed.
    Held,
    /// No longer held, for a reason other than a release by the application.
    Lost,
    /// Released by the application.
    Released,
}

/// An event for the application. Each accepted acquisition ends in one `Acquired` or
/// `AcquireFailed`, and each `Acquired` is followed by one `Lost` or `Released`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// The lock is held.
    Acquired {
        /// Greater than the token of every earlier holder.
        token: FencingToken,
    },
    /// The lease was renewed. Of several unpolled events only the last is reported.
    Renewed {
        /// Greater than the previous token; fenced writes carry it from now on.
        token: FencingToken,
    },
    /// The lock is no longer held.
    Lost(LossReason),
    /// The release has ended.
    Released {
        /// `true` if the store confirmed the release. Otherwise the lease has run out or will.
        confirmed: bool,
    },
    /// The lock was not acquired. If an unanswered request acquired it nevertheless, it is
    /// released.
    AcquireFailed(NotAcquired),
    /// The holder changed; only with [`watch_holder`](super::LockConfig::watch_holder). Of several
    /// unpolled events only the last is reported.
    HolderChanged(HolderStatus),
}

/// Reason for the loss of a lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ran out: no renewal was answered in time.
    #[error("the lease ran out before a renewal was answered")]
    Expired,
    /// Another holder has it.
    #[error("another holder has it")]
    Taken,
    /// Its key was deleted.
    #[error("its key was deleted")]
    Deleted,
    /// The store was replaced or restarted. Another lock may hold the key there, or have held it;
    /// this lock removes its own value there.
    ///
    /// A store restored from its records counts as replaced if it takes another incarnation: it
    /// restores its keys but not its registrations.
    #[error("the store was replaced after the acquisition")]
    StoreReplaced,
    /// A fenced write was refused because a newer holder has written.
    #[error("a newer holder has written a fenced key")]
    FencedOut,
    /// The store refuses to renew.
    #[error("the store refuses to renew it: {0}")]
    Refused(ServiceError<Bytes>),
    /// The reply contains no version, or one that is not greater than the previous one.
    #[error("the store returned a version that is not greater than the previous one")]
    BadVersion,
}

/// Reason why a lock was not acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAcquired {
    /// Another holder has it, and only one request was allowed.
    #[error("another holder has it")]
    Taken,
    /// The deadline passed.
    #[error("the lock did not become free in time")]
    Deadline,
    /// The application stopped waiting.
    #[error("the application stopped waiting")]
    Cancelled,
    /// No request was answered in time.
    #[error("the store did not answer in time")]
    NoAnswer,
    /// The only request did not reach a store: the client was not connected, or the broker did not
    /// deliver it. In `statestore-tokio` also a deadline that passes without a connection or store.
    #[error("no store was reached: {0}")]
    Unreachable(RequestError),
    /// The client did not accept the request.
    #[error("{0}")]
    NotAccepted(SubmitError),
    /// The store refuses.
    #[error("the store refuses: {0}")]
    Refused(ServiceError<Bytes>),
    /// The reply contains no version, or one that is not greater than the previous one.
    #[error("the store returned a version that is not greater than the previous one")]
    BadVersion,
}

/// Reason why an acquisition cannot begin. The lock is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock is held or waiting already.
    #[error("the lock is held or waiting already")]
    Active,
    /// The event queue is full. Poll events and try again.
    #[error("the event queue of the lock is full: poll its events")]
    Full,
}
