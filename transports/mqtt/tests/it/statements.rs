//! The standard's statements about packets, one by one: `packets.txt`.

use statestore_mqtt::packet::{Header, Packet};
use statestore_tests::mqtt_text::show;
use statestore_tests::vectors::{Case, Vectors};

pub(crate) fn vectors() -> Vectors {
    Vectors::parse("packets.txt", include_str!("packets.txt")).unwrap()
}

/// The bytes of a case.
pub(crate) fn packet(case: &Case) -> Vec<u8> {
    let text = case.optional("packet").unwrap().unwrap_or_default();
    hex::decode(text).unwrap_or_else(|error| panic!("{}: {error}", case.place()))
}

/// The packets that are accepted.
pub(crate) fn accepted() -> Vec<Vec<u8>> {
    let vectors = vectors();
    let accepted = vectors.cases().iter().filter(|case| case.text("reason") == Ok("-"));
    accepted.map(packet).collect()
}

#[test]
fn each_packet_is_what_the_standard_says() {
    vectors().run(750, |case| {
        let (said, reason) = match Packet::decode(&packet(case)) {
            Ok(packet) => (show(&packet).replace('\u{feff}', "\\u{feff}"), "-".to_owned()),
            Err(error) => (format!("{error:x?}"), format!("{:02x}", error.reason().0)),
        };
        let expected = (case.text("said")?, case.text("reason")?);
        if (said.as_str(), reason.as_str()) == expected {
            return Ok(());
        }
        Err(format!("{said} {reason}"))
    });
}

/// `Header::read` needs no more than five bytes to refuse what it can refuse.
#[test]
fn a_header_says_what_the_packet_says() {
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
fn every_error_has_its_words() {
    let mut told = std::collections::BTreeMap::new();
    for case in vectors().cases() {
        if let Err(error) = Packet::decode(&packet(case)) {
            let words = error.to_string();
            assert!(!words.is_empty() && !words.contains('\n'), "{error:?}");
            let earlier = told.entry(words).or_insert(error);
            assert_eq!(*earlier, error, "two errors in the same words");
        }
    }
    assert!(told.len() > 100, "{told:?}");
}

#[test]
fn nothing_that_is_cut_short_is_taken_for_the_whole() {
    for packet in accepted() {
        let header = Header::read(&packet, packet.len()).unwrap().unwrap();
        let body = packet.len() - if packet.len() < 130 { 2 } else { 3 };
        for len in 0..packet.len() {
            let cut = &packet[..len];
            assert!(Packet::decode(cut).is_err(), "{len} of {packet:02x?}");
            let known = Header::read(cut, packet.len()).unwrap();
            assert!(known.is_none_or(|known| known == header), "{len} of {packet:02x?}");
        }
        // With a length that agrees it may be a packet, but none that says other things once it was written again.
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
