//! The data directory of a store: dump, restore and check.

mod frozen;
mod paths;
mod persistence;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use statestore_proto::hlc::{FencingToken, Hlc, NodeId, Version};
use statestore_proto::message::{Dialect, Expiry};
use statestore_proto::store::{Durability, Record, RecordedExpiry, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_sqlite::{Reader, SqliteJournal};
use statestore_tokio::service::{Commit, Journal as _};

use crate::deployment::{Mode, in_each_mode};
use crate::process::{Ended, Running, run, run_with_input, statestore};

in_each_mode!(keys_are_dumped_and_restored_through_a_broker);

const STARTED: u64 = 1_700_000_000_000;

/// A time in the year 2100, so that keys do not expire during the tests.
const LATER: u64 = 4_102_444_800_000;

const HEADER: &str = r#"{"format":"statestore-dump","format_version":1,"from":"directory"}"#;

/// A directory that is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("statestore-data-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A killed process with this id may have left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the names of the files in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn hlc(wall: u64, counter: u64) -> Hlc {
    Hlc::new(UnixTime::from_millis(wall), counter, NodeId::new("StateStore").unwrap())
}

fn put(key: &[u8], value: &[u8], counter: u64) -> Record {
    Record::Put {
        key: key.into(),
        value: value.into(),
        version: Version::new(hlc(STARTED, counter)),
        fencing_token: None,
        expires: None,
        persist: false,
    }
}

/// Records with all fields that a key can have. Some keys and values are text, others are binary.
fn records() -> Vec<Record> {
    let expires = |at, after, is_lease| {
        let after = Expiry::from_millis(after).unwrap();
        Some(RecordedExpiry { at: UnixTime::from_millis(at), after, is_lease })
    };
    let of = |key: &[u8], counter, fenced, expires, persist| Record::Put {
        key: key.into(),
        value: Box::from(*b"\x00\xff secret"),
        version: Version::new(hlc(STARTED, counter)),
        fencing_token: if fenced { Some(FencingToken::new(hlc(STARTED, 1))) } else { None },
        expires,
        persist,
    };
    vec![
        put(b"gone", b"v", 1),
        put("grün".as_bytes(), b"old", 2),
        put("grün".as_bytes(), "21 °C".as_bytes(), 3),
        put(b"\xff\x00", b"", 4),
        put(b"a\nb", b"two\nlines", 5),
        of(b"fenced", 6, true, None, true),
        of(b"lease", 7, true, expires(LATER, 30_000, true), false),
        of(b"expires", 8, false, expires(LATER, LATER, false), true),
        Record::Removed { key: Box::from(*b"gone"), version: Version::new(hlc(STARTED, 1)) },
        Record::Registered {
            client_id: "lamp".into(),
            key: Box::from(*b"fenced"),
            verified: true,
            dialect: Dialect::Deployed,
            wants_incarnation: true,
            order: 7,
        },
        Record::Issued { version: Version::new(hlc(STARTED + 77, 0)) },
    ]
}

fn commit(journal: &mut SqliteJournal, records: Vec<Record>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(journal.commit(Commit { records, snapshot: None })).unwrap();
}

/// Creates a directory as a store leaves it.
fn create_directory(dir: &Path, records: Vec<Record>) {
    let mut journal = SqliteJournal::open(dir).unwrap();
    records.into_iter().for_each(|record| commit(&mut journal, vec![record]));
}

/// Returns the records that a store loads from the directory. They are the oracle for dumps, which
/// could omit records.
fn restored(dir: &Path) -> Vec<Record> {
    let mut store = Store::new(StoreConfig::new(0).durability(Durability::All));
    let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(STARTED));
    for portion in Reader::open(dir).unwrap() {
        portion.unwrap().iter().for_each(|record| store.restore(now, record));
    }
    store.snapshot(now).collect()
}

fn data(verb: &str, dir: &Path) -> Command {
    let mut command = statestore();
    command.args(["data", verb]).arg(dir);
    command
}

fn dump(dir: &Path) -> Vec<u8> {
    let Ended { code, out, err } = run(&mut data("dump", dir));
    assert_eq!(code, Some(0), "{err}");
    out
}

