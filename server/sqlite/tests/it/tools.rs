//! Reading and copying a journal while a store writes it.

use std::fs;

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, Reader, SqliteJournal, backup};
use statestore_tokio::service::{Commit, Journal as _};

use crate::support::{Dir, Parts, block_on, commit, contents, load, new_store, restore, set};

#[test]
fn reader_returns_the_commits_from_before_it_was_opened() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    for number in 0..60_u64 {
        let key = number.to_be_bytes();
        commit(&mut journal, set(&mut store, number, &key, &vec![b'v'; 10_000])).unwrap();
    }
    let then = contents(&store);
    let reader = Reader::open(&path).unwrap();
    // A snapshot, and the removal of the rows that it replaces.
    let mut snapshot = Parts::new();
    for number in 60..70_u64 {
        let part = snapshot.next(&store, usize::MAX);
        let records = set(&mut store, number, b"later", b"v");
        block_on(journal.commit(Commit { records, snapshot: part })).unwrap();
    }
    let status = reader.status();
    assert_eq!((status.commits, status.log_commits, status.snapshot), (60, 60, None));
    assert!(status.log_bytes > 600_000, "{status:?}");
    let portions: Vec<Vec<Record>> = reader.map(Result::unwrap).collect();
    assert!(portions.len() >= 3, "{} portions", portions.len());
    assert!(contents(&restore(&portions.concat())) == then);
    let status = Reader::open(&path).unwrap().status();
    let parts = status.snapshot.map(|snapshot| snapshot.parts);
    assert_eq!((status.commits, status.log_commits, parts), (70, 10, Some(1)));
}

#[test]
fn backup_of_a_running_journal_is_complete_and_writable() {
    let dir = Dir::new();
    let (path, copy) = (dir.path("journal"), dir.path("copy"));
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    let mut parts = Parts::new();
    for number in 0..50_u64 {
        let part = if number < 20 { None } else { parts.next(&store, 2_000) };
        let key = (number % 20).to_be_bytes();
        let records = set(&mut store, number, &key, &[b'v'; 1_000]);
        block_on(journal.commit(Commit { records, snapshot: part })).unwrap();
    }
    let then = contents(&store);
    let status = backup(&path, &copy).unwrap();
    assert!(
        status.commits == 50 && status.snapshot.is_some_and(|snapshot| snapshot.parts > 5),
        "{status:?}"
    );
    assert_eq!(status, Reader::open(&path).unwrap().status());
    commit(&mut journal, set(&mut store, 50, b"later", b"v")).unwrap();

    let mut restored = SqliteJournal::open(&copy).unwrap();
    assert!(contents(&restore(&load(&mut restored).unwrap())) == then);
    // The copy accepts further commits.
    commit(&mut restored, set(&mut store, 51, b"later", b"w")).unwrap();
    drop(restored);
    assert_eq!(Reader::open(&copy).unwrap().status().commits, 51);
}

#[test]
fn backup_overwrites_nothing_and_refuses_damage() {
    let dir = Dir::new();
    let (path, copy) = (dir.path("journal"), dir.path("copy"));
    assert!(matches!(backup(&path, &copy), Err(OpenError::Missing(_))));
    let mut journal = SqliteJournal::open(&path).unwrap();
    commit(&mut journal, set(&mut new_store(), 1, b"a", b"1")).unwrap();
    drop(journal);
    fs::create_dir(&copy).unwrap();
    let error = backup(&path, &copy).unwrap_err();
    assert!(matches!(error, OpenError::Exists(_)) && fs::read_dir(&copy).unwrap().count() == 0);
    let db = rusqlite::Connection::open(path.join("records.db")).unwrap();
    db.execute("UPDATE log SET records = zeroblob(90)", []).unwrap();
    drop(db);
    let error = backup(&path, dir.path("other")).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

/// SQLite reuses its log although commits follow each other without a pause.
#[test]
fn log_stays_below_64_mib_during_120_mib_of_short_or_long_commits() {
    for sets in [16, 1_500] {
        let dir = Dir::new();
        let path = dir.path("journal");
        let mut store = new_store();
        let mut journal = SqliteJournal::open(&path).unwrap();
        let (mut written, mut number) = (0, 0_u64);
        while written < 120 << 20 {
            let records = (0..sets).flat_map(|_| {
                number += 1;
                set(&mut store, number, &(number % 64).to_be_bytes(), &[b'v'; 16_000])
            });
            let records: Vec<_> = records.collect();
            written += sets * 16_000;
            commit(&mut journal, records).unwrap();
        }
        let log = fs::metadata(path.join("records.db-wal")).unwrap().len();
        assert!(log <= 64 << 20, "{log} bytes of log after {written}, {sets} SETs each");
    }
}
