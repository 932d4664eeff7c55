//! Crashes between any two commits: a journal then contains exactly the committed records.

use std::path::Path;

use statestore_proto::store::Record;
use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Commit, Journal as _};

use crate::support::{Dir, Parts, block_on, contents, copy, load, new_store, restore, set};

/// Copies the files of a journal while it is open, as a crash would leave them, and opens the copy.
fn after_crash(dir: &Dir, path: &Path) -> (SqliteJournal, Vec<Record>) {
    let crashed = dir.path("crashed");
    let _ = std::fs::remove_dir_all(&crashed);
    copy(path, &crashed);
    let mut journal = SqliteJournal::open(&crashed).unwrap();
    let records = load(&mut journal).unwrap();
    (journal, records)
}

/// Writes snapshots of several parts repeatedly, and simulates a crash after each commit.
#[test]
fn crash_at_any_step_of_a_snapshot_loses_nothing() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    let mut parts: Option<Parts> = None;
    let (mut steps, mut crashes_within, mut snapshots) = (0, 0, 0);
    while snapshots < 4 {
        steps += 1;
        let key = format!("key-{}", steps % 40);
        // Large enough that one commit cannot remove all obsolete rows.
        let value = vec![b'v'; 5_000 + steps * 10];
        // The part of this commit does not contain the records of this commit.
        let part = parts.as_mut().and_then(|parts| parts.next(&store, 20_000));
        let is_last = part.as_ref().is_some_and(|part| part.is_last);
        let records = set(&mut store, steps as u64, key.as_bytes(), &value);
        block_on(journal.commit(Commit { records, snapshot: part })).unwrap();
        crashes_within += usize::from(parts.is_some() && !is_last);
        if is_last {
            parts = None;
            snapshots += 1;
        } else if parts.is_none() && steps % 50 == 0 {
            parts = Some(Parts::new());
        }
        let (_, records) = after_crash(&dir, &path);
        assert!(contents(&restore(&records)) == contents(&store), "after step {steps}");
    }
    assert!(crashes_within > 20, "{crashes_within} within snapshots");
}

#[test]
fn restart_removes_an_incomplete_snapshot() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut store = new_store();
    for round in 0..6_u64 {
        let mut journal = SqliteJournal::open(&path).unwrap();
        let restored = restore(&load(&mut journal).unwrap());
        assert!(contents(&restored) == contents(&store), "round {round}");
        let mut parts = Parts::new();
        for number in 0..30 {
            let part = parts.next(&store, 4_000).filter(|part| !part.is_last);
            let number = round * 30 + number;
            let key = format!("key-{}", number % 20);
            let records = set(&mut store, number, key.as_bytes(), &[b'v'; 2_000]);
            block_on(journal.commit(Commit { records, snapshot: part })).unwrap();
        }
    }
    let parts: i64 = {
        let db = rusqlite::Connection::open(path.join("records.db")).unwrap();
        db.query_row("SELECT count(*) FROM snapshot", [], |row| row.get(0)).unwrap()
    };
    assert!((1..=20).contains(&parts), "{parts} parts, all of the last round");
}
