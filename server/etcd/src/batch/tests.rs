use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use statestore_proto::hlc::{Hlc, NodeId};
use statestore_proto::store::decode_records;
use statestore_proto::time::UnixTime;
use statestore_proto::transport::Correlation;

use super::*;

fn keys() -> Keys {
    Keys::new("/ss/shop/")
}

fn version(wall: u64) -> Version {
    Version::new(Hlc::new(UnixTime::from_millis(wall), 0, NodeId::new("node").unwrap()))
}

fn put(key: &str, value: Vec<u8>, wall: u64) -> Record {
    Record::Put {
        key: key.as_bytes().into(),
        value: value.into(),
        version: version(wall),
        fencing_token: None,
        expires: None,
        persist: true,
    }
}

fn response(order: u64) -> Record {
    Record::Response(RecordedResponse {
        client_id: "lamp".into(),
        verified: true,
        owner: None,
        response_topic: Arc::from("responses/lamp"),
        correlation: Correlation::new(&order.to_be_bytes()),
        content: order,
        payload: Bytes::from_static(b"+OK\r\n"),
        timestamp: None,
        retention: Duration::from_secs(order % 7),
        given_at: Duration::ZERO,
        order,
    })
}

fn parts(records: &[Record]) -> Vec<Part> {
    let mut parts = Parts::new(records.to_vec()).unwrap();
    let parts: Vec<Part> = std::iter::from_fn(|| parts.next(&keys())).collect();
    for part in &parts {
        let written = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| {
            key.len() + value.as_ref().map_or(0, Vec::len)
        };
        let bytes: usize = part.writes.iter().map(written).sum();
        let responses = part.responses.as_ref().map_or(0, |(bytes, _)| bytes.len());
        assert!(part.writes.len() <= WRITES_MAX && bytes + responses < 1_500_000);
    }
    parts
}

fn orders(part: &Part) -> Vec<u64> {
    let bytes = part.responses.as_ref().map_or(&[][..], |(bytes, _)| bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let order = |record: &Record| match record {
        Record::Response(response) => response.order,
        other => panic!("{other:?}"),
    };
    decode_records(bytes).unwrap().iter().map(order).collect()
}

#[test]
fn empty_commit_has_no_transaction_and_a_version_alone_has_one() {
    assert!(parts(&[]).is_empty());
    let [part] = &parts(&[Record::Issued { version: version(7) }])[..] else { panic!("one part") };
    assert!(part.writes.is_empty() && part.responses.is_none());
    assert_eq!(part.clock, Some(version(7)));
}

#[test]
fn write_and_its_response_are_in_one_transaction() {
    let mut records = Vec::new();
    for number in 0..1_000_u64 {
        records.push(put(&format!("key-{number}"), vec![b'v'; 900], number));
        records.push(response(number));
    }
    let parts = parts(&records);
    assert_eq!(parts.len(), 1_000 / WRITES_MAX);
    let mut next = 0;
    for part in &parts {
        for order in orders(part) {
            assert_eq!(order, next, "in order");
            assert!(part.writes.contains_key(&keys().value(format!("key-{order}").as_bytes())));
            next += 1;
        }
    }
    assert_eq!(next, 1_000);
}

#[test]
fn repeated_writes_of_a_key_become_one_write() {
    let records: Vec<Record> = (0..500).map(|wall| put("key", vec![1], wall)).collect();
    let [part] = &parts(&records)[..] else { panic!("one part") };
    assert_eq!(part.writes.len(), 1);
    assert_eq!(part.clock, Some(version(499)));
}

#[test]
fn large_values_have_a_transaction_each() {
    let mut records = Vec::new();
    for number in 0..5 {
        records.push(put(&format!("key-{number}"), vec![b'v'; MAX_VALUE_BYTES - 5], number));
        records.push(response(number));
    }
    assert_eq!(parts(&records).len(), 5);
}

#[test]
fn commit_with_a_too_large_record_is_refused() {
    let records = [put("a", vec![1], 1), put("key", vec![b'v'; MAX_VALUE_BYTES - 2], 2)];
    let failure = Parts::new(records.to_vec()).unwrap_err();
    let expected = Failure::ValueTooLarge { key: preview(b"key"), bytes: MAX_VALUE_BYTES + 1 };
    assert_eq!(failure, expected);
    let long = "k".repeat(NAME_BYTES_MAX + 1);
    assert!(Parts::new(vec![put(&long, vec![], 1)]).is_err());
}

#[test]
fn long_run_of_removals_is_split_at_the_limit() {
    let removed =
        |number: u32| Record::Removed { key: number.to_be_bytes().into(), version: version(1) };
    let mut records: Vec<Record> = (0..10_000).map(removed).collect();
    records.extend([put("last", vec![1], 2), response(1)]);
    let parts = parts(&records);
    assert!(parts.len() <= 10_000 / (WRITES_MAX - RESPONSE_WITHIN) + 1, "{}", parts.len());
    let last = parts.last().unwrap();
    assert!(orders(last) == [1] && last.writes.contains_key(&keys().value(b"last")));
}

fn any_record() -> impl Strategy<Value = Record> {
    let key = (0..40_u8).prop_map(|number| format!("key-{number}"));
    prop_oneof![
        6 => (key.clone(), 0..40_000_usize, 0..1_000_u64)
            .prop_map(|(key, len, wall)| put(&key, vec![b'v'; len], wall)),
        2 => (key.clone(), 0..1_000_u64)
            .prop_map(|(key, wall)| (key.into_bytes().into(), version(wall)))
            .prop_map(|(key, version)| Record::Removed { key, version }),
        1 => key
            .prop_map(|key| key.into_bytes().into())
            .prop_map(|key| Record::Unregistered { client_id: "lamp".into(), key }),
        6 => (0..1_000_u64).prop_map(response),
    ]
}

proptest! {
    #[test]
    fn transactions_in_order_have_the_effect_of_the_records_in_order(
        records in prop::collection::vec(any_record(), 0..300),
    ) {
        let mut expected = BTreeMap::new();
        for record in &records {
            let (key, value) = match record {
                Record::Put { key, .. } => (keys().value(key), Some(encode_records([record]))),
                Record::Removed { key, .. } => (keys().value(key), None),
                Record::Unregistered { key, client_id } => {
                    (keys().watch(key, client_id).unwrap(), None)
                }
                _ => continue,
            };
            expected.insert(key, value);
        }
        let parts = parts(&records);
        let mut left = BTreeMap::new();
        for part in &parts {
            left.extend(part.writes.clone());
        }
        prop_assert_eq!(left, expected);
        let responses: Vec<u64> = parts.iter().flat_map(orders).collect();
        let given = records.iter().filter_map(|record| match record {
            Record::Response(response) => Some(response.order),
            _ => None,
        });
        prop_assert_eq!(responses, given.collect::<Vec<_>>());
    }
}
