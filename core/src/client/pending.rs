//! Requests without an outcome yet, and the deadlines of a client.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::WatchId;
use crate::deadlines::Deadlines;
use crate::debug::Hidden;
use crate::hlc::{FencingToken, Hlc};
use crate::invariant::invariant;
use crate::message::RequestKind;
use crate::time::Instant;

/// A request without an outcome yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) owner: Owner,
    pub(super) kind: RequestKind,
    pub(super) payload: Hidden,
    pub(super) timestamp: Option<Hlc>,
    pub(super) fencing_token: Option<FencingToken>,
    pub(super) persist: bool,
    pub(super) deadline: Instant,
    pub(super) sent: bool,
    /// True if it was also sent on an earlier connection of the session, so that the broker may
    /// have delivered it.
    pub(super) sent_before: bool,
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Application,
    Watch(WatchId),
}

/// The subject of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Request(u64),
    Register(WatchId),
}

/// All pending requests of a client, in the order of their ids.
#[derive(Debug)]
pub(super) struct PendingRequests {
    by_id: BTreeMap<u64, Pending>,
    last_id: u64,
    pub(super) deadlines: Deadlines<Timer>,
    /// Requests of the application and reads of watches that were not sent yet.
    unsent: BTreeSet<u64>,
    /// KEYNOTIFY requests that were not sent yet. They wait for the subscription to notifications.
    unsent_keynotify: BTreeSet<u64>,
}

impl PendingRequests {
    pub(super) const fn new() -> Self {
        Self {
            by_id: BTreeMap::new(),
            last_id: 0,
            deadlines: Deadlines::new(),
            unsent: BTreeSet::new(),
            unsent_keynotify: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Pending> {
        self.by_id.get(&id)
    }

    /// The request, unless it still waits to be sent.
    pub(super) fn get_sent(&self, id: u64) -> Option<&Pending> {
        self.get(id).filter(|pending| pending.sent)
    }

    pub(super) fn insert(&mut self, pending: Pending) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        match pending.kind {
            RequestKind::Watch | RequestKind::Unwatch => self.unsent_keynotify.insert(id),
            _ => self.unsent.insert(id),
        };
        self.deadlines.insert(pending.deadline, Timer::Request(id));
        self.by_id.insert(id, pending);
        id
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Pending> {
        let pending = self.by_id.remove(&id)?;
        self.deadlines.remove(pending.deadline, Timer::Request(id));
        if !pending.sent {
            self.unsent.remove(&id);
            self.unsent_keynotify.remove(&id);
        }
        Some(pending)
    }

    /// Marks the next unsent request as sent; KEYNOTIFY requests first, if they may be sent.
    pub(super) fn pop_unsent(&mut self, can_send_keynotify: bool) -> Option<(u64, &Pending)> {
        let keynotify = if can_send_keynotify { self.unsent_keynotify.pop_first() } else { None };
        let id = keynotify.or_else(|| self.unsent.pop_first())?;
        let pending = invariant(self.by_id.get_mut(&id))?;
        pending.sent = true;
        Some((id, pending))
    }

    /// Records that the connection was lost, and returns the requests of the application that were
    /// sent on it.
    pub(super) fn lose_connection(&mut self) -> Vec<u64> {
        let mut sent = Vec::new();
        for (id, pending) in &mut self.by_id {
            pending.sent_before = pending.sent;
            if pending.sent && pending.owner == Owner::Application {
                sent.push(*id);
            }
        }
        sent
    }
}
