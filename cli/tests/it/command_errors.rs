//! Errors, interruptions and full output of commands: messages and effects.

use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::wire::raw::Raw;

use crate::deployment::{Mode, in_each_mode, test_name};
use crate::process::{run, statestore};

in_each_mode!(
    outcome_is_reported_when_output_cannot_be_written,
    too_large_values_are_refused_without_a_request,
    interrupted_benchmark_leaves_no_keys,
);

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("every Linux has it")
}

/// Runs a command whose output cannot be written. Returns its exit code and standard error.
fn unprinted(command: &mut std::process::Command) -> (Option<i32>, String) {
    let child = command.stdout(full()).stderr(Stdio::piped()).spawn().expect("it starts");
    let ended = child.wait_with_output().expect("it ends");
    (ended.status.code(), String::from_utf8(ended.stderr).expect("text"))
}

fn outcome_is_reported_when_output_cannot_be_written(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for (line, outcome) in [
        ("set k v", "the value was set, with version "),
        ("set k v --output json", "the value was set, with version "),
        ("set k w --nx --output json", "the value was not set, since the condition does not hold"),
        ("vdel k w --output json", "the key has another value and was not deleted"),
        ("del k --output json", "the key was deleted"),
        ("del k --output json", "the key is absent"),
    ] {
        let (code, message) = unprinted(&mut here.command(&line.split(' ').collect::<Vec<_>>()));
        assert_eq!(code, Some(4), "{line}: {message}");
        assert!(
            message.contains(outcome) && message.contains("cannot write the output"),
            "{line}: {message}"
        );
        assert!(!message.contains("refused"), "{line}: {message}");
    }
}

#[test]
fn usage_in_an_error_contains_no_given_option() {
    for (line, usage) in [
        (&["get", "--broker", "mqtt://h"][..], "Usage: statestore get [OPTIONS] <KEY>\n"),
        (&["policy", "check", "--bogus"], "Usage: statestore policy check"),
    ] {
        run(statestore().args(line)).fails(2, &[usage]);
    }
    let mut get = statestore();
    let ended = run(get.arg("get").env("STATESTORE_BROKER", "mqtt://h"));
    assert!(!ended.err.contains("--broker"), "{ended:?}");
}

/// A proxy that never responds is named, also if --timeout is shorter than that of a connection.
#[test]
fn silent_proxy_is_named_with_its_option() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", proxy.local_addr().expect("an address"));
    let mut get = statestore();
    get.args(["get", "k", "--timeout", "2s", "--broker", "mqtt://broker.invalid"]);
    let text = format!("the proxy {url} opened no connection to the broker within 0.9 s");
    run(get.args(["--proxy", &url])).fails(3, &[&text, "check --proxy"]);
}

fn too_large_values_are_refused_without_a_request(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let limit = 1 << 20;
    let large = vec![b'v'; limit + 1];
    for line in [["set", "k", "--file", "-"], ["vdel", "k", "--file", "-"]] {
        here.run_with_input(&line, &large).fails(2, &["too large", "1048576 bytes"]);
    }
    here.run(&["set", "k", "--file", "/dev/zero"]).fails(2, &["1048576 bytes"]);
    here.run_with_input(&["set", "k", "--file", "-"], &large[1..]).version();
    assert_eq!(here.run(&["get", "k"]).out.len(), limit);
    // Invalid options are refused immediately, despite the long timeout.
    for (option, value) in [("--value-size", "1048577"), ("--requests", "18446744073709551615")] {
        here.run(&["bench", option, value, "--timeout", "1h"]).fails(2, &[option]);
    }
}

fn interrupted_benchmark_leaves_no_keys(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let bench = here.spawn(&["bench", "--requests", "10000000"]);
        assert!(bench.complaint().contains("of 10000000 requests"));
        here.run(&["keys", "statestore-bench-*"]);
        bench.signal(signal);
        let ended = bench.end();
        assert_eq!((ended.code, ended.text()), (Some(code), ""), "{ended:?}");
        assert!(!ended.err.contains("may be left"), "{ended:?}");
        here.run(&["keys", "*"]).is(1, "");
    }
}

/// A store in which every key is absent and every registration is refused.
fn refuse(mut store: Raw, requests: usize) -> thread::JoinHandle<()> {
    store.subscribe("statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke");
    thread::spawn(move || {
        for _ in 0..requests {
            let request = store.message();
            let is_watch = request.payload.windows(9).any(|word| word == b"KEYNOTIFY");
            let reply: &[u8] = if is_watch { b"-ERR \x1b[2Jnot for you\r\n" } else { b"$-1\r\n" };
            store.reply_to(&request, reply);
        }
    })
}

#[test]
fn refused_watch_exits_with_an_error() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    for (line, requests) in [("elect e", 2), ("watch k", 1)] {
        let store = refuse(Raw::connect(broker.port(), "store"), requests);
        let ended = run(statestore().args(line.split(' ')).args(["--broker", &url]));
        store.join().expect("the store receives the requests");
        ended.fails(2, &["the store refused", "\u{fffd}[2Jnot for you"]);
    }
}

#[cfg(not(feature = "top"))]
#[test]
fn build_without_top_names_its_feature() {
    run(statestore().args(["top"])).fails(2, &["--features top", "`statestore keys`"]);
}
