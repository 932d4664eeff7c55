//! The interface of an MQTT stack, and the link over an MQTT library.
//!
//! An adapter implements [`Connector`] and [`Connection`] for its library; [`ManagedLink`] is the
//! [`Link`] over them. A stack that is not an MQTT client implements [`Link`] itself.

mod acknowledgements;
mod active;
pub(crate) mod address;
pub(crate) mod addresses;
mod backpressure;
mod completions;
mod connector;
mod convert;
mod error;
mod file;
mod mailbox;
mod managed;
pub(crate) mod options;
mod outstanding;
mod packet;
mod problem;
mod proxy;
mod reasons;
mod redelivery;
mod settings;
mod takeover;
#[cfg(feature = "tls")]
mod tls;
mod url;

use std::sync::Arc;

use address::Address;
use statestore_proto::transport::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};

pub use active::Received;
pub use completions::Completions;
pub use connector::{
    Connection, ConnectionEvent, Connector, Negotiated, Opening, Outgoing, PacketId,
    ReceivedPublish, Ticket,
};
pub use convert::{
    PublishProperties, machine_qos, machine_reason, packet_qos, publish_packet, read_properties,
};
pub use error::{LinkError, LinkErrorKind};
pub use mailbox::{Delivered, Mailbox};
pub use managed::Diagnosis;
pub use managed::ManagedLink;
pub use outstanding::Outstanding;
pub use packet::packet_refusal;
pub use problem::{SettingNames, TlsProblem};
pub use proxy::Proxy;
pub use reasons::ReasonDetails;
pub use settings::SettingsError;
#[cfg(feature = "tls")]
pub use tls::{PemError, TlsError, pem_section, pem_sections, tls_config};
pub use url::UrlError;

/// A sequence of MQTT 5 connections, to one broker at a time.
///
/// A link sends and receives, and decides nothing. The drive loop calls [`connect`](Self::connect).
/// Then it calls [`try_send`](Self::try_send) and [`next_event`](Self::next_event) until
/// `next_event` returns an error, and then `connect` again. After `connect`, a link must not report
/// anything about a previous connection.
pub trait Link: Send + 'static {
    /// A received PUBLISH in the form of the stack.
    type Message: AsIncoming + Send + 'static;

    /// The MQTT client id of the link.
    fn client_id(&self) -> &str;

    /// Opens a new connection and discards everything in flight on the previous one. A link with
    /// several [addresses](crate::Addresses) tries each of them once. May be dropped at any await.
    fn connect(&mut self) -> impl Future<Output = Result<Connected, LinkError>> + Send;

    /// Accepts one packet to send, without waiting.
    ///
    /// # Errors
    /// The packet itself if the queue is full, or the connection is lost. [`LinkEvent::Writable`]
    /// follows when the queue has capacity, or [`next_event`](Self::next_event) returns the error.
    #[expect(clippy::result_large_err, reason = "the packet is returned to be offered again")]
    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit>;

    /// Returns the next event. May be dropped at any await without losing anything. While
    /// `messages` is false, the link reads no messages from the broker, and everything else
    /// continues.
    fn next_event(
        &mut self,
        messages: bool,
    ) -> impl Future<Output = Result<LinkEvent<Self::Message>, LinkError>> + Send;

    /// Time at which bytes of the broker last arrived, also those of an incomplete packet. `None` if
    /// the link does not know it.
    fn last_read(&self) -> Option<tokio::time::Instant> {
        None
    }

    /// Sends the queued packets and a DISCONNECT, and waits for that for a short time at most.
    fn disconnect(&mut self) -> impl Future<Output = ()> + Send;
}

/// A message that a machine can read.
pub trait AsIncoming {
    /// The message in the form of a machine; `None` if that is impossible, for example for a topic
    /// that is not UTF-8.
    fn as_incoming(&self) -> Option<Incoming<'_>>;

    /// The time of arrival, if the link records it. A store drops a request whose message expiry
    /// interval has passed since then.
    fn received(&self) -> Option<tokio::time::Instant> {
        None
    }
}

/// Result of connecting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connected {
    /// Set if the broker resumed the session.
    pub session_present: bool,
    /// The address of the broker, if it has one. Errors of the connection get it.
    pub address: Option<Address>,
}

/// An event of a link.
#[derive(Debug)]
pub enum LinkEvent<M> {
    /// A SUBACK.
    Subscribed(SubscribeToken, ReasonCode),
    /// A PUBACK, or the reason code of the link for a packet that it cannot send.
    Published(PublishToken, ReasonCode),
    /// A message.
    Message(M),
    /// Another client has gone. Only some brokers report that.
    ClientGone(Arc<str>),
    /// The queue may have capacity for the packet that [`Link::try_send`] returned.
    Writable,
}
