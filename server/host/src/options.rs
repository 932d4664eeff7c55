//! Options of a broker.

use std::fmt;
use std::net::Ipv4Addr;

use statestore_broker::Limits;

use crate::access::shared_policy::SharedPolicy;
use crate::listener::Listener;
#[cfg(feature = "tls")]
use crate::login::certificates::CertificateUsers;
#[cfg(feature = "service-accounts")]
use crate::login::service_accounts::ServiceAccounts;
use crate::login::users::SharedUsers;

/// Options of a [`Broker`](crate::Broker): listeners, authentication, authorization and limits.
///
/// ```
/// use std::net::Ipv4Addr;
/// use statestore_server::Options;
///
/// let options = Options::new((Ipv4Addr::UNSPECIFIED, 1883)).max_connections(100);
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) users: Option<SharedUsers>,
    #[cfg(feature = "tls")]
    pub(crate) certificate_users: Option<CertificateUsers>,
    #[cfg(feature = "service-accounts")]
    pub(crate) service_accounts: Option<ServiceAccounts>,
    pub(crate) policy: Option<SharedPolicy>,
    pub(crate) any_client_id: bool,
    /// Set if sessions do not belong to users.
    pub(crate) shares_sessions: bool,
    pub(crate) limits: Limits,
}

impl Default for Options {
    /// Listens on port 1883 of the loopback address.
    fn default() -> Self {
        Self::new((Ipv4Addr::LOCALHOST, 1883))
    }
}

impl Options {
    /// Listens on one address, without TLS, or with one configured [`Listener`]. Port 0 selects a
    /// free port.
    #[must_use]
    pub fn new(listener: impl Into<Listener>) -> Self {
        Self {
            listeners: vec![listener.into()],
            users: None,
            #[cfg(feature = "tls")]
            certificate_users: None,
            #[cfg(feature = "service-accounts")]
            service_accounts: None,
            policy: None,
            any_client_id: false,
            shares_sessions: false,
            limits: Limits::default(),
        }
    }

    /// Adds a listener: an address, or a configured [`Listener`] for TLS or WebSocket.
    #[must_use]
    pub fn listener(mut self, listener: impl Into<Listener>) -> Self {
        self.listeners.push(listener.into());
        self
    }

    /// Requires a user name and a password: those of [`Users`](crate::Users), or of [`SharedUsers`]
    /// that can be replaced while the broker runs. By default every client that reaches the port
    /// may connect. Needs the feature `passwords`.
    #[cfg(feature = "passwords")]
    #[must_use]
    pub fn users(mut self, users: impl Into<SharedUsers>) -> Self {
        self.users = Some(users.into());
        self
    }

    /// Takes the user from the client certificate, on every listener with TLS and client CAs. If a
    /// client also sends a user name, it must be the name in the certificate. With
    /// [`users`](Self::users), a client of such a listener needs both: the certificate and the
    /// password of the same user. On all other listeners the password suffices, and without
    /// [`users`](Self::users) no client can log in there. Needs the feature `tls`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate_users(mut self, users: CertificateUsers) -> Self {
        self.certificate_users = Some(users);
        self
    }

    /// Accepts tokens of Kubernetes service accounts, in addition to [`users`](Self::users) and
    /// [`certificate_users`](Self::certificate_users). A client with a token needs no other proof.
    /// If it also sends a user name, it must be that of the account. Needs the feature
    /// `service-accounts`.
    #[cfg(feature = "service-accounts")]
    #[must_use]
    pub fn service_accounts(mut self, accounts: ServiceAccounts) -> Self {
        self.service_accounts = Some(accounts);
        self
    }

    /// Allows clients only what this policy allows. The store needs the policy too:
    /// [`SharedPolicy::authorizer`], which [`serve`](crate::serve) sets. By default clients may do
    /// everything.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<SharedPolicy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Lets users have any client id. By default a client id must be the user name, or begin with
    /// the user name and a hyphen, or be one that the [policy](Self::policy) names for Connect.
    #[must_use]
    pub const fn any_client_id(mut self) -> Self {
        self.any_client_id = true;
        self
    }

    /// Sets all limits, on the memory for everything except keys and values, and on the share of
    /// each client. The setters below change single limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the memory for everything except keys and values, in bytes. Default: 64 MiB.
    #[must_use]
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.limits.memory = bytes;
        self
    }

    /// Sets the maximum number of connections of clients that are logged in. Default: 1,000.
    /// A further client takes the place of one of the user with the most connections, or is
    /// rejected with reason 0x89, server busy.
    #[must_use]
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.limits.connections = usize::try_from(connections).unwrap_or(usize::MAX);
        self
    }

    /// Sets the number of messages that each client may publish per second. Default: unlimited.
    /// Messages above the limit are rejected with reason 0x97, quota exceeded.
    #[must_use]
    pub const fn rate_limit(mut self, messages: u32) -> Self {
        self.limits.messages_per_second = Some(messages);
        self
    }

    /// Sets the maximum size of a packet from a client in bytes, at least 1,024. Default: a little
    /// more than a megabyte. A client that sends a larger packet is disconnected.
    #[must_use]
    pub fn max_packet_size(mut self, bytes: u32) -> Self {
        self.limits.packet_bytes = usize::try_from(bytes.max(1_024)).unwrap_or(usize::MAX);
        self
    }

    /// Sets the maximum number of unacknowledged messages to one client. Default: 1,024. The
    /// client's Receive Maximum may be lower.
    #[must_use]
    pub fn in_flight(mut self, messages: u16) -> Self {
        self.limits.in_flight = messages.max(1);
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Options");
        f.field("listeners", &self.listeners).field("users", &self.users).finish_non_exhaustive()
    }
}
