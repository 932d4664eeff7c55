//! Committed entries, responses and versions are restored after a restart.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, SqliteJournal};
use statestore_tokio::service::{Commit, CommitQueue, Journal as _, SnapshotPart};

use crate::support::{
    Dir, Parts, block_on, commit, contents, load, new_store, request, responses, restore, set,
};

#[test]
fn restart_restores_entries_responses_and_versions() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    assert_eq!(load(&mut journal).unwrap(), []);

    let first = set(&mut store, 1, b"a", b"1");
    let response = responses(&mut store);
    assert!(first.len() > 1 && !response.is_empty(), "an entry and its response: {first:?}");
    commit(&mut journal, first.clone()).unwrap();
    let second = [set(&mut store, 2, b"b", b"2"), set(&mut store, 3, b"a", b"3")].concat();
    commit(&mut journal, second.clone()).unwrap();
    let third = request(&mut store, 4, &[b"DEL", b"b"]);
    commit(&mut journal, third.clone()).unwrap();
    let watch = request(&mut store, 5, &[b"KEYNOTIFY", b"a"]);
    assert!(watch.iter().any(|record| matches!(record, Record::Registered { .. })));
    commit(&mut journal, watch.clone()).unwrap();
    drop(journal);

    let mut journal = SqliteJournal::open(&path).unwrap();
    let records = load(&mut journal).unwrap();
    assert_eq!(records, [first, second, third, watch].concat());
    let mut again = restore(&records);
    assert_eq!(contents(&again), contents(&store));
    // A duplicate gets the first response and writes nothing.
    let repeated = set(&mut again, 1, b"a", b"1");
    assert_eq!((repeated, responses(&mut again)), (vec![], response));
}

#[test]
fn load_after_a_dropped_future_of_a_load_returns_its_portion() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    for number in 0..4 {
        commit(&mut journal, set(&mut store, number, b"key", &[b'v'; 300_000])).unwrap();
    }
    drop(journal);
    let mut journal = SqliteJournal::open(&path).unwrap();
    let records = load(&mut journal).unwrap();
    drop(journal);

    let mut journal = SqliteJournal::open(&path).unwrap();
    let mut loaded = Vec::new();
    loop {
        let mut context = Context::from_waker(Waker::noop());
        // A future that is pending is dropped, whether the thread has sent the portion or not.
        let polled = pin!(journal.load()).poll(&mut context);
        let result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => block_on(journal.load()),
        };
        match result.unwrap() {
            Some(portion) => loaded.push(portion),
            None => break,
        }
    }
    assert_eq!(loaded.len(), 4, "a portion for each commit");
    assert!(loaded.concat() == records, "other records");
}

#[test]
fn snapshot_replaces_the_commits_before_its_first_part() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    for number in 0..200 {
        let key = format!("key-{number}");
        commit(&mut journal, set(&mut store, number, key.as_bytes(), b"v")).unwrap();
    }
    let before = contents(&store);
    let mut parts = Parts::new();
    let mut part_count = 0;
    for number in 200.. {
        let Some(part) = parts.next(&store, 4096) else { break };
        part_count += 1;
        // The part contains the state before the records of the same commit.
        let records = set(&mut store, number, b"key-7", &number.to_be_bytes());
        let commit = Commit { records, snapshot: Some(part) };
        block_on(journal.commit(commit)).unwrap();
    }
    assert!(part_count > 3, "{part_count} parts");
    let mut log_only = 0;
    for number in 1000..1040 {
        commit(&mut journal, set(&mut store, number, b"key-8", b"w")).unwrap();
        log_only += 1;
    }
    drop(journal);

    let mut journal = SqliteJournal::open(&path).unwrap();
    let records = load(&mut journal).unwrap();
    assert!(contents(&restore(&records)) == contents(&store), "other contents");
    let most = before.len() + 2 * (part_count + log_only) + 2;
    assert!(records.len() <= most, "{} records, {most} at most", records.len());
}

#[test]
fn commit_of_a_queue_is_durable_and_its_error_is_returned() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    let records = set(&mut store, 0, b"key", b"v");
    let queue = CommitQueue::from(Commit { records: records.clone(), snapshot: None });
    block_on(journal.commit_queued(&queue)).unwrap();
    assert!(queue.take().is_none(), "the journal has taken the commit");
    drop(journal);

    let mut journal = SqliteJournal::open(&path).unwrap();
    assert_eq!(load(&mut journal).unwrap(), records);
    std::fs::remove_file(path.join("records.db")).unwrap();
    let queue = CommitQueue::from(Commit { records, snapshot: None });
    block_on(journal.commit_queued(&queue)).expect_err("the file is gone");
}

#[test]
fn snapshot_is_due_after_16_mib_and_not_during_another() {
    let dir = Dir::new();
    let mut journal = SqliteJournal::open(dir.path("journal")).unwrap();
    let mut store = new_store();
    let value = vec![b'v'; 1 << 20];
    for number in 0..16 {
        assert!(!journal.wants_snapshot(), "after {number} MiB");
        commit(&mut journal, set(&mut store, number, b"key", &value)).unwrap();
    }
    assert!(journal.wants_snapshot());
    let part = |is_first, is_last| Some(SnapshotPart { records: vec![], is_first, is_last });
    block_on(journal.commit(Commit { records: vec![], snapshot: part(true, false) })).unwrap();
    assert!(!journal.wants_snapshot());
    block_on(journal.commit(Commit { records: vec![], snapshot: part(false, true) })).unwrap();
    assert!(!journal.wants_snapshot());
}

#[test]
fn second_journal_is_refused_with_the_id_of_the_first_process() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let journal = SqliteJournal::open(&path).unwrap();
    let error = SqliteJournal::open(&path).unwrap_err();
    assert!(
        matches!(error, OpenError::InUse { pid: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    drop(journal);
    SqliteJournal::open(&path).unwrap();
}
