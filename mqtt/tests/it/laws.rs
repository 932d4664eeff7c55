//! Property tests of the codec, for random packets.

use bytes::BytesMut;
use proptest::prelude::*;
use proptest::sample::Index;
use statestore_fuzz_bodies::mqtt_packet;
use statestore_mqtt::packet::{Header, Packet, Publish, Subscribe, Subscriptions};
use statestore_mqtt::property::Property;
use statestore_mqtt::wire::{Length, Reader, VARINT_MAX, put_text, put_varint};
use statestore_mqtt::{Malformed, Qos, Unwritable};
use statestore_testkit::wire::mqtt_text::show;

use crate::generators::{Any, packet};

const UNTOUCHED: u8 = 0xa5;

fn encode(packet: &Any) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let len = packet.encode(&mut bytes).unwrap();
    assert_eq!((len, packet.encoded_len()), (bytes.len(), Ok(len)));
    bytes.into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn packets_round_trip(packet in packet()) {
        let bytes = encode(&packet);
        let read = Packet::decode(&bytes).unwrap();
        prop_assert_eq!(show(&read), show(&packet));
        prop_assert_eq!(read.kind(), packet.kind());
        let mut again = BytesMut::new();
        read.encode(&mut again).unwrap();
        prop_assert_eq!(&again[..], &bytes, "the bytes differ after a round trip");
        // The reference decoder of the fuzz target agrees.
        mqtt_packet(&bytes);
    }

    #[test]
    fn encode_into_writes_the_whole_packet_or_nothing(packet in packet(), cut in any::<Index>()) {
        let bytes = encode(&packet);
        let mut large = vec![UNTOUCHED; bytes.len() + 3];
        prop_assert_eq!(packet.encode_into(&mut large), Ok(bytes.len()));
        prop_assert!(large.starts_with(&bytes) && large.ends_with(&[UNTOUCHED; 3]));
        let mut short = vec![UNTOUCHED; cut.index(bytes.len())];
        let needed = bytes.len();
        prop_assert_eq!(packet.encode_into(&mut short), Err(Unwritable::NoRoom { needed }));
        prop_assert!(short.iter().all(|byte| *byte == UNTOUCHED));
    }

    /// The header of a truncated packet is known as soon as its length is complete.
    #[test]
    fn truncated_or_extended_packet_is_malformed(packet in packet(), cut in any::<Index>()) {
        let bytes = encode(&packet);
        let lengths = (1..).take_while(|at| bytes[*at] & 0x80 != 0).count() + 2;
        for len in (0..bytes.len().min(300)).chain([cut.index(bytes.len())]) {
            let cut = &bytes[..len];
            prop_assert!(Packet::decode(cut).is_err(), "{} of {}", len, bytes.len());
            let header = Header::read(cut, bytes.len()).unwrap();
            let known = Header { kind: packet.kind(), len: bytes.len() };
            prop_assert_eq!(header, (len >= lengths).then_some(known));
        }
        let more = [&bytes[..], &[0xc0, 0]].concat();
        prop_assert_eq!(Packet::decode(&more), Err(Malformed::Trailing));
        prop_assert_eq!(Header::read(&more, bytes.len()).unwrap().unwrap().len, bytes.len());
        let too_large = Malformed::TooLarge { len: bytes.len() };
        prop_assert_eq!(Header::read(&bytes, bytes.len() - 1), Err(too_large));
    }

    /// Replaces a byte: decoding must not panic, and a valid result must round-trip.
    #[test]
    fn changed_packet_is_an_error_or_another_valid_packet(
        packet in packet(),
        at in any::<Index>(),
        near in 0..24_usize,
        value in any::<u8>(),
    ) {
        let bytes = encode(&packet);
        for at in [at.index(bytes.len()), near.min(bytes.len() - 1)] {
            let mut changed = bytes.clone();
            changed[at] = value;
            mqtt_packet(&changed);
            let header = Header::read(&changed, usize::MAX);
            let Ok(read) = Packet::decode(&changed) else { continue };
            let known = Header { kind: read.kind(), len: changed.len() };
            prop_assert_eq!(header, Ok(Some(known)));
            let mut again = vec![0; read.encoded_len().unwrap()];
            prop_assert!(again.len() <= changed.len(), "longer than the received packet");
            read.encode_into(&mut again).unwrap();
            prop_assert_eq!(show(&Packet::decode(&again).unwrap()), show(&read));
        }
    }
}

