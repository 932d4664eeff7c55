//! What happened in a run, as its clients saw it.

use bytes::Bytes;
use statestore_proto::client::{Outcome, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::Command;

use super::wire::RequestName;

/// When something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Its place among everything that clients were asked and told.
    pub order: u64,
    /// True time: milliseconds since the world began.
    pub at: u64,
}

/// One request of an application, from its invocation to its completion.
#[derive(Clone, Debug)]
pub struct Op {
    /// How the request is named on the wire.
    pub name: RequestName,
    /// What was asked.
    pub command: Command<Bytes>,
    /// The fencing token it was submitted with.
    pub token: Option<FencingToken>,
    /// When it was submitted.
    pub invoked: Moment,
    /// When its completion was polled, and what that said.
    pub completed: Option<(Moment, Outcome)>,
    /// How many completions came. Anything but one is wrong.
    pub completions: u32,
}

impl Op {
    /// The key it is about.
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
    /// Which client watches.
    pub client: usize,
    /// What.
    pub key: Bytes,
    /// What was told of it, in order.
    pub notes: Vec<Note>,
    /// Whether its client never heard of the store that there is at the end.
    pub outdated: bool,
}

/// Something about a watch.
#[derive(Clone, Debug)]
pub struct Note {
    /// When it was polled.
    pub moment: Moment,
    /// When the client was polled before: the machine said it after that.
    pub after: u64,
    /// What.
    pub what: What,
}

/// What about a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// What the client told.
    Told(WatchEvent),
    /// The client said that it is ready on a new connection.
    Ready,
    /// Before this was polled the client had heard of another store for the first time.
    Replaced,
    /// The application ended the watch.
    Unwatched,
}

/// Everything that applications did and were told.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Requests, by invocation.
    pub ops: Vec<Op>,
    /// Watches, by invocation.
    pub watches: Vec<Watched>,
    /// Completions that name no outstanding request.
    pub strays: u64,
}

impl History {
    /// Every key that was asked for.
    #[must_use]
    pub fn keys(&self) -> Vec<Bytes> {
        let mut keys: Vec<Bytes> = self.ops.iter().map(|op| op.key().clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}
