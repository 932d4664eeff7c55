//! Encoding of records: round trip, damage, and the exact format.

use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;
use proptest::prelude::*;
use statestore_models::generators::{bytes, dialect, expiry, hlc, key, number};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{Dialect, Expiry};
use statestore_proto::store::{
    Record, RecordedExpiry, RecordedResponse, RecordsError, decode_records, encode_records,
};
use statestore_proto::time::UnixTime;
use statestore_proto::transport::Correlation;

/// Request numbers. A greater one is not written by any store.
fn order() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number >> 1)
}

fn record() -> impl Strategy<Value = Record> {
    let version = || hlc().prop_map(Version::new);
    let boxed = |bytes: BoxedStrategy<Vec<u8>>| bytes.prop_map(Vec::into_boxed_slice);
    let key = move || boxed(key().boxed());
    let name = || "[a-z\u{fc}]{0,9}".prop_map(String::into_boxed_str);
    let expires = (number(), expiry(), any::<bool>()).prop_map(|(at, after, is_lease)| {
        RecordedExpiry { at: UnixTime::from_millis(at), after, is_lease }
    });
    let token = hlc().prop_map(FencingToken::new);
    let put = (
        key(),
        boxed(bytes().boxed()),
        version(),
        prop::option::of(token),
        prop::option::of(expires),
        any::<bool>(),
    );
    let put = put.prop_map(|(key, value, version, fencing_token, expires, persist)| Record::Put {
        key,
        value,
        version,
        fencing_token,
        expires,
        persist,
    });
    let answered = (
        (name(), any::<bool>(), prop::option::of(name()), name(), bytes(), any::<u64>()),
        (bytes(), prop::option::of(hlc()), any::<(u32, u32)>(), order()),
    );
    let answered =
        answered.prop_map(|((client_id, verified, owner, topic, data, content), rest)| {
            let (payload, timestamp, (kept, given_at), order) = rest;
            Record::Response(RecordedResponse {
                client_id,
                verified,
                owner,
                response_topic: (&*topic).into(),
                correlation: Correlation::new(&data),
                content,
                payload: Bytes::from(payload),
                timestamp,
                retention: std::time::Duration::from_millis(kept.into()),
                given_at: std::time::Duration::from_millis(given_at.into()),
                order,
            })
        });
    let watched = (name(), key(), any::<(bool, bool)>(), dialect(), order());
    let watched =
        watched.prop_map(|(client_id, key, (verified, wants_incarnation), dialect, order)| {
            Record::Registered { client_id, key, verified, dialect, wants_incarnation, order }
        });
    let unwatched = (name(), key());
    prop_oneof![
        put,
        answered,
        watched,
        unwatched.prop_map(|(client_id, key)| Record::Unregistered { client_id, key }),
        (key(), version()).prop_map(|(key, version)| Record::Removed { key, version }),
        version().prop_map(|version| Record::Issued { version }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encoded_records_decode_to_the_same_records(records in prop::collection::vec(record(), 0..6)) {
        let bytes = encode_records(&records);
        prop_assert_eq!(decode_records(&bytes), Ok(records));
    }

    #[test]
    fn changed_truncated_or_extended_records_are_damaged(
        records in prop::collection::vec(record(), 0..4),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let bytes = encode_records(&records);
        let at = at.index(bytes.len());
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        prop_assert_eq!(decode_records(&changed), Err(RecordsError::Damaged));
        prop_assert_eq!(decode_records(&bytes[..at]), Err(RecordsError::Damaged));
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(decode_records(&longer), Err(RecordsError::Damaged));
    }
}

/// Two records of each kind that repeats texts, and one of each other kind.
fn records_of_all_kinds() -> Vec<Record> {
    let version = |text: &str| Version::new(text.parse().unwrap());
    vec![
        Record::Put {
            key: Box::from(*b"k"),
            value: Box::from(*b"v"),
            version: version("300:1:StateStore"),
            fencing_token: Some(FencingToken::new("2:0:c".parse().unwrap())),
            expires: Some(RecordedExpiry {
                at: UnixTime::from_millis(128),
                after: Expiry::from_millis(127).unwrap(),
                is_lease: true,
            }),
            persist: true,
        },
        Record::Removed { key: Box::from(*b"k"), version: version("1:0:s") },
        Record::Response(RecordedResponse {
            client_id: "c".into(),
            verified: false,
            owner: None,
            response_topic: "t".into(),
            correlation: Correlation::new(b"d"),
            content: 0x0102_0304_0506_0708,
            payload: Bytes::from_static(b"+OK"),
            timestamp: Some("1:0:s".parse().unwrap()),
            retention: std::time::Duration::from_secs(1),
            given_at: std::time::Duration::ZERO,
            order: 9,
        }),
        Record::Response(RecordedResponse {
            client_id: "c".into(),
            verified: false,
            owner: None,
            response_topic: "t".into(),
            correlation: Correlation::new(b"d"),
            content: 0x0102_0304_0506_0708,
            payload: Bytes::from_static(b"+OK"),
            timestamp: Some("1:0:s".parse().unwrap()),
            retention: std::time::Duration::from_secs(1),
            given_at: std::time::Duration::from_millis(3),
            order: 9,
        }),
        Record::Registered {
            client_id: "c".into(),
            key: Box::from(*b"k"),
            verified: true,
            dialect: Dialect::Spec,
            wants_incarnation: true,
            order: 5,
        },
        Record::Unregistered { client_id: "c".into(), key: Box::from(*b"k") },
        Record::Issued { version: version("18446744073709551615:0:s") },
    ]
}

#[test]
fn record_format_is_frozen() {
    let response = |owner: Option<&str>| {
        Record::Response(RecordedResponse {
            client_id: "c".into(),
            verified: true,
            owner: owner.map(Into::into),
            response_topic: "t".into(),
            correlation: Correlation::new(b"d"),
            content: 0x0102_0304_0506_0708,
            payload: Bytes::from_static(b"+OK"),
            timestamp: None,
            retention: std::time::Duration::from_secs(1),
            given_at: std::time::Duration::ZERO,
            order: 9,
        })
    };
    let records = [records_of_all_kinds(), vec![response(None), response(Some("u"))]].concat();
    let text = hex::encode(encode_records(&records));
    let parts = [
        "01",
        "010f016b0176ac020114537461746553746f72650200026380017f",
        "02016b01000273",
        "030311027401640807060504030201032b4f4be8070009",
        "0301113d01640807060504030201032b4f4b010001e8070309",
        "040711016b05",
        "0511016b",
        "06ffffffffffffffffff010001",
        "0304113d01640807060504030201032b4f4be8070009",
        "030c1102753d01640807060504030201032b4f4be8070009",
    ];
    assert_eq!(text[..text.len() - 16], parts.concat());
    assert_eq!(
        hex::decode(&text[text.len() - 16..]),
        Ok(checksum_of(&hex::decode(parts.concat()).unwrap()))
    );
}

/// SipHash-1-3 with a zero key, as in the standard library.
fn checksum_of(bytes: &[u8]) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish().to_le_bytes().to_vec()
}

#[test]
fn unknown_format_version_is_reported_as_later() {
    let mut later = encode_records([]);
    assert_eq!(later.len(), 9);
    later[0] = 2;
    assert_eq!(
        decode_records(&later),
        Err(RecordsError::Damaged),
        "the checksum is that of version 1"
    );
    let later = [&[2][..], &checksum_of(&[2])].concat();
    assert_eq!(decode_records(&later), Err(RecordsError::Later(2)));
    for damaged in [&[0][..], &[1, 7]] {
        let bytes = [damaged, &checksum_of(damaged)].concat();
        assert_eq!(decode_records(&bytes), Err(RecordsError::Damaged), "no version or record kind");
    }
}

/// Foreign bytes with a valid checksum: each list of records has one encoding, and decoding
/// reserves no more memory than the input has bytes.
#[test]
fn non_canonical_records_with_a_valid_checksum_are_damaged() {
    let read = |body: &[u8]| decode_records(&[body, &checksum_of(body)].concat());
    assert_eq!(read(&[1]), Ok(Vec::new()));
    let unwatched = |client: &[u8]| [&[1, 5][..], client, &[1, b'k']].concat();
    assert!(read(&unwatched(&[2, b'c'])).is_ok());
    for wrong in [
        &[0x82, 0x00, b'c'][..],
        &[0xff; 10],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        &[2, 0xff],
        &[],
    ] {
        assert_eq!(read(&unwatched(wrong)), Err(RecordsError::Damaged), "{wrong:?}");
    }
    // A lease without expiry, unknown flags, an expiry of zero, an empty node id.
    let put =
        |flags: u8, rest: &[u8]| read(&[&[1, 1, flags, 1, b'k', 0, 1, 0, 2, b's'], rest].concat());
    assert!(put(0, &[]).is_ok() && put(0b110, &[1, 1]).is_ok());
    for wrong in [put(0b100, &[]), put(0b1_0000, &[]), put(0b10, &[1, 0]), put(1, &[1, 0, 0])] {
        assert_eq!(wrong, Err(RecordsError::Damaged));
    }
}

/// A text or timestamp that an encoder would leave out, and references to nothing.
#[test]
fn repeated_texts_have_one_encoding() {
    let read = |body: &[u8]| decode_records(&[body, &checksum_of(body)].concat());
    let unwatched =
        |client_id: &str| Record::Unregistered { client_id: client_id.into(), key: (*b"k").into() };
    let twice = encode_records([&unwatched("c"), &unwatched("c")]);
    let [1, 5, 2, b'c', 1, b'k', 5, reference, 1, b'k', ..] = twice[..] else {
        panic!("{twice:?}");
    };
    assert_eq!(reference & 1, 1);
    assert_eq!(decode_records(&twice), Ok(vec![unwatched("c"), unwatched("c")]));
    assert_eq!(
        read(&[1, 5, 2, b'c', 1, b'k', 5, 2, b'c', 1, b'k']),
        Err(RecordsError::Damaged),
        "the text is written twice"
    );
    for slot in 0..=64 {
        let number = slot << 1 | 1;
        let body = [1, 5, 2, b'c', 1, b'k', 5, number, 1, b'k'];
        let body = if number > 0x7f {
            [&body[..7], &[number, 1, 1, b'k']].concat()
        } else {
            body.to_vec()
        };
        assert_eq!(read(&body).is_ok(), number == reference, "slot {slot}");
    }
    assert_eq!(read(&[1, 5, reference, 1, b'k']), Err(RecordsError::Damaged), "an empty slot");

    for (bytes, is_repeated) in [(255, true), (256, false)] {
        let record = unwatched(&"c".repeat(bytes));
        let twice = encode_records([&record, &record]);
        assert_eq!(twice.len() < 2 * bytes, is_repeated, "{bytes}");
        assert_eq!(decode_records(&twice), Ok(vec![record.clone(), record]));
    }

    let node = encode_records([
        &Record::Removed { key: (*b"k").into(), version: Version::new("9:0:s".parse().unwrap()) },
        &Record::Issued { version: Version::new("9:1:s".parse().unwrap()) },
    ]);
    let node = node[11];
    // Flags: 1 with a timestamp, 2 without since it is the version of the record before.
    let removed = [1, 2, 1, b'k', 9, 0, 2, b's'];
    let response = |before: &[u8], flags: u8, timestamp: &[u8]| {
        let start = [3, flags, 2, b'c', 2, b't', 1, b'd', 0, 0, 0, 0, 0, 0, 0, 0, 0];
        read(&[before, &start, timestamp, &[1, 0, 9]].concat())
    };
    assert!(response(&removed, 0, &[]).is_ok() && response(&removed, 0b11, &[]).is_ok());
    assert!(response(&removed, 1, &[9, 1, node]).is_ok());
    for (what, damaged) in [
        ("the version of the record before", response(&removed, 1, &[9, 0, node])),
        ("the version of a record before, without a timestamp", response(&removed, 0b10, &[])),
        ("an unknown flag", response(&removed, 0b1_0000, &[])),
        ("no record before", response(&[1], 0b11, &[])),
    ] {
        assert_eq!(damaged, Err(RecordsError::Damaged), "{what}");
    }
}

#[test]
fn request_number_above_2_to_the_63_is_refused() {
    let registered = |order| Record::Registered {
        client_id: "c".into(),
        key: (*b"k").into(),
        verified: false,
        dialect: Dialect::Deployed,
        wants_incarnation: false,
        order,
    };
    let response = |order| {
        Record::Response(RecordedResponse {
            client_id: "c".into(),
            verified: false,
            owner: None,
            response_topic: "t".into(),
            correlation: Correlation::new(b"1"),
            content: 0,
            payload: Bytes::new(),
            timestamp: None,
            retention: std::time::Duration::from_secs(1),
            given_at: std::time::Duration::ZERO,
            order,
        })
    };
    for record in [&registered as &dyn Fn(u64) -> Record, &response] {
        let decoded = |order| decode_records(&encode_records(&[record(order)]));
        assert_eq!(decoded(u64::MAX >> 1), Ok(vec![record(u64::MAX >> 1)]));
        assert!(decoded((u64::MAX >> 1) + 1).is_err() && decoded(u64::MAX).is_err());
    }
}
