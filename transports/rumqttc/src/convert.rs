//! Packets and errors of rumqttc from and to those of the protocol. Pure.

use std::str;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode as Refusal, DisconnectReasonCode as Goodbye, PubAckReason, Publish as Packet,
    PublishProperties, SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::{Error as PacketError, QoS};
use rumqttc::v5::{ConnectionError, StateError};
use statestore_proto::mqtt::{Correlation, Delivery, Incoming, Publish, Qos, ReasonCode};
use statestore_tokio::{AsIncoming, LinkError};
use tokio::time::Instant;

/// How the reason begins when the broker has refused the connection, by a CONNACK with a code that is named after it.
pub const REFUSED: &str = "the broker refused the connection";

/// The longest packet that MQTT can express.
pub(crate) const PACKET_BYTES_MAX: usize = 268_435_460;

/// A PUBLISH as rumqttc sends it. Its packet id is a placeholder, so that its `size()` is what goes over the wire.
pub(crate) fn packet(publish: &Publish) -> Packet {
    let properties = PublishProperties {
        response_topic: publish.response_topic.as_deref().map(Into::into),
        correlation_data: publish.correlation_data.as_ref().map(bytes_of),
        content_type: publish.content_type.map(Into::into),
        message_expiry_interval: publish.message_expiry,
        user_properties: publish
            .user_properties()
            .map(|(name, value)| (name.into(), value.to_string()))
            .collect(),
        ..PublishProperties::default()
    };
    let payload = publish.payload.clone();
    let mut packet = Packet::new(&*publish.topic, QoS::AtLeastOnce, payload, Some(properties));
    packet.pkid = 1;
    packet
}

fn bytes_of(correlation: &Correlation) -> Bytes {
    Bytes::copy_from_slice(correlation.as_bytes())
}

/// A received PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    packet: Packet,
    delivery: Option<Delivery>,
    received: Instant,
}

impl Message {
    /// A message of the given connection, to be acknowledged by hand or not, that has just arrived.
    pub(crate) fn new(packet: Packet, generation: u64, manual_acks: bool) -> Self {
        let must_be = manual_acks && packet.qos != QoS::AtMostOnce;
        let delivery = must_be.then(|| delivery(&packet, generation));
        Self { delivery, packet, received: Instant::now() }
    }

    pub(crate) const fn delivery(&self) -> Option<Delivery> {
        self.delivery
    }

    /// The packet as rumqttc gave it.
    #[must_use]
    pub const fn packet(&self) -> &Packet {
        &self.packet
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        // Empty means a topic alias, which this side never allowed.
        let topic = str::from_utf8(&self.packet.topic).ok().filter(|topic| !topic.is_empty())?;
        let mut incoming = Incoming::new(topic, &self.packet.payload);
        incoming.qos = match self.packet.qos {
            QoS::AtMostOnce => Qos::AtMostOnce,
            QoS::AtLeastOnce => Qos::AtLeastOnce,
            QoS::ExactlyOnce => Qos::ExactlyOnce,
        };
        incoming.retain = self.packet.retain;
        incoming.delivery = self.delivery;
        if let Some(properties) = &self.packet.properties {
            incoming.response_topic = properties.response_topic.as_deref();
            incoming.correlation_data = properties.correlation_data.as_deref();
            incoming.message_expiry = properties.message_expiry_interval;
            for (name, value) in &properties.user_properties {
                incoming.user_property(name, value);
            }
        }
        Some(incoming)
    }

    fn received(&self) -> Option<Instant> {
        Some(self.received)
    }
}

/// Connection, quality of service and packet id, in one number.
fn delivery(packet: &Packet, generation: u64) -> Delivery {
    Delivery(generation << 18 | (packet.qos as u64) << 16 | u64::from(packet.pkid))
}

/// Of the packet that a delivery token names, what its acknowledgement needs; `None` for another connection.
pub(crate) fn acknowledged(Delivery(token): Delivery, generation: u64) -> Option<Packet> {
    let qos = match token >> 16 & 3 {
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    };
    let pkid = u16::try_from(token & 0xffff).ok()?;
    (token >> 18 == generation).then(|| Packet { pkid, qos, ..Packet::default() })
}

