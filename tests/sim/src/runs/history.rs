//! The events of a run, as its clients observed them.

use bytes::Bytes;
use statestore_proto::client::{Outcome, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::Command;

use super::wire::RequestName;

pub use statestore_models::history::Moment;

/// One request of an application, from its invocation to its completion.
#[derive(Clone, Debug)]
pub struct Op {
    /// Name of the request on the wire.
    pub name: RequestName,
    /// Command.
    pub command: Command<Bytes>,
    /// Fencing token at submission.
    pub token: Option<FencingToken>,
    /// Time of submission.
    pub invoked: Moment,
    /// Time at which its completion was polled, and the outcome.
    pub completed: Option<(Moment, Outcome)>,
    /// Number of completions; anything but one is a fault.
    pub completions: u32,
}

impl Op {
    /// Key of the request.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match &self.command {
            Command::Get { key }
            | Command::Set { key, .. }
            | Command::Del { key }
            | Command::VDel { key, .. }
            | Command::Watch { key }
            | Command::Unwatch { key } => key,
        }
    }
}

/// One watch, from `watch` on.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Client.
    pub client: usize,
    /// Key.
    pub key: Bytes,
    /// Events, in order.
    pub notes: Vec<Note>,
    /// Its client has never received a reply of the final store.
    pub outdated: bool,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub struct Note {
    /// Time of the poll.
    pub moment: Moment,
    /// Time of the previous poll; the machine emitted the event after that.
    pub after: u64,
    /// The event.
    pub what: What,
}

/// Kinds of notes about a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An event of the client.
    Event(WatchEvent),
    /// The client is ready on a new connection.
    Ready,
    /// Before this poll, the client received its first reply of another store.
    Replaced,
    /// The application ended the watch.
    Unwatched,
}

/// All requests and events of the applications.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Requests, by invocation.
    pub ops: Vec<Op>,
    /// Watches, by invocation.
    pub watches: Vec<Watched>,
    /// Completions without an outstanding request.
    pub strays: u64,
}

impl History {
    /// Every requested key.
    #[must_use]
    pub fn keys(&self) -> Vec<Bytes> {
        let mut keys: Vec<Bytes> = self.ops.iter().map(|op| op.key().clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}
