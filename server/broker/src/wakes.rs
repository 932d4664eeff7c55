//! Wakes for the driver.

use alloc::collections::{BTreeSet, VecDeque};

use crate::connection::Connection;
use crate::event::Wake;
use crate::ids::{ConnectionId, LocalId};

/// Connections and attachments that the driver must poll, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    queue: VecDeque<Wake>,
    /// Attachments in the queue. Connections contain a flag instead.
    locals: BTreeSet<LocalId>,
}

impl Wakes {
    pub(crate) fn push_connection(&mut self, id: ConnectionId, connection: &mut Connection) {
        if !core::mem::replace(&mut connection.is_woken, true) {
            self.queue.push_back(Wake::Connection(id));
        }
    }

    pub(crate) fn push_local(&mut self, id: LocalId) {
        if self.locals.insert(id) {
            self.queue.push_back(Wake::Local(id));
        }
    }

    /// Removes the wake of a connection if it is the last one.
    pub(crate) fn cancel_connection(&mut self, id: ConnectionId, connection: &mut Connection) {
        if self.queue.back() == Some(&Wake::Connection(id)) {
            self.queue.pop_back();
            connection.is_woken = false;
        }
    }

    /// Returns the next wake. The caller clears the flag of a connection.
    pub(crate) fn pop(&mut self) -> Option<Wake> {
        let wake = self.queue.pop_front()?;
        if let Wake::Local(id) = wake {
            self.locals.remove(&id);
        }
        Some(wake)
    }
}
