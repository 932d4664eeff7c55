//! Packets and errors of rumqttc from and to those of the protocol. Pure.

use std::str;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode as Refusal, PubAckReason, Publish as Packet, PublishProperties,
    SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::{Error as PacketError, QoS};
use rumqttc::v5::{ConnectionError, StateError};
use statestore_proto::transport::{Correlation, Incoming, Publish, Qos, ReasonCode};
use statestore_tokio::adapter::ReasonDetails;
use statestore_tokio::{AsIncoming, LinkError, LinkErrorKind};

/// The properties of a PUBLISH as rumqttc sends them.
pub(crate) fn properties(publish: &Publish) -> PublishProperties {
    PublishProperties {
        response_topic: publish.response_topic.as_deref().map(Into::into),
        correlation_data: publish.correlation_data.as_ref().map(bytes_of),
        content_type: publish.content_type.map(Into::into),
        message_expiry_interval: publish.message_expiry,
        user_properties: publish
            .user_properties()
            .map(|(name, value)| (name.into(), value.to_string()))
            .collect(),
        ..PublishProperties::default()
    }
}

fn bytes_of(correlation: &Correlation) -> Bytes {
    Bytes::copy_from_slice(correlation.as_bytes())
}

pub(crate) const fn qos(qos: Qos) -> QoS {
    match qos {
        Qos::AtMostOnce => QoS::AtMostOnce,
        Qos::AtLeastOnce => QoS::AtLeastOnce,
        Qos::ExactlyOnce => QoS::ExactlyOnce,
    }
}

pub(crate) const fn proto_qos(qos: QoS) -> Qos {
    match qos {
        QoS::AtMostOnce => Qos::AtMostOnce,
        QoS::AtLeastOnce => Qos::AtLeastOnce,
        QoS::ExactlyOnce => Qos::ExactlyOnce,
    }
}

/// A received PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    packet: Packet,
}

impl Message {
    pub(crate) const fn new(packet: Packet) -> Self {
        Self { packet }
    }

    /// The packet of rumqttc.
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
        incoming.qos = proto_qos(self.packet.qos);
        incoming.retain = self.packet.retain;
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
}

/// The reason code of a PUBACK, for which rumqttc has an enum.
#[must_use]
pub const fn publish_reason(reason: PubAckReason) -> ReasonCode {
    match reason {
        PubAckReason::Success => ReasonCode::SUCCESS,
        PubAckReason::NoMatchingSubscribers => ReasonCode::NO_MATCHING_SUBSCRIBERS,
        PubAckReason::UnspecifiedError => ReasonCode::UNSPECIFIED_ERROR,
        PubAckReason::ImplementationSpecificError => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
        PubAckReason::NotAuthorized => ReasonCode::NOT_AUTHORIZED,
        PubAckReason::TopicNameInvalid => ReasonCode::TOPIC_NAME_INVALID,
        PubAckReason::PacketIdentifierInUse => ReasonCode::PACKET_IDENTIFIER_IN_USE,
        PubAckReason::QuotaExceeded => ReasonCode::QUOTA_EXCEEDED,
        PubAckReason::PayloadFormatInvalid => ReasonCode::PAYLOAD_FORMAT_INVALID,
    }
}

/// The reason code of a SUBACK for one filter, for which rumqttc has an enum.
#[must_use]
pub const fn subscribe_reason(reason: SubscribeReasonCode) -> ReasonCode {
    use SubscribeReasonCode as Code;
    match reason {
        Code::Success(qos) => ReasonCode(qos as u8),
        Code::Failure | Code::Unspecified => ReasonCode::UNSPECIFIED_ERROR,
        Code::ImplementationSpecific => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
        Code::NotAuthorized => ReasonCode::NOT_AUTHORIZED,
        Code::TopicFilterInvalid => ReasonCode::TOPIC_FILTER_INVALID,
        Code::PkidInUse => ReasonCode::PACKET_IDENTIFIER_IN_USE,
        Code::QuotaExceeded => ReasonCode::QUOTA_EXCEEDED,
        Code::SharedSubscriptionsNotSupported => ReasonCode::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
        Code::SubscriptionIdNotSupported => ReasonCode::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
        Code::WildcardSubscriptionsNotSupported => ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    }
}

