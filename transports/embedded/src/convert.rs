//! Packets of the broker's router from and to those of the protocol. Pure.

use std::fmt;

use bytes::Bytes;
use mqtt5::packet::publish::PublishPacket as Packet;
use mqtt5::{PropertyId, PropertyValue, QoS};
use statestore_proto::mqtt::{Incoming, Publish, Qos};
use statestore_tokio::AsIncoming;

/// What the broker adds to whatever a client publishes, after removing what the client itself has put there.
const SENDER: &str = "x-mqtt-client-id";

/// A PUBLISH as the router takes it.
pub(crate) fn packet(publish: &Publish) -> Packet {
    let mut packet = Packet::new(&*publish.topic, publish.payload.clone(), QoS::AtLeastOnce);
    let properties = &mut packet.properties;
    if let Some(topic) = &publish.response_topic {
        properties.set_response_topic(topic.to_string());
    }
    if let Some(data) = &publish.correlation_data {
        properties.set_correlation_data(Bytes::copy_from_slice(data.as_bytes()));
    }
    if let Some(content_type) = publish.content_type {
        properties.set_content_type(content_type.to_owned());
    }
    if let Some(seconds) = publish.message_expiry {
        properties.set_message_expiry_interval(seconds);
    }
    for (name, value) in publish.user_properties() {
        properties.add_user_property(name.to_owned(), value.to_string());
    }
    packet
}

/// Says who sends this, as the broker says of what comes over the network.
pub(crate) fn stamp(packet: &mut Packet, client_id: &str) {
    packet.properties.inject_client_id(Some(client_id));
}

/// A message that the router delivered.
#[derive(Clone)]
pub struct Message {
    packet: Packet,
}

impl Message {
    pub(crate) const fn new(packet: Packet) -> Self {
        Self { packet }
    }

    /// The client id of the sender, for which the broker vouches; `None` when no client sent it.
    #[must_use]
    pub fn sender(&self) -> Option<&str> {
        self.packet.properties.get_user_property_value(SENDER)
    }

    fn text(&self, id: PropertyId) -> Option<&str> {
        match self.packet.properties.get(id) {
            Some(PropertyValue::Utf8String(text)) => Some(text),
            _ => None,
        }
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let Packet { topic_name, payload, properties, .. } = &self.packet;
        let mut incoming = Incoming::new(topic_name, payload);
        incoming.qos = match self.packet.qos {
            QoS::AtMostOnce => Qos::AtMostOnce,
            QoS::AtLeastOnce => Qos::AtLeastOnce,
            QoS::ExactlyOnce => Qos::ExactlyOnce,
        };
        incoming.retain = self.packet.retain;
        incoming.response_topic = self.text(PropertyId::ResponseTopic);
        if let Some(PropertyValue::BinaryData(data)) = properties.get(PropertyId::CorrelationData) {
            incoming.correlation_data = Some(data);
        }
        incoming.message_expiry = properties.get_message_expiry_interval();
        incoming.verified_sender = self.sender();
        for value in properties.get_all(PropertyId::UserProperty).unwrap_or_default() {
            if let PropertyValue::Utf8StringPair(name, value) = value {
                incoming.user_property(name, value);
            }
        }
        Some(incoming)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_incoming(), f)
    }
}

#[cfg(test)]
mod tests;
