//! Comparison of received properties with a simple decoder that decodes and checks each value.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use statestore_mqtt::property::{Encode, IdSet, Pieces, Place, Properties, Property, id};
use statestore_mqtt::{Kind, Malformed, Qos};

use crate::generators::{LEGAL, property};

/// Parts of texts, valid and invalid: each length of a character, its limits, bytes without their
/// character, overlong forms, and encoded surrogates.
const PARTS: [&[u8]; 20] = [
    b"a",
    b"bcdefgh",
    b"0123456789",
    b"/",
    b"+",
    b"#",
    b"\x7f",
    b"\x01",
    b"\0",
    b"\x80",
    b"\xc2\x80",
    b"\xc3",
    b"\xc0\x80",
    b"\xe0\xa0\x80",
    b"\xed\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xef\xbf\xbf",
    b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
];

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8], len: usize) -> Option<u32> {
    Some(take(rest, len)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn two(rest: &mut &[u8]) -> Option<u16> {
    u16::try_from(number(rest, 2)?).ok()
}

fn flag(rest: &mut &[u8]) -> Option<bool> {
    match take(rest, 1)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn data<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = two(rest)?;
    take(rest, len.into())
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    text(data(rest)?)
}

/// Decodes a Variable Byte Integer of the fewest possible bytes, at most four (section 1.5.5).
fn varint(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for place in 0..4 {
        let [byte] = take(rest, 1)? else { return None };
        value += u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return (place == 0 || *byte != 0).then_some(value);
        }
    }
    None
}

/// Decodes a property and checks its value (section 2.2.2.2).
fn decode<'a>(rest: &mut &'a [u8]) -> Option<Property<'a>> {
    use Property as P;
    let [id] = take(rest, 1)? else { return None };
    Some(match *id {
        0x01 => P::PayloadFormat(flag(rest)?),
        0x02 => P::MessageExpiry(number(rest, 4)?),
        0x03 => P::ContentType(string(rest)?),
        0x08 => P::ResponseTopic(
            string(rest).filter(|topic| !topic.is_empty() && !topic.contains(['+', '#']))?,
        ),
        0x09 => P::CorrelationData(data(rest)?),
        0x0b => P::SubscriptionId(varint(rest).filter(|id| *id > 0)?),
        0x11 => P::SessionExpiry(number(rest, 4)?),
        0x12 => P::AssignedClientId(string(rest)?),
        0x13 => P::ServerKeepAlive(two(rest)?),
        0x15 => P::AuthenticationMethod(string(rest)?),
        0x16 => P::AuthenticationData(data(rest)?),
        0x17 => P::RequestProblemInformation(flag(rest)?),
        0x18 => P::WillDelay(number(rest, 4)?),
        0x19 => P::RequestResponseInformation(flag(rest)?),
        0x1a => P::ResponseInformation(string(rest)?),
        0x1c => P::ServerReference(string(rest)?),
        0x1f => P::ReasonString(string(rest)?),
        0x21 => P::ReceiveMaximum(two(rest).filter(|max| *max > 0)?),
        0x22 => P::TopicAliasMaximum(two(rest)?),
        0x23 => P::TopicAlias(two(rest).filter(|alias| *alias > 0)?),
        0x24 => P::MaximumQos(if flag(rest)? { Qos::AtLeastOnce } else { Qos::AtMostOnce }),
        0x25 => P::RetainAvailable(flag(rest)?),
        0x26 => P::User(string(rest)?, string(rest)?),
        0x27 => P::MaximumPacketSize(number(rest, 4).filter(|max| *max > 0)?),
        0x28 => P::WildcardAvailable(flag(rest)?),
        0x29 => P::SubscriptionIdsAvailable(flag(rest)?),
        0x2a => P::SharedAvailable(flag(rest)?),
        _ => return None,
    })
}

/// Decodes the properties of a packet, or of a will. `None` if they are malformed.
fn decode_all(mut rest: &[u8], place: Option<Kind>) -> Option<Vec<Property<'_>>> {
    let (_, once) = LEGAL.iter().find(|(legal, _)| *legal == place)?;
    let mut all = Vec::<Property<'_>>::new();
    while !rest.is_empty() {
        let property = decode(&mut rest)?;
        let id = property.id();
        let may_repeat = id == id::USER || (place, id) == (Some(Kind::Publish), id::SUBSCRIPTION);
        let is_repeated = all.iter().any(|other| other.id() == id);
        if !may_repeat && (is_repeated || !once.contains(&id)) {
            return None;
        }
        all.push(property);
    }
    let has = |id| all.iter().any(|property| property.id() == id);
    (!has(id::AUTHENTICATION_DATA) || has(id::AUTHENTICATION_METHOD)).then_some(all)
}