#[test]
fn restored_directory_equals_the_dumped_one() {
    let scratch = Scratch::new();
    let (one, two, three) = (scratch.path("one"), scratch.path("two"), scratch.path("three"));
    create_directory(&one, records());
    let dumped = dump(&one);
    assert_eq!(dumped.iter().filter(|byte| **byte == b'\n').count(), 7);

    let file = scratch.path("keys.jsonl");
    let ended = run(data("dump", &one).arg("--output").arg(&file));
    ended.is(0, "");
    assert!(ended.err.contains("dumped 6 keys") && !ended.err.contains("secret"), "{ended:?}");
    assert_eq!(fs::read(&file).unwrap(), dumped);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    run(data("restore", &two).arg(&file)).is(0, "restored 6 keys\n");
    fs::create_dir(&three).unwrap();
    run_with_input(&mut data("restore", &three), &dumped).is(0, "restored 6 keys\n");
    assert_eq!(fs::metadata(&two).unwrap().permissions().mode() & 0o777, 0o700);
    for dir in [&two, &three] {
        assert_eq!(dump(dir), dumped);
    }
    // Registrations are not dumped.
    let mut expected = restored(&one);
    expected.retain(|record| !matches!(record, Record::Registered { .. }));
    assert_eq!(expected.len(), 7, "including the greatest version");
    assert_eq!(restored(&two), expected);
    assert_eq!(scratch.names(), ["keys.jsonl", "one", "three", "two"], "and no other file");

    run(data("restore", &two).arg(&file)).fails(2, &["two is not empty", "does not exist yet"]);
    run(data("dump", &one).arg("--output").arg(&three)).fails(2, &["not a file", "--output"]);
}

#[test]
fn check_prints_the_contents() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    create_directory(&dir, records());
    let ended = run(&mut data("check", &dir));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in [
        "keys           6: 2 expire, 1 of them leases; 2 fenced\n",
        "responses      0\n",
        "registrations  1\n",
        "last version   1700000000077:0:StateStore\n",
        "snapshot       none\n",
        " in 11 commits\n",
        "on disk ",
    ] {
        assert!(ended.text().contains(line), "{line:?} is not in: {}", ended.text());
    }
}

#[test]
fn other_directory_is_rejected() {
    let scratch = Scratch::new();
    let nowhere = scratch.path("nowhere");
    let (empty, file) = (scratch.path("empty"), scratch.path("file"));
    fs::create_dir(&empty).unwrap();
    fs::write(&file, "").unwrap();
    for verb in ["check", "dump"] {
        run(&mut data(verb, &nowhere)).fails(2, &["nowhere has no journal in it"]);
        run(&mut data(verb, &empty)).fails(2, &["empty has no journal in it"]);
        run(&mut data(verb, &file)).fails(2, &["it is not a directory"]);
    }
    assert_eq!(scratch.names(), ["empty", "file"]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "no file is created");
}

/// A changed bit in the log must not be mistaken for an earlier end of the log.
#[test]
fn damaged_directory_is_rejected() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    create_directory(&dir, records());
    // The committed records are in the file.
    fs::write(dir.join("records.db-wal"), b"").unwrap();
    for verb in ["check", "dump"] {
        let ended = run(&mut data(verb, &dir));
        ended.fails(2, &["commit 11 was acknowledged", "backup in its place", "a dump"]);
        assert!(!ended.err.contains("secret"), "{ended:?}");
    }
    let output = scratch.path("keys.jsonl");
    run(data("dump", &dir).arg("--output").arg(&output)).fails(2, &["was acknowledged"]);
    assert_eq!(scratch.names(), ["dir"], "no partial dump");
}

/// Other processes can read a directory in use, but not write it.
#[test]
fn directory_in_use_is_read_and_not_written() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    create_directory(&dir, records());
    let dumped = dump(&dir);
    let mut journal = SqliteJournal::open(&dir).unwrap();
    assert_eq!(dump(&dir), dumped);
    assert_eq!(run(&mut data("check", &dir)).code, Some(0));
    commit(&mut journal, vec![put(b"more", b"v", 90)]);
    assert_ne!(dump(&dir), dumped, "the dump contains the later commit");
}

