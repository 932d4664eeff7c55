//! Stages 6 to 8: fence, condition and quota, and the change that follows.

use core::fmt;

use super::{Exceeded, FenceError, check_fence};
use crate::debug::{Value, show};
use crate::hlc::{FencingTokenRef, NodeIdRef};
use crate::message::{Command, Condition, Refusal, Reply};

/// The state of a key that a command depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyState<'a> {
    /// The stored value; `None` when the key is absent or has expired.
    pub stored: Option<Stored<'a>>,
    /// True if the requester is registered for notifications of the key.
    pub is_registered: bool,
    /// A limit that the command would exceed by what it adds: a key, a value, a registration.
    pub exceeded: Option<Exceeded>,
}

/// The parts of a stored value that the rules depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The fencing token of the last SET that carried one.
    pub fence: Option<FencingTokenRef<'a>>,
}

impl fmt::Debug for Stored<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show!(f, Stored { value = Value(self.value), fence = self.fence })
    }
}

/// The change that an accepted command makes, and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The change to apply.
    pub change: Change,
    /// The reply, which is never an error.
    pub reply: Reply<&'a [u8]>,
    /// The version to send with the reply as `__ts`.
    pub version: ReplyVersion,
}

/// The change that an accepted command makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing changes.
    None,
    /// Store the value of the SET under a new version, with its expiry if it has one. The fencing
    /// token of the request becomes the fence; without one the key is not fenced.
    Put,
    /// Remove the value together with its fence.
    Remove,
    /// Register the requester for notifications of the key.
    Register,
    /// Remove that registration.
    Unregister,
}

/// The version that goes with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyVersion {
    /// No version.
    None,
    /// The version of the stored value, or of the removed one.
    Stored,
    /// The version issued for this write.
    New,
}

/// The reason to refuse a command at stages 6 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected<'a> {
    /// The fence of the key rejects the write.
    #[error(transparent)]
    Fence(FenceError<NodeIdRef<'a>>),
    /// The command would exceed a limit.
    #[error(transparent)]
    Quota(Exceeded),
}

impl Rejected<'_> {
    /// The error that the requester gets.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Fence(error) => error.refusal(),
            Self::Quota(_) => Refusal::QuotaExceeded,
        }
    }
}

/// Decides a command that passed stages 1 to 5 of the [module](super).
///
/// A removal takes the fence with it, so the key is not fenced afterwards; so does an expiry.
///
/// # Errors
/// [`Rejected`]; the store must then stay as it is.
///
/// ```
/// use statestore_proto::message::{Command, Condition, Reply};
/// use statestore_proto::rules::{Change, KeyState, Stored, decide};
///
/// let stored = Some(Stored { value: b"Client1", fence: None });
/// let held = KeyState { stored, ..KeyState::default() };
/// let condition = Condition::IfAbsentOrEqual;
/// let lock = |holder| Command::Set { key: "Lock", value: holder, condition, expiry: None };
/// assert_eq!(decide(held, &lock("Client1"), None).unwrap().change, Change::Put); // renewed
/// assert_eq!(decide(held, &lock("Client2"), None).unwrap().reply, Reply::NotApplied);
/// ```
pub fn decide<'a, B: AsRef<[u8]>>(
    state: KeyState<'a>,
    command: &Command<B>,
    token: Option<FencingTokenRef<'a>>,
) -> Result<Decision<'a>, Rejected<'a>> {
    let KeyState { stored, is_registered, exceeded } = state;
    if command.kind().is_write() {
        let fence = stored.and_then(|stored| stored.fence);
        check_fence(fence, token).map_err(Rejected::Fence)?;
    }
    let unchanged = |reply, version| Ok(Decision { change: Change::None, reply, version });
    match command {
        Command::Get { .. } => match stored {
            Some(stored) => unchanged(Reply::Value(stored.value), ReplyVersion::Stored),
            None => unchanged(Reply::Absent, ReplyVersion::None),
        },
        Command::Set { value, condition, .. } => match (stored, exceeded) {
            (Some(stored), _) if !condition.allows(stored.value, value.as_ref()) => {
                unchanged(Reply::NotApplied, ReplyVersion::Stored)
            }
            (_, Some(exceeded)) => Err(Rejected::Quota(exceeded)),
            _ => {
                Ok(Decision { change: Change::Put, reply: Reply::Done, version: ReplyVersion::New })
            }
        },
        Command::Del { .. } | Command::VDel { .. } if stored.is_none() => {
            unchanged(Reply::NothingRemoved, ReplyVersion::None)
        }
        Command::VDel { value, .. }
            if stored.is_some_and(|stored| stored.value != value.as_ref()) =>
        {
            unchanged(Reply::NotApplied, ReplyVersion::Stored)
        }
        Command::Del { .. } | Command::VDel { .. } => Ok(Decision {
            change: Change::Remove,
            reply: Reply::Removed,
            version: ReplyVersion::Stored,
        }),
        Command::Watch { .. } => match exceeded {
            Some(exceeded) if !is_registered => Err(Rejected::Quota(exceeded)),
            _ => Ok(Decision {
                change: Change::Register,
                reply: Reply::Done,
                version: ReplyVersion::None,
            }),
        },
        Command::Unwatch { .. } if is_registered => Ok(Decision {
            change: Change::Unregister,
            reply: Reply::Done,
            version: ReplyVersion::None,
        }),
        Command::Unwatch { .. } => unchanged(Reply::NotWatched, ReplyVersion::None),
    }
}

impl<B: AsRef<[u8]>> Condition<B> {
    /// Returns whether a SET of `value` may replace `stored`. An absent key may always be set.
    fn allows(&self, stored: &[u8], value: &[u8]) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => false,
            Self::IfAbsentOrEqual => stored == value,
            Self::IfAbsentOrEqualTo(operand) => stored == operand.as_bytes(),
        }
    }
}
