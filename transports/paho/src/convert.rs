//! Packets and errors of Paho from and to those of the protocol. Pure.

use std::fmt;

use bytes::Bytes;
use paho_mqtt::{
    Error, Message as Packet, MessageBuilder, Properties, PropertyCode as Code, QoS,
    ReasonCode as Reason, ServerResponse,
};
use statestore_proto::mqtt::{Incoming, Publish, Qos, ReasonCode};
use statestore_tokio::{AsIncoming, LinkError};

/// The longest packet that MQTT can express.
pub(crate) const PACKET_BYTES_MAX: usize = 268_435_460;

const TOPIC_FILTER_INVALID: ReasonCode = ReasonCode(0x8f);
const TOPIC_NAME_INVALID: ReasonCode = ReasonCode(0x90);

/// A PUBLISH as Paho sends it, or why there is none. A payload that nothing else holds is not copied.
pub(crate) fn packet(publish: Publish, packet_bytes_max: usize) -> Result<Packet, ReasonCode> {
    if !is_text(&publish.topic) || publish.topic.is_empty() || publish.topic.contains(['+', '#']) {
        return Err(TOPIC_NAME_INVALID);
    }
    let properties = properties(&publish).ok_or(ReasonCode(0x80))?;
    let rest = 2 + publish.topic.len() + 2 + properties.byte_len() + publish.payload.len();
    if packet_bytes(rest) > packet_bytes_max.min(PACKET_BYTES_MAX) {
        return Err(ReasonCode::PACKET_TOO_LARGE);
    }
    Ok(MessageBuilder::new()
        .topic(&*publish.topic)
        .qos(QoS::AtLeastOnce)
        .properties(properties)
        .payload(publish.payload)
        .finalize())
}

/// `None` when a text is none that MQTT can express.
fn properties(publish: &Publish) -> Option<Properties> {
    let mut properties = Properties::new();
    let is_good = |text: &&str| is_text(text);
    if let Some(text) = publish.response_topic.as_deref() {
        properties.push_string(Code::ResponseTopic, Some(text).filter(is_good)?).ok()?;
    }
    if let Some(data) = &publish.correlation_data {
        properties.push_binary(Code::CorrelationData, data.as_bytes()).ok()?;
    }
    if let Some(text) = publish.content_type {
        properties.push_string(Code::ContentType, Some(text).filter(is_good)?).ok()?;
    }
    if let Some(seconds) = publish.message_expiry {
        properties.push_u32(Code::MessageExpiryInterval, seconds).ok()?;
    }
    for (name, value) in publish.user_properties() {
        let text = value.to_string();
        properties
            .push_string_pair(Code::UserProperty, name, Some(&*text).filter(is_good)?)
            .ok()?;
    }
    Some(properties)
}

/// Paho panics at a NUL, and MQTT does not allow it.
fn is_text(text: &str) -> bool {
    text.len() <= usize::from(u16::MAX) && !text.contains('\0')
}

/// What a packet takes on the wire, with its first byte and the length of the rest.
const fn packet_bytes(rest: usize) -> usize {
    let length = match rest {
        ..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    };
    1 + length + rest
}

/// Why a filter is not subscribed, if it is not: an id, one property length and the options come with it.
pub(crate) fn refused_filter(filter: &str, packet_bytes_max: usize) -> Option<ReasonCode> {
    let mut levels = filter.split('/').rev();
    let is_last = |level: &str| level == "#" || !level.contains('#');
    let is_level = |level: &str| level == "+" || !level.contains('+');
    let is_good = !filter.is_empty()
        && is_text(filter)
        && levels.next().is_some_and(|last| is_last(last) && is_level(last))
        && levels.all(|level| is_level(level) && !level.contains('#'))
        && packet_bytes(2 + 1 + 2 + filter.len() + 1) <= packet_bytes_max;
    (!is_good).then_some(TOPIC_FILTER_INVALID)
}

/// A received PUBLISH.
#[derive(Clone)]
pub struct Message {
    topic: String,
    payload: Bytes,
    qos: Qos,
    retain: bool,
    response_topic: Option<String>,
    correlation_data: Option<Vec<u8>>,
    message_expiry: Option<u32>,
    user_properties: Vec<(String, String)>,
}

