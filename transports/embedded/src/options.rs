//! Where to listen, for whom, and how much.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use statestore_mqtt::broker::Limits;
use tokio_rustls::rustls::ServerConfig;

use crate::users::SharedUsers;

/// Where to listen, for whom, and how much.
///
/// ```
/// use std::net::Ipv4Addr;
/// use statestore_embedded::{Options, Users};
///
/// # fn main() -> Result<(), statestore_embedded::UsersError> {
/// let mut users = Users::default();
/// users.set("alice", "secret")?;
/// let options = Options::new((Ipv4Addr::UNSPECIFIED, 1883)).users(users).max_connections(100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) users: Option<SharedUsers>,
    pub(crate) limits: Limits,
}

impl Default for Options {
    /// Port 1883, for this machine only.
    fn default() -> Self {
        Self::new((Ipv4Addr::LOCALHOST, 1883))
    }
}

impl Options {
    /// Listens there; port 0 takes a free one.
    #[must_use]
    pub fn new(address: impl Into<SocketAddr>) -> Self {
        Self { addresses: vec![address.into()], tls: None, users: None, limits: Limits::default() }
    }

    /// Listens there too.
    #[must_use]
    pub fn also_listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Encrypts every connection; see [`tls_config`](crate::tls_config).
    #[must_use]
    pub fn tls(mut self, config: Arc<ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Allows only these users to connect, with their passwords: [`Users`](crate::Users), or [`SharedUsers`] that are to be
    /// replaced meanwhile. By default every client that reaches the port may.
    #[must_use]
    pub fn users(mut self, users: impl Into<SharedUsers>) -> Self {
        self.users = Some(users.into());
        self
    }

    /// What it never goes beyond, whoever sends what: bytes of memory for everything that is no key or value, and shares of
    /// them. The setters below change single ones of these.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Bytes for everything that is no key or value; 64 MiB by default.
    #[must_use]
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.limits.memory = bytes;
        self
    }

    /// Connections at a time, those not yet accepted included; 1,000 by default. What is beyond is closed at once.
    #[must_use]
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.limits.connections = usize::try_from(connections).unwrap_or(usize::MAX);
        self
    }

    /// Messages that each client may publish in a second; as many as it likes by default. What is beyond is refused
    /// with reason 0x97, quota exceeded.
    #[must_use]
    pub const fn rate_limit(mut self, messages: u32) -> Self {
        self.limits.messages_per_second = Some(messages);
        self
    }

    /// The largest packet that a client may send, in bytes, at least 1,024; a little more than a megabyte by default. A
    /// client that sends a larger one is disconnected.
    #[must_use]
    pub fn max_packet_size(mut self, bytes: u32) -> Self {
        self.limits.packet_bytes = usize::try_from(bytes.max(1_024)).unwrap_or(usize::MAX);
        self
    }

    /// Messages sent to one client without an acknowledgement, at most; 1,024 by default. The client may allow less.
    #[must_use]
    pub fn in_flight(mut self, messages: u16) -> Self {
        self.limits.in_flight = messages.max(1);
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("addresses", &self.addresses)
            .field("tls", &self.tls.is_some())
            .field("users", &self.users)
            .finish_non_exhaustive()
    }
}
