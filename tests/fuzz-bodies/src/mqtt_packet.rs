//! The codec of `statestore-mqtt` against that of another library, `mqttbytes`.
//!
//! What both decode says the same. Where they differ on purpose, *they* being `mqttbytes`:
//!
//! | Input | They | We |
//! |---|---|---|
//! | AUTH | have no such packet | accept |
//! | DISCONNECT of less than two bytes behind its length | refuse | accept (section 3.14.2) |
//! | DISCONNECT with 0x8c | refuse | accept (table 2-6) |
//! | a password that is not UTF-8 | refuse | accept (section 3.1.3.6) |
//! | properties behind a subscription identifier | count its own byte twice, and take the end of them for something else | read them |
//! | flags of the fixed header, or of a CONNACK, that are reserved; DUP at QoS 0; reserved options | accept | refuse |
//! | lengths of more bytes than they need | accept | refuse |
//! | properties that go on beyond their length; bytes behind the last field | accept | refuse |
//! | NUL in a text; topics and filters that can be none; No Local with a share | accept | refuse |
//! | a property twice, or with a value that is not allowed, or without the one that it needs | accept | refuse |
//! | a packet identifier of zero outside of a PUBLISH; subscriptions to nothing | accept | refuse |
//! | CONNECT of MQTT 3.1.1 | accept | refuse |
//!
//! UNSUBSCRIBE is not compared: their decoder prints each packet identifier.

mod reference_codec;

use bytes::BytesMut;
use mqttbytes::v5;
use statestore_mqtt::packet::{Header, Packet, Publish, Subscribe};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Kind, Malformed, Reason, Unwritable};

use super::check_neighbours;
use statestore_testkit::wire::mqtt_text::{show, show_sorted};

/// Oracle: `mqttbytes`, apart from the table above; and what is read can be written, and says the
/// same again.
pub fn mqtt_packet(data: &[u8]) {
    let ours = Packet::decode(data);
    check_header(data, &ours);
    if let Ok(packet) = &ours {
        check_writer(data, packet);
        check_neighbours(data, |bytes| Packet::decode(bytes).is_ok());
    }
    // Another version of MQTT, or one that prints.
    if data.first().is_none_or(|first| first >> 4 == Kind::Unsubscribe as u8) {
        return;
    }
    let theirs = v5::read(&mut BytesMut::from(data), usize::MAX);
    match (ours, theirs) {
        (Ok(packet), _) if loses_them(packet) => {}
        (Err(_), Ok(other)) if reference_codec::may_be_lost(&other) => {}
        (Ok(packet), Ok(other)) => {
            assert_eq!(show_sorted(&comparable(packet)), reference_codec::show(&other));
        }
        (Ok(packet), Err(error)) => {
            assert!(is_beyond_them(data, &packet), "they refuse it as {error}: {}", show(&packet));
        }
        (Err(error), Ok(_)) => assert!(is_lost_on_them(error), "they accept what is {error}"),
        (Err(_), Err(_)) => {}
    }
}

/// A header is known as soon as it is there, and says what decoding says.
fn check_header(data: &[u8], ours: &Result<Packet<'_>, Malformed>) {
    let header = Header::read(data, usize::MAX);
    match (header, ours) {
        (Ok(None), ours) => assert!(data.len() < 5 && *ours == Err(Malformed::Truncated)),
        (Ok(Some(Header { kind, len })), ours) => match len.cmp(&data.len()) {
            std::cmp::Ordering::Greater => assert_eq!(*ours, Err(Malformed::Truncated)),
            std::cmp::Ordering::Less => assert_eq!(*ours, Err(Malformed::Trailing)),
            std::cmp::Ordering::Equal => {
                assert!(ours.is_ok_and(|packet| packet.kind() == kind) || ours.is_err());
                let too_large = Err(Malformed::TooLarge { len });
                assert_eq!(Header::read(data, len - 1), too_large);
                assert_eq!(Header::read(data, len), header);
            }
        },
        (Err(error), ours) => assert_eq!(*ours, Err(error)),
    }
    for len in 0..data.len().min(5) {
        let early = Header::read(&data[..len], usize::MAX);
        assert!(early == Ok(None) || early == header, "{early:?} of {len} bytes, then {header:?}");
    }
}