#[test]
fn variable_byte_integers_have_minimal_length() {
    let max = usize::try_from(VARINT_MAX).unwrap();
    for (number, len) in [
        (0, 1),
        (127, 1),
        (128, 2),
        (16_383, 2),
        (16_384, 3),
        (2_097_151, 3),
        (2_097_152, 4),
        (max, 4),
    ] {
        let mut bytes = BytesMut::new();
        put_varint(&mut bytes, number).unwrap();
        assert_eq!(bytes.len(), len, "{number}");
        assert_eq!(Reader::new(&bytes).varint().map(u64::from), Ok(number as u64));
    }
    assert_eq!(put_varint(&mut Length::default(), max + 1), Err(Unwritable::TooLong));
}

#[test]
fn texts_are_limited_to_65_535_bytes() {
    let long = "x".repeat(65_536);
    assert_eq!(put_text(&mut Length::default(), &long), Err(Unwritable::TooLong));
    assert_eq!(put_text(&mut Length::default(), &&long[1..]), Ok(()));
    struct Broken;
    impl std::fmt::Display for Broken {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Err(std::fmt::Error)
        }
    }
    assert_eq!(put_text(&mut Length::default(), &Broken), Err(Unwritable::TooLong));
}

fn message<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a, Option<Property<'a>>> {
    let (dup, qos, retain) = (false, Qos::AtMostOnce, false);
    Publish { dup, qos, retain, topic, id: None, properties: None, payload }
}

#[test]
fn failed_encoding_writes_nothing() {
    let long = "x".repeat(65_536);
    let id = core::num::NonZeroU16::new(1);
    let subscription = Subscribe {
        id: id.unwrap(),
        properties: Some(Property::SubscriptionId(VARINT_MAX + 1)),
        subscriptions: Subscriptions::new(&[]),
    };
    for (packet, error) in [
        (Packet::Publish(message(&long, b"")), Unwritable::TooLong),
        (
            Packet::Publish(Publish {
                properties: Some(Property::User("", &long)),
                ..message("t", b"")
            }),
            Unwritable::TooLong,
        ),
        (Packet::Publish(Publish { id, ..message("t", b"") }), Unwritable::PacketId),
        (Packet::Publish(Publish { dup: true, ..message("t", b"") }), Unwritable::PacketId),
        (
            Packet::Publish(Publish { qos: Qos::AtLeastOnce, ..message("t", b"") }),
            Unwritable::PacketId,
        ),
        (Packet::Subscribe(subscription), Unwritable::TooLong),
    ] {
        assert_eq!(packet.encoded_len(), Err(error), "{error}");
        let mut bytes = BytesMut::new();
        assert_eq!(packet.encode(&mut bytes), Err(error));
        assert!(bytes.is_empty());
        let mut buffer = [UNTOUCHED; 64];
        assert_eq!(packet.encode_into(&mut buffer), Err(error));
        assert_eq!(buffer, [UNTOUCHED; 64]);
    }
}

#[test]
fn packet_length_is_limited_to_256_mebibytes() {
    // The pages are never touched, so they use no memory.
    let payload = vec![0; 1 << 28];
    let max = usize::try_from(VARINT_MAX).unwrap();
    let encoded_len = |len: usize| Packet::Publish(message("t", &payload[..len])).encoded_len();
    assert_eq!(encoded_len(max - 4), Ok(max + 5));
    assert_eq!(encoded_len(max - 3), Err(Unwritable::TooLong));
    let header = [0x30, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(Header::read(&header, usize::MAX).unwrap().unwrap().len, max + 5);
    assert_eq!(Header::read(&header, max), Err(Malformed::TooLarge { len: max + 5 }));
}
