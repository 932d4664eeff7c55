//! What a lock asks for, and what it tells.

use bytes::Bytes;

use super::HolderStatus;
use crate::client::{Request, SubmitError};
use crate::hlc::FencingToken;
use crate::message::ServiceError;

/// Names a request of a lock until its outcome is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// What a lock wants done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Submit this to the client, and tell [`handle_outcome`](super::Lock::handle_outcome) what became of it, once.
    Submit {
        /// Names the request.
        ticket: Ticket,
        /// The request.
        request: Request,
    },
    /// Watch this key with the client, and tell [`handle_watch`](super::Lock::handle_watch) what the watch tells.
    Watch(Bytes),
    /// End that watch; nothing that it still tells need be passed on.
    Unwatch,
}

/// Where a lock stands, as far as its application is concerned.
///
/// | from | what happens | to |
/// |---|---|---|
/// | free, lost, released | `acquire`; `try_acquire` | waiting |
/// | waiting | SET is applied | held |
/// | waiting | the only try meets another holder; the only try is not answered; the only try is answered by one store after another | free |
/// | waiting | the deadline; `release`; the store refuses; SET is applied with an older version | free |
/// | held | the lease runs out; another holder has it; its key is deleted; a guarded write is fenced out | lost |
/// | held | another store answers; the store refuses; SET is applied with an older version | lost |
/// | held | `release` | released |
///
/// A SET renews a lock that is held. One that is refused for now, for a quota or a clock, is sent again while the lease lasts;
/// a waiting lock gives up then as after any refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockState {
    /// Neither held nor wanted: at the start, and after giving up.
    Free,
    /// Wanted, not held.
    Waiting,
    /// Held, until [`held_until`](super::Lock::held_until) unless it is renewed.
    Held,
    /// It was held and is not any more, not by the application's will.
    Lost,
    /// The application has given it back.
    Released,
}

/// What a lock tells its application. An accepted try ends in one `Acquired` or `GaveUp`, and what was acquired in one
/// `Lost` or `Released`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// The lock is held.
    Acquired {
        /// Greater than that of every earlier holder.
        token: FencingToken,
    },
    /// The lease was renewed. Of several that were not polled only the last is told.
    Renewed {
        /// Greater than the one before; guarded writes carry it from now on.
        token: FencingToken,
    },
    /// The lock is no longer held.
    Lost(LossReason),
    /// What was given back is free.
    Released {
        /// Whether the store confirmed it. If not, the lease has run out or will.
        confirmed: bool,
    },
    /// The lock was not acquired. What an unanswered request may have taken all the same is given back.
    GaveUp(NotAcquired),
    /// Who holds the lock; only with [`watch_holder`](super::LockConfig::watch_holder). Of several that were not polled
    /// only the last is told.
    HolderChanged(HolderStatus),
}

/// Why a lock is no longer held.
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
    /// Another store answers than the one that it was acquired at, or the same one started anew. Somebody else may hold
    /// it there, or have held it; what this lock has there is removed.
    ///
    /// That is so for a store that was restored from its records too, as long as it takes another incarnation: it has its
    /// keys back and not its registrations.
    #[error("another store has taken the place of the one it was acquired at")]
    StoreReplaced,
    /// A guarded write was refused because a newer holder has written.
    #[error("a newer holder has written what it guards")]
    FencedOut,
    /// The store refuses to renew.
    #[error("the store refuses to renew it: {0}")]
    Refused(ServiceError<Bytes>),
    /// The store answered without a version, or with one that is not greater than the one before.
    #[error("the store gave it a version that is not greater than the one before")]
    BadVersion,
}

/// Why a lock was not acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAcquired {
    /// Another holder has it, and only one try was asked for.
    #[error("another holder has it")]
    Taken,
    /// The deadline passed.
    #[error("it did not become free in time")]
    Deadline,
    /// The application gave it up.
    #[error("the try was given up")]
    Cancelled,
    /// The only try was not answered in time.
    #[error("the store did not answer in time")]
    NoAnswer,
    /// The client did not accept the request.
    #[error("{0}")]
    NotAccepted(SubmitError),
    /// The store refuses.
    #[error("the store refuses: {0}")]
    Refused(ServiceError<Bytes>),
    /// The store answered without a version, or with one that is not greater than the one before.
    #[error("the store gave it a version that is not greater than the one before")]
    BadVersion,
}

/// Why a lock cannot be asked for. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// It is held or waited for already.
    #[error("the lock is held or waited for already")]
    Active,
    /// Too many events were not polled. Poll events and try again.
    #[error("too many events of the lock were not polled")]
    Full,
}
