//! Damaged files: opening a journal either returns all acknowledged commits, or fails.

use std::fs;
use std::path::Path;

use statestore_proto::store::Record;
use statestore_sqlite::{OpenError, SqliteJournal};
use statestore_tokio::service::{Commit, Journal as _};

use crate::support::{Dir, Parts, block_on, commit, copy, load, new_store, set};

const DATABASE: &str = "records.db";
const LOG: &str = "records.db-wal";
const MARK: &str = "acknowledged";

/// Writes a journal with a snapshot and some log after it, and with data in both of its files.
/// Returns its records.
fn written(path: &Path) -> Vec<Record> {
    let mut store = new_store();
    let mut journal = SqliteJournal::open(path).unwrap();
    let mut number = 0;
    let mut write = |journal: &mut SqliteJournal, parts: Option<&mut Parts>| {
        number += 1;
        let part = parts.and_then(|parts| parts.next(&store, 4_000));
        let key = format!("key-{}", number % 20);
        let records = set(&mut store, number, key.as_bytes(), &[b'v'; 700]);
        let is_last = part.as_ref().is_none_or(|part| part.is_last);
        block_on(journal.commit(Commit { records, snapshot: part })).unwrap();
        is_last
    };
    for _ in 0..40 {
        write(&mut journal, None);
    }
    drop(journal);
    into_database(path);
    let mut journal = SqliteJournal::open(path).unwrap();
    let mut parts = Parts::new();
    while !write(&mut journal, Some(&mut parts)) {}
    for _ in 0..20 {
        write(&mut journal, None);
    }
    drop(journal);
    let mut journal = SqliteJournal::open(path).unwrap();
    load(&mut journal).unwrap()
}

/// Copies the log to the database, which then has no free pages, and truncates the log.
fn into_database(path: &Path) {
    let db = rusqlite::Connection::open(path.join(DATABASE)).unwrap();
    db.execute_batch("VACUUM").unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

fn read(path: &Path) -> Result<Vec<Record>, String> {
    let mut journal = SqliteJournal::open(path).map_err(|error| error.to_string())?;
    load(&mut journal).map_err(|error| error.to_string())
}

/// Damages `count` copies of a journal. Returns how many were refused and how many were unharmed.
fn try_all(file: &str, count: u64, damage: impl Fn(&mut fastrand::Rng, &mut Vec<u8>)) -> [u64; 2] {
    let dir = Dir::new();
    let path = dir.path("journal");
    let whole = written(&path);
    assert!(whole.len() > 40);
    if file == DATABASE {
        into_database(&path);
    }
    let bytes = fs::read(path.join(file)).unwrap();
    assert!(bytes.len() > 20_000, "{} bytes in {file}", bytes.len());
    let (mut refused, mut unharmed) = (0, 0);
    for seed in 0..count {
        let other = dir.path("damaged");
        let _ = fs::remove_dir_all(&other);
        copy(&path, &other);
        let mut bytes = bytes.clone();
        damage(&mut fastrand::Rng::with_seed(seed), &mut bytes);
        fs::write(other.join(file), bytes).unwrap();
        match read(&other) {
            Ok(records) => {
                assert!(records == whole, "{file}, seed {seed}: other records");
                unharmed += 1;
            }
            Err(message) => {
                let advised = ["backup", "another directory", "or a later one", "start again"];
                assert!(advised.iter().any(|advice| message.contains(advice)), "{message}");
                refused += 1;
            }
        }
    }
    [refused, unharmed]
}

fn flip(rng: &mut fastrand::Rng, bytes: &mut [u8]) {
    let at = rng.usize(..bytes.len());
    bytes[at] ^= 1 << rng.u8(..8);
}

fn truncate(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    bytes.truncate(rng.usize(..bytes.len()));
}

#[test]
fn changed_bit_in_the_database_is_refused_or_harmless() {
    let [refused, unharmed] = try_all(DATABASE, 300, |rng, bytes| flip(rng, bytes));
    assert!(refused > 20 && unharmed > 20, "{refused} refused, {unharmed} unharmed");
}

#[test]
fn changed_bit_in_the_log_is_refused_or_harmless() {
    let [refused, unharmed] = try_all(LOG, 300, |rng, bytes| flip(rng, bytes));
    assert!(refused > 200, "{refused} refused, {unharmed} unharmed");
}

#[test]
fn truncated_database_or_log_is_refused_or_harmless() {
    let [refused, unharmed] = try_all(DATABASE, 60, truncate);
    assert!(refused > 5, "{refused} refused, {unharmed} unharmed");
    let [refused, unharmed] = try_all(LOG, 60, truncate);
    assert!(refused > 50, "{refused} refused, {unharmed} unharmed");
}

#[test]
fn deleted_log_is_detected_by_the_mark() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let whole = written(&path);
    fs::remove_file(path.join(LOG)).unwrap();
    let _ = fs::remove_file(path.join("records.db-shm"));
    let error = SqliteJournal::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Incomplete { last: 40, .. }), "{error}");
    let advice = format!("delete {}", path.join(MARK).display());
    assert!(error.to_string().contains(&advice), "{error}");
    // Deleting the mark accepts the loss.
    fs::remove_file(path.join(MARK)).unwrap();
    for _ in 0..2 {
        let records = read(&path).unwrap();
        assert!(!records.is_empty() && whole != records);
    }
}

