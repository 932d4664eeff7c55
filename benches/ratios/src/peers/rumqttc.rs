//! The codec of the crate `rumqttc`: a request as an MQTT packet.

use bytes::{Bytes, BytesMut};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish, PublishProperties};
use statestore_benches::packets::{
    CONTENT_TYPE, CORRELATION, EXPIRY, PACKET_ID, PAYLOAD, RESPONSE_TOPIC, TOPIC, USER,
    request_bytes,
};
use statestore_mqtt::packet;
use statestore_mqtt::property::Property;

/// Name of this peer in reports.
pub const NAME: &str = "rumqttc";

/// Returns the request of [`statestore_benches::packets`] as a packet of rumqttc.
#[must_use]
pub fn prepared() -> Packet {
    let properties = PublishProperties {
        message_expiry_interval: Some(EXPIRY),
        content_type: Some(CONTENT_TYPE.into()),
        response_topic: Some(RESPONSE_TOPIC.into()),
        correlation_data: Some(Bytes::from_static(CORRELATION)),
        user_properties: USER.map(|(name, value)| (name.into(), value.into())).into(),
        ..PublishProperties::default()
    };
    let qos = QoS::AtLeastOnce;
    let mut publish = Publish::new(TOPIC, qos, Bytes::from_static(PAYLOAD), Some(properties));
    publish.pkid = PACKET_ID;
    Packet::Publish(publish)
}

/// Asserts that each codec decodes what the other one encodes.
///
/// # Panics
/// If it does not.
pub fn verify() {
    let bytes = request_bytes();
    assert_eq!(decode(&mut BytesMut::from(&*bytes)), prepared(), "rumqttc decodes our bytes");
    let mut other = BytesMut::new();
    encode(&prepared(), &mut other);
    assert_eq!(meaning(&other), meaning(&bytes), "we decode the bytes of rumqttc");
}

/// Topic, payload, and properties in the order of their identifiers.
fn meaning(bytes: &[u8]) -> (&str, &[u8], Vec<Property<'_>>) {
    let Ok(packet::Packet::Publish(publish)) = packet::Packet::decode(bytes) else {
        panic!("a PUBLISH")
    };
    let mut properties: Vec<_> = publish.properties.iter().collect();
    properties.sort_by_key(Property::id);
    (publish.topic, publish.payload, properties)
}

/// Decodes a packet. The codec takes the bytes out of their buffer.
///
/// # Panics
/// If the bytes are not a packet.
pub fn decode(buffer: &mut BytesMut) -> Packet {
    Packet::read(buffer, None).expect("a packet")
}

/// Encodes a packet into a buffer that was used before.
///
/// # Panics
/// If the codec refuses the packet.
pub fn encode(packet: &Packet, buffer: &mut BytesMut) {
    buffer.clear();
    packet.write(buffer, None).expect("it is short");
}
