//! Packets out of bytes and into bytes.

use bytes::{Buf, BytesMut};
use rumqttc::v5::mqttbytes::Error;
use rumqttc::v5::mqttbytes::v5::{Disconnect, Packet};

/// Takes the first packet; `None` when not all of it is there.
pub(crate) fn read(unread: &mut BytesMut) -> Option<Packet> {
    // A DISCONNECT without properties, or without a reason too, which the codec writes and does not read.
    let short = match unread[..] {
        [0xe0, 0, ..] => Some((2, 0)),
        [0xe0, 1, reason, ..] => Some((3, reason)),
        _ => None,
    };
    if let Some((length, reason)) = short {
        unread.advance(length);
        return Some(Packet::Disconnect(Disconnect::new(reason.try_into().expect("a reason"))));
    }
    match Packet::read(unread, None) {
        Ok(packet) => Some(packet),
        Err(Error::InsufficientBytes(_)) => None,
        Err(error) => panic!("not MQTT: {error}"),
    }
}

/// The bytes of a packet.
pub(crate) fn write(packet: &Packet) -> BytesMut {
    let mut bytes = BytesMut::new();
    packet.write(&mut bytes, None).expect("a packet");
    bytes
}
