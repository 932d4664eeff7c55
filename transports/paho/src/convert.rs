//! Conversions between the packets and errors of Paho and those of the protocol.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use paho_mqtt::{
    Error, Message as Packet, MessageBuilder, Properties, PropertyCode as Code, QoS,
    ReasonCode as Reason, ServerResponse,
};
use statestore_proto::transport::{Incoming, Publish, Qos, ReasonCode};
use statestore_tokio::adapter::ReasonDetails;
use statestore_tokio::{AsIncoming, LinkError, LinkErrorKind};

/// Converts a PUBLISH for Paho. A payload without other owners is not copied.
///
/// The link has checked the texts, so none has a NUL, at which Paho would panic.
///
/// # Errors
/// The error of a property that Paho cannot express.
pub(crate) fn packet(publish: Publish) -> Result<Packet, Error> {
    let mut properties = Properties::new();
    if let Some(text) = publish.response_topic.as_deref() {
        properties.push_string(Code::ResponseTopic, text)?;
    }
    if let Some(data) = &publish.correlation_data {
        properties.push_binary(Code::CorrelationData, data.as_bytes())?;
    }
    if let Some(text) = publish.content_type {
        properties.push_string(Code::ContentType, text)?;
    }
    if let Some(seconds) = publish.message_expiry {
        properties.push_u32(Code::MessageExpiryInterval, seconds)?;
    }
    for (name, value) in publish.user_properties() {
        properties.push_string_pair(Code::UserProperty, name, &value.to_string())?;
    }
    let message = MessageBuilder::new().topic(&*publish.topic).qos(QoS::AtLeastOnce);
    Ok(message.properties(properties).payload(publish.payload).finalize())
}

/// A received PUBLISH.
#[derive(Clone)]
pub struct Message {
    packet: Arc<Packet>,
    payload: Bytes,
    response_topic: Option<String>,
    correlation_data: Option<Vec<u8>>,
    message_expiry: Option<u32>,
    user_properties: Vec<(String, String)>,
}

impl Message {
    /// The payload is not copied.
    pub(crate) fn new(packet: Packet) -> Self {
        let packet = Arc::new(packet);
        let properties = packet.properties();
        Self {
            response_topic: properties.get_string(Code::ResponseTopic),
            correlation_data: properties.get_binary(Code::CorrelationData),
            message_expiry: properties.get_val(Code::MessageExpiryInterval),
            user_properties: properties.user_iter().collect(),
            payload: Bytes::from_owner(Payload(Arc::clone(&packet))),
            packet,
        }
    }

    /// The topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.packet.topic()
    }

    pub(crate) fn size(&self) -> usize {
        self.topic().len() + self.payload.len() + self.packet.properties().byte_len()
    }

    pub(crate) fn qos(&self) -> Qos {
        match self.packet.qos() {
            QoS::AtMostOnce => Qos::AtMostOnce,
            QoS::AtLeastOnce => Qos::AtLeastOnce,
            QoS::ExactlyOnce => Qos::ExactlyOnce,
        }
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }
}

/// The payload of a packet. Paho does not release it, so it keeps the packet in memory.
struct Payload(Arc<Packet>);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        // An empty topic means a topic alias, which this side does not allow.
        let topic = Some(self.topic()).filter(|topic| !topic.is_empty())?;
        let mut incoming = Incoming::new(topic, &self.payload);
        incoming.qos = self.qos();
        incoming.retain = self.packet.retained();
        incoming.response_topic = self.response_topic.as_deref();
        incoming.correlation_data = self.correlation_data.as_deref();
        incoming.message_expiry = self.message_expiry;
        for (name, value) in &self.user_properties {
            incoming.user_property(name, value);
        }
        Some(incoming)
    }
}

/// Omits payload and properties.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic())
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// The outcome of a SUBSCRIBE or PUBLISH. `None` if the connection is lost, which is reported
/// separately.
pub(crate) fn outcome(result: &Result<ServerResponse, Error>) -> Option<ReasonCode> {
    match result {
        Ok(response) => Some(ReasonCode(response.reason_code() as u8)),
        Err(Error::ReasonCode(reason, _)) => Some(ReasonCode(*reason as u8)),
        Err(Error::Disconnected | Error::OperationIncomplete | Error::Failure) => None,
        Err(_) => Some(ReasonCode::UNSPECIFIED_ERROR),
    }
}

/// Returns whether a publish could not be written. Paho 1.3.16 frees it, but keeps it in its list
/// of packets in flight (eclipse-paho/paho.mqtt.c, issues 1621 and 1622), so its client must never
/// be freed.
pub(crate) const fn is_poison(result: &Result<ServerResponse, Error>) -> bool {
    matches!(result, Err(Error::Failure))
}

/// The error of a failed attempt to connect.
pub(crate) fn refused(error: Error) -> LinkError {
    let kind = match &error {
        Error::ReasonCode(reason, properties) => {
            let reason_string = properties.get_string(Code::ReasonString);
            // Paho does not return the Server Reference of a CONNACK.
            let words = ReasonDetails::new(reason_string.as_deref(), None);
            return LinkError::refused(ReasonCode(*reason as u8), words).with_source(error);
        }
        Error::Failure => {
            let text = "the broker cannot be reached";
            return LinkError::new(LinkErrorKind::Unreachable, text).with_source(error);
        }
        Error::SslNotSupported | Error::MissingSslOptions | Error::BadProtocol | Error::Nul(_) => {
            LinkErrorKind::Unsupported
        }
        Error::TcpConnectTimeout => LinkErrorKind::TimedOut,
        Error::TcpConnectCompletionFailure
        | Error::TcpTlsConnectFailure
        | Error::SocketError(_)
        | Error::Io(_) => LinkErrorKind::Unreachable,
        _ => LinkErrorKind::Other,
    };
    LinkError::from_source(kind, error)
}

/// The error of a DISCONNECT of the broker.
pub(crate) fn disconnected(reason: Reason, properties: &Properties) -> LinkError {
    let reason_string = properties.get_string(Code::ReasonString);
    let server_reference = properties.get_string(Code::ServerReference);
    let words = ReasonDetails::new(reason_string.as_deref(), server_reference.as_deref());
    LinkError::disconnected(ReasonCode(reason as u8), words)
}

#[cfg(test)]
mod tests;
