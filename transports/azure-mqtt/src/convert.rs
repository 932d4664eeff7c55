//! Conversions between the packets of the SDK and the messages of a machine.

use std::fmt;

use azure_iot_operations_mqtt::control_packet::{
    DeliveryQoS, Publish as Packet, PublishProperties, TopicName,
};
use azure_iot_operations_mqtt::error::TopicError;
use azure_iot_operations_mqtt::token::AckToken;
use bytes::Bytes;
use statestore_proto::transport::{Incoming, Publish, Qos};
use statestore_tokio::AsIncoming;

/// The properties of a PUBLISH for the SDK.
pub(crate) fn properties(publish: &Publish) -> Result<PublishProperties, TopicError> {
    let response_topic = publish.response_topic.as_deref().map(TopicName::new).transpose()?;
    let correlation_data = publish.correlation_data.as_ref();
    let user_properties =
        publish.user_properties().map(|(name, value)| (name.to_owned(), value.to_string()));
    Ok(PublishProperties {
        message_expiry_interval: publish.message_expiry,
        response_topic,
        correlation_data: correlation_data.map(|data| Bytes::copy_from_slice(data.as_bytes())),
        user_properties: user_properties.collect(),
        content_type: publish.content_type.map(str::to_owned),
        ..PublishProperties::default()
    })
}

/// A received PUBLISH. It is acknowledged when it is dropped, by a task that the SDK spawns: at QoS
/// 1, drop it inside of a tokio runtime.
pub struct Message {
    packet: Packet,
    _acknowledgement: Option<AckToken>,
}

impl Message {
    pub(crate) const fn new(packet: Packet, acknowledgement: Option<AckToken>) -> Self {
        Self { packet, _acknowledgement: acknowledgement }
    }

    /// The packet of the SDK.
    #[must_use]
    pub const fn packet(&self) -> &Packet {
        &self.packet
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let properties = &self.packet.properties;
        let mut incoming = Incoming::new(self.packet.topic_name.as_str(), &self.packet.payload);
        incoming.qos = match self.packet.qos {
            DeliveryQoS::AtMostOnce => Qos::AtMostOnce,
            DeliveryQoS::AtLeastOnce(_) => Qos::AtLeastOnce,
            DeliveryQoS::ExactlyOnce(_) => Qos::ExactlyOnce,
        };
        incoming.retain = self.packet.retain;
        incoming.response_topic = properties.response_topic.as_ref().map(TopicName::as_str);
        incoming.correlation_data = properties.correlation_data.as_deref();
        incoming.message_expiry = properties.message_expiry_interval;
        for (name, value) in &properties.user_properties {
            incoming.user_property(name, value);
        }
        Some(incoming)
    }
}

/// Omits payload and properties.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.packet.topic_name.as_str())
            .field("payload_bytes", &self.packet.payload.len())
            .finish_non_exhaustive()
    }
}
