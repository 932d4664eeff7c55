//! Where to listen, for whom, and how much.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use statestore_mqtt::broker::Limits;
use tokio_rustls::rustls::ServerConfig;

use crate::certificates::CertificateUsers;
#[cfg(feature = "service-accounts")]
use crate::service_accounts::ServiceAccounts;
use crate::shared_policy::SharedPolicy;
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
    #[cfg(feature = "websocket")]
    pub(crate) websocket: Option<SocketAddr>,
    #[cfg(feature = "websocket")]
    pub(crate) origins: Vec<String>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) users: Option<SharedUsers>,
    pub(crate) certificate_users: Option<CertificateUsers>,
    #[cfg(feature = "service-accounts")]
    pub(crate) service_accounts: Option<ServiceAccounts>,
    pub(crate) policy: Option<SharedPolicy>,
    pub(crate) any_client_id: bool,
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
        Self {
            addresses: vec![address.into()],
            #[cfg(feature = "websocket")]
            websocket: None,
            #[cfg(feature = "websocket")]
            origins: Vec::new(),
            tls: None,
            users: None,
            certificate_users: None,
            #[cfg(feature = "service-accounts")]
            service_accounts: None,
            policy: None,
            any_client_id: false,
            limits: Limits::default(),
        }
    }

    /// Listens there too.
    #[must_use]
    pub fn also_listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Listens there for MQTT over WebSocket too, as browsers need it: whatever the path is, with the subprotocol `mqtt`, and
    /// encrypted if the rest is. Needs the feature `websocket`.
    #[cfg(feature = "websocket")]
    #[must_use]
    pub fn websocket(mut self, address: impl Into<SocketAddr>) -> Self {
        self.websocket = Some(address.into());
        self
    }

    /// Lets web pages of this origin connect by WebSocket, such as `https://panel.example`; `*` stands for all of them. To be
    /// called for each.
    ///
    /// Without it a request that says its origin is answered with 403: a browser lets the page of anybody connect to any
    /// address, this machine included. What is no browser seldom says one; Python's Paho says the address that it connects
    /// to, with `https`. Needs the feature `websocket`.
    #[cfg(feature = "websocket")]
    #[must_use]
    pub fn websocket_origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
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

    /// Takes the name in each client's certificate for its user: nobody connects without one. To be used with
    /// [`tls`](Self::tls) and authorities for clients. A client need not say a user name; if it does, it is this one. With
    /// [`users`](Self::users) it needs both, the certificate and the password of the same user.
    #[must_use]
    pub fn certificate_users(mut self, users: CertificateUsers) -> Self {
        self.certificate_users = Some(users);
        self
    }

    /// Lets Kubernetes service accounts connect by their tokens, beside those that [`users`](Self::users) and
    /// [`certificate_users`](Self::certificate_users) let in. Whoever has a token needs nothing else; a user name, if it says
    /// one, is that of the account. Needs the feature `service-accounts`.
    #[cfg(feature = "service-accounts")]
    #[must_use]
    pub fn service_accounts(mut self, accounts: ServiceAccounts) -> Self {
        self.service_accounts = Some(accounts);
        self
    }

    /// Lets clients do what this policy allows, and nothing else. The store has to be told as well:
    /// [`SharedPolicy::authorizer`]. By default everybody may do everything.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<SharedPolicy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Lets users have any client id, however they prove who they are. By default it is the user's name, or begins with that and a hyphen, or is
    /// one that the [policy](Self::policy) names for Connect.
    #[must_use]
    pub const fn any_client_id(mut self) -> Self {
        self.any_client_id = true;
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

    /// Connections at a time, those not yet accepted included; 1,000 by default. A client beyond that is told that the
    /// server is busy, reason 0x89; but for sixteen at a time what is beyond is closed at once.
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
        let mut f = f.debug_struct("Options");
        f.field("addresses", &self.addresses);
        #[cfg(feature = "websocket")]
        f.field("websocket", &self.websocket).field("origins", &self.origins);
        f.field("tls", &self.tls.is_some()).field("users", &self.users).finish_non_exhaustive()
    }
}
