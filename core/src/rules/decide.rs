//! Steps 4 to 6: fence, condition, quota, and what is then to be done.

use core::fmt;

use crate::debug;
use crate::hlc::FencingTokenRef;
use crate::message::{Command, Condition, Refusal, Reply};

/// What a store knows about the key of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State<'a> {
    /// The stored entry; `None` when there is none or it has expired.
    pub entry: Option<Entry<'a>>,
    /// Whether the requester watches the key.
    pub watched: bool,
    /// Whether there is no room for what the command would add: a key, bytes of a value, a registration.
    pub full: bool,
}

/// A stored entry, as far as the rules look at it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The fencing token of the last SET that carried one.
    pub fence: Option<FencingTokenRef<'a>>,
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = debug::Value(self.value);
        f.debug_struct("Entry").field("value", &value).field("fence", &self.fence).finish()
    }
}

/// What a command does and what its requester is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What is to be changed.
    pub change: Change,
    /// The answer.
    pub reply: Reply<&'a [u8]>,
    /// Which version goes with the answer as `__ts`.
    pub stamp: Stamp,
}

/// What a decided command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Store the value of the SET under a new version, with its expiry or without one; when the request carries a token
    /// it becomes the fence, otherwise there is none.
    Put,
    /// Remove the entry and its fence.
    Remove,
    /// Register the requester for changes of the key.
    Watch,
    /// End that registration.
    Unwatch,
}

/// Which version goes with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// None.
    None,
    /// That of the stored entry, or of the one removed.
    Stored,
    /// The one issued for this write.
    New,
}

/// Whether a write with this token may touch an entry with this fence.
///
/// A key without a fence takes any write. A key with one takes only writes with a token that is not lower.
///
/// # Errors
/// [`Refusal::FencingTokenRequired`] and [`Refusal::FencingTokenLower`].
///
/// ```
/// use statestore_proto::hlc::{FencingToken, HlcRef};
/// use statestore_proto::message::Refusal;
/// use statestore_proto::rules::check_fence;
///
/// let older = FencingToken::new(HlcRef::parse("5:0:StateStore")?);
/// let newer = FencingToken::new(HlcRef::parse("7:0:StateStore")?);
/// assert_eq!(check_fence(Some(older), Some(newer)), Ok(()));
/// assert_eq!(check_fence(Some(newer), Some(older)), Err(Refusal::FencingTokenLower));
/// assert_eq!(check_fence(Some(newer), None), Err(Refusal::FencingTokenRequired));
/// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
/// ```
pub fn check_fence(
    fence: Option<FencingTokenRef<'_>>,
    token: Option<FencingTokenRef<'_>>,
) -> Result<(), Refusal> {
    match (fence, token) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(Refusal::FencingTokenRequired),
        (Some(fence), Some(token)) if token < fence => Err(Refusal::FencingTokenLower),
        (Some(_), Some(_)) => Ok(()),
    }
}

/// Decides a command whose grammar, authorization and timestamps were checked (steps 1 to 3 of the [module](super)).
///
/// A deletion takes the fence with it, so afterwards the key is unfenced; an expiry does the same.
///
/// ```
/// use statestore_proto::message::{Command, Condition, Reply};
/// use statestore_proto::rules::{decide, Change, Entry, State};
///
/// let held = State { entry: Some(Entry { value: b"Client1", fence: None }), ..State::default() };
/// let lock = |holder| Command::Set { key: "Lock", value: holder, condition: Condition::IfAbsentOrEqual, expiry: None };
/// assert_eq!(decide(held, &lock("Client1"), None).change, Change::Put); // renewed
/// assert_eq!(decide(held, &lock("Client2"), None).reply, Reply::NotApplied);
/// ```
pub fn decide<'a, B: AsRef<[u8]>>(
    state: State<'a>,
    command: &Command<B>,
    token: Option<FencingTokenRef<'_>>,
) -> Decision<'a> {
    let State { entry, watched, full } = state;
    if command.kind().is_write() {
        let fence = entry.and_then(|entry| entry.fence);
        if let Err(refusal) = check_fence(fence, token) {
            return refused(refusal);
        }
    }
    let stored = if entry.is_some() { Stamp::Stored } else { Stamp::None };
    match command {
        Command::Get { .. } => {
            let reply = entry.map_or(Reply::Absent, |entry| Reply::Value(entry.value));
            Decision { change: Change::None, reply, stamp: stored }
        }
        Command::Set { value, condition, .. } => match entry {
            Some(entry) if !condition.allows(entry.value, value.as_ref()) => {
                Decision { change: Change::None, reply: Reply::NotApplied, stamp: Stamp::Stored }
            }
            _ if full => refused(Refusal::QuotaExceeded),
            _ => Decision { change: Change::Put, reply: Reply::Done, stamp: Stamp::New },
        },
        Command::Del { .. } | Command::VDel { .. } if entry.is_none() => {
            Decision { change: Change::None, reply: Reply::NothingRemoved, stamp: Stamp::None }
        }
        Command::VDel { value, .. } if entry.is_some_and(|entry| entry.value != value.as_ref()) => {
            Decision { change: Change::None, reply: Reply::NotApplied, stamp: Stamp::Stored }
        }
        Command::Del { .. } | Command::VDel { .. } => {
            Decision { change: Change::Remove, reply: Reply::Removed, stamp: Stamp::Stored }
        }
        Command::Watch { .. } if !watched && full => refused(Refusal::QuotaExceeded),
        Command::Watch { .. } => {
            Decision { change: Change::Watch, reply: Reply::Done, stamp: Stamp::None }
        }
        Command::Unwatch { .. } if watched => {
            Decision { change: Change::Unwatch, reply: Reply::Done, stamp: Stamp::None }
        }
        Command::Unwatch { .. } => {
            Decision { change: Change::None, reply: Reply::NotWatched, stamp: Stamp::None }
        }
    }
}

const fn refused(refusal: Refusal) -> Decision<'static> {
    let reply = Reply::Error(crate::message::ServiceError::Known(refusal));
    Decision { change: Change::None, reply, stamp: Stamp::None }
}

impl<B: AsRef<[u8]>> Condition<B> {
    /// Whether a SET of `value` may replace `stored`. A key that does not exist may always be set.
    fn allows(&self, stored: &[u8], value: &[u8]) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => false,
            Self::IfAbsentOrEqual => stored == value,
            Self::IfAbsentOrEqualTo(operand) => stored == operand.as_bytes(),
        }
    }
}
