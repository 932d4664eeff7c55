//! Requests and observations of clients in one run, and their checker.
//!
//! [`linear`] searches for one order of all operations of a key that explains every reply. It is
//! used by the simulator and by the fault runs. [`check`] adds rules that name a violation in
//! words; they require that no two writes of a run have the same value, and versions in replies.

pub mod linear;
mod rules;
mod search;

use bytes::Bytes;
use statestore_proto::message::Condition;

pub use linear::{Clocks, Restart};
pub use rules::check;

/// Time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Position among all requests and events of clients.
    pub order: u64,
    /// True time: milliseconds since the start of the run.
    pub at: u64,
}

impl Moment {
    /// A moment after the run.
    pub const NEVER: Self = Self { order: u64::MAX, at: u64::MAX };
}

/// Everything that was requested and observed in one run. `V` orders the writes of a key.
#[derive(Debug)]
pub struct History<V> {
    /// Requests.
    pub operations: Vec<Operation<V>>,
    /// Watches.
    pub watches: Vec<Watched<V>>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Operation<V> {
    /// The client.
    pub client: String,
    /// The key.
    pub key: Bytes,
    /// The command.
    pub action: Action<V>,
    /// Time of submission.
    pub invoked: Moment,
    /// Time of completion; `None` if its client ended first.
    pub completed: Option<Moment>,
    /// The result.
    pub outcome: Outcome<V>,
}

/// A command.
#[derive(Clone, Debug)]
pub enum Action<V> {
    /// A SET.
    Set(Set<V>),
    /// A GET.
    Get,
    /// A DEL or VDEL.
    Remove(Remove<V>),
}

/// A SET.
#[derive(Clone, Debug)]
pub struct Set<V> {
    /// The value.
    pub value: Bytes,
    /// The condition.
    pub condition: Condition<Bytes>,
    /// Time to live in milliseconds.
    pub expires: Option<u64>,
    /// The fencing token.
    pub token: Option<V>,
}

/// A DEL or VDEL.
#[derive(Clone, Debug)]
pub struct Remove<V> {
    /// The value that a VDEL requires.
    pub value: Option<Bytes>,
    /// The fencing token.
    pub token: Option<V>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<V> {
    /// No reply: the request may take effect once, at any time after its invocation, or never.
    Unknown,
    /// Refused. The request has no effect, now or later, and reveals nothing about the key.
    Refused,
    /// Refused by the fence of the key.
    Fenced,
    /// The SET was applied and got this version.
    Applied(V),
    /// The condition of a SET or the value of a VDEL did not match; the version found, if known.
    NotApplied(Option<V>),
    /// The GET found this value and version, or nothing.
    Found(Option<(Bytes, V)>),
    /// The value of this version was removed; the version if known.
    Removed(Option<V>),
    /// The key was absent.
    NothingRemoved,
}

/// One watch of a key.
#[derive(Clone, Debug)]
pub struct Watched<V> {
    /// The key.
    pub key: Bytes,
    /// Its events, in order.
    pub events: Vec<(Moment, Reported<V>)>,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported<V> {
    /// A value was set.
    Changed(Bytes, V),
    /// The key is absent; the version of the removed value, if known.
    Gone(Option<V>),
    /// Every change is reported from here on.
    Live,
    /// Changes may have been missed.
    Gap,
    /// The watch has ended.
    Ended,
}

impl<V> Default for History<V> {
    fn default() -> Self {
        Self { operations: Vec::new(), watches: Vec::new() }
    }
}

impl<V> Operation<V> {
    /// Returns whether it may have changed something, or may still.
    #[must_use]
    pub fn may_act(&self) -> bool {
        let acts =
            matches!(self.outcome, Outcome::Unknown | Outcome::Applied(_) | Outcome::Removed(_));
        acts && !matches!(self.action, Action::Get)
    }

    /// The time at which it had ended for certain.
    #[must_use]
    pub fn end(&self) -> Moment {
        match self.outcome {
            Outcome::Unknown => Moment::NEVER,
            _ => self.completed.unwrap_or(Moment::NEVER),
        }
    }

    /// Time to live of a SET in milliseconds.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        match &self.action {
            Action::Set(set) => set.expires,
            _ => None,
        }
    }
}
