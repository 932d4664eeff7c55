//! Lost replies, and standbys that were disconnected from etcd.

use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use statestore_etcd::Role;
use statestore_proto::store::Record;

use crate::proxy::{Mode, Proxy};
use crate::support::{
    Server, commit, contents, journal, load, new_store, request, responses, restore, set,
};

async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_with_a_lost_reply_takes_effect_once() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::start(server.port()).await;
    let mut first = journal(&proxy.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    for number in 1..4 {
        let (epoch, sequence) = server.head().await;
        proxy.set(Mode::DropReplies);
        let records = set(&mut store, number, b"a", &number.to_be_bytes());
        let committing = tokio::spawn(async move {
            let result = commit(&mut first, records).await;
            (first, result)
        });
        while server.head().await == (epoch, sequence) {
            pause().await;
        }
        assert!(!committing.is_finished(), "no reply has arrived");
        proxy.set(Mode::Close);
        pause().await;
        proxy.set(Mode::Open);
        let result;
        (first, result) = committing.await.unwrap();
        result.unwrap();
        assert_eq!(server.head().await, (epoch, sequence + 1), "once");
    }
    first.leadership().resign().await.unwrap();
    let mut second = journal(&server.url(), "second", 60);
    let again = restore(&load(&mut second).await.unwrap());
    assert_eq!(contents(&again), contents(&store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_reads_everything_again_after_a_compaction_while_disconnected() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::start(server.port()).await;
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    let mut number = 0;
    let mut write = async |store: &mut _, words: &[&[u8]]| {
        number += 1;
        commit(&mut first, request(store, number, words)).await.unwrap();
        responses(store);
    };
    for key in [b"a", b"b", b"c", b"d"] {
        write(&mut store, &[b"SET", key, b"before"]).await;
    }
    write(&mut store, &[b"KEYNOTIFY", b"a"]).await;
    let mut second = journal(&proxy.url(), "second", 60);
    let mut role = second.role();
    let loading =
        tokio::spawn(async move { load(&mut second).await.map(|records| (second, records)) });
    role.changed().await.unwrap();
    assert!(matches!(role.current(), Role::Standby { leader: Some(_), .. }));
    proxy.set(Mode::Close);
    write(&mut store, &[b"DEL", b"a"]).await;
    write(&mut store, &[b"SET", b"b", b"after"]).await;
    write(&mut store, &[b"DEL", b"d"]).await;
    write(&mut store, &[b"SET", b"e", b"after"]).await;
    write(&mut store, &[b"KEYNOTIFY", b"a", b"STOP"]).await;
    let mut client = server.client().await;
    let revision = client.get("x", None).await.unwrap().header().unwrap().revision();
    client.compact(revision, None).await.unwrap();
    proxy.set(Mode::Open);
    write(&mut store, &[b"SET", b"f", b"later"]).await;
    first.leadership().resign().await.unwrap();
    let (_second, records) = loading.await.unwrap().unwrap();
    let removed = |record: &Record| matches!(record, Record::Removed { .. });
    assert_eq!(records.iter().filter(|record| removed(record)).count(), 2, "removed by difference");
    assert_eq!(contents(&restore(&records)), contents(&store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_reads_everything_again_after_a_gap_in_the_watch() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    for (number, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
        commit(&mut first, set(&mut store, number as u64, key, b"v")).await.unwrap();
    }
    let mut second = journal(&server.url(), "second", 60);
    let mut role = second.role();
    let loading =
        tokio::spawn(async move { load(&mut second).await.map(|records| (second, records)) });
    role.changed().await.unwrap();
    // Simulates the loss of two transactions: a head that skips two numbers, and a removal.
    let (epoch, sequence) = server.head().await;
    let head = format!("{epoch} {} 1700000000000 1 1700000000000:9:StateStore", sequence + 3);
    let skipped = Txn::new().and_then([
        TxnOp::delete("/statestore/k/a", None),
        TxnOp::put("/statestore/head", head, None),
    ]);
    server.client().await.txn(skipped).await.unwrap();
    let error = commit(&mut first, set(&mut store, 9, b"d", b"v")).await.unwrap_err().to_string();
    assert!(error.contains("another program writes there"), "{error}");
    server.client().await.delete("/statestore/leader", None).await.unwrap();
    let (mut second, records) = loading.await.unwrap().unwrap();
    let again = restore(&records);
    let keys: Vec<&[u8]> = records.iter().filter_map(Record::key).collect();
    assert!(keys.iter().filter(|key| **key == b"c").count() > 1, "everything is read again");
    assert_eq!(again.len(), 2, "the removed key is gone");
    assert_eq!(server.head().await, (epoch + 1, sequence + 4));
    commit(&mut second, vec![]).await.unwrap();
}
