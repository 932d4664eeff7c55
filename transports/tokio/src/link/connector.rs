//! The interface of a [`ManagedLink`](super::ManagedLink) to an MQTT library.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use statestore_proto::transport::{Publish, PublishToken, Qos, ReasonCode, SubscribeToken};
use tokio::time::Instant;

use super::AsIncoming;
use super::address::Address;
use super::error::{LinkError, LinkErrorKind};
use super::options::{Options, Transport};
use crate::diagnostics::text::Hidden;

/// Opens connections with one MQTT library.
pub trait Connector: Send + 'static {
    /// An open connection.
    type Connection: Connection;

    /// Set if the library can leave acknowledgements to [`Connection::acknowledge`].
    const MANUAL_ACKS: bool = true;

    /// Opens one connection to one address and waits for the CONNACK.
    ///
    /// The caller applies [`Options::connect_timeout`] by dropping the future, so it may be dropped
    /// at any await. [`LinkError::refused`] classifies a refusing CONNACK.
    fn open(
        &mut self,
        opening: Opening<'_>,
    ) -> impl Future<Output = Result<(Self::Connection, Negotiated), LinkError>> + Send;
}

/// Address and options of a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Opening<'a> {
    /// The options; the address is not taken from them.
    pub options: &'a Options,
    /// The address.
    pub address: &'a Address,
    /// Set if messages are acknowledged by [`Connection::acknowledge`]. Otherwise the library
    /// acknowledges a message when it arrives.
    pub manual_acks: bool,
}

impl Opening<'_> {
    /// Fails if the options need what a library with TCP, TLS and passwords alone lacks: a
    /// WebSocket, a Unix socket, a proxy or a service account token. `package` is the adapter.
    ///
    /// # Errors
    /// Of kind [`Unsupported`](LinkErrorKind::Unsupported).
    pub fn require_tcp(&self, package: &str) -> Result<(), LinkError> {
        let needed = match (&self.options.transport, &self.options.service_account_token) {
            (Transport::WebSocket { .. }, _) => "WebSocket",
            (_, Some(_)) => "service account tokens",
            _ if self.options.proxy.is_some() => "proxies",
            _ if self.address.host.starts_with('/') => "Unix sockets",
            _ => return Ok(()),
        };
        let text = format!("{package} does not support {needed}; use statestore-client");
        Err(LinkError::new(LinkErrorKind::Unsupported, text))
    }
}

/// Content of the CONNACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Negotiated {
    /// Set if the broker resumed the session.
    pub session_present: bool,
    /// Largest packet that the broker accepts, in bytes.
    pub maximum_packet_size: Option<u32>,
    /// Set if the broker supports retained messages.
    pub retain_available: bool,
}

impl Default for Negotiated {
    fn default() -> Self {
        Self { session_present: false, maximum_packet_size: None, retain_available: true }
    }
}

/// One open connection. Dropping it closes the connection without a DISCONNECT.
pub trait Connection: Send + 'static {
    /// A received PUBLISH.
    type Message: AsIncoming + Send + 'static;

    /// Queues one packet without waiting. It may be written as late as in
    /// [`next_event`](Self::next_event), so that several packets share one write.
    ///
    /// The caller has validated topic, filter and packet size.
    ///
    /// # Errors
    /// The packet itself if the queue is full, or the connection is lost.
    /// [`ConnectionEvent::Writable`] or an error of [`next_event`](Self::next_event) must follow.
    #[expect(clippy::result_large_err, reason = "the packet is returned to be offered again")]
    fn try_send(&mut self, packet: Outgoing) -> Result<(), Outgoing>;

    /// Writes what is queued and returns the next event. May be dropped at any await without losing
    /// anything. While `messages` is false, it returns no message, and everything else continues.
    ///
    /// Events that arrived before the end of the connection come before the error; messages only if
    /// `messages` is true.
    fn next_event(
        &mut self,
        messages: bool,
    ) -> impl Future<Output = Result<ConnectionEvent<Self::Message>, LinkError>> + Send;

    /// Time at which bytes of the broker last arrived, also those of an incomplete packet. `None` if
    /// the connection does not know it.
    fn last_read(&self) -> Option<Instant> {
        None
    }

    /// Queues the acknowledgement of a received message. The caller keeps the order of arrival.
    /// There are at most [`Options::receive_maximum`] of them, so there is always capacity.
    fn acknowledge(&mut self, id: PacketId);

    /// Sends everything queued and a DISCONNECT. The caller drops the future after one second.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A packet to send.
