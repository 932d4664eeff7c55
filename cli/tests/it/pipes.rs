//! Closed or full output: a command ends or continues, but never panics.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::deployment::{Mode, in_each_mode};
use crate::process::statestore;

in_each_mode!(
    closed_output_does_not_cause_a_panic,
    store_serves_with_closed_output,
    store_serves_with_an_unwritable_log,
    lost_lock_ends_its_command_when_standard_error_is_unwritable,
    watch_continues_with_unwritable_standard_error,
);

/// Starts a command whose standard output is closed.
fn unread(command: &mut Command) -> Child {
    // The reader is closed before anything is written.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Waits for the end and returns standard error.
fn complaints(mut child: Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    child.wait().expect("it ends");
    text
}

fn closed_output_does_not_cause_a_panic(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "k", "v"]).version();
    for line in ["get k", "get k --output json", "set k v", "watch k", "bench --requests 1"] {
        let text = complaints(unread(&mut here.command(&line.split(' ').collect::<Vec<_>>())));
        assert!(!text.contains("panicked"), "{line}: {text}");
        assert!(text.contains("Broken pipe"), "{line}: {text}");
    }
}

fn store_serves_with_closed_output(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    here.kill_store();
    let mut store = unread(&mut here.serve());
    // Its line was lost, but requests are processed.
    here.run(&["set", "k", "v"]).version();
    let status = Command::new("kill").args(["-TERM", &store.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill");
    assert_eq!(store.wait().expect("it ends").code(), Some(0), "{}", complaints(store));
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("every Linux has it")
}

fn store_serves_with_an_unwritable_log(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    here.kill_store();
    for log in [Stdio::from(writer), full().into()] {
        let mut store = here.serve();
        let mut store = store
            .env("STATESTORE_LOG", "debug")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("it starts");
        for value in ["1", "2", "3"] {
            here.run(&["set", "k", value]).version();
        }
        let status = Command::new("kill").args(["-TERM", &store.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill");
        assert_eq!(store.wait().expect("it ends").code(), Some(0));
    }
}

fn lost_lock_ends_its_command_when_standard_error_is_unwritable(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let script = "trap 'echo terminated; exit 3' TERM; echo held; while :; do sleep 0.02; done";
    let mut command = here.command(&["lock", "l", "--lease", "3s", "--", "sh", "-c", script]);
    let mut holder = command.stdout(Stdio::piped()).stderr(full()).spawn().expect("it starts");
    let mut lines = BufReader::new(holder.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "held");
    here.run(&["set", "l", "another holder"]).version();
    assert_eq!(lines.next().expect("a line").expect("text"), "terminated");
    assert_eq!(holder.wait().expect("it ends").code(), Some(124));
}

fn watch_continues_with_unwritable_standard_error(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut watch = here.command(&["watch", "k", "--count", "3"]);
    let watch = watch.stdout(Stdio::piped()).stderr(full()).spawn().expect("it starts");
    let mut raw = here.raw("raw");
    // It ends after any three changes.
    let ended = std::thread::spawn(|| watch.wait_with_output().expect("it ends"));
    while !ended.is_finished() {
        raw.command(&["SET", "k", "v"]);
        raw.command(&["DEL", "k"]);
    }
    assert_eq!(ended.join().expect("no panic").status.code(), Some(0));
}

#[test]
fn unwritable_output_has_a_separate_exit_code() {
    let Some(here) = Mode::Embedded.start(&[]) else { return };
    let mut command = here.command(&["set", "k", "v"]);
    let status = command.stdout(full()).status().expect("it runs");
    assert_eq!(status.code(), Some(4), "done, and not printed");
    here.run(&["get", "k"]).is(0, "v");
}

#[test]
fn closed_output_of_completions_and_manual_does_not_cause_a_panic() {
    for line in ["completions bash", "completions zsh", "man", "--help", "--version"] {
        let text = complaints(unread(statestore().args(line.split(' '))));
        assert!(!text.contains("panicked"), "{line}: {text}");
    }
}
