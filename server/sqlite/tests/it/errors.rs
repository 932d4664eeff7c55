//! Errors of opening and writing, and their texts.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use statestore_proto::store::RECORDS_FORMAT;
use statestore_sqlite::{OpenError, SqliteJournal};

use crate::support::{Dir, commit, contents, load, new_store, restore, set};

fn refused(path: &Path) -> (OpenError, String) {
    let error = SqliteJournal::open(path).unwrap_err();
    let message = error.to_string();
    (error, message)
}

fn sql(path: &Path, statement: &str) {
    let db = rusqlite::Connection::open(path.join("records.db")).unwrap();
    db.execute_batch(statement).unwrap();
}

#[test]
fn path_of_a_file_is_refused() {
    let dir = Dir::new();
    fs::write(dir.path("file"), "text").unwrap();
    let (error, message) = refused(&dir.path("file"));
    assert!(
        matches!(error, OpenError::NotADirectory(_)) && message.contains("another path"),
        "{message}"
    );
    let (error, message) = refused(&dir.path("file").join("below"));
    assert!(matches!(error, OpenError::NotADirectory(_)), "{message}");
}

#[test]
fn later_format_is_refused_and_unchanged() {
    let dir = Dir::new();
    let path = dir.path("journal");
    drop(SqliteJournal::open(&path).unwrap());
    sql(&path, "PRAGMA user_version = 2");
    for _ in 0..2 {
        let (error, message) = refused(&path);
        assert!(matches!(error, OpenError::Later { found: 2, known: 1, .. }), "{message}");
        assert!(message.contains("use the version that wrote it"), "{message}");
    }
}

/// A row can have a later format although the database has the present one.
#[test]
fn records_of_a_later_format_are_refused() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut journal = SqliteJournal::open(&path).unwrap();
    commit(&mut journal, set(&mut new_store(), 1, b"a", b"1")).unwrap();
    drop(journal);
    // Format 9 and no records, with the checksum of that byte and the seal of commit 1.
    let checksum = sip(&[&[9]]);
    let db = rusqlite::Connection::open(path.join("records.db")).unwrap();
    let id: i64 = db.query_row("SELECT id FROM journal", [], |row| row.get(0)).unwrap();
    drop(db);
    let seal = sip(&[&id.to_le_bytes(), &[0], &1_i64.to_le_bytes(), &checksum]);
    let blob = [&[9], &checksum[..], &seal[..]].concat();
    sql(&path, &format!("UPDATE log SET records = x'{}'", hex(&blob)));
    let mut journal = SqliteJournal::open(&path).unwrap();
    let message = load(&mut journal).unwrap_err().to_string();
    let supported = format!("has format 9, and this version supports {RECORDS_FORMAT}");
    assert!(message.contains(&supported), "{message}");
}

/// SipHash-1-3 of all parts.
fn sip(parts: &[&[u8]]) -> [u8; 8] {
    let mut hasher = siphasher::sip::SipHasher13::new();
    parts.iter().for_each(|part| std::hash::Hasher::write(&mut hasher, part));
    std::hash::Hasher::finish(&hasher).to_le_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn database_of_another_program_is_refused_and_unchanged() {
    let dir = Dir::new();
    let path = dir.path("journal");
    fs::create_dir(&path).unwrap();
    sql(&path, "CREATE TABLE other (a)");
    let before = fs::read(path.join("records.db")).unwrap();
    let (error, message) = refused(&path);
    assert!(
        matches!(error, OpenError::Foreign(_)) && message.contains("another directory"),
        "{message}"
    );
    assert!(fs::read(path.join("records.db")).unwrap() == before);
    // Not even a database.
    fs::write(path.join("records.db"), vec![b'x'; 5000]).unwrap();
    let (error, message) = refused(&path);
    assert!(matches!(error, OpenError::Damaged { .. }), "{message}");
}

#[cfg(unix)]
#[test]
fn directory_and_files_are_private_to_this_user() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = Dir::new();
    let path = dir.path("a").join("b");
    drop(SqliteJournal::open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    // The permissions of an existing directory stay; the files in it are private.
    let others = dir.path("others");
    fs::create_dir(&others).unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o755)).unwrap();
    let mut journal = SqliteJournal::open(&others).unwrap();
    commit(&mut journal, set(&mut new_store(), 1, b"a", b"1")).unwrap();
    let mut count = 0;
    for entry in fs::read_dir(&others).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        count += 1;
    }
    assert_eq!(count, 5);
}

