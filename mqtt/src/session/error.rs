//! Errors of connections and of requests.

use alloc::boxed::Box;
use core::fmt;
use core::num::NonZeroU16;

use super::options::InvalidOptions;
use super::properties::PropertyBytes;
use crate::error::{Malformed, Unwritable};
use crate::kind::Kind;
use crate::qos::Qos;
use crate::reason::Reason;

/// A reason code of the server with the properties that explain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Reason code.
    pub reason: Reason,
    /// Properties, with Reason String and Server Reference.
    pub properties: PropertyBytes,
}

/// Error that ended a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller disconnected, with this reason code.
    #[error("disconnected by the client: {0}")]
    Requested(Reason),
    /// The byte stream ended.
    #[error("the connection was lost")]
    ConnectionLost,
    /// The CONNACK did not arrive in time.
    #[error("the server did not send CONNACK in time")]
    ConnectTimeout,
    /// The server did not respond to a PINGREQ in time.
    #[error("the server did not send PINGRESP in time")]
    KeepAliveTimeout,
    /// The server refused the connection in its CONNACK.
    #[error("the server refused the connection: {0}")]
    Refused(Box<Notice>),
    /// The server sent DISCONNECT.
    #[error("the server disconnected: {0}")]
    Disconnected(Box<Notice>),
    /// A received packet is malformed. The session sent DISCONNECT with its reason code.
    #[error("malformed packet from the server: {0}")]
    Malformed(#[source] Malformed),
    /// The server violated the protocol. The session sent DISCONNECT with its reason code.
    #[error("protocol error of the server: {0}")]
    Protocol(#[source] Violation),
    /// The options are invalid, so no CONNECT was sent.
    #[error("{0}")]
    Options(#[source] InvalidOptions),
}

impl Error {
    /// The MQTT reason code, of the server or of the DISCONNECT that the session sent.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Requested(reason) => Some(*reason),
            Self::Refused(notice) | Self::Disconnected(notice) => Some(notice.reason),
            Self::Malformed(error) => Some(error.reason()),
            Self::Protocol(violation) => Some(violation.reason()),
            Self::ConnectionLost
            | Self::ConnectTimeout
            | Self::KeepAliveTimeout
            | Self::Options(_) => None,
        }
    }

    /// Returns whether the server sent the reason code.
    #[must_use]
    pub const fn is_from_server(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Disconnected(_))
    }

    /// Reason String of the server.
    #[must_use]
    pub fn reason_string(&self) -> Option<&str> {
        self.notice()?.properties.reason_string()
    }

    /// Server Reference: another server to use.
    #[must_use]
    pub fn server_reference(&self) -> Option<&str> {
        self.notice()?.properties.server_reference()
    }

    fn notice(&self) -> Option<&Notice> {
        match self {
            Self::Refused(notice) | Self::Disconnected(notice) => Some(notice),
            _ => None,
        }
    }
}

/// Maximum number of characters of a Reason String shown: it may have 65,535 bytes.
const REASON_CHARS_MAX: usize = 200;

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        let Some(text) = self.properties.reason_string() else { return Ok(()) };
        match text.char_indices().nth(REASON_CHARS_MAX) {
            Some((end, _)) => write!(f, " ({:?}...)", text.get(..end).unwrap_or_default()),
            None => write!(f, " ({text:?})"),
        }
    }
}

/// A violation of the protocol by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A packet that the server must not send, or not at this time.
    #[error("unexpected {0:?} packet")]
    Unexpected(Kind),
    /// The server has a session although the client started a new one or lost its state.
    #[error("session present, but the client has no session")]
    SessionPresent,
    /// An acknowledgement with a packet identifier that is not in use for it.
    #[error("{0:?} for packet identifier {1}: not in use")]
    PacketId(Kind, NonZeroU16),
    /// A SUBACK or UNSUBACK with more or fewer reason codes than filters.
    #[error("the number of reason codes and of filters differ")]
    ReasonCount,
    /// More unacknowledged messages than the session's Receive Maximum.
    #[error("Receive Maximum exceeded")]
    ReceiveMaximum,
    /// A topic alias above the session's Topic Alias Maximum.
    #[error("topic alias {0} exceeds Topic Alias Maximum")]
    TopicAlias(u16),
    /// A topic alias that the server did not set before.
    #[error("topic alias {0} has no topic")]
    UnknownTopicAlias(u16),
    /// Another authentication method than that of the CONNECT.
    #[error("another authentication method")]
    AuthenticationMethod,
    /// A Maximum Packet Size that leaves no space for an acknowledgement.
    #[error("Maximum Packet Size {0} leaves no space for acknowledgements")]
    MaximumPacketSize(u32),
}

impl Violation {
    /// The reason code for the DISCONNECT.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::ReceiveMaximum => Reason::RECEIVE_MAXIMUM_EXCEEDED,
            Self::TopicAlias(_) => Reason::TOPIC_ALIAS_INVALID,
            Self::MaximumPacketSize(_) => Reason::PACKET_TOO_LARGE,
            Self::Unexpected(_)
            | Self::SessionPresent
            | Self::PacketId(..)
            | Self::ReasonCount
            | Self::UnknownTopicAlias(_)
            | Self::AuthenticationMethod => Reason::PROTOCOL_ERROR,
        }
    }
}

/// Error of a request that was not accepted. The session is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No connection exists, or it is not established or already ending.
    #[error("not connected")]
    NotConnected,
    /// A queue is full. Its space is freed by acknowledgements or by writing output.
    #[error("the queue is full")]
    Full,
    /// The packet is larger than the server, or the session's own queue, takes.
    #[error("packet too large: {size} bytes (limit {limit})")]
    TooLarge {
        /// Bytes of the packet.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The server does not support this QoS.
    #[error("the server supports QoS {} at most", *.maximum as u8)]
    QosUnsupported {
        /// The greatest QoS that it supports.
        maximum: Qos,
    },
    /// The server does not support retained messages.
    #[error("the server does not retain messages")]
    RetainUnsupported,
    /// The server does not support wildcards in filters.
    #[error("the server does not support wildcards")]
    WildcardUnsupported,
    /// The server does not support shared subscriptions.
    #[error("the server does not support shares")]
    SharedUnsupported,
    /// The server does not support subscription identifiers.
    #[error("the server does not support subscription identifiers")]
    SubscriptionIdsUnsupported,
    /// The topic name is empty or contains a wildcard or NUL.
    #[error("invalid topic name")]
    InvalidTopic,
    /// A topic filter is malformed, or the request does not contain one.
    #[error("invalid topic filter")]
    InvalidFilter,
    /// The packet cannot have one of the properties.
    #[error("invalid properties: {0}")]
    InvalidProperties(#[source] Malformed),
    /// A field is longer than MQTT allows.
    #[error("invalid packet: {0}")]
    Unwritable(#[source] Unwritable),
    /// AUTH is not possible now: the CONNECT named no authentication method, it is the server's turn,
    /// or, for a re-authentication, an exchange is in progress.
    #[error("no authentication is in progress")]
    NoAuthentication,
}

/// The message was acknowledged already, or belongs to a former connection and will be redelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message was acknowledged already or belongs to a former connection")]
pub struct Stale;