/// Properties of one place: mostly permitted ones, in any order, some repeated.
fn encoded() -> impl Strategy<Value = (Option<Kind>, Vec<u8>)> {
    select(LEGAL.to_vec()).prop_flat_map(|(place, once)| {
        let any = select(LEGAL.iter().flat_map(|(_, ids)| ids.iter().copied()).collect::<Vec<_>>());
        let permitted = select([once, &[id::USER]].concat());
        let ids = vec(prop_oneof![20 => permitted, 1 => any], 0..6);
        let list = ids.prop_flat_map(|ids| ids.into_iter().map(property).collect::<Vec<_>>());
        list.prop_map(move |list| {
            let mut bytes = BytesMut::new();
            list[..].put(&mut bytes).unwrap();
            (place, bytes.to_vec())
        })
    })
}

fn check(bytes: &[u8], place: Option<Kind>) {
    let expected = decode_all(bytes, place);
    let received = Properties::from_bytes(bytes, place.map_or(Place::Will, Place::Packet));
    let all = received.ok().map(|properties| properties.iter().collect::<Vec<_>>());
    assert_eq!(all, expected, "{place:?} {bytes:02x?}");
    // Properties that were not checked: a piece decodes if and only if its value is valid.
    for piece in Pieces::new(bytes) {
        assert_eq!(piece.read(), decode(&mut &*piece.bytes), "{bytes:02x?}");
    }
    let (Ok(properties), Some(expected)) = (received, expected) else { return };
    assert!(Pieces::new(bytes).filter_map(|piece| piece.read()).eq(expected.iter().copied()));
    let ids: Vec<_> = expected.iter().map(Property::id).collect();
    assert_eq!(properties.ids(), IdSet::of(&ids));
    for id in 0..=u8::MAX {
        let first = expected.iter().find(|property| property.id() == id).copied();
        assert_eq!((properties.first(id), properties.has(id)), (first, first.is_some()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn received_properties_are_those_of_the_simple_decoder(
        (place, bytes) in encoded(),
        changes in vec((any::<Index>(), any::<u8>()), 0..3),
        cut in any::<Index>(),
    ) {
        check(&bytes, place);
        check(&bytes[..cut.index(bytes.len() + 1)], place);
        // Long properties are rarely changed at a length or an identifier: those are at the start.
        for near in [usize::MAX, 40] {
            let mut changed = bytes.clone();
            for (at, value) in changes.iter().filter(|_| !bytes.is_empty()) {
                changed[at.index(bytes.len().min(near))] = *value;
            }
            check(&changed, place);
        }
        // Limits of the values at the end: numbers of zero, and a flag of 2.
        for (len, value) in [(1, 0), (1, 2), (2, 0), (4, 0)] {
            let mut changed = bytes.clone();
            changed.iter_mut().rev().take(len).for_each(|byte| *byte = value);
            check(&changed, place);
        }
    }

    #[test]
    fn texts_are_valid_if_they_are_utf_8_without_nul(
        parts in vec(prop_oneof![4 => select(&PARTS[..3]), 1 => select(&PARTS[..])], 0..12),
        random in vec(any::<u8>(), 0..24),
    ) {
        for bytes in [parts.concat(), random] {
            let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            let value = [&len[..], &bytes].concat();
            let place = Place::Packet(Kind::Publish);
            for (encoded, error) in [
                ([&[id::CONTENT_TYPE][..], &value].concat(), None),
                ([&[id::USER][..], &value, &[0, 1, b'a']].concat(), None),
                ([&[id::USER, 0, 1, b'a'][..], &value].concat(), None),
                ([&[id::RESPONSE_TOPIC][..], &value].concat(), Some(id::RESPONSE_TOPIC)),
            ] {
                check(&encoded, Some(Kind::Publish));
                let expected = match (text(&bytes), error) {
                    (None, _) => Some(Malformed::Text),
                    (Some(text), Some(id)) if text.is_empty() || text.contains(['+', '#']) => {
                        Some(Malformed::Value(id))
                    }
                    _ => None,
                };
                prop_assert_eq!(Properties::from_bytes(&encoded, place).err(), expected);
            }
        }
    }
}
