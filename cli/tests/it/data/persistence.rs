//! Persistence of keys that a dump restores through the broker of a store.

use std::fs;

use super::{HEADER, Scratch};
use crate::deployment::{Deployment, Mode, in_each_mode};
use crate::process::{Ended, Running, run, statestore};

in_each_mode!(
    keys_restored_through_a_broker_are_persisted,
    refused_key_is_named,
    store_reports_the_number_of_loaded_keys,
    durable_writes_need_free_space,
);

fn start(mode: Mode, scratch: &Scratch, options: &[&str]) -> Option<Deployment> {
    let dir = scratch.path("dir");
    mode.start(&[&["--data-dir", dir.to_str().unwrap()], options].concat())
}

fn through(here: &Deployment, verb: &str, options: &[&str]) -> Ended {
    let mut command = here.command(&["data", verb, "--broker", &here.url()]);
    run(command.args(options))
}

fn start_again(here: &mut Deployment) {
    here.kill_store();
    here.start_store();
}

fn keys_restored_through_a_broker_are_persisted(mode: Mode) {
    let scratch = Scratch::new();
    let Some(mut here) = start(mode, &scratch, &[]) else { return };
    let file = scratch.path("keys.jsonl");
    let file = file.to_str().unwrap();
    here.run(&["set", "kept", "v", "--persist"]).version();
    through(&here, "dump", &["--output", file]).is(0, "");
    let ended = through(&here, "restore", &[file]);
    ended.is(0, "set 1 key\n");
    assert!(ended.err.contains("all keys become durable"), "{}", ended.err);
    start_again(&mut here);
    here.run(&["get", "kept"]).is(0, "v");

    // The dump of the directory contains the persisted keys.
    let lines = [
        HEADER,
        r#"{"key":"asked","value":"v","version":"1:0:n","persist":true}"#,
        r#"{"key":"other","value":"v","version":"1:0:n"}"#,
    ];
    fs::write(file, lines.join("\n")).unwrap();
    through(&here, "restore", &[file]).is(0, "set 2 keys\n");
    start_again(&mut here);
    here.run(&["get", "asked"]).is(0, "v");
    here.run(&["get", "other"]).is(1, "");
}

fn refused_key_is_named(mode: Mode) {
    let scratch = Scratch::new();
    let Some(here) = start(mode, &scratch, &[]) else { return };
    let file = scratch.path("keys.jsonl");
    let file = file.to_str().unwrap();
    let token = here.run(&["set", "lock", "v"]).version();
    here.run(&["set", "a\nb", "v", "--fencing-token", &token]).version();
    through(&here, "dump", &["--output", file]).is(0, "");
    let ended = through(&here, "restore", &[file]);
    ended.fails(2, &[r"the key a\nb: ", "fencing token", "use `data restore DIR`"]);
    let long = "k".repeat(70_000);
    let line = format!(r#"{{"key":"{long}","value":"v","version":"1:0:n"}}"#);
    fs::write(file, [HEADER, &line].join("\n")).unwrap();
    let ended = through(&here, "restore", &[file]);
    ended.fails(2, &["the key kkkk", "kkk...: ", "too long"]);
    assert!(!ended.err.contains("data restore DIR"), "{}", ended.err);
    assert!(ended.err.len() < 1_000, "{} bytes", ended.err.len());
}

fn store_reports_the_number_of_loaded_keys(mode: Mode) {
    let scratch = Scratch::new();
    let Some(mut here) = start(mode, &scratch, &["--durable", "all"]) else { return };
    for (keys, ending) in [("a", "; 1 key loaded"), ("b", "; 2 keys loaded")] {
        here.run(&["set", keys, "v"]).version();
        here.kill_store();
        let store = Running::start(&mut here.serve());
        let line = store.line();
        assert!(line.contains("all keys survive in ") && line.ends_with(ending), "{line}");
        store.signal("-TERM");
        store.end().is(0, "");
        here.start_store();
    }
}

fn durable_writes_need_free_space(mode: Mode) {
    let scratch = Scratch::new();
    // This is more space than any disk has.
    let options = ["--min-free-space", "9000000000000000000"];
    let Some(here) = start(mode, &scratch, &options) else { return };
    here.run(&["set", "k", "v", "--persist"]).fails(2, &["quota"]);
    here.run(&["set", "k", "v"]).version();
    here.run(&["get", "k"]).is(0, "v");
}

#[test]
fn persistence_requires_a_directory() {
    let serve = |options: &[&str]| run(statestore().arg("serve").args(options));
    for options in [["--durable", "all"], ["--durable-keys", "k"], ["--durable", "requested"]] {
        serve(&options).fails(2, &[options[0], "requires data-dir or etcd"]);
    }
    serve(&["--data-dir", "/no/such", "--durable", "none"]).fails(2, &["'none'", "requested, all"]);
}
