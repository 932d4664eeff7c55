//! Identifiers of connections, sessions and attachments.

use crate::table::Slot;

/// Identifier of a connection. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(Slot);

/// Identifier of an attachment of a client in this process. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub(crate) u64);

/// Identifier of a session. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(Slot);

impl From<Slot> for ConnectionId {
    fn from(slot: Slot) -> Self {
        Self(slot)
    }
}

impl From<ConnectionId> for Slot {
    fn from(id: ConnectionId) -> Self {
        id.0
    }
}

impl From<Slot> for SessionId {
    fn from(slot: Slot) -> Self {
        Self(slot)
    }
}

impl From<SessionId> for Slot {
    fn from(id: SessionId) -> Self {
        id.0
    }
}