/// The reason code of a PUBACK, which rumqttc has as a name.
#[must_use]
pub const fn publish_reason(reason: PubAckReason) -> ReasonCode {
    ReasonCode(match reason {
        PubAckReason::Success => 0x00,
        PubAckReason::NoMatchingSubscribers => 0x10,
        PubAckReason::UnspecifiedError => 0x80,
        PubAckReason::ImplementationSpecificError => 0x83,
        PubAckReason::NotAuthorized => 0x87,
        PubAckReason::TopicNameInvalid => 0x90,
        PubAckReason::PacketIdentifierInUse => 0x91,
        PubAckReason::QuotaExceeded => 0x97,
        PubAckReason::PayloadFormatInvalid => 0x99,
    })
}

/// The reason code of a SUBACK for one filter, which rumqttc has as a name.
#[must_use]
pub const fn subscribe_reason(reason: SubscribeReasonCode) -> ReasonCode {
    use SubscribeReasonCode as Code;
    ReasonCode(match reason {
        Code::Success(qos) => qos as u8,
        Code::Failure | Code::Unspecified => 0x80,
        Code::ImplementationSpecific => 0x83,
        Code::NotAuthorized => 0x87,
        Code::TopicFilterInvalid => 0x8f,
        Code::PkidInUse => 0x91,
        Code::QuotaExceeded => 0x97,
        Code::SharedSubscriptionsNotSupported => 0x9e,
        Code::SubscriptionIdNotSupported => 0xa1,
        Code::WildcardSubscriptionsNotSupported => 0xa2,
    })
}

/// What a failure means for the next try. One with the same options is in vain when it is the options that are wrong,
/// and does harm when another client has taken this client id.
pub(crate) fn error(error: &ConnectionError, retry_after_takeover: bool) -> LinkError {
    match error {
        ConnectionError::ConnectionRefused(code) => {
            let text = format!("{REFUSED}: {code:?}");
            match code {
                // The Server Reference that may come with it rumqttc does not give away, nor with a DISCONNECT.
                Refusal::ServerMoved => LinkError::fatal(text).elsewhere(None),
                code if is_final_refusal(*code) => LinkError::fatal(text),
                _ => LinkError::transient(text),
            }
        }
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, reason_string }) => {
            let (code, said) = (*reason_code as u8, reason_string.as_deref().unwrap_or_default());
            let text = format!("disconnected by the broker: {reason_code:?} (0x{code:02x}) {said}");
            let text = text.trim_end();
            // Not authorized is said of one packet here, of an answer to a topic that somebody else chose for one.
            match reason_code {
                Goodbye::SessionTakenOver if !retry_after_takeover => LinkError::fatal(text),
                Goodbye::ServerMoved => LinkError::fatal(text).elsewhere(None),
                Goodbye::UseAnotherServer | Goodbye::ServerBusy | Goodbye::ServerShuttingDown => {
                    LinkError::transient(text).elsewhere(None)
                }
                _ => LinkError::transient(text),
            }
        }
        // Nothing is wrong with a packet here.
        ConnectionError::MqttState(StateError::Deserialization(PacketError::Io(error)))
        | ConnectionError::MqttState(StateError::Io(error)) => {
            LinkError::transient(format_args!("the connection was lost: {error}"))
        }
        #[cfg(feature = "tls")]
        ConnectionError::Tls(error @ rumqttc::v5::TlsError::DNSName(_)) => {
            LinkError::fatal(error).elsewhere(None)
        }
        other => LinkError::transient(other),
    }
}

const fn is_final_refusal(code: Refusal) -> bool {
    matches!(
        code,
        Refusal::BadUserNamePassword
            | Refusal::NotAuthorized
            | Refusal::ClientIdentifierNotValid
            | Refusal::BadClientId
            | Refusal::Banned
            | Refusal::BadAuthenticationMethod
            | Refusal::UnsupportedProtocolVersion
            | Refusal::RefusedProtocolVersion
    )
}

#[cfg(test)]
mod tests;
