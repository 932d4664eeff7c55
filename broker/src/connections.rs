//! All connections, and their number per network.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::net::IpAddr;

use crate::config::Limits;
use crate::connection::{Connection, State};
use crate::event::Refused;
use crate::ids::ConnectionId;
use crate::incidents::IncidentKind;
use crate::memory::Memory;
use crate::network::{is_loopback, network};
use crate::table::Table;
use statestore_mqtt::Reason;

/// Returns the network whose connections are limited, if they are.
fn counted_network(connection: &Connection) -> Option<IpAddr> {
    connection.peer.filter(|peer| !is_loopback(*peer)).map(network)
}

/// Connections are pending until their client is accepted. Pending and accepted connections have
/// separate limits, so that connections without a login cannot keep out clients with one.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    connections: Table<ConnectionId, Connection>,
    /// Pending connections by network, oldest first.
    pending: BTreeMap<Option<IpAddr>, BTreeSet<ConnectionId>>,
    pending_len: usize,
    /// Number of accepted connections per network, without loopback.
    accepted_by_network: BTreeMap<IpAddr, usize>,
}

impl Connections {
    /// Returns the pending connection that must end so that there can be another one: the oldest of
    /// the network with most of them, preferably one without a CONNECT. Of networks with equally
    /// many, the one with the oldest connection loses it.
    ///
    /// # Errors
    /// As many connections as may be pending are closing already.
    pub(crate) fn pending_victim(&self, limits: &Limits) -> Result<Option<ConnectionId>, Refused> {
        if self.pending_len < limits.pending_connections {
            return Ok(None);
        }
        // Closing connections remain for a moment.
        let all = self.pending.values().flatten().filter_map(|id| self.get(*id));
        let open = all.filter(|connection| !connection.is_closing()).count();
        if self.pending_len - open >= limits.pending_connections {
            return Err(Refused);
        }
        if open < limits.pending_connections {
            return Ok(None);
        }
        let first_open = |ids: &BTreeSet<ConnectionId>| {
            let state = |id: &ConnectionId| match self.get(*id)?.state {
                State::New => Some((false, *id)),
                State::Authenticating(..) => Some((true, *id)),
                State::Open(_) | State::Closing => None,
            };
            let open = || ids.iter().filter_map(state);
            Some((open().count(), Reverse(open().min()?)))
        };
        let by_network = self.pending.values().filter_map(first_open);
        Ok(by_network.max().map(|(_, Reverse((_, id)))| id))
    }

    /// Checks whether the limits of accepted connections permit another one. `replaced` is the
    /// connection that ends for it.
    ///
    /// # Errors
    /// The incident and the reason to reject the client with.
    pub(crate) fn check_limits(
        &self,
        id: ConnectionId,
        replaced: Option<ConnectionId>,
        limits: &Limits,
    ) -> Result<(), (IncidentKind, Reason)> {
        let accepted = self.connections.len() - self.pending_len;
        if accepted >= limits.connections {
            // Closing connections remain for a moment, but must not be too many.
            let is_over =
                |id: ConnectionId, it: &Connection| it.is_closing() || Some(id) == replaced;
            let closing = self.iter().filter(|(id, it)| !self.is_pending(*id) && is_over(*id, it));
            let closing = closing.count();
            if accepted - closing >= limits.connections || closing > limits.pending_connections {
                return Err((IncidentKind::Connections, Reason::SERVER_BUSY));
            }
        }
        let network = self.get(id).and_then(counted_network);
        let replaced = replaced.and_then(|replaced| self.get(replaced)).and_then(counted_network);
        let accepted = network.and_then(|network| self.accepted_by_network.get(&network));
        let accepted = accepted.map(|accepted| accepted - usize::from(replaced == network));
        match accepted {
            Some(accepted) if accepted >= limits.connections_per_address => {
                Err((IncidentKind::Address, Reason::QUOTA_EXCEEDED))
            }
            _ => Ok(()),
        }
    }

    /// Adds a pending connection under a new number.
    pub(crate) fn insert(&mut self, number: u64, connection: Connection) -> ConnectionId {
        let network = connection.peer.map(network);
        let id = self.connections.insert(number, connection);
        self.pending.entry(network).or_default().insert(id);
        self.pending_len += 1;
        id
    }

    /// Marks the client of a pending connection as accepted.
    pub(crate) fn accept(&mut self, id: ConnectionId) {
        if !self.remove_pending(id) {
            return;
        }
        if let Some(network) = self.get(id).and_then(counted_network) {
            *self.accepted_by_network.entry(network).or_default() += 1;
        }
    }

    fn is_pending(&self, id: ConnectionId) -> bool {
        let network = self.get(id).map(|connection| connection.peer.map(network));
        network.and_then(|network| self.pending.get(&network)).is_some_and(|ids| ids.contains(&id))
    }

    /// Removes a connection from the pending ones. Returns whether it was one.
    fn remove_pending(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        let network = connection.peer.map(network);
        let Some(ids) = self.pending.get_mut(&network) else { return false };
        if !ids.remove(&id) {
            return false;
        }
        if ids.is_empty() {
            self.pending.remove(&network);
        }
        self.pending_len -= 1;
        true
    }

    /// Removes a closed connection, and frees its memory. Returns whether it existed.
    pub(crate) fn remove(&mut self, memory: &mut Memory, id: ConnectionId) -> bool {
        let was_pending = self.remove_pending(id);
        let Some(mut connection) = self.connections.remove(id) else { return false };
        connection.clear(memory);
        if let Some(network) = counted_network(&connection).filter(|_| !was_pending) {
            let count = self.accepted_by_network.get_mut(&network);
            let is_last = count.is_none_or(|count| {
                *count -= 1;
                *count == 0
            });
            if is_last {
                self.accepted_by_network.remove(&network);
            }
        }
        true
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.connections.iter()
    }
}
