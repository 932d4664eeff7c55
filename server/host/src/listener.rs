//! One address on which a broker listens, with its protocol and encryption.

use std::net::SocketAddr;

use crate::listen::tls::ServerTls;
#[cfg(feature = "tls")]
use crate::login::certificates::CertificateUsers;
#[cfg(feature = "service-accounts")]
use crate::login::service_accounts::ServiceAccounts;

/// An address on which a [`Broker`](crate::Broker) listens: plain or with TLS, for MQTT over TCP
/// or over WebSocket.
///
/// ```
/// use statestore_server::{Listener, Options};
///
/// // For this machine only, and for the machines of one network.
/// let options = Options::new(([127, 0, 0, 1], 1883)).listener(([192, 168, 7, 1], 1883));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<ServerTls>,
    /// The logins of this listener, if they differ from those of the broker.
    pub(crate) login: Option<ListenerLogin>,
}

/// The logins of one listener. Without any, its clients need no login.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerLogin {
    #[cfg(feature = "tls")]
    pub(crate) certificate_users: Option<CertificateUsers>,
    #[cfg(feature = "service-accounts")]
    pub(crate) service_accounts: Option<ServiceAccounts>,
}

impl ListenerLogin {
    /// Returns whether clients need no login.
    #[cfg(feature = "server")]
    pub(crate) const fn is_empty(&self) -> bool {
        self.certificate_users.is_none() && self.service_accounts.is_none()
    }
}

/// Protocol of a listener.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    Mqtt,
    /// MQTT over WebSocket, with the allowed origins.
    #[cfg(feature = "websocket")]
    WebSocket(std::sync::Arc<[String]>),
}

impl Listener {
    /// Listens on this address for MQTT over TCP, without TLS. Port 0 selects a free port.
    #[must_use]
    pub fn new(address: impl Into<SocketAddr>) -> Self {
        Self { address: address.into(), protocol: Protocol::Mqtt, tls: None, login: None }
    }

    /// Requires TLS. Several listeners can share one [`ServerTls`]. Needs the feature `tls`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Lets clients of this listener connect without a login, even if the broker has
    /// [users](crate::Options), certificates or service accounts. A token is rejected. A TLS
    /// handshake still requires a client certificate if the [TLS](Self::tls) of this listener does,
    /// and a [policy](crate::Options::policy) still decides what a client may do. Such a client has
    /// no user, so it may choose any client id, also one that a policy names or that begins with the
    /// name of a user. Let only trusted programs reach this listener, for example on loopback.
    ///
    /// ```
    /// use statestore_server::{Listener, Options};
    ///
    /// let local = Listener::new(([127, 0, 0, 1], 1883)).anonymous();
    /// let options = Options::new(local);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn anonymous(mut self) -> Self {
        self.login = Some(ListenerLogin::default());
        self
    }

    /// Requires a client certificate that identifies a user on this listener, instead of the logins
    /// of the broker. The [TLS](Self::tls) of this listener needs client CAs; otherwise no client
    /// can log in. Needs the feature `tls`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate_users(mut self, users: CertificateUsers) -> Self {
        self.login.get_or_insert_default().certificate_users = Some(users);
        self
    }

    /// Accepts tokens of Kubernetes service accounts on this listener, instead of the logins of the
    /// broker. With [`certificate_users`](Self::certificate_users) too, a client needs one of both.
    /// Needs the feature `service-accounts`.
    #[cfg(feature = "service-accounts")]
    #[must_use]
    pub fn service_accounts(mut self, accounts: ServiceAccounts) -> Self {
        self.login.get_or_insert_default().service_accounts = Some(accounts);
        self
    }

    /// Serves MQTT over WebSocket instead of TCP, as browsers need it. Clients request the
    /// subprotocol `mqtt`, on any path. Needs the feature `websocket`.
    ///
    /// `origins` are the web pages that may connect, for example `https://panel.example`; `*`
    /// allows all pages. A request with another `Origin` header is rejected with status 403. This
    /// matters because a browser lets any web page connect to any address, including this machine.
    /// Few clients other than browsers send an `Origin` header. Python's Paho sends the address
    /// that it connects to, with `https`. This is allowed if that host is an IP address or
    /// `localhost`.
    ///
    /// ```
    /// use statestore_server::{Listener, Options};
    ///
    /// let panel = Listener::new(([127, 0, 0, 1], 9001)).websocket(["https://panel.example"]);
    /// let options = Options::new(([127, 0, 0, 1], 1883)).listener(panel);
    /// # let _ = options;
    /// ```
    #[cfg(feature = "websocket")]
    #[must_use]
    pub fn websocket<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        self.protocol = Protocol::WebSocket(origins.into_iter().map(Into::into).collect());
        self
    }
}

impl<A: Into<SocketAddr>> From<A> for Listener {
    fn from(address: A) -> Self {
        Self::new(address)
    }
}