/// It is written in as many bytes as were announced, never more than it came in, and says the same
/// then. The reason of a DISCONNECT alone is written with one more: the length of its properties.
fn check_writer(data: &[u8], packet: &Packet<'_>) {
    const UNTOUCHED: u8 = 0xa5;
    let len = packet.encoded_len().expect("it was read");
    let is_reason_alone = matches!(packet, Packet::Disconnect(_)) && data.len() == 3;
    assert!(len <= data.len() + usize::from(is_reason_alone));
    let mut bytes = vec![UNTOUCHED; len + 3];
    assert_eq!(packet.encode_into(&mut bytes), Ok(len));
    assert_eq!(bytes.split_off(len), [UNTOUCHED; 3]);
    let again = Packet::decode(&bytes).expect("it was written");
    assert_eq!(show(&again), show(packet));
    let mut twice = BytesMut::new();
    assert_eq!(again.encode(&mut twice), Ok(len));
    assert_eq!(twice, bytes);
    let mut tight = vec![UNTOUCHED; len - 1];
    assert_eq!(packet.encode_into(&mut tight), Err(Unwritable::NoRoom { needed: len }));
    assert!(tight.iter().all(|byte| *byte == UNTOUCHED));
}

/// To them an empty user name or password is none.
fn comparable(mut packet: Packet<'_>) -> Packet<'_> {
    if let Packet::Connect(connect) = &mut packet {
        connect.user_name = connect.user_name.filter(|name| !name.is_empty());
        connect.password = connect.password.filter(|password| !password.is_empty());
    }
    packet
}

/// Returns whether they lose count of its properties: after a subscription identifier, unless it is
/// the
/// last.
fn loses_them(packet: Packet<'_>) -> bool {
    let (Packet::Publish(Publish { properties, .. })
    | Packet::Subscribe(Subscribe { properties, .. })) = packet
    else {
        return false;
    };
    let mut behind =
        properties.iter().skip_while(|one| !matches!(one, Property::SubscriptionId(_)));
    behind.nth(1).is_some()
}

/// Returns whether they refuse this packet without a reason.
fn is_beyond_them(data: &[u8], packet: &Packet<'_>) -> bool {
    match packet {
        Packet::Auth(_) => true,
        Packet::Disconnect(disconnect) => {
            data.len() < 4 || disconnect.reason == Reason::BAD_AUTHENTICATION_METHOD
        }
        Packet::Connect(connect) => {
            connect.password.is_some_and(|password| std::str::from_utf8(password).is_err())
        }
        _ => false,
    }
}

/// Returns whether this is a rule that they do not have. What is not here both refuse: unknown and
/// misplaced properties, and reason codes of other packets.
const fn is_lost_on_them(error: Malformed) -> bool {
    match error {
        Malformed::First(_)
        | Malformed::Flags(_)
        | Malformed::Version(4)
        | Malformed::Truncated
        | Malformed::Trailing
        | Malformed::Varint
        | Malformed::Text
        | Malformed::PacketId
        | Malformed::Twice(_)
        | Malformed::Value(_)
        | Malformed::Missing(_)
        | Malformed::TopicName
        | Malformed::TopicFilter
        | Malformed::NoLocal
        | Malformed::Empty => true,
        Malformed::Version(_)
        | Malformed::Options(_)
        | Malformed::ReasonCode(_)
        | Malformed::Property(_)
        | Malformed::Misplaced(_)
        | Malformed::TooLarge { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both read what both can, so that nothing is compared in vain.
    #[test]
    fn they_read_packets_of_each_kind() {
        for packet in [
            "10 0004 4d515454 05 c2 001e 00 0001 63 0001 75 0001 70",
            "20 00 00 03 21 0001",
            "32 0001 74 0005 00",
            "40 0005 10",
            "50 0005 10 00",
            "62 0005",
            "70 0005 92",
            "82 0005 00 0001 61 01",
            "90 0005 00 01",
            "b0 0005 00 11",
            "c0",
            "d0",
            "e0 8e 00",
        ] {
            let mut bytes = hex::decode(packet.replace(' ', "")).unwrap();
            bytes.insert(1, u8::try_from(bytes.len() - 1).unwrap());
            let ours = Packet::decode(&bytes).unwrap();
            let other = v5::read(&mut BytesMut::from(&bytes[..]), usize::MAX).unwrap();
            assert_eq!(show_sorted(&comparable(ours)), reference_codec::show(&other));
        }
    }
}
