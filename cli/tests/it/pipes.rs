//! Output that nobody reads any more: an end, and never a panic.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::place::{Form, everywhere};
use crate::process::statestore;

everywhere!(a_reader_that_goes_is_no_panic, a_store_serves_without_a_reader);

/// Starts a command whose standard output nobody reads.
fn unread(command: &mut Command) -> Child {
    // The reader is gone before anything is written.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Waits for the end and gives standard error.
fn complaints(mut child: Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    child.wait().expect("it ends");
    text
}

fn a_reader_that_goes_is_no_panic(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    here.run(&["set", "k", "v"]).version();
    for line in ["get k", "get k --output json", "set k v", "watch k", "bench --requests 1"] {
        let text = complaints(unread(&mut here.command(&line.split(' ').collect::<Vec<_>>())));
        assert!(!text.contains("panicked"), "{line}: {text}");
        assert!(text.contains("Broken pipe"), "{line}: {text}");
    }
}

fn a_store_serves_without_a_reader(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    here.kill_store();
    let mut store = unread(&mut here.serve());
    // Its line went nowhere; requests do not.
    here.run(&["set", "k", "v"]).version();
    let status = Command::new("kill").args(["-TERM", &store.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill");
    assert_eq!(store.wait().expect("it ends").code(), Some(0), "{}", complaints(store));
}

#[test]
fn scripts_and_pages_that_nobody_reads_are_no_panic() {
    for line in ["completions bash", "completions zsh", "man", "--help", "--version"] {
        let text = complaints(unread(statestore().args(line.split(' '))));
        assert!(!text.contains("panicked"), "{line}: {text}");
    }
}
