//! Normative statements of the MQTT 5 standard about packets, with a packet for each:
//! `packets.txt`.

use statestore_mqtt::packet::{Header, Packet};
use statestore_testkit::vectors::{Case, Vectors};
use statestore_testkit::wire::mqtt_text::show;

pub(crate) fn vectors() -> Vectors {
    Vectors::parse("packets.txt", include_str!("packets.txt")).unwrap()
}

/// The packet of a case.
pub(crate) fn packet(case: &Case) -> Vec<u8> {
    let text = case.optional("packet").unwrap().unwrap_or_default();
    hex::decode(text).unwrap_or_else(|error| panic!("{}: {error}", case.place()))
}

/// The valid packets.
pub(crate) fn valid_packets() -> Vec<Vec<u8>> {
    let vectors = vectors();
    let valid_packets = vectors.cases().iter().filter(|case| case.text("reason") == Ok("-"));
    valid_packets.map(packet).collect()
}

#[test]
fn packets_decode_as_the_standard_specifies() {
    vectors().run(750, |case| {
        let (decoded, reason) = match Packet::decode(&packet(case)) {
            Ok(packet) => (show(&packet).replace('\u{feff}', "\\u{feff}"), "-".to_owned()),
            Err(error) => (format!("{error:x?}"), format!("{:02x}", error.reason().0)),
        };
        let expected = (case.text("decoded")?, case.text("reason")?);
        if (decoded.as_str(), reason.as_str()) == expected {
            return Ok(());
        }
        Err(format!("{decoded} {reason}"))
    });
}

/// Every error of `Header::read` is also the error of `Packet::decode`.
#[test]
fn header_agrees_with_the_packet() {
    vectors().run(750, |case| {
        let packet = packet(case);
        let header = Header::read(&packet, usize::MAX);
        match (header, Packet::decode(&packet)) {
            (Ok(Some(header)), Ok(decoded)) => {
                assert_eq!((header.kind, header.len), (decoded.kind(), packet.len()));
            }
            (Ok(None), decoded) => assert!(packet.len() < 2 || decoded.is_err()),
            (Err(error), decoded) => assert_eq!(decoded, Err(error), "{}", case.place()),
            (Ok(Some(_)), Err(_)) => {}
        }
        Ok(())
    });
}

#[test]
fn error_texts_are_unique() {
    let mut errors = std::collections::BTreeMap::new();
    for case in vectors().cases() {
        if let Err(error) = Packet::decode(&packet(case)) {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{error:?}");
            let other = errors.entry(text).or_insert(error);
            assert_eq!(*other, error, "two errors with the same text");
        }
    }
    assert!(errors.len() > 100, "{errors:?}");
}

#[test]
fn truncated_packet_is_an_error_unless_its_length_is_adjusted() {
    for packet in valid_packets() {
        let header = Header::read(&packet, packet.len()).unwrap().unwrap();
        let body = packet.len() - if packet.len() < 130 { 2 } else { 3 };
        for len in 0..packet.len() {
            let cut = &packet[..len];
            assert!(Packet::decode(cut).is_err(), "{len} of {packet:02x?}");
            let known = Header::read(cut, packet.len()).unwrap();
            assert!(known.is_none_or(|known| known == header), "{len} of {packet:02x?}");
        }
        // With an adjusted length it may be another packet, which must round-trip.
        for len in 0..body.min(120) {
            let head = [packet[0], u8::try_from(len).unwrap()];
            let shorter = [&head, &packet[packet.len() - body..][..len]].concat();
            let Ok(other) = Packet::decode(&shorter) else { continue };
            let mut again = vec![0; other.encoded_len().unwrap()];
            other.encode_into(&mut again).unwrap();
            assert_eq!(show(&Packet::decode(&again).unwrap()), show(&other), "{shorter:02x?}");
        }
    }
}
