//! Requests of the broker to its driver.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{ConnectionId, LocalId};

/// A connection or attachment that the driver must poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Call [`Broker::poll_output`](crate::Broker::poll_output).
    Connection(ConnectionId),
    /// Call [`Broker::poll_local`](crate::Broker::poll_local), or repeat a publish that returned
    /// [`Busy`](crate::Busy).
    Local(LocalId),
}

/// A request to the embedder.
#[derive(Clone, PartialEq, Eq)]
pub enum Event {
    /// A client connects. Call [`Broker::handle_login`](crate::Broker::handle_login) with the
    /// decision. There is at most one such event per connection.
    Login {
        /// The connection.
        connection: ConnectionId,
        /// Client id. If the client sent none, this is the assigned client id.
        client_id: String,
        /// User name.
        user_name: Option<String>,
        /// Password.
        password: Option<Vec<u8>>,
        /// Authentication data of the [method](crate::Config::authentication_method), at most 64
        /// KiB.
        authentication_data: Option<Vec<u8>>,
    },
    /// A client reauthenticates. Call
    /// [`Broker::handle_reauthentication`](crate::Broker::handle_reauthentication) with the
    /// decision. There is at most one undecided event per connection.
    Reauthenticate {
        /// The connection.
        connection: ConnectionId,
        /// Client id.
        client_id: String,
        /// Authentication data of the [method](crate::Config::authentication_method), at most 64
        /// KiB.
        authentication_data: Vec<u8>,
    },
}

/// Omits password and authentication data.
impl core::fmt::Debug for Event {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (name, connection, client_id) = match self {
            Self::Login { connection, client_id, .. } => ("Login", connection, client_id),
            Self::Reauthenticate { connection, client_id, .. } => {
                ("Reauthenticate", connection, client_id)
            }
        };
        let mut f = f.debug_struct(name);
        f.field("connection", connection).field("client_id", client_id).finish_non_exhaustive()
    }
}

/// A connection was not accepted, because too many others are
/// [pending](crate::Limits::pending_connections) and closing. It must be closed without a response,
/// since MQTT has no response before a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("too many connections are closing")
    }
}

impl core::error::Error for Refused {}

/// The server to which clients are redirected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redirect<'a> {
    /// Clients are not redirected.
    #[default]
    None,
    /// Another server, without a Server Reference.
    UnknownServer,
    /// This server. The text is sent as Server Reference (MQTT 5, section 3.2.2.3.16), usually
    /// `HOST:PORT`.
    Server(&'a str),
}
