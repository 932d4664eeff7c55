//! All connections, and their number per address.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::config::Limits;
use crate::connection::Connection;
use crate::event::Refused;
use crate::ids::ConnectionId;
use crate::memory::Memory;

/// Returns whether the number of connections from this address is limited.
const fn is_counted(peer: &IpAddr) -> bool {
    !peer.is_loopback()
}

#[derive(Debug, Default)]
pub(crate) struct Connections {
    connections: BTreeMap<ConnectionId, Connection>,
    /// Number of connections per address, without loopback and excess connections.
    addresses: BTreeMap<IpAddr, usize>,
    /// Number of connections in excess of a limit, which wait for a CONNACK with the reason.
    excess: usize,
}

impl Connections {
    /// Checks whether another connection is within the limits. Returns the limit that the
    /// connection exceeds; it is then rejected in its CONNACK.
    ///
    /// # Errors
    /// The exceeded limit if the number of excess connections is reached too.
    pub(crate) fn check_limits(
        &self,
        peer: Option<IpAddr>,
        limits: &Limits,
    ) -> Result<Option<Refused>, Refused> {
        let from_address = peer.filter(is_counted).and_then(|peer| self.addresses.get(&peer));
        let refused = if self.connections.len() - self.excess >= limits.connections {
            Refused::Connections
        } else if from_address.copied().unwrap_or_default() >= limits.connections_per_address {
            Refused::Address
        } else {
            return Ok(None);
        };
        if self.excess < limits.excess_connections { Ok(Some(refused)) } else { Err(refused) }
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, connection: Connection) {
        if connection.refused.is_some() {
            self.excess += 1;
        } else if let Some(peer) = connection.peer.filter(is_counted) {
            *self.addresses.entry(peer).or_default() += 1;
        }
        self.connections.insert(id, connection);
    }

    /// Removes a closed connection, and frees its memory. Returns whether it existed.
    pub(crate) fn remove(&mut self, memory: &mut Memory, id: ConnectionId) -> bool {
        let Some(mut connection) = self.connections.remove(&id) else { return false };
        connection.clear(memory);
        if connection.refused.is_some() {
            self.excess -= 1;
        } else if let Some(peer) = connection.peer.filter(is_counted) {
            let count = self.addresses.get_mut(&peer);
            let is_last = count.is_none_or(|count| {
                *count -= 1;
                *count == 0
            });
            if is_last {
                self.addresses.remove(&peer);
            }
        }
        true
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.connections.iter().map(|(id, connection)| (*id, connection))
    }
}
