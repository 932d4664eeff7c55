//! Wrong paths, and files and directories with another owner.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::process::Command;

use super::{HEADER, Scratch, create_directory, data, dump, records};
use crate::process::{Ended, run, run_with_input, statestore};

/// The output could replace a file of the store, however the path is written.
#[test]
fn dump_is_never_written_to_the_files_of_the_store() {
    let scratch = Scratch::new();
    let (dir, link) = (scratch.path("dir"), scratch.path("link"));
    create_directory(&dir, records());
    symlink(&dir, &link).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    let all = || {
        let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = files.map(|path| (fs::read(&path).ok(), path)).collect();
        all.sort();
        all
    };
    let dumped = dump(&dir);
    let before = all();
    for (from, to) in [
        (&dir, dir.join("records.db")),
        (&dir, dir.join("keys.jsonl")),
        (&dir, link.join("records.db")),
        (&link, dir.join("acknowledged")),
        (&dir, dir.join("sub/../records.db-wal")),
        (&dir, dir.join("sub/keys.jsonl")),
    ] {
        let ended = run(data("dump", from).arg("--output").arg(&to));
        ended.fails(2, &["--output", "directory of the store", "another directory"]);
        assert!(all() == before, "{}", to.display());
    }
    let mut inside = data("dump", ".".as_ref());
    run(inside.current_dir(&dir).args(["--output", "keys.jsonl"])).fails(2, &["another directory"]);
    assert!(all() == before, "by relative paths");
    // A path next to the directory is accepted.
    let mut outside = data("dump", &dir);
    run(outside.current_dir(&dir).args(["--output", "../keys.jsonl"])).is(0, "");
    assert_eq!(fs::read(scratch.path("keys.jsonl")).unwrap(), dumped);
}

#[test]
fn dash_is_standard_output() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    create_directory(&dir, records());
    let ended = run(data("dump", &dir).args(["--output", "-"]).current_dir(&scratch.0));
    assert_eq!((ended.code, &ended.out), (Some(0), &dump(&dir)), "{ended:?}");
    assert_eq!(scratch.names(), ["dir"]);
}

#[test]
fn error_of_an_unreadable_dump_omits_the_line_number() {
    let scratch = Scratch::new();
    let (dir, empty, some) = (scratch.path("dir"), scratch.path("empty"), scratch.path("some"));
    fs::write(&empty, "").unwrap();
    fs::create_dir(&some).unwrap();
    let restore = |from: &std::path::Path| run(data("restore", &dir).arg(from));
    for (ended, what) in [
        (restore(&empty), "empty: the file is empty; name a dump or an export"),
        (restore(&some), "some cannot be read: Is a directory"),
        (
            run(&mut data("restore", &dir)),
            "standard input: the file is empty; name a dump or an export",
        ),
    ] {
        ended.fails(2, &[what]);
        assert!(!ended.err.contains("line") && !ended.err.contains("correct"), "{}", ended.err);
    }
    assert_eq!(scratch.names(), ["empty", "some"]);
    let ended = run(&mut data("restore", &empty));
    ended.fails(2, &["empty is a file", "name a new directory, then the dump"]);
    assert!(!ended.err.contains("os error"), "{}", ended.err);
}

#[test]
fn directory_and_broker_exclude_each_other() {
    let scratch = Scratch::new();
    let (dir, file) = (scratch.path("dir"), scratch.path("keys.jsonl"));
    create_directory(&dir, records());
    fs::write(&file, HEADER).unwrap();
    let broker = ["--broker", "mqtt://127.0.0.1:1"];
    for mut command in [data("dump", &dir), data("restore", &dir)] {
        run(command.args(broker)).fails(2, &["both a directory", "dir", "--broker"]);
    }
    run(data("restore", &dir).arg(&file).args(broker)).fails(2, &["both a directory"]);
}