impl Message {
    /// The payload is not copied.
    pub(crate) fn new(packet: Packet) -> Self {
        let topic = packet.topic().to_owned();
        let properties = packet.properties();
        Self {
            topic,
            qos: match packet.qos() {
                QoS::AtMostOnce => Qos::AtMostOnce,
                QoS::AtLeastOnce => Qos::AtLeastOnce,
                QoS::ExactlyOnce => Qos::ExactlyOnce,
            },
            retain: packet.retained(),
            response_topic: properties.get_string(Code::ResponseTopic),
            correlation_data: properties.get_binary(Code::CorrelationData),
            message_expiry: properties
                .get(Code::MessageExpiryInterval)
                .and_then(|seconds| seconds.get_u32()),
            user_properties: properties.user_iter().collect(),
            payload: Bytes::from_owner(Payload(packet)),
        }
    }

    /// The topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }
}

/// Paho does not give a payload away, so that all of the packet is kept for it.
struct Payload(Packet);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        // Empty means a topic alias, which this side never allowed.
        let topic = Some(&*self.topic).filter(|topic| !topic.is_empty())?;
        let mut incoming = Incoming::new(topic, &self.payload);
        incoming.qos = self.qos;
        incoming.retain = self.retain;
        incoming.response_topic = self.response_topic.as_deref();
        incoming.correlation_data = self.correlation_data.as_deref();
        incoming.message_expiry = self.message_expiry;
        for (name, value) in &self.user_properties {
            incoming.user_property(name, value);
        }
        Some(incoming)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// What became of a SUBSCRIBE or PUBLISH; `None` when the connection is lost and that will be said for all.
pub(crate) fn outcome(result: &Result<ServerResponse, Error>) -> Option<ReasonCode> {
    match result {
        Ok(response) => Some(ReasonCode(response.reason_code() as u8)),
        Err(Error::ReasonCode(reason, _)) => Some(ReasonCode(*reason as u8)),
        Err(Error::Disconnected | Error::OperationIncomplete | Error::Failure) => None,
        Err(_) => Some(ReasonCode(0x80)),
    }
}

/// Whether a publish could not be written. Paho 1.3.16 frees such a one and keeps it in its list of what is in flight
/// (eclipse-paho/paho.mqtt.c, issues 1621 and 1622), so that its client can never be taken apart.
pub(crate) const fn is_poison(result: &Result<ServerResponse, Error>) -> bool {
    matches!(result, Err(Error::Failure))
}

/// What a failure to connect means for the next try. One with the same options is in vain when it is the options that
/// are wrong.
pub(crate) fn refused(error: &Error) -> LinkError {
    match error {
        Error::ReasonCode(reason, properties) => {
            let text = said("the broker refused the connection", *reason, properties);
            match reason {
                // The Server Reference that may come with it Paho's library does not give away.
                Reason::ServerMoved => LinkError::fatal(text).elsewhere(None),
                reason if is_final_refusal(*reason) => LinkError::fatal(text),
                _ => LinkError::transient(text),
            }
        }
        Error::Failure => LinkError::transient("the broker cannot be reached"),
        Error::SslNotSupported | Error::MissingSslOptions | Error::BadProtocol | Error::Nul(_) => {
            LinkError::fatal(error)
        }
        other => LinkError::transient(other),
    }
}

/// What a DISCONNECT of the broker means: another try does harm when another client has taken this client id.
pub(crate) fn disconnected(
    reason: Reason,
    properties: &Properties,
    retry_taken: bool,
) -> LinkError {
    let text = said("disconnected by the broker", reason, properties);
    let named = properties.get_string(Code::ServerReference);
    match reason {
        Reason::SessionTakenOver if !retry_taken => LinkError::fatal(text),
        Reason::NotAuthorized => LinkError::fatal(text),
        Reason::ServerMoved => LinkError::fatal(text).elsewhere(named.as_deref()),
        Reason::UseAnotherServer | Reason::ServerBusy | Reason::ServerShuttingDown => {
            LinkError::transient(text).elsewhere(named.as_deref())
        }
        _ => LinkError::transient(text),
    }
}

fn said(what: &str, reason: Reason, properties: &Properties) -> String {
    let why = properties.get_string(Code::ReasonString).unwrap_or_default();
    format!("{what}: {reason:?} (0x{:02x}) {why}", reason as u8).trim_end().to_owned()
}

const fn is_final_refusal(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::BadUserNameOrPassword
            | Reason::NotAuthorized
            | Reason::ClientIdentifierNotValid
            | Reason::Banned
            | Reason::BadAuthenticationMethod
            | Reason::UnsupportedProtocolVersion
    )
}

#[cfg(test)]
mod tests;