#[derive(Clone)]
#[non_exhaustive]
pub enum Outgoing {
    /// A PUBLISH of a machine at QoS 1, not retained.
    Publish(Publish),
    /// A PUBLISH of the link itself.
    Plain {
        /// Topic name.
        topic: Arc<str>,
        /// Payload.
        payload: Bytes,
        /// Quality of service, 0 or 1.
        qos: Qos,
        /// Retain flag.
        retain: bool,
    },
    /// A SUBSCRIBE for one filter.
    Subscribe {
        /// Topic filter.
        filter: Arc<str>,
        /// Maximum quality of service.
        qos: Qos,
        /// Token to report the SUBACK with; `None` if the SUBACK does not matter.
        token: Option<SubscribeToken>,
    },
    /// An UNSUBSCRIBE for one filter.
    Unsubscribe {
        /// Topic filter.
        filter: Arc<str>,
    },
}

/// Omits the payload.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publish(publish) => f.debug_tuple("Publish").field(publish).finish(),
            Self::Plain { topic, payload, qos, retain } => f
                .debug_struct("Plain")
                .field("topic", topic)
                .field("payload", &Hidden(payload))
                .field("qos", qos)
                .field("retain", retain)
                .finish(),
            Self::Subscribe { filter, qos, token } => f
                .debug_struct("Subscribe")
                .field("filter", filter)
                .field("qos", qos)
                .field("token", token)
                .finish(),
            Self::Unsubscribe { filter } => {
                f.debug_struct("Unsubscribe").field("filter", filter).finish()
            }
        }
    }
}

impl Outgoing {
    /// The ticket to report the outcome with.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        match self {
            Self::Publish(publish) => Ticket::Publish(publish.token),
            Self::Subscribe { token, .. } => Ticket::Subscribe(*token),
            Self::Plain { .. } | Self::Unsubscribe { .. } => Ticket::Other,
        }
    }
}

/// Identifies the sender of a packet, to report its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// A PUBLISH of a machine. Without a token only errors matter.
    Publish(Option<PublishToken>),
    /// A SUBSCRIBE.
    Subscribe(Option<SubscribeToken>),
    /// A packet whose outcome does not matter.
    Other,
}

impl Ticket {
    /// Returns whether a successful outcome matters.
    #[must_use]
    pub const fn matters(self) -> bool {
        !matches!(self, Self::Publish(None) | Self::Other)
    }
}

/// An event of a connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionEvent<M> {
    /// A PUBACK, a SUBACK, or the reason for which the library cannot send the packet.
    Settled(Ticket, ReasonCode),
    /// A message.
    Message(ReceivedPublish<M>),
    /// The queue has capacity again after [`Connection::try_send`] returned a packet.
    Writable,
}

/// A received PUBLISH and what is known of its delivery.
#[derive(Debug)]
pub struct ReceivedPublish<M> {
    /// The message.
    pub message: M,
    /// Set if the message must be acknowledged by [`Connection::acknowledge`].
    pub id: Option<PacketId>,
    /// DUP flag; false if the library does not report it.
    pub dup: bool,
    /// Time of arrival. A store drops a request that expires while it is queued.
    pub at: Instant,
}

/// A packet to acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketId {
    /// Packet identifier.
    pub id: u16,
    /// Quality of service, 1 or 2.
    pub qos: Qos,
}
