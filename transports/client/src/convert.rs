//! Conversions between the MQTT session and the machine.

use std::fmt;
use std::io;

use bytes::Bytes;
use statestore_mqtt::session;
use statestore_proto::transport::{Incoming, ReasonCode};
use statestore_tokio::adapter::{ReasonDetails, machine_qos, machine_reason, read_properties};
use statestore_tokio::{AsIncoming, LinkError, LinkErrorKind as Kind};

/// A received PUBLISH.
#[derive(Clone)]
pub struct Message {
    message: session::Message,
    payload: Bytes,
}

/// Packets up to this size are copied out of the read buffer. Otherwise a queued message, or a
/// value that the application retains, would keep the whole buffer in memory.
const COPIED_BYTES_MAX: usize = 16 << 10;

impl Message {
    pub(crate) fn new(mut message: session::Message) -> Self {
        if message.packet_len() <= COPIED_BYTES_MAX {
            message.detach();
        }
        Self { payload: message.payload_bytes(), message }
    }

    /// The message of the MQTT session.
    #[must_use]
    pub const fn message(&self) -> &session::Message {
        &self.message
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let Self { message, payload } = self;
        let mut incoming = Incoming::new(message.topic(), payload);
        incoming.qos = machine_qos(message.qos());
        incoming.retain = message.retain();
        read_properties(&mut incoming, &message.properties());
        Some(incoming)
    }
}

/// Omits the payload.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.message, f)
    }
}

/// The error that ended the connection. `io` is the error of the socket, if any.
pub(crate) fn error(error: session::Error, io: Option<io::Error>) -> LinkError {
    let lost = |io: Option<io::Error>| match io {
        Some(error) => LinkError::io(Kind::Lost, error),
        None => LinkError::new(Kind::Lost, "the broker closed the connection"),
    };
    match &error {
        session::Error::ConnectionLost | session::Error::Requested(_) => return lost(io),
        session::Error::Refused(notice) => LinkError::refused(reason(notice), words(notice)),
        session::Error::Disconnected(notice) => {
            LinkError::disconnected(reason(notice), words(notice))
        }
        session::Error::ConnectTimeout => {
            LinkError::new(Kind::TimedOut, "the broker did not respond to the CONNECT in time")
        }
        session::Error::KeepAliveTimeout => {
            LinkError::new(Kind::TimedOut, "the broker did not respond to a ping in time")
        }
        session::Error::Malformed(_) | session::Error::Protocol(_) => {
            LinkError::new(Kind::Protocol, &error)
        }
        session::Error::Options(_) => LinkError::new(Kind::Unsupported, &error),
        _ => LinkError::new(Kind::Other, &error),
    }
    .with_source(error)
}

fn reason(notice: &session::Notice) -> ReasonCode {
    machine_reason(notice.reason)
}

fn words(notice: &session::Notice) -> ReasonDetails<'_> {
    ReasonDetails::new(notice.properties.reason_string(), notice.properties.server_reference())
}

/// The reason code of a request that the session cannot send.
pub(crate) const fn unsendable(error: &session::SendError) -> ReasonCode {
    use session::SendError as Error;
    match error {
        Error::TooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
        Error::QosUnsupported { .. } => ReasonCode::QOS_NOT_SUPPORTED,
        Error::RetainUnsupported => ReasonCode::RETAIN_NOT_SUPPORTED,
        Error::WildcardUnsupported => ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
        Error::SharedUnsupported => ReasonCode::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
        Error::SubscriptionIdsUnsupported => ReasonCode::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
        Error::InvalidTopic => ReasonCode::TOPIC_NAME_INVALID,
        Error::InvalidFilter => ReasonCode::TOPIC_FILTER_INVALID,
        _ => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
    }
}