#[test]
fn invalid_line_is_rejected_with_its_number() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    let good = r#"{"key":"k","value":"secret","version":"1:0:n"}"#;
    let long = "x".repeat((16 << 20) + 1);
    let late = good.replace("1:0:n", "253402300800000:0:n");
    let late_header = HEADER.replace('}', r#","issued":"253402300800000:0:n"}"#);
    let counted = HEADER.replace('}', ",\"keys\":3}");
    let next_format = HEADER.replace("\"format_version\":1", "\"format_version\":2");
    let control = good.replace("1:0:n", "1:0:n\\u0001");
    for (lines, number, what) in [
        (vec![""], 0, "the file is empty"),
        (vec![&late_header, good], 1, "issued is after the year 9999"),
        (vec![HEADER, good, &late], 3, "version is after the year 9999"),
        (vec![good], 1, "\"format\":\"statestore-dump\""),
        (
            vec![&next_format, good],
            0,
            "standard input has format_version 2, and this version reads 1",
        ),
        (vec![HEADER, &control], 2, "the node id of version contains a control character"),
        (vec![HEADER, good, "{"], 3, "cut short"),
        (vec![HEADER, good, r#"{"key":"k","value":"secret","extra":1}"#], 3, "expected one of"),
        (vec![HEADER, "", r#"{"key":"k","value":"secret","version":"secret"}"#], 3, "version"),
        (vec![HEADER, &long], 2, "16 MiB"),
        (
            vec![HEADER, good, r#"{"key":"k","value":"secret"}"#],
            0,
            "key 2 of the dump has no version",
        ),
        (vec![&counted, good, good], 0, "the number 3, but 2 keys follow"),
    ] {
        let ended = run_with_input_that_may_not_be_read(&dir, lines.join("\n").as_bytes());
        ended.fails(2, &[what]);
        let at = format!("standard input, line {number}:");
        assert!(number == 0 || ended.err.contains(&at), "{at} is not in: {}", ended.err);
        assert!(!ended.err.contains("secret"), "{}", ended.err);
        assert_eq!(scratch.names(), [""; 0], "{what}");
    }
    run(data("restore", &dir).arg(scratch.path("nowhere")))
        .fails(2, &["nowhere", "name a dump or an export"]);

    let dangling = scratch.path("dangling");
    std::os::unix::fs::symlink(scratch.path("nowhere"), &dangling).unwrap();
    run(&mut data("restore", &dangling)).fails(2, &["dangling is a symbolic link to a path that"]);
    fs::remove_file(&dangling).unwrap();

    // The last line of a key takes effect.
    let later = good.replace("secret", "later").replace("1:0:n", "2:0:n");
    let lines = [HEADER, good, &later].join("\n");
    run_with_input(&mut data("restore", &dir), lines.as_bytes()).is(0, "restored 2 keys\n");
    let dumped = String::from_utf8(dump(&dir)).unwrap();
    assert!(dumped.contains("later") && !dumped.contains("secret"), "{dumped}");
}

/// Runs the command with input from a file, since a command that rejects a line stops reading.
fn run_with_input_that_may_not_be_read(dir: &Path, input: &[u8]) -> Ended {
    let path = std::env::temp_dir().join(format!("statestore-bad-{}", std::process::id()));
    fs::write(&path, input).unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    Running::start(data("restore", dir).stdin(Stdio::from(file))).end()
}

#[test]
fn interrupted_restore_leaves_no_directory() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    let line = format!(r#"{{"key":"k","value":"{}","version":"1:0:n"}}"#, "v".repeat(1000));
    // The input exceeds the buffer of a pipe, so the command has read some of it when it is
    // interrupted.
    let begun = || {
        let mut restore = Running::start(data("restore", &dir).stdin(Stdio::piped()));
        restore.write_line(HEADER);
        (0..3_000).for_each(|_| restore.write_line(&line));
        assert_eq!(scratch.names(), ["dir.partial"]);
        restore
    };
    let restore = begun();
    restore.signal("-INT");
    restore.end().fails(130, &["stopped: nothing was restored"]);
    assert_eq!(scratch.names(), [""; 0]);

    begun().kill();
    assert_eq!(scratch.names(), ["dir.partial"]);
    let whole = [HEADER, &line].join("\n");
    let again = || run_with_input(&mut data("restore", &dir), whole.as_bytes());
    again().fails(2, &["dir.partial exists", "remove it"]);
    fs::remove_dir_all(scratch.path("dir.partial")).unwrap();
    again().is(0, "restored 1 key\n");
    assert_eq!(scratch.names(), ["dir"]);
}

/// A store with such a version could never issue a version of the present again.
#[test]
fn version_more_than_a_day_ahead_of_the_clock_is_rejected_unless_allowed() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    let good = r#"{"key":"k","value":"v","version":"1:0:n"}"#;
    let future = format!("{LATER}:0:n");
    let header = HEADER.replace('}', &format!(r#","issued":"{future}"}}"#));
    let fenced = good.replace('}', &format!(r#","fencing_token":"{future}"}}"#));
    let version = good.replace("1:0:n", &future);
    for (lines, what) in [
        ([&*header, good], "line 1: issued is more than a day ahead"),
        ([HEADER, &version], "line 2: version is more than a day ahead"),
        ([HEADER, &fenced], "line 2: fencing_token is more than a day ahead"),
    ] {
        let lines = lines.join("\n");
        let restore =
            |option: &[&str]| run_with_input(data("restore", &dir).args(option), lines.as_bytes());
        restore(&[]).fails(2, &[what, "--allow-future-versions"]);
        assert_eq!(scratch.names(), [""; 0], "{what}");
        restore(&["--allow-future-versions"]).is(0, "restored 1 key\n");
        fs::remove_dir_all(&dir).unwrap();
    }
}

fn keys_are_dumped_and_restored_through_a_broker(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let scratch = Scratch::new();
    let broker = ["--broker", &here.url()];
    let data = |verb: &str| {
        let mut command = here.command(&["data", verb]);
        command.args(broker);
        command
    };
    here.run(&["set", "rooms/1", "21"]).version();
    let version = here.run_with_input(&["set", "rooms/2", "--file", "-"], b"\x00\xff").version();
    let file = scratch.path("keys.jsonl");
    let ended = run(data("dump").arg("--output").arg(&file));
    ended.is(0, "");
    assert!(ended.err.contains("neither fencing tokens nor expiries"), "{ended:?}");
    let dumped = fs::read_to_string(&file).unwrap();
    let second = format!(r#"{{"key":"rooms/2","value_base64":"AP8=","version":"{version}"}}"#);
    assert!(dumped.contains(&second) && dumped.lines().count() == 3, "{dumped}");

    here.run(&["del", "rooms/1"]).is(0, "");
    here.run(&["set", "rooms/2", "changed"]).version();
    let ended = run(data("restore").arg(&file));
    ended.is(0, "set 2 keys\n");
    assert!(ended.err.contains("keys get new versions"), "{ended:?}");
    here.run(&["get", "rooms/1"]).is(0, "21");
    assert_eq!(here.run(&["get", "rooms/2"]).out, b"\x00\xff");

    // The keys can also be restored into a directory, and from that directory.
    let dir = scratch.path("dir");
    let ended = run(statestore().args(["data", "restore"]).args([&dir, &file]));
    ended.is(0, "restored 2 keys\n");
    assert!(ended.err.contains("neither fencing tokens nor expiries"), "{ended:?}");
    let is_kept = |record: &Record| matches!(record, Record::Put { persist: true, .. });
    assert_eq!(restored(&dir).iter().filter(|record| is_kept(record)).count(), 2);
    let past = format!(
        "{HEADER}\n{}\n{}\n",
        r#"{"key":"past","value":"v","version":"1:0:n","expires":{"at":1,"after":1}}"#,
        r#"{"key":"lease","value":"v","version":"1:0:n","expires":{"at":1,"after":600000,"lease":true}}"#,
    ) + r#"{"key":"short","value":"v","version":"1:0:n","expires":{"at":1,"after":1,"lease":true}}"#;
    let ended = run_with_input(&mut data("restore"), past.as_bytes());
    ended.is(0, "set 2 keys\n");
    assert!(ended.err.contains("skipped 1 key: expired"), "{ended:?}");
    here.run(&["get", "past"]).is(1, "");
    here.run(&["get", "lease"]).is(0, "v");
    here.run(&["get", "short"]).is(1, "");

    let unreachable = ["data", "dump", "--broker", "mqtt://127.0.0.1:1", "--timeout", "200ms"];
    run(statestore().args(unreachable)).fails(3, &["--broker"]);
}

/// A dump of a running store can be restored, and another store continues with it.
#[test]
fn another_store_continues_with_a_dump() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    let start = |dir: &Path| {
        let options = ["--data-dir", dir.to_str().unwrap()];
        Mode::Embedded.start(&options).expect("it needs nothing else")
    };
    let here = start(&one);
    let version = here.run(&["set", "kept", "v", "--persist"]).version();
    here.run(&["set", "lost", "v"]).version();
    let fenced = here.run(&["set", "kept", "w", "--persist", "--fencing-token", &version]);
    let version = fenced.version();
    let dumped = dump(&one);
    run_with_input(&mut data("restore", &two), &dumped).is(0, "restored 1 key\n");
    drop(here);

    let here = start(&two);
    here.run(&["get", "kept"]).is(0, "w");
    let json = here.run(&["get", "kept", "--output", "json"]).json();
    assert_eq!(json["version"], version);
    here.run(&["set", "kept", "x"]).fails(2, &["fencing token"]);
    here.run(&["get", "lost"]).is(1, "");
}

#[test]
fn directory_or_broker_is_required() {
    for (line, hint) in [
        ("dump", "DIR"),
        ("restore", "DIR"),
        ("dump dir --broker mqtt://h", "both a directory, dir, and --broker"),
        ("restore dir file --broker mqtt://h", "both a directory, dir, and --broker"),
        ("check", "DIR"),
    ] {
        let mut command = statestore();
        run(command.arg("data").args(line.split(' '))).fails(2, &[hint]);
    }
}
