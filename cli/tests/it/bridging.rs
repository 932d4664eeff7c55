//! `bridge`: keys from MQTT messages.

use std::net::TcpListener;

use crate::deployment::{Deployment, Mode, in_each_mode};
use crate::process::{Running, run, statestore};

in_each_mode!(
    messages_set_keys,
    skipped_and_refused_messages_are_counted,
    bridge_continues_after_a_restart_of_the_broker,
);

fn bridge(here: &Deployment, options: &[&str]) -> Running {
    let mut command = here.command(&["bridge"]);
    let running = Running::start(command.args(options));
    assert!(running.complaint().contains("bridging "));
    running
}

fn messages_set_keys(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let options = ["--topic", "sensors/+/state", "--key", "state/{2}", "--count", "4"];
    let running = bridge(&here, &options);
    let mut sender = here.raw("sender");
    sender.publish("sensors/1/state", false, "on");
    sender.publish("sensors/2/state", false, &b"\x00\xff"[..]);
    sender.publish("sensors/2/other", false, "ignored");
    sender.publish("sensors/1/state", false, "off");
    here.wait_for_value("state/1", 0, "off");
    assert_eq!(here.run(&["get", "state/2"]).out, b"\x00\xff");
    sender.publish("sensors/1/state", false, "");
    here.wait_for_value("state/1", 1, "");
    running.end().is(0, "set 3, deleted 1, skipped 0, refused 0\n");
}

fn skipped_and_refused_messages_are_counted(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "4"]) else { return };
    let options =
        ["--topic", "data/#", "--key", "{2}", "--value", "/t/0", "--expires", "3s", "--count", "6"];
    let running = bridge(&here, &options);
    let mut sender = here.raw("sender");
    sender.publish("data/a", false, r#"{"t": [21.5]}"#);
    sender.publish("data/b", false, r#"{"t": ["text"]}"#);
    here.wait_for_value("b", 0, "text");
    here.run(&["get", "a"]).is(0, "21.5");
    sender.publish("data/b", false, "not JSON");
    sender.publish("data/b", false, r#"{"t": []}"#);
    sender.publish("data", false, r#"{"t": [1]}"#);
    here.wait_for_value("a", 1, "");
    here.wait_for_value("b", 1, "");
    for key in ["w", "x", "y", "z"] {
        here.run(&["set", key, "v"]).version();
    }
    sender.publish("data/c", false, r#"{"t": [1]}"#);
    let ended = running.end();
    ended.is(2, "set 2, deleted 0, skipped 3, refused 1\n");
}

fn bridge_continues_after_a_restart_of_the_broker(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    let running = bridge(&here, &["--topic", "s/+", "--key", "{2}"]);
    here.raw("sender").publish("s/a", false, "1");
    here.wait_for_value("a", 0, "1");
    here.restart_broker();
    let reconnected = (0..2_000).any(|_| {
        here.raw("sender").publish("s/b", false, "2");
        here.run(&["get", "b"]).text() == "2"
    });
    assert!(reconnected);
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn bridge_continues_after_a_broker_did_not_respond_for_the_timeout() {
    let Some(mut here) = Mode::Embedded.start(&[]) else { return };
    let running = bridge(&here, &["--topic", "s/+", "--key", "{2}", "--timeout", "1s"]);
    here.kill_store();
    // It completes connections, and never responds.
    let silent = TcpListener::bind(("127.0.0.1", here.port())).expect("the port of the broker");
    while !running.complaint().contains("no connection in time") {}
    drop(silent);
    here.start_store();
    let reconnected = (0..2_000).any(|_| {
        here.raw("sender").publish("s/a", false, "1");
        here.run(&["get", "a"]).text() == "1"
    });
    assert!(reconnected);
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn bridge_mistakes_name_the_remedy() {
    for (options, parts) in [
        (&["--topic", "#", "--key", "{1}"][..], &["'sensors/#'"][..]),
        (&["--topic", "a/+", "--key", "{3}"], &["--key {3}", "2 levels"]),
        (&["--topic", "a/+", "--key", "{x}"], &["{topic}"]),
        (&["--topic", "a/+", "--key", "k", "--value", "t"], &["/data/temperature"]),
        (&["--topic", "a", "--key", "k", "--expires", "5"], &["5s"]),
    ] {
        run(statestore().arg("bridge").args(options)).fails(2, parts);
    }
    let line = ["bridge", "--topic", "a", "--key", "k", "--broker", "mqtt://127.0.0.1:1"];
    run(statestore().args(line).args(["--timeout", "3s"])).fails(3, &["--broker"]);
}
