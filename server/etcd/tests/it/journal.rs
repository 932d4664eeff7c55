//! Commits and loading.

use std::time::Duration;

use bytes::Bytes;
use statestore_etcd::MAX_VALUE_BYTES;
use statestore_proto::hlc::{Hlc, NodeId, Version};
use statestore_proto::store::{Record, RecordedResponse};
use statestore_proto::time::UnixTime;
use statestore_proto::transport::Correlation;
use statestore_tokio::service::Journal as _;

use crate::support::{
    Server, commit, contents, journal, load, new_store, request, responses, restore, set,
};

#[tokio::test]
async fn restart_restores_entries_responses_and_versions() {
    let Some(mut server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 4);
    assert_eq!(load(&mut first).await.unwrap(), []);
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let first_response = responses(&mut store);
    assert_eq!(first_response.len(), 1);
    commit(&mut first, set(&mut store, 2, b"b", b"2")).await.unwrap();
    commit(&mut first, set(&mut store, 3, b"b", b"3")).await.unwrap();
    commit(&mut first, request(&mut store, 4, &[b"DEL", b"a"])).await.unwrap();
    commit(&mut first, request(&mut store, 5, &[b"KEYNOTIFY", b"b"])).await.unwrap();
    commit(&mut first, request(&mut store, 6, &[b"SET", b"lock", b"me", b"NX", b"PX", b"60000"]))
        .await
        .unwrap();
    assert!(server.has("k/b").await && !server.has("k/a").await);
    drop(first);
    server.kill();
    server.restart().await;

    let mut second = journal(&server.url(), "second", 4);
    let records = load(&mut second).await.unwrap();
    assert!(matches!(records.last(), Some(Record::Issued { .. })), "{records:?}");
    let mut again = restore(&records);
    assert_eq!(contents(&again), contents(&store));
    assert!(contents(&store).iter().any(|record| matches!(record, Record::Registered { .. })));
    // A duplicate gets the first response and writes nothing.
    let repeated = set(&mut again, 1, b"a", b"1");
    assert_eq!((repeated, responses(&mut again)), (vec![], first_response));
    // The version of the deleted entry is not issued again.
    let issued = |records: &[Record]| match records {
        [Record::Put { version, .. }, ..] => version.clone(),
        other => panic!("{other:?}"),
    };
    let next = issued(&set(&mut again, 9, b"c", b"9"));
    assert!(next > issued(&set(&mut store, 9, b"c", b"9")) || next.hlc().counter() > 0);
}

#[tokio::test]
async fn commit_without_records_writes_nothing() {
    let Some(server) = Server::start().await else { return };
    let mut journal = journal(&server.url(), "only", 30);
    load(&mut journal).await.unwrap();
    let before = server.head().await;
    assert_eq!(before, (1, 1));
    commit(&mut journal, vec![]).await.unwrap();
    assert_eq!(server.head().await, before);
    let mut store = new_store();
    commit(&mut journal, set(&mut store, 1, b"a", b"1")).await.unwrap();
    commit(&mut journal, vec![]).await.unwrap();
    assert_eq!(server.head().await, (1, 2));
}

#[tokio::test]
async fn values_up_to_the_limit_are_committed() {
    let Some(server) = Server::start().await else { return };
    let mut journal = journal(&server.url(), "only", 60);
    load(&mut journal).await.unwrap();
    let mut store = new_store();
    let key = [b'k'; 32 << 10];
    let value = vec![b'v'; MAX_VALUE_BYTES - key.len()];
    commit(&mut journal, set(&mut store, 1, &key, &value)).await.unwrap();
    let mut records = Vec::new();
    for number in 2..6_u8 {
        records.extend(set(&mut store, u64::from(number), &[b'k', number], &value));
    }
    commit(&mut journal, records).await.unwrap();
    let more = set(&mut store, 9, &key, &[&value[..], b"v"].concat());
    let error = commit(&mut journal, more).await.unwrap_err().to_string();
    assert!(error.contains("1048577 bytes") && error.contains("1048576"), "{error}");
    assert!(error.len() < 400, "the error contains no value: {error}");
    assert_eq!(server.head().await.1, 6, "one transaction for each value");
    journal.leadership().resign().await.unwrap();

    let mut second = crate::support::journal(&server.url(), "second", 60);
    let again = restore(&load(&mut second).await.unwrap());
    assert_eq!(again.len(), 5);
    assert_eq!(again.bytes(), 5 * MAX_VALUE_BYTES - 4 * (key.len() - 2));
}

