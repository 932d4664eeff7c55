//! Conversions between the packets of `statestore-mqtt` and the messages of a machine.

use statestore_mqtt::packet::Publish as Packet;
use statestore_mqtt::property::{self, Encode, Property, id};
use statestore_mqtt::wire::{Sink, put_binary, put_text_with_len};
use statestore_mqtt::{Reason, Unwritable};
use statestore_proto::transport::{Correlation, Incoming, Publish, Qos, ReasonCode};

/// The MQTT properties of a PUBLISH that a machine sends.
#[derive(Clone, Copy, Debug)]
pub struct PublishProperties<'a>(pub &'a Publish);

impl Encode for PublishProperties<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let Publish { response_topic, correlation_data, .. } = self.0;
        let correlation_data = correlation_data.as_ref().map(Correlation::as_bytes);
        let known = [
            self.0.message_expiry.map(Property::MessageExpiry),
            self.0.content_type.map(Property::ContentType),
            response_topic.as_deref().map(Property::ResponseTopic),
            correlation_data.map(Property::CorrelationData),
        ];
        known.put(sink)?;
        self.0.user_properties().try_for_each(|(name, value)| {
            sink.put(&[id::USER]);
            put_binary(sink, name.as_bytes())?;
            put_text_with_len(sink, value.encoded_len(), &value)
        })
    }
}

/// The packet of a PUBLISH that a machine sends, for the broker of `statestore-broker`.
#[must_use]
pub fn publish_packet(publish: &Publish) -> Packet<'_, PublishProperties<'_>> {
    Packet {
        dup: false,
        qos: statestore_mqtt::Qos::AtLeastOnce,
        retain: false,
        topic: &publish.topic,
        id: None,
        properties: PublishProperties(publish),
        payload: &publish.payload,
    }
}

/// Copies the properties of a received PUBLISH into the form that a machine reads.
pub fn read_properties<'a>(incoming: &mut Incoming<'a>, properties: &property::Properties<'a>) {
    for property in properties {
        match property {
            Property::MessageExpiry(seconds) => incoming.message_expiry = Some(seconds),
            Property::ResponseTopic(topic) => incoming.response_topic = Some(topic),
            Property::CorrelationData(data) => incoming.correlation_data = Some(data),
            Property::User(name, value) => incoming.user_property(name, value),
            _ => {}
        }
    }
}

/// The quality of service of `statestore-proto`.
#[must_use]
pub const fn machine_qos(qos: statestore_mqtt::Qos) -> Qos {
    match qos {
        statestore_mqtt::Qos::AtMostOnce => Qos::AtMostOnce,
        statestore_mqtt::Qos::AtLeastOnce => Qos::AtLeastOnce,
        statestore_mqtt::Qos::ExactlyOnce => Qos::ExactlyOnce,
    }
}

/// The quality of service of `statestore-mqtt`.
#[must_use]
pub const fn packet_qos(qos: Qos) -> statestore_mqtt::Qos {
    match qos {
        Qos::AtMostOnce => statestore_mqtt::Qos::AtMostOnce,
        Qos::AtLeastOnce => statestore_mqtt::Qos::AtLeastOnce,
        Qos::ExactlyOnce => statestore_mqtt::Qos::ExactlyOnce,
    }
}

/// The reason code of `statestore-proto`.
#[must_use]
pub fn machine_reason(reason: Reason) -> ReasonCode {
    ReasonCode(reason.0)
}
