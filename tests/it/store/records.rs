//! Records as bytes: what was written is read, and nothing else is.

use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;
use proptest::prelude::*;
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::Expiry;
use statestore_proto::mqtt::Correlation;
use statestore_proto::store::{
    Answered, Record, RecordedExpiry, RecordsError, decode_records, encode_records,
};
use statestore_proto::time::UnixTime;
use statestore_tests::generators::{bytes, dialect, expiry, hlc, key, number};

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
        (name(), name(), bytes(), any::<u64>()),
        (bytes(), prop::option::of(hlc()), any::<u32>(), number()),
    );
    let answered = answered.prop_map(|((client_id, topic, data, content), rest)| {
        let (payload, timestamp, kept, order) = rest;
        Record::Answered(Answered {
            client_id,
            response_topic: (&*topic).into(),
            correlation: Correlation::new(&data),
            content,
            payload: Bytes::from(payload),
            timestamp,
            kept: std::time::Duration::from_millis(kept.into()),
            order,
        })
    });
    let watched = (name(), key(), any::<(bool, bool)>(), dialect(), number());
    let watched =
        watched.prop_map(|(client_id, key, (verified, wants_incarnation), dialect, order)| {
            Record::Watched { client_id, key, verified, dialect, wants_incarnation, order }
        });
    let unwatched = (name(), key());
    prop_oneof![
        put,
        answered,
        watched,
        unwatched.prop_map(|(client_id, key)| Record::Unwatched { client_id, key }),
        (key(), version()).prop_map(|(key, version)| Record::Removed { key, version }),
        version().prop_map(|version| Record::Issued { version }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(record(), 0..6)) {
        let bytes = encode_records(&records);
        prop_assert_eq!(decode_records(&bytes), Ok(records));
    }

    #[test]
    fn what_was_changed_is_not(
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

/// The bytes of one record of each kind, so that no later version writes others under the same number.
#[test]
fn the_form_stays_what_it_is() {
    let version = |text: &str| Version::new(text.parse().unwrap());
    let records = [
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
        Record::Answered(Answered {
            client_id: "c".into(),
            response_topic: "t".into(),
            correlation: Correlation::new(b"d"),
            content: 0x0102_0304_0506_0708,
            payload: Bytes::from_static(b"+OK"),
            timestamp: Some("1:0:s".parse().unwrap()),
            kept: std::time::Duration::from_secs(1),
            order: 9,
        }),
        Record::Watched {
            client_id: "c".into(),
            key: Box::from(*b"k"),
            verified: true,
            dialect: statestore_proto::message::Dialect::Page,
            wants_incarnation: true,
            order: 5,
        },
        Record::Unwatched { client_id: "c".into(), key: Box::from(*b"k") },
        Record::Issued { version: version("18446744073709551615:0:s") },
    ];
    let text = hex::encode(encode_records(&records));
    let parts = [
        "01",
        "010f016b0176ac02010a537461746553746f72650200016380017f",
        "02016b01000173",
        "03010163017401640807060504030201032b4f4b01000173e80709",
        "04070163016b05",
        "050163016b",
        "06ffffffffffffffffff01000173",
    ];
    assert_eq!(text[..text.len() - 16], parts.concat());
    assert_eq!(
        hex::decode(&text[text.len() - 16..]),
        Ok(checksum_of(&hex::decode(parts.concat()).unwrap()))
    );
}

/// SipHash-1-3 with a key of zeros, as the standard library has it.
fn checksum_of(bytes: &[u8]) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish().to_le_bytes().to_vec()
}

#[test]
fn a_later_form_is_named() {
    let mut later = encode_records([]);
    assert_eq!(later.len(), 9);
    later[0] = 2;
    assert_eq!(decode_records(&later), Err(RecordsError::Damaged), "its checksum is of the first");
    let later = [&[2][..], &checksum_of(&[2])].concat();
    assert_eq!(decode_records(&later), Err(RecordsError::Later(2)));
    let odd = [&[1, 7][..], &checksum_of(&[1, 7])].concat();
    assert_eq!(decode_records(&odd), Err(RecordsError::Damaged), "no record begins like that");
}

/// Bytes with the right checksum, made by somebody else: one form for each list of records, and no more memory than there
/// are bytes.
#[test]
fn nothing_else_is_read() {
    let read = |body: &[u8]| decode_records(&[body, &checksum_of(body)].concat());
    assert_eq!(read(&[1]), Ok(Vec::new()));
    let unwatched = |client: &[u8]| [&[1, 5][..], client, &[1, b'k']].concat();
    assert!(read(&unwatched(&[1, b'c'])).is_ok());
    for wrong in [
        &[0x81, 0x00, b'c'][..],
        &[0xff; 10],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        &[1, 0xff],
        &[],
    ] {
        assert_eq!(read(&unwatched(wrong)), Err(RecordsError::Damaged), "{wrong:?}");
    }
    // A lease that does not expire, flags that nobody knows, an expiry of nothing, a node without a name.
    let put = |flags: u8, rest: &[u8]| {
        read(&[&[1, 1, flags, 1, b'k', 0, 1, 0, 1, b's'][..], rest].concat())
    };
    assert!(put(0, &[]).is_ok() && put(0b110, &[1, 1]).is_ok());
    for wrong in [put(0b100, &[]), put(0b1_0000, &[]), put(0b10, &[1, 0]), put(1, &[1, 0, 0])] {
        assert_eq!(wrong, Err(RecordsError::Damaged));
    }
}
