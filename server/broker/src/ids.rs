//! Identifiers of connections, sessions and attachments.

use crate::table::TableKey;

/// Identifier of a connection. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(TableKey);

/// Identifier of an attachment of a client in this process. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub(crate) u64);

/// Identifier of a session. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(TableKey);

impl From<TableKey> for ConnectionId {
    fn from(key: TableKey) -> Self {
        Self(key)
    }
}

impl From<ConnectionId> for TableKey {
    fn from(id: ConnectionId) -> Self {
        id.0
    }
}

impl From<TableKey> for SessionId {
    fn from(key: TableKey) -> Self {
        Self(key)
    }
}

impl From<SessionId> for TableKey {
    fn from(id: SessionId) -> Self {
        id.0
    }
}