#[cfg(unix)]
#[test]
fn directory_without_write_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = Dir::new();
    let path = dir.path("journal");
    drop(SqliteJournal::open(&path).unwrap());
    for entry in fs::read_dir(&path).unwrap() {
        let read_only = fs::Permissions::from_mode(0o400);
        fs::set_permissions(entry.unwrap().path(), read_only).unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
    let is_root = fs::write(path.join("probe"), "").is_ok();
    if is_root {
        println!("skipped: root can write everywhere");
    } else {
        let (error, message) = refused(&path);
        assert!(
            matches!(error, OpenError::ReadOnly(_)) && message.contains("not writable"),
            "{message}"
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Otherwise the store would serve reads, and end at the first write.
#[cfg(target_os = "linux")]
#[test]
fn database_that_cannot_be_written_is_reported() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    let dir = Dir::new();
    let path = dir.path("journal");
    drop(SqliteJournal::open(&path).unwrap());
    let database = path.join("records.db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o400)).unwrap();
    // The superuser may write a file in spite of its mode.
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&database).status();
    let is_root = fs::OpenOptions::new().write(true).open(&database).is_ok();
    if is_root && !chattr("+i").is_ok_and(|status| status.success()) {
        println!("skipped: the superuser can write every file of this file system");
        return;
    }
    let opened = SqliteJournal::open(&path);
    // Before a failure, or the directory could not be removed.
    if is_root {
        assert!(chattr("-i").unwrap().success());
    }
    assert!(matches!(opened, Err(OpenError::ReadOnly(_))), "{opened:?}");
}

/// Environment variable with the directory of the child process.
const DIR: &str = "STATESTORE_SQLITE_LIMITED_DIR";

/// Child process of [`failed_commit_is_the_last`], not a test: does nothing without [`DIR`]. Under
/// a limit for the size of files, commits until a commit fails, and then commits once more.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent passes the directory in the environment")]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let mut journal = SqliteJournal::open(Path::new(&dir)).unwrap();
    let mut store = new_store();
    let mut out = std::io::stdout();
    for number in 0..2000 {
        let key = format!("key-{number:09}");
        let result = commit(&mut journal, set(&mut store, number, key.as_bytes(), &[b'v'; 20_000]));
        match result {
            Ok(()) => writeln!(out, "\ncommitted {key}").unwrap(),
            Err(error) => {
                writeln!(out, "\nfailed {error}").unwrap();
                // A small commit would still fit.
                let again = commit(&mut journal, set(&mut store, 2000, b"small", b"v"));
                return writeln!(out, "\nagain {}", again.unwrap_err()).unwrap();
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn failed_commit_is_the_last() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 12000; exec \"$0\" --exact errors::child --nocapture",
        ])
        .arg(std::env::current_exe().unwrap())
        .env(DIR, &path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let printed =
        |what| text.lines().filter_map(|line| line.strip_prefix(what)).collect::<Vec<_>>();
    let committed = printed("committed ");
    assert!(committed.len() > 5, "{text}");
    let failed = printed("failed ");
    assert!(
        failed.len() == 1 && failed[0].contains("records.db") && failed[0].contains("start again"),
        "{text}"
    );
    let again = printed("again ");
    assert!(again.len() == 1 && again[0].contains("an earlier commit failed"), "{text}");

    let mut journal = SqliteJournal::open(&path).unwrap();
    let store = restore(&load(&mut journal).unwrap());
    let found: Vec<_> =
        contents(&store).iter().filter_map(|record| Some(record.key()?.to_vec())).collect();
    assert_eq!(found, committed.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
}
