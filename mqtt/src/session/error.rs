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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The caller disconnected, with this reason code.
    Requested(Reason),
    /// The byte stream ended.
    ConnectionLost,
    /// The CONNACK did not arrive in time.
    ConnectTimeout,
    /// The server did not respond to a PINGREQ in time.
    KeepAliveTimeout,
    /// The server refused the connection in its CONNACK.
    Refused(Box<Notice>),
    /// The server sent DISCONNECT.
    Disconnected(Box<Notice>),
    /// A received packet is malformed. The session sent DISCONNECT with its reason code.
    Malformed(Malformed),
    /// The server violated the protocol. The session sent DISCONNECT with its reason code.
    Protocol(Violation),
    /// The options are invalid, so no CONNECT was sent.
    Options(InvalidOptions),
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested(reason) => write!(f, "disconnected by the client: {reason}"),
            Self::ConnectionLost => f.write_str("the connection was lost"),
            Self::ConnectTimeout => f.write_str("the server did not send CONNACK in time"),
            Self::KeepAliveTimeout => f.write_str("the server did not send PINGRESP in time"),
            Self::Refused(notice) => write!(f, "the server refused the connection: {notice}"),
            Self::Disconnected(notice) => write!(f, "the server disconnected: {notice}"),
            Self::Malformed(error) => write!(f, "malformed packet from the server: {error}"),
            Self::Protocol(error) => write!(f, "protocol error of the server: {error}"),
            Self::Options(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            Self::Protocol(error) => Some(error),
            Self::Options(error) => Some(error),
            _ => None,
        }
    }
}

/// Most characters of a Reason String that are shown: it may have 65,535 bytes.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A packet that the server must not send, or not at this time.
    Unexpected(Kind),
    /// The server has a session although the client started a new one or lost its state.
    SessionPresent,
    /// An acknowledgement with a packet identifier that is not in use for it.
    PacketId(Kind, NonZeroU16),
    /// A SUBACK or UNSUBACK with more or fewer reason codes than filters.
    ReasonCount,
    /// More unacknowledged messages than the session's Receive Maximum.
    ReceiveMaximum,
    /// A topic alias above the session's Topic Alias Maximum.
    TopicAlias(u16),
    /// A topic alias that the server did not set before.
    UnknownTopicAlias(u16),
    /// Another authentication method than that of the CONNECT.
    AuthenticationMethod,
    /// A Maximum Packet Size that leaves no space for an acknowledgement.
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

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(kind) => write!(f, "unexpected {kind:?} packet"),
            Self::SessionPresent => f.write_str("session present, but the client has no session"),
            Self::PacketId(kind, id) => {
                write!(f, "{kind:?} for packet identifier {id}: not in use")
            }
            Self::ReasonCount => f.write_str("the number of reason codes and of filters differ"),
            Self::ReceiveMaximum => f.write_str("Receive Maximum exceeded"),
            Self::TopicAlias(alias) => write!(f, "topic alias {alias} exceeds Topic Alias Maximum"),
            Self::UnknownTopicAlias(alias) => write!(f, "topic alias {alias} has no topic"),
            Self::AuthenticationMethod => f.write_str("another authentication method"),
            Self::MaximumPacketSize(size) => {
                write!(f, "Maximum Packet Size {size} leaves no space for acknowledgements")
            }
        }
    }
}

impl core::error::Error for Violation {}

/// Error of a request that was not accepted. The session is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// No connection exists, or it is not established or already ending.
    NotConnected,
    /// A queue is full. Its space is freed by acknowledgements or by writing output.
    Full,
    /// The packet is larger than the server, or the session's own queue, takes.
    TooLarge {
        /// Bytes of the packet.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The server does not support this QoS.
    QosUnsupported {
        /// The greatest QoS that it supports.
        maximum: Qos,
    },
    /// The server does not support retained messages.
    RetainUnsupported,
    /// The server does not support wildcards in filters.
    WildcardUnsupported,
    /// The server does not support shared subscriptions.
    SharedUnsupported,
    /// The server does not support subscription identifiers.
    SubscriptionIdsUnsupported,
    /// The topic name is empty or contains a wildcard or NUL.
    InvalidTopic,
    /// A topic filter is malformed, or the request does not contain one.
    InvalidFilter,
    /// The packet cannot have one of the properties.
    InvalidProperties(Malformed),
    /// A field is longer than MQTT allows.
    Unwritable(Unwritable),
    /// AUTH is not possible now: the CONNECT named no authentication method, it is the server's turn,
    /// or, for a re-authentication, an exchange is in progress.
    NoAuthentication,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("not connected"),
            Self::Full => f.write_str("the queue is full"),
            Self::TooLarge { size, limit } => {
                write!(f, "packet too large: {size} bytes (limit {limit})")
            }
            Self::QosUnsupported { maximum } => {
                write!(f, "the server supports QoS {} at most", *maximum as u8)
            }
            Self::RetainUnsupported => f.write_str("the server does not retain messages"),
            Self::WildcardUnsupported => f.write_str("the server does not support wildcards"),
            Self::SharedUnsupported => f.write_str("the server does not support shares"),
            Self::SubscriptionIdsUnsupported => {
                f.write_str("the server does not support subscription identifiers")
            }
            Self::InvalidTopic => f.write_str("invalid topic name"),
            Self::InvalidFilter => f.write_str("invalid topic filter"),
            Self::InvalidProperties(error) => write!(f, "invalid properties: {error}"),
            Self::Unwritable(error) => write!(f, "invalid packet: {error}"),
            Self::NoAuthentication => f.write_str("no authentication is in progress"),
        }
    }
}

impl core::error::Error for SendError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::InvalidProperties(error) => Some(error),
            Self::Unwritable(error) => Some(error),
            _ => None,
        }
    }
}

/// The message was acknowledged already, or belongs to a former connection and will be redelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message was acknowledged already or belongs to a former connection")
    }
}

impl core::error::Error for Stale {}
