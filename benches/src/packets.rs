//! A typical request as an MQTT packet.

use std::num::NonZeroU16;

use bytes::BytesMut;
use statestore_mqtt::Qos;
use statestore_mqtt::packet::{Packet, Publish};
use statestore_mqtt::property::Property;

/// Topic of the request.
pub const TOPIC: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
/// Response topic of the request.
pub const RESPONSE_TOPIC: &str = "clients/line-3/services/statestore/_any_/command/invoke/response";
/// Correlation data of the request.
pub const CORRELATION: &[u8] = b"0123456789abcdef";
/// Message expiry interval of the request, in seconds.
pub const EXPIRY: u32 = 10;
/// Content type of the request.
pub const CONTENT_TYPE: &str = "application/octet-stream";
/// User properties of the request.
pub const USER: [(&str, &str); 3] =
    [("__ts", "1696374425000:00001:line-3"), ("__srcId", "line-3"), ("__protVer", "1.0")];
/// Payload of the request: a SET.
pub const PAYLOAD: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\nline-3/oven/temp\r\n$4\r\n21.5\r\n";
/// Packet identifier of the request.
pub const PACKET_ID: u16 = 7;

/// All properties of the request.
pub const PROPERTIES: [Property<'static>; 7] = [
    Property::MessageExpiry(EXPIRY),
    Property::ContentType(CONTENT_TYPE),
    Property::ResponseTopic(RESPONSE_TOPIC),
    Property::CorrelationData(CORRELATION),
    Property::User(USER[0].0, USER[0].1),
    Property::User(USER[1].0, USER[1].1),
    Property::User(USER[2].0, USER[2].1),
];

/// Returns the request.
#[must_use]
pub fn request() -> Packet<'static, &'static [Property<'static>]> {
    Packet::Publish(Publish {
        dup: false,
        qos: Qos::AtLeastOnce,
        retain: false,
        topic: TOPIC,
        id: NonZeroU16::new(PACKET_ID),
        properties: &PROPERTIES,
        payload: PAYLOAD,
    })
}

/// Returns the bytes of the request.
#[must_use]
pub fn request_bytes() -> Vec<u8> {
    let mut bytes = BytesMut::new();
    encode(&request(), &mut bytes);
    bytes.into()
}

/// Decodes a PUBLISH and each of its properties, and returns their number.
#[must_use]
pub fn decode(bytes: &[u8]) -> usize {
    match Packet::decode(bytes) {
        Ok(Packet::Publish(publish)) => publish.properties.iter().count(),
        _ => 0,
    }
}

/// Encodes a packet into a buffer that was used before.
///
/// # Panics
/// If the packet is too large.
pub fn encode(packet: &Packet<'_, &[Property<'_>]>, buffer: &mut BytesMut) {
    buffer.clear();
    packet.encode(buffer).expect("it is short");
}