/// The reason code of a CONNACK, for which rumqttc has an enum.
const fn connect_reason(reason: Refusal) -> ReasonCode {
    match reason {
        Refusal::Success => ReasonCode::SUCCESS,
        Refusal::UnspecifiedError => ReasonCode::UNSPECIFIED_ERROR,
        Refusal::MalformedPacket => ReasonCode::MALFORMED_PACKET,
        Refusal::ProtocolError => ReasonCode::PROTOCOL_ERROR,
        Refusal::ImplementationSpecificError => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
        // Two of these are codes of MQTT 3.1.1.
        Refusal::UnsupportedProtocolVersion | Refusal::RefusedProtocolVersion => {
            ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
        }
        Refusal::ClientIdentifierNotValid | Refusal::BadClientId => {
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID
        }
        Refusal::BadUserNamePassword => ReasonCode::BAD_USER_NAME_OR_PASSWORD,
        Refusal::NotAuthorized => ReasonCode::NOT_AUTHORIZED,
        Refusal::ServerUnavailable | Refusal::ServiceUnavailable => ReasonCode::SERVER_UNAVAILABLE,
        Refusal::ServerBusy => ReasonCode::SERVER_BUSY,
        Refusal::Banned => ReasonCode::BANNED,
        Refusal::BadAuthenticationMethod => ReasonCode::BAD_AUTHENTICATION_METHOD,
        Refusal::TopicNameInvalid => ReasonCode::TOPIC_NAME_INVALID,
        Refusal::PacketTooLarge => ReasonCode::PACKET_TOO_LARGE,
        Refusal::QuotaExceeded => ReasonCode::QUOTA_EXCEEDED,
        Refusal::PayloadFormatInvalid => ReasonCode::PAYLOAD_FORMAT_INVALID,
        Refusal::RetainNotSupported => ReasonCode::RETAIN_NOT_SUPPORTED,
        Refusal::QoSNotSupported => ReasonCode::QOS_NOT_SUPPORTED,
        Refusal::UseAnotherServer => ReasonCode::USE_ANOTHER_SERVER,
        Refusal::ServerMoved => ReasonCode::SERVER_MOVED,
        Refusal::ConnectionRateExceeded => ReasonCode::CONNECTION_RATE_EXCEEDED,
    }
}

/// The error of a connection or of an attempt to connect. `is_opening` is set until the CONNACK.
///
/// rumqttc does not return the Server Reference.
pub(crate) fn error(error: ConnectionError, is_opening: bool) -> LinkError {
    use LinkErrorKind as Kind;
    let lost = if is_opening { Kind::Unreachable } else { Kind::Lost };
    let link_error = match &error {
        ConnectionError::ConnectionRefused(code) => {
            LinkError::refused(connect_reason(*code), ReasonDetails::default())
        }
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, reason_string }) => {
            let words = ReasonDetails::new(reason_string.as_deref(), None);
            LinkError::disconnected(ReasonCode(*reason_code as u8), words)
        }
        ConnectionError::MqttState(StateError::Deserialization(PacketError::Io(io)))
        | ConnectionError::MqttState(StateError::Io(io)) => {
            LinkError::new(Kind::Lost, format_args!("the connection was lost: {io}"))
        }
        ConnectionError::MqttState(StateError::ConnectionAborted) => {
            LinkError::new(Kind::Lost, "the broker closed the connection")
        }
        ConnectionError::MqttState(StateError::AwaitPingResp) => {
            LinkError::new(Kind::TimedOut, "the broker did not respond to a ping in time")
        }
        ConnectionError::MqttState(_) | ConnectionError::NotConnAck(_) => {
            LinkError::new(Kind::Protocol, &error)
        }
        ConnectionError::Timeout(_) => {
            LinkError::new(Kind::TimedOut, "the broker did not respond in time")
        }
        #[cfg(feature = "tls")]
        ConnectionError::Tls(rumqttc::v5::TlsError::DNSName(_)) => {
            LinkError::new(Kind::Tls, &error).permanent().address_specific(None)
        }
        #[cfg(feature = "tls")]
        ConnectionError::Tls(_) => LinkError::new(Kind::Tls, &error),
        ConnectionError::Io(io) => {
            let kind = io.kind();
            LinkError::io(lost, std::io::Error::new(kind, io.to_string()))
        }
        _ => LinkError::new(Kind::Other, &error),
    };
    match error {
        // rumqttc does not return the source of this one.
        ConnectionError::MqttState(StateError::Deserialization(error)) => {
            link_error.with_source(error)
        }
        error => link_error.with_source(error),
    }
}

#[cfg(test)]
mod tests;
