//! Mistakes that other tools or shells suggest, and what the command does with them.

use std::process::Command;

use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{run, run_with_input, statestore};

#[test]
fn value_that_would_be_read_from_nowhere_is_refused() {
    let server = EmbeddedStore::start(&[]);
    let mut hyphen = server.command("mqtt", &["set", "k", "-"]);
    run_with_input(&mut hyphen, b"42").fails(2, &["a hyphen", "--file -"]);
    let set = server.command("mqtt", &["set", "k", "--file", "-"]);
    for redirection in ["<&-", "</dev/null"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]);
        shell.arg(set.get_program()).args(set.get_args());
        run(&mut shell).fails(2, &["standard input is closed", "--file /dev/null"]);
    }
    run(&mut server.command("mqtt", &["get", "k"])).is(1, "");
    run(&mut server.command("mqtt", &["set", "k", "--file", "/dev/null"])).version();
    run(&mut server.command("mqtt", &["get", "k"])).is(0, "");
}

#[test]
fn option_is_named_as_the_pages_name_it() {
    run(statestore().args(["set", "k", "v", "--ttl", "10"])).fails(2, &["'10' for '--ttl", "10s"]);
}

#[test]
fn broker_needs_no_scheme() {
    let server = EmbeddedStore::start(&[]);
    let address = format!("localhost:{}", server.port);
    run(statestore().args(["set", "k", "v", "--broker", &address])).version();
    run(statestore().args(["keys"]).env("STATESTORE_BROKER", &address)).is(0, "k\n");
}

#[test]
fn misspelt_variable_is_refused_and_those_of_kubernetes_are_not() {
    let server = EmbeddedStore::start(&[]);
    run(server.command("mqtt", &["get", "k"]).env("STATESTORE_BROKR", "mqtt://elsewhere"))
        .fails(2, &["STATESTORE_BROKR", "STATESTORE_BROKER"]);
    run(server.command("mqtt", &["get", "k"]).env("STATESTORE_PORT", "tcp://10.0.0.1:1883"))
        .is(1, "");
}

#[test]
fn status_asks_the_store_without_a_metrics_listener() {
    let server = EmbeddedStore::start(&[]);
    run(&mut server.command("mqtt", &["status"])).is(0, "store      ready\n");
    let json = run(&mut server.command("mqtt", &["status", "--output", "json"])).json();
    assert_eq!(json["ready"], true);
    server.store.kill();
    let mut status = statestore();
    status.args(["status", "--timeout", "100ms", "--broker"]);
    run(status.arg(format!("mqtt://localhost:{}", server.port))).fails(3, &["no connection"]);
}

#[test]
fn users_are_listed_and_deleted() {
    let file = Scratch::new("mistakes-users");
    let passwd = |words: &[&str]| {
        run_with_input(statestore().args(["passwd", file.path()]).args(words), b"secret\n")
    };
    passwd(&["bob"]).is(0, "");
    passwd(&["ann"]).is(0, "");
    passwd(&["--list"]).is(0, "ann\nbob\n");
    passwd(&["--delete", "ann"]).is(0, "");
    passwd(&["--list"]).is(0, "bob\n");
    passwd(&["--delete", "ann"]).is(1, "");
    assert_eq!(passwd(&[]).code, Some(2));
}
