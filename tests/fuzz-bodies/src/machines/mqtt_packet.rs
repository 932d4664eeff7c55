//! Comparison of the codec of `statestore-mqtt` with the library `mqttbytes`.
//!
//! Packets that both decode have equal fields. Intended differences; *they* is `mqttbytes`:
//!
//! | Input | They | We |
//! |---|---|---|
//! | AUTH | unknown packet | accept |
//! | DISCONNECT with less than two bytes after its length | refuse | accept (section 3.14.2) |
//! | DISCONNECT with 0x8c | refuse | accept (table 2-6) |
//! | a password that is not UTF-8 | refuse | accept (section 3.1.3.6) |
//! | properties after a subscription identifier | count one byte twice, misread the rest | accept |
//! | reserved flags or options; DUP at QoS 0 | accept | refuse |
//! | overlong lengths | accept | refuse |
//! | properties beyond their length; bytes after the last field | accept | refuse |
//! | NUL in a text; invalid topics and filters; No Local with a share | accept | refuse |
//! | a duplicate or invalid property, or one without a required other | accept | refuse |
//! | a packet identifier of zero except in a PUBLISH; SUBSCRIBE without filters | accept | refuse |
//! | CONNECT of MQTT 3.1.1 | accept | refuse |
//!
//! UNSUBSCRIBE is not compared: their decoder prints each packet identifier.

mod convert;

use bytes::BytesMut;
use mqttbytes::v5;
use statestore_mqtt::packet::{Header, Packet, Publish, Subscribe};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Kind, Malformed, Reason, Unwritable};

use statestore_testkit::wire::mqtt_text::{show, show_sorted};

use crate::check_neighbours;

/// Oracle: `mqttbytes` decodes the same packets, except for the table above. Decoded packets can be
/// encoded, and decode to the same fields.
///
/// Input: the bytes of a packet.
pub fn mqtt_packet(data: &[u8]) {
    let ours = Packet::decode(data);
    check_header(data, &ours);
    if let Ok(packet) = &ours {
        check_writer(data, packet);
        check_neighbours(data, |bytes| Packet::decode(bytes).is_ok());
    }
    // Their decoder cannot be compared for an empty input or UNSUBSCRIBE.
    if data.first().is_none_or(|first| first >> 4 == Kind::Unsubscribe as u8) {
        return;
    }
    let theirs = v5::read(&mut BytesMut::from(data), usize::MAX);
    match (ours, theirs) {
        (Ok(packet), _) if is_misread_by_them(packet) => {}
        (Err(_), Ok(other)) if convert::may_be_misread(&other) => {}
        (Ok(packet), Ok(other)) => {
            assert_eq!(show_sorted(&comparable(packet)), convert::show(&other));
        }
        (Ok(packet), Err(error)) => {
            assert!(
                is_unknown_to_them(data, &packet),
                "they refuse it as {error}: {}",
                show(&packet)
            );
        }
        (Err(error), Ok(_)) => assert!(is_rule_they_lack(error), "they accept what is {error}"),
        (Err(_), Err(_)) => {}
    }
}

/// Checks that the header is available as soon as its bytes are, and agrees with the decoder.
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

/// Checks that encoding has the announced length, is not longer than the input, and decodes to the
/// same packet. A DISCONNECT with only a reason gets one more byte: the length of its properties.
fn check_writer(data: &[u8], packet: &Packet<'_>) {
    const UNTOUCHED: u8 = 0xa5;
    let len = packet.encoded_len().expect("a decoded packet");
    let is_reason_alone = matches!(packet, Packet::Disconnect(_)) && data.len() == 3;
    assert!(len <= data.len() + usize::from(is_reason_alone));
    let mut bytes = vec![UNTOUCHED; len + 3];
    assert_eq!(packet.encode_into(&mut bytes), Ok(len));
    assert_eq!(bytes.split_off(len), [UNTOUCHED; 3]);
    let again = Packet::decode(&bytes).expect("an encoded packet");
    assert_eq!(show(&again), show(packet));
    let mut twice = BytesMut::new();
    assert_eq!(again.encode(&mut twice), Ok(len));
    assert_eq!(twice, bytes);
    let mut tight = vec![UNTOUCHED; len - 1];
    assert_eq!(packet.encode_into(&mut tight), Err(Unwritable::NoRoom { needed: len }));
    assert!(tight.iter().all(|byte| *byte == UNTOUCHED));
}

/// Treats an empty user name or password as absent, as they do.
fn comparable(mut packet: Packet<'_>) -> Packet<'_> {
    if let Packet::Connect(connect) = &mut packet {
        connect.user_name = connect.user_name.filter(|name| !name.is_empty());
        connect.password = connect.password.filter(|password| !password.is_empty());
    }
    packet
}

/// Returns whether they misread the properties: a property follows a subscription identifier.
fn is_misread_by_them(packet: Packet<'_>) -> bool {
    let (Packet::Publish(Publish { properties, .. })
    | Packet::Subscribe(Subscribe { properties, .. })) = packet
    else {
        return false;
    };
    let mut behind =
        properties.iter().skip_while(|one| !matches!(one, Property::SubscriptionId(_)));
    behind.nth(1).is_some()
}

/// Returns whether they refuse this packet, although it is valid.
fn is_unknown_to_them(data: &[u8], packet: &Packet<'_>) -> bool {
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

/// Returns whether they lack this rule. Both refuse the errors that are not listed: unknown and
/// misplaced properties, and reason codes of other packets.
const fn is_rule_they_lack(error: Malformed) -> bool {
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

    /// Checks that both decode packets of each kind, so that the comparison is not empty.
    #[test]
    fn both_decoders_accept_a_packet_of_each_kind() {
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
            assert_eq!(show_sorted(&comparable(ours)), convert::show(&other));
        }
    }
}