#[test]
fn loss_of_one_commit_is_detected() {
    let dir = Dir::new();
    let (path, older) = (dir.path("journal"), dir.path("older"));
    let mut store = new_store();
    let mut journal = SqliteJournal::open(&path).unwrap();
    for number in 1..=10 {
        let _ = fs::remove_dir_all(&older);
        copy(&path, &older);
        commit(&mut journal, set(&mut store, number, b"key", b"value")).unwrap();
        // The files from before the commit, with the mark from after it.
        assert!(read(&older).is_ok());
        let _ = fs::remove_file(older.join("records.db-shm"));
        fs::copy(path.join(MARK), older.join(MARK)).unwrap();
        let message = read(&older).unwrap_err();
        let expected = format!("ends with commit {}, but commit {number} was", number - 1);
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn one_torn_mark_is_harmless_and_two_are_refused() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let whole = written(&path);
    let mark = fs::read(path.join(MARK)).unwrap();
    for slot in [0, 512] {
        let mut torn = mark.clone();
        torn[slot + 3] ^= 0x10;
        fs::write(path.join(MARK), torn).unwrap();
        assert!(read(&path).as_ref() == Ok(&whole));
    }
    let mut torn = mark;
    (torn[3], torn[512 + 9]) = (!torn[3], !torn[512 + 9]);
    fs::write(path.join(MARK), torn).unwrap();
    assert!(read(&path).unwrap_err().contains("both marks are invalid"));
}

/// A page that is both used and in the free list would be overwritten.
#[test]
fn wrong_count_of_free_pages_is_refused() {
    let dir = Dir::new();
    let path = dir.path("journal");
    drop(SqliteJournal::open(&path).unwrap());
    let db = rusqlite::Connection::open(path.join(DATABASE)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let mut bytes = fs::read(path.join(DATABASE)).unwrap();
    // The count of free pages in the header.
    assert!(bytes[38] > 1, "{:?}", &bytes[36..40]);
    bytes[38] -= 1;
    fs::write(path.join(DATABASE), bytes).unwrap();
    assert!(read(&path).unwrap_err().contains("is damaged"));
}

/// SQLite and the checksums of rows cannot detect these, because each present row is valid.
#[test]
fn missing_and_moved_rows_are_reported() {
    for (delete, what) in [
        ("DELETE FROM log WHERE seq = (SELECT max(seq) - 3 FROM log)", "of table log is missing"),
        ("DELETE FROM log", "the first of the log, is missing"),
        ("DELETE FROM snapshot WHERE part = 2", "part 2 of table snapshot is missing"),
        (
            "UPDATE log SET records = x'01' WHERE seq = (SELECT max(seq) FROM log)",
            "belongs elsewhere or was changed",
        ),
        ("UPDATE snapshot SET records = zeroblob(80) WHERE part = 1", "was changed"),
        (
            "UPDATE log SET records = (SELECT records FROM log WHERE seq = \
             (SELECT max(seq) - 1 FROM log)) WHERE seq = (SELECT max(seq) FROM log)",
            "belongs elsewhere",
        ),
        (
            "UPDATE snapshot SET records = (SELECT records FROM log WHERE seq = \
             (SELECT max(seq) FROM log)) WHERE part = 1",
            "belongs elsewhere",
        ),
    ] {
        let dir = Dir::new();
        let path = dir.path("journal");
        written(&path);
        let db = rusqlite::Connection::open(path.join(DATABASE)).unwrap();
        assert!(db.execute(delete, []).unwrap() > 0);
        drop(db);
        let message = read(&path).unwrap_err();
        assert!(message.contains(what) && message.contains("put a backup"), "{delete}: {message}");
    }
}

/// Each file is valid, but one belongs to another journal.
#[test]
fn file_of_another_journal_is_refused() {
    for file in [LOG, MARK] {
        let dir = Dir::new();
        let (path, other) = (dir.path("journal"), dir.path("other"));
        let (whole, _) = (written(&path), written(&other));
        // The other log does not continue this database.
        fs::copy(other.join(file), path.join(file)).unwrap();
        let _ = fs::remove_file(path.join("records.db-shm"));
        let message = read(&path).unwrap_err();
        assert!(message.contains("is damaged") || message.contains("acknowledged"), "{message}");
        assert!(!whole.is_empty());
    }
}

#[test]
fn database_with_a_trigger_is_refused() {
    let dir = Dir::new();
    let path = dir.path("journal");
    written(&path);
    let db = rusqlite::Connection::open(path.join(DATABASE)).unwrap();
    let trigger =
        "CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log WHERE seq = new.seq; END";
    db.execute_batch(trigger).unwrap();
    drop(db);
    assert!(read(&path).unwrap_err().contains("its schema is not that of a journal"));
}

/// SQLite would delete the log of an empty database, and with it the only copy of the records.
#[test]
fn empty_or_missing_database_is_refused_and_its_log_stays() {
    for keep in [true, false] {
        let dir = Dir::new();
        let path = dir.path("journal");
        written(&path);
        let log = fs::read(path.join(LOG)).unwrap();
        if keep {
            fs::write(path.join(DATABASE), "").unwrap();
        } else {
            fs::remove_file(path.join(DATABASE)).unwrap();
        }
        for _ in 0..2 {
            let message = read(&path).unwrap_err();
            assert!(message.contains("empty or missing"), "{message}");
            let error = statestore_sqlite::Reader::open(&path).unwrap_err();
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        }
        assert!(fs::read(path.join(LOG)).unwrap() == log);
    }
}

#[cfg(unix)]
#[test]
fn links_and_pipes_are_refused_and_not_opened() {
    for name in [DATABASE, LOG, MARK, "records.db-shm", "lock"] {
        let dir = Dir::new();
        let (path, precious) = (dir.path("journal"), dir.path("precious"));
        drop(SqliteJournal::open(&path).unwrap());
        fs::write(&precious, "precious").unwrap();
        let _ = fs::remove_file(path.join(name));
        std::os::unix::fs::symlink(&precious, path.join(name)).unwrap();
        let error = SqliteJournal::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::NotAFile(_)), "{name}: {error}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        // Opening a pipe would wait for its writer.
        fs::remove_file(path.join(name)).unwrap();
        let created = std::process::Command::new("mkfifo").arg(path.join(name)).status().unwrap();
        assert!(created.success());
        let error = SqliteJournal::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::NotAFile(_)), "{name}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn files_removed_or_replaced_while_in_use_are_detected() {
    let removals: [fn(&Path); 5] = [
        |path| fs::remove_dir_all(path).unwrap(),
        |path| fs::remove_file(path.join(DATABASE)).unwrap(),
        |path| fs::rename(path.join(LOG), path.join("elsewhere")).unwrap(),
        |path| {
            let bytes = fs::read(path.join(DATABASE)).unwrap();
            fs::remove_file(path.join(DATABASE)).unwrap();
            fs::write(path.join(DATABASE), bytes).unwrap();
        },
        |path| fs::File::options().write(true).open(path.join(LOG)).unwrap().set_len(0).unwrap(),
    ];
    for (number, remove) in removals.into_iter().enumerate() {
        let dir = Dir::new();
        let path = dir.path("journal");
        let mut store = new_store();
        let mut journal = SqliteJournal::open(&path).unwrap();
        commit(&mut journal, set(&mut store, 1, b"a", b"1")).unwrap();
        remove(&path);
        let error = commit(&mut journal, set(&mut store, 2, b"b", b"2")).unwrap_err();
        assert!(error.to_string().contains("while it was in use"), "{number}: {error}");
        assert!(commit(&mut journal, set(&mut store, 3, b"c", b"3")).is_err());
    }
}