/// The user that runs the store can differ from the user that restores the directory.
#[test]
fn restore_keeps_the_owner_of_an_existing_directory() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o750)).unwrap();
    let was = fs::metadata(&dir).unwrap();
    // Only root can change the owner.
    let _ = chown(&dir, Some(was.uid() + 1), Some(was.gid() + 1));
    let was = fs::metadata(&dir).unwrap();
    let line = r#"{"key":"k","value":"v","version":"1:0:n"}"#;
    let input = [HEADER, line].join("\n");
    run_with_input(&mut data("restore", &dir), input.as_bytes()).is(0, "restored 1 key\n");
    let is = fs::metadata(&dir).unwrap();
    assert_ne!(is.ino(), was.ino(), "another directory");
    assert_eq!((is.uid(), is.gid(), is.mode()), (was.uid(), was.gid(), was.mode()));
    let mut files = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let file = entry.unwrap().metadata().unwrap();
        assert_eq!((file.uid(), file.gid()), (was.uid(), was.gid()));
        assert_eq!(file.mode() & 0o777, 0o600, "for its owner only");
        files += 1;
    }
    assert!(files >= 2, "{files}");
}

/// Runs the command with a file size limit, in blocks of 512 bytes.
fn limited(blocks: u64, arguments: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(statestore().get_program()).args(arguments);
    command.env_remove("STATESTORE_DATA").env_remove("STATESTORE_BROKER");
    run(&mut command)
}

/// A large log requires a snapshot at once, and the disk is full.
#[test]
fn store_with_a_full_disk_exits_with_the_storage_code_before_it_is_ready() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    let value = "v".repeat(1 << 20);
    let lines = (0..20).map(|number| {
        format!("\n{{\"key\":\"k{number}\",\"value\":\"{value}\",\"version\":\"1:{number}:n\"}}")
    });
    let input = HEADER.to_owned() + &lines.collect::<String>();
    run_with_input(&mut data("restore", &dir), input.as_bytes()).is(0, "restored 20 keys\n");
    let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let largest = files.max().unwrap();
    let serve = ["serve", "--broker", "mqtt://127.0.0.1:1", "--durable", "all", "--data-dir"];
    let ended = limited(largest / 512 + 1, &[&serve[..], &[dir.to_str().unwrap()]].concat());
    ended.fails(5, &["records.db", "every acknowledged write is durable"]);
}

/// With this limit, files cannot reach the initial size of a store's files, as on a full disk.
#[test]
fn full_disk_has_another_exit_code_than_wrong_input() {
    let scratch = Scratch::new();
    let (dir, new) = (scratch.path("dir"), scratch.path("new"));
    let (large, file) = (scratch.path("large.jsonl"), scratch.path("keys.jsonl"));
    let value = "v".repeat(2 << 20);
    let line = format!(r#"{{"key":"k","value":"{value}","version":"1:0:n"}}"#);
    fs::write(&large, [HEADER, &line].join("\n")).unwrap();
    run(data("restore", &dir).arg(&large)).is(0, "restored 1 key\n");
    let limited = |arguments: &[&str]| limited(1_000, arguments);
    let [dir, new, large, file] = [&dir, &new, &large, &file].map(|path| path.to_str().unwrap());
    limited(&["serve", "--listen", "127.0.0.1:0", "--data-dir", new]).fails(5, &[new]);
    limited(&["data", "restore", &format!("{new}er"), large]).fails(5, &["newer"]);
    limited(&["data", "dump", dir, "--output", file]).fails(5, &[file, "free space"]);
    assert_eq!(scratch.names(), ["dir", "large.jsonl", "new"]);
    // Free space does not fix these errors.
    let serve =
        |dir: &str| run(statestore().args(["serve", "--listen", "127.0.0.1:0", "--data-dir", dir]));
    serve(large).fails(2, &["not a directory"]);
    let journal = statestore_sqlite::SqliteJournal::open(dir).unwrap();
    serve(dir).fails(2, &["is using it"]);
    drop(journal);
    fs::write(format!("{dir}/records.db"), "something else").unwrap();
    serve(dir).fails(2, &["records.db"]);
}
