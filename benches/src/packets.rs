//! A typical request as an MQTT packet, in our words and in those of rumqttc's codec.

use std::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet as Theirs, Publish as TheirPublish, PublishProperties};
use statestore_mqtt::Qos;
use statestore_mqtt::packet::{Packet, Publish};
use statestore_mqtt::property::Property;

/// What the codec of rumqttc is called in a report.
pub const RUMQTTC: &str = "rumqttc";

const TOPIC: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
const RESPONSE_TOPIC: &str = "clients/line-3/services/statestore/_any_/command/invoke/response";
const CORRELATION: &[u8] = b"0123456789abcdef";
const USER: [(&str, &str); 3] =
    [("__ts", "1696374425000:00001:line-3"), ("__srcId", "line-3"), ("__protVer", "1.0")];
const PAYLOAD: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\nline-3/oven/temp\r\n$4\r\n21.5\r\n";

/// A SET on its way: response topic, correlation data, message expiry, content type, three user properties.
const PROPERTIES: [Property<'static>; 7] = [
    Property::MessageExpiry(10),
    Property::ContentType("application/octet-stream"),
    Property::ResponseTopic(RESPONSE_TOPIC),
    Property::CorrelationData(CORRELATION),
    Property::User(USER[0].0, USER[0].1),
    Property::User(USER[1].0, USER[1].1),
    Property::User(USER[2].0, USER[2].1),
];

/// The request in our words.
#[must_use]
pub fn ours() -> Packet<'static, &'static [Property<'static>]> {
    Packet::Publish(Publish {
        dup: false,
        qos: Qos::AtLeastOnce,
        retain: false,
        topic: TOPIC,
        id: NonZeroU16::new(7),
        properties: &PROPERTIES,
        payload: PAYLOAD,
    })
}

/// The request in theirs.
#[must_use]
pub fn theirs() -> Theirs {
    let properties = PublishProperties {
        message_expiry_interval: Some(10),
        content_type: Some("application/octet-stream".into()),
        response_topic: Some(RESPONSE_TOPIC.into()),
        correlation_data: Some(Bytes::from_static(CORRELATION)),
        user_properties: USER.map(|(name, value)| (name.into(), value.into())).into(),
        ..PublishProperties::default()
    };
    let qos = QoS::AtLeastOnce;
    let mut publish = TheirPublish::new(TOPIC, qos, Bytes::from_static(PAYLOAD), Some(properties));
    publish.pkid = 7;
    Theirs::Publish(publish)
}

/// The bytes of the request.
///
/// # Panics
/// When the two codecs do not understand each other.
#[must_use]
pub fn bytes() -> Vec<u8> {
    let mut bytes = BytesMut::new();
    ours().encode(&mut bytes).expect("it is short");
    assert_eq!(decode_theirs(&mut bytes.clone()), theirs(), "they read what we write");
    let mut other = BytesMut::new();
    encode_theirs(&theirs(), &mut other);
    assert_eq!(read(&other), read(&bytes), "we read what they write");
    bytes.into()
}

/// What is said, properties in the order of their identifiers.
fn read(bytes: &[u8]) -> (&str, &[u8], Vec<Property<'_>>) {
    let Ok(Packet::Publish(publish)) = Packet::decode(bytes) else { panic!("a PUBLISH") };
    let mut properties: Vec<_> = publish.properties.iter().collect();
    properties.sort_by_key(Property::id);
    (publish.topic, publish.payload, properties)
}

/// Decodes with us and looks at each property, so that as much is known as with them; how many there are.
#[must_use]
pub fn decode_ours(bytes: &[u8]) -> usize {
    match Packet::decode(bytes) {
        Ok(Packet::Publish(publish)) => publish.properties.iter().count(),
        _ => 0,
    }
}

/// Decodes with them, which takes the bytes out of their buffer.
///
/// # Panics
/// When it is no packet.
pub fn decode_theirs(buffer: &mut BytesMut) -> Theirs {
    Theirs::read(buffer, None).expect("a packet")
}

/// Encodes with us into a buffer that was used before.
pub fn encode_ours(packet: &Packet<'_, &[Property<'_>]>, buffer: &mut BytesMut) {
    buffer.clear();
    packet.encode(buffer).expect("it is short");
}

/// The same with them.
///
/// # Panics
/// When they cannot.
pub fn encode_theirs(packet: &Theirs, buffer: &mut BytesMut) {
    buffer.clear();
    packet.write(buffer, None).expect("it is short");
}
