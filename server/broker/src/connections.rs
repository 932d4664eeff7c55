//! All connections, and their number per network.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;

use crate::config::Limits;
use crate::connection::{Connection, State};
use crate::event::Refused;
use crate::ids::ConnectionId;
use crate::incidents::IncidentKind;
use crate::memory::Memory;
use crate::network::{is_loopback, network};
use crate::pending::{PendingConnections, Stage};
use crate::shares::Shares;
use crate::table::Table;
use statestore_mqtt::Reason;
use statestore_mqtt::property::Property;

/// Returns the network whose connections are limited, if they are.
fn counted_network(connection: &Connection) -> Option<IpAddr> {
    connection.peer.filter(|peer| !is_loopback(*peer)).map(network)
}

/// Connections are pending until their client is accepted. Pending and accepted connections have
/// separate limits, so that connections without a login cannot keep out clients with one.
#[derive(Default)]
pub(crate) struct Connections {
    connections: Table<ConnectionId, Connection>,
    pending: PendingConnections,
    /// Number of accepted connections that are closing.
    closing_accepted: usize,
    /// All connections that are closing.
    closing: BTreeSet<ConnectionId>,
    /// Open accepted connections by owner, the newest first. The weight is their number.
    by_owner: Shares<Arc<str>, Reverse<ConnectionId>>,
    /// Number of accepted connections per network, without loopback.
    accepted_by_network: BTreeMap<IpAddr, usize>,
}

impl Connections {
    /// Returns the pending connection that must end so that there can be another one: the
    /// [next](PendingConnections::next_displaced) at the limit.
    ///
    /// # Errors
    /// As many connections as may be pending are closing already.
    pub(crate) fn pending_victim(&self, limits: &Limits) -> Result<Option<ConnectionId>, Refused> {
        // Closing connections remain for a moment.
        let closing = self.pending.closing_len();
        if closing >= limits.pending_connections {
            return Err(Refused);
        }
        let open = self.pending.len() - closing;
        let is_full = open >= limits.pending_connections;
        Ok(self.pending.next_displaced().filter(|_| is_full))
    }

    /// Returns the pending connection that ends next.
    pub(crate) fn next_displaced(&self) -> Option<ConnectionId> {
        self.pending.next_displaced()
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
        let accepted = self.connections.len() - self.pending.len();
        if accepted >= limits.connections {
            // Closing connections remain for a moment, but must not be too many.
            let ends_now = replaced.is_some_and(|replaced| self.is_accepted_open(replaced));
            let closing = self.closing_accepted + usize::from(ends_now);
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

    /// Returns whether a connection is accepted and not closing.
    fn is_accepted_open(&self, id: ConnectionId) -> bool {
        !self.pending.contains(id) && self.get(id).is_some_and(|it| !it.is_closing())
    }

    /// Adds a pending connection under a new number.
    pub(crate) fn insert(&mut self, number: u64, connection: Connection) -> ConnectionId {
        let network = connection.peer.map(network);
        let id = self.connections.insert(number, connection);
        self.pending.insert(id, network);
        id
    }

    /// Marks the client of a pending connection as accepted.
    pub(crate) fn accept(&mut self, id: ConnectionId, owner: &Arc<str>) {
        if !self.pending.remove(id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.is_closing() {
            self.closing_accepted += 1;
        } else {
            connection.owner = Some(Arc::clone(owner));
            self.by_owner.increase(owner, 1);
            self.by_owner.insert(owner, Reverse(id));
        }
        if let Some(network) = counted_network(connection) {
            *self.accepted_by_network.entry(network).or_default() += 1;
        }
    }

    /// Stores a CONNECT until the embedder decides the login.
    pub(crate) fn begin_login(
        &mut self,
        id: ConnectionId,
        connect: Vec<u8>,
        assigned: Option<Arc<str>>,
    ) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.state = State::Authenticating(connect, assigned);
            self.pending.set_stage(id, Some(Stage::Authenticating));
        }
    }

    /// Returns the CONNECT and the assigned client id of a login that is decided. `None` if the
    /// connection does not wait for a decision.
    pub(crate) fn end_login(&mut self, id: ConnectionId) -> Option<(Vec<u8>, Option<Arc<str>>)> {
        let connection = self.connections.get_mut(id)?;
        let waits = matches!(connection.state, State::Authenticating(..));
        let login = waits.then(|| core::mem::replace(&mut connection.state, State::New));
        let Some(State::Authenticating(connect, assigned)) = login else { return None };
        self.pending.set_stage(id, Some(Stage::New));
        Some((connect, assigned))
    }

    /// [Closes](Connection::close) a connection.
    pub(crate) fn close(
        &mut self,
        memory: &mut Memory,
        id: ConnectionId,
        reason: Option<Reason>,
        properties: &[Property<'_>],
    ) {
        let was_open = self.is_accepted_open(id);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.close(memory, reason, properties);
            self.closing_accepted += usize::from(was_open);
            self.closing.insert(id);
            self.pending.set_stage(id, None);
            if let Some(owner) = connection.owner.take() {
                self.by_owner.remove(&owner, Reverse(id));
                self.by_owner.decrease(&owner, 1);
            }
        }
    }

    /// Removes a closed connection, and frees its memory. Returns whether it existed.
    pub(crate) fn remove(&mut self, memory: &mut Memory, id: ConnectionId) -> bool {
        let was_pending = self.pending.remove(id);
        let Some(mut connection) = self.connections.remove(id) else { return false };
        self.closing.remove(&id);
        debug_assert!(connection.owner.is_none(), "a connection closes before its removal");
        self.closing_accepted -= usize::from(!was_pending && connection.is_closing());
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

    /// Returns the newest connection of the owner with the most of them, if that owner has at least
    /// two more than this one.
    pub(crate) fn displaced_for(&self, owner: &Arc<str>) -> Option<ConnectionId> {
        let (most, Reverse(newest)) = self.by_owner.first()?;
        (most > self.by_owner.weight(owner) + 1).then_some(newest)
    }

    /// Returns the bytes of all closing connections, which are freed soon.
    pub(crate) fn closing_bytes(&self) -> usize {
        let closing = self.closing.iter().filter_map(|id| self.connections.get(*id));
        closing.map(|connection| connection.account.bytes()).sum()
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