#[tokio::test]
async fn hundred_thousand_keys_are_loaded_in_portions() {
    const KEYS: u64 = 100_000;
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    let mut records = Vec::new();
    for number in 0..KEYS {
        let key = format!("key-{number:08}");
        records.extend(set(&mut store, number, key.as_bytes(), &[b'v'; 64]));
        if records.len() >= 4_000 {
            commit(&mut first, std::mem::take(&mut records)).await.unwrap();
        }
        responses(&mut store);
    }
    commit(&mut first, records).await.unwrap();
    first.leadership().resign().await.unwrap();

    let mut second = journal(&server.url(), "second", 60);
    let (mut all, mut portions) = (Vec::new(), 0);
    while let Some(portion) = second.load().await.unwrap() {
        let size: usize =
            portion.iter().map(|record| record.key().map_or(0, <[u8]>::len) + 64).sum();
        assert!(size < 1 << 20, "{size} bytes at once");
        all.extend(portion);
        portions += 1;
    }
    assert!(portions > 20, "{portions} portions");
    let again = restore(&all);
    assert_eq!(again.len() as u64, KEYS);
    assert!(contents(&again) == contents(&store), "other contents");
}

/// A put and its response, which is not retained.
fn put_and_response(number: u64) -> [Record; 2] {
    let node = NodeId::new("node").unwrap();
    let put = Record::Put {
        key: number.to_be_bytes().into(),
        value: Box::from(*b"v"),
        version: Version::new(Hlc::new(UnixTime::from_millis(1), number, node)),
        fencing_token: None,
        expires: None,
        persist: true,
    };
    let response = RecordedResponse {
        client_id: "lamp".into(),
        verified: true,
        owner: None,
        response_topic: "responses".into(),
        correlation: Correlation::new(&number.to_be_bytes()),
        content: number,
        payload: Bytes::from_static(b"+OK\r\n"),
        timestamp: None,
        retention: Duration::ZERO,
        given_at: Duration::ZERO,
        order: number + 1,
    };
    [put, Record::Response(response)]
}

#[tokio::test]
async fn etcd_accepts_the_largest_transaction() {
    let Some(server) = Server::start().await else { return };
    let mut journal = journal(&server.url(), "only", 60);
    load(&mut journal).await.unwrap();
    // Each transaction removes the responses of the previous one.
    for round in 0..3 {
        let records = (125 * round..125 * (round + 1)).flat_map(put_and_response);
        commit(&mut journal, records.collect()).await.unwrap();
        assert_eq!(server.head().await, (1, 2 + round));
        let keys = server.keys().await;
        let entries = keys.iter().filter(|(key, _)| key.starts_with(b"/statestore/a/"));
        assert_eq!(entries.count(), 1);
    }
}

#[tokio::test]
async fn large_values_after_small_ones_are_read_in_smaller_pages() {
    const SMALL: u64 = 1_500;
    const LARGE: u64 = 80;
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    let mut records = Vec::new();
    for number in 0..SMALL {
        records.extend(set(&mut store, number, format!("a-{number:05}").as_bytes(), b"v"));
    }
    // Together larger than the limit of one message.
    let value = vec![b'v'; MAX_VALUE_BYTES - 100];
    for number in SMALL..SMALL + LARGE {
        records.extend(set(&mut store, number, format!("b-{number:05}").as_bytes(), &value));
    }
    commit(&mut first, records).await.unwrap();
    first.leadership().resign().await.unwrap();
    let mut second = journal(&server.url(), "second", 60);
    let again = restore(&load(&mut second).await.unwrap());
    assert_eq!(again.len() as u64, SMALL + LARGE);
    assert!(contents(&again) == contents(&store), "other contents");
}
