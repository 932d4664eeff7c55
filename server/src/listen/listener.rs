//! One address on which a broker listens, with its protocol and encryption.

use std::net::SocketAddr;

use crate::listen::tls::ServerTls;

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
        Self { address: address.into(), protocol: Protocol::Mqtt, tls: None }
    }

    /// Requires TLS. Several listeners can share one [`ServerTls`]. Needs the feature `tls`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves MQTT over WebSocket instead of TCP, as browsers need it. Clients request the
    /// subprotocol `mqtt`, on any path. Needs the feature `websocket`.
    ///
    /// `origins` are the web pages that may connect, for example `https://panel.example`; `*`
    /// allows all pages. A request with another `Origin` header is rejected with status 403. This
    /// matters because a browser lets any web page connect to any address, including this machine.
    /// Few clients other than browsers send an `Origin` header. Python's Paho sends the address
    /// that it connects to, with `https`.
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
