//! `bridge`: keys from MQTT messages, and messages from keys.

use std::net::TcpListener;

use statestore_testkit::process::wait_free;
use statestore_testkit::wire::packets::Publish;
use statestore_testkit::wire::raw::{Raw, property};

use crate::deployment::{Deployment, Mode, in_each_mode};
use crate::process::{Running, run, statestore};

in_each_mode!(
    messages_set_keys,
    skipped_and_refused_messages_are_counted,
    each_kind_of_skipped_message_is_reported,
    refusal_that_passes_is_repeated,
    bridge_continues_after_a_restart_of_the_broker,
    changes_of_keys_are_published,
    retained_messages_follow_their_keys,
    keys_without_a_topic_are_skipped,
    both_directions_do_not_cause_each_other,
    bridged_messages_are_skipped_unless_accepted,
    publishing_continues_after_a_restart_of_the_broker,
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
    let Some(here) = mode.start(&[]) else { return };
    let options =
        ["--topic", "data/#", "--key", "{2}", "--value", "/t/0", "--expires", "1s", "--count", "6"];
    let running = bridge(&here, &options);
    let [a, b] = ["a", "b"].map(|key| {
        let watch = here.spawn(&["watch", key, "--output", "json", "--count", "2"]);
        while watch.json()["result"] != "live" {}
        watch
    });
    let mut sender = here.raw("sender");
    sender.publish("data/a", false, r#"{"t": [21.5]}"#);
    sender.publish("data/b", false, r#"{"t": ["text"]}"#);
    assert_eq!((&a.json()["value"], &b.json()["value"]), (&"21.5".into(), &"text".into()));
    sender.publish("data/b", false, "not JSON");
    sender.publish("data/b", false, r#"{"t": []}"#);
    sender.publish("data", false, r#"{"t": [1]}"#);
    for watch in [a, b] {
        assert_eq!(watch.json()["result"], "deleted", "it expires");
    }
    let token = here.run(&["set", "w", "v"]).version();
    here.run(&["set", "c", "v", "--fencing-token", &token]).version();
    sender.publish("data/c", false, r#"{"t": [1]}"#);
    let ended = running.end();
    ended.is(2, "set 2, deleted 0, skipped 3, refused 1\n");
}

/// The next message on a topic below this prefix.
fn message(raw: &mut Raw, prefix: &str) -> Publish {
    loop {
        let message = raw.message();
        if message.topic.starts_with(prefix.as_bytes()) {
            return message;
        }
    }
}

/// Topic and payload of a message.
fn content(message: &Publish) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&message.topic), text(&message.payload))
}

/// Topic and payload of the next message below `out/`.
fn published(raw: &mut Raw) -> (String, String) {
    content(&message(raw, "out/"))
}

fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

fn each_kind_of_skipped_message_is_reported(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let options = ["--topic", "data/#", "--key", "{2}", "--value", "/t", "--count", "5"];
    let running = bridge(&here, &options);
    let mut sender = here.raw("sender");
    for (topic, payload) in [
        ("data/a", "not JSON"),
        ("data/a", "not JSON either"),
        ("data/b", "{}"),
        ("data", r#"{"t":1}"#),
        ("data/c", "not JSON again"),
    ] {
        sender.publish(topic, false, payload);
    }
    let ended = running.end();
    ended.is(0, "set 0, deleted 0, skipped 5, refused 0\n");
    for (line, count) in [
        ("message of data/a skipped: the payload is not JSON", 1),
        ("message of data/b skipped: the payload has no value at --value", 1),
        ("message of data skipped: its topic has too few levels for --key", 1),
        ("data/c", 0),
    ] {
        assert_eq!(ended.err.matches(line).count(), count, "{line}: {ended:?}");
    }
}

fn refusal_that_passes_is_repeated(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "1"]) else { return };
    here.run(&["set", "other", "v"]).version();
    let running = bridge(&here, &["--topic", "s/+", "--key", "{2}", "--count", "1"]);
    here.raw("sender").publish("s/a", false, "1");
    let notice = running.complaint();
    assert!(notice.contains("the key a") && notice.ends_with("; trying again"), "{notice}");
    here.run(&["del", "other"]).is(0, "");
    running.end().is(0, "set 1, deleted 0, skipped 0, refused 0\n");
    here.run(&["get", "a"]).is(0, "1");
}

fn changes_of_keys_are_published(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "state/1", "present"]).version();
    here.run(&["set", "other/1", "v"]).version();
    let mut raw = here.raw("subscriber");
    raw.subscribe("out/#");
    let options = ["--keys", "state/*", "--publish", "out/{2}/s", "--count", "5"];
    let running = bridge(&here, &options);
    assert_eq!(published(&mut raw), pair("out/1/s", "present"));
    for value in ["1", "2", "3"] {
        here.run(&["set", "state/1", value]).version();
    }
    for value in ["1", "2", "3"] {
        assert_eq!(published(&mut raw), pair("out/1/s", value), "each change, in order");
    }
    here.run(&["set", "other/1", "w"]).version();
    here.run(&["del", "state/1"]).is(0, "");
    let deletion = message(&mut raw, "out/");
    assert_eq!(content(&deletion), pair("out/1/s", ""));
    assert!(!deletion.retain && property(&deletion, "statestore-bridge").is_some());
    running.end().is(0, "published 5, skipped 0, refused 0\n");
    // Nothing is retained.
    let mut late = here.raw("late");
    late.subscribe("out/#");
    assert!(late.receives_nothing_more());
}

fn retained_messages_follow_their_keys(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "state/1", "a"]).version();
    here.run(&["set", "state/2", "b"]).version();
    let options = ["--keys", "state/*", "--publish", "out/{key}", "--retain"];
    let running = bridge(&here, &options);
    let mut raw = here.raw("subscriber");
    raw.subscribe("out/#");
    let mut retained = vec![published(&mut raw), published(&mut raw)];
    retained.sort();
    assert_eq!(retained, [pair("out/state/1", "a"), pair("out/state/2", "b")]);
    here.run(&["del", "state/1"]).is(0, "");
    assert_eq!(published(&mut raw), pair("out/state/1", ""));
    // A subscriber that comes later gets the key that is left.
    let mut late = here.raw("late");
    late.subscribe("out/#");
    let message = message(&mut late, "out/");
    assert_eq!(content(&message), pair("out/state/2", "b"));
    assert!(message.retain && late.receives_nothing_more());
    running.signal("-TERM");
    running.end().is(0, "published 3, skipped 0, refused 0\n");
}

fn keys_without_a_topic_are_skipped(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for key in ["s/a\u{1}b", "s/a\u{fdd0}", "s/ok", "s/a+b", "s"] {
        here.run(&["set", key, "v"]).version();
    }
    let mut raw = here.raw("subscriber");
    raw.subscribe("out/#");
    let options = ["bridge", "--keys", "s*", "--publish", "out/{2}", "--count", "5"];
    let ended = here.spawn(&options).end();
    ended.is(0, "published 1, skipped 4, refused 0\n");
    assert_eq!(published(&mut raw), pair("out/ok", "v"));
    for line in ["the key s/a+b skipped: its topic would contain", "the key s skipped: it has too"]
    {
        assert!(ended.err.contains(line), "{ended:?}");
    }
}

/// Neither direction passes on what the other one has caused.
fn both_directions_do_not_cause_each_other(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "state/1", "0"]).version();
    let mut raw = here.raw("device");
    raw.subscribe("out/#");
    let mut command = here.command(&["bridge"]);
    command.args(["--topic", "out/+", "--key", "state/{2}"]);
    command.args(["--keys", "state/*", "--publish", "out/{2}"]);
    let running = Running::start(&mut command);
    let lines = [running.complaint(), running.complaint()].concat();
    assert!(lines.contains("bridging out/+") && lines.contains("bridging the keys state/*"));
    assert_eq!(published(&mut raw), pair("out/1", "0"));
    // From the topic: each value arrives in the store, and nothing is published back.
    for value in ["1", "2", "3"] {
        raw.publish("out/1", false, value);
        assert_eq!(published(&mut raw), pair("out/1", value), "the message of the device itself");
    }
    here.wait_for_value("state/1", 0, "3");
    raw.publish("out/1", false, "");
    assert_eq!(published(&mut raw), pair("out/1", ""));
    here.wait_for_value("state/1", 1, "");
    // From the key: published once, and the key is not set again.
    let version = here.run(&["set", "state/1", "4"]).version();
    assert_eq!(published(&mut raw), pair("out/1", "4"));
    here.run(&["set", "state/1", "5"]).version();
    assert_eq!(published(&mut raw), pair("out/1", "5"));
    assert!(raw.receives_nothing_more(), "no loop");
    let found = here.run(&["get", "state/1", "--output", "json"]).json();
    assert_eq!(found["value"], "5");
    assert!(found["version"].as_str() > Some(&*version));
    running.signal("-TERM");
    let ended = running.end();
    ended.is(0, "set 3, deleted 1, skipped 0, refused 0\npublished 3, skipped 0, refused 0\n");
}

/// A publisher that creates more keys than a bridge can watch.
#[test]
fn excess_keys_do_not_end_the_bridge() {
    let Some(here) = Mode::Embedded.start(&[]) else { return };
    here.run(&["set", "state/!", "0"]).version();
    let mut command = here.command(&["bridge"]);
    command.args(["--topic", "in/+", "--key", "state/{2}"]);
    command.args(["--keys", "state/*", "--publish", "out/{2}"]);
    let running = Running::start(&mut command);
    let lines = [running.complaint(), running.complaint()].concat();
    assert!(lines.contains("bridging in/+") && lines.contains("bridging the keys state/*"));
    let mut hostile = here.raw("hostile");
    for number in 0..1_200 {
        hostile.publish(&format!("in/{number}"), false, "x");
    }
    let notice = running.complaint();
    assert!(notice.contains("--keys state/*: ") && notice.contains("keys skipped"), "{notice}");
    assert!(notice.contains("the limit is 1000; use a narrower pattern"), "{notice}");
    let mut raw = here.raw("device");
    raw.subscribe("out/!");
    here.run(&["set", "state/!", "1"]).version();
    assert_eq!(published(&mut raw), pair("out/!", "1"));
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn bridged_messages_are_skipped_unless_accepted(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "a/1", "v"]).version();
    let inbound = ["--topic", "out/+", "--key", "b/{2}", "--count", "1"];
    let skipping = bridge(&here, &inbound);
    let accepting = bridge(&here, &[&inbound[..], &["--accept-bridged"]].concat());
    let outbound = ["bridge", "--keys", "a/*", "--publish", "out/{2}", "--count", "1"];
    here.spawn(&outbound).end().is(0, "published 1, skipped 0, refused 0\n");
    let ended = skipping.end();
    ended.is(0, "set 0, deleted 0, skipped 1, refused 0\n");
    assert!(ended.err.contains("another bridge has published it; --accept-bridged"), "{ended:?}");
    accepting.end().is(0, "set 1, deleted 0, skipped 0, refused 0\n");
    here.run(&["get", "b/1"]).is(0, "v");
}

fn publishing_continues_after_a_restart_of_the_broker(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    here.run(&["set", "state/1", "before"]).version();
    let running = bridge(&here, &["--keys", "state/*", "--publish", "out/{2}", "--retain"]);
    let mut raw = here.raw("subscriber");
    raw.subscribe("out/#");
    assert_eq!(published(&mut raw), pair("out/1", "before"));
    drop(raw);
    here.restart_broker();
    // With an external broker, the store remains, but connects again only after some time.
    let (code, value) = if mode.has_external_broker() { (0, "before") } else { (1, "") };
    here.wait_for_value("state/1", code, value);
    let mut raw = here.raw("subscriber");
    raw.subscribe("out/#");
    here.run(&["set", "state/1", "after"]).version();
    while published(&mut raw) != pair("out/1", "after") {}
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The first connection is tried again until --timeout, as by `mirror`.
#[test]
fn bridge_waits_for_its_first_broker() {
    let Some(mut here) = Mode::Embedded.start(&[]) else { return };
    here.kill_store();
    let mut command = here.command(&["bridge", "--timeout", "60s"]);
    let running = Running::start(command.args(["--topic", "s/+", "--key", "{2}", "--count", "1"]));
    assert!(running.complaint().contains("still trying"));
    here.start_store();
    assert!(running.complaint().contains("bridging s/+"));
    here.raw("sender").publish("s/a", false, "1");
    running.end().is(0, "set 1, deleted 0, skipped 0, refused 0\n");
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
    wait_free(("127.0.0.1", here.port()));
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
        (&["--keys", "a/*", "--publish", "fixed"], &["write {key}"]),
        (&["--keys", "a/*", "--publish", "a/+/{2}"], &["without + and #"]),
        (&["--keys", "a/*", "--publish", "clients/{2}"], &["belong to the store"]),
        (&["--keys", "a/*", "--publish", "{topic}"], &["unknown placeholder {topic}", "{key}"]),
        (&["--keys", "*", "--publish", "a/{key}"], &["every key", "'state/*'", "--all-keys"]),
        (&["--keys", "a/*"], &["--publish"]),
        (&["--key", "k"], &["--topic"]),
        (&["--topic", "a", "--key", "k", "--retain"], &["--keys"]),
        (&[], &["--topic", "--keys"]),
    ] {
        run(statestore().arg("bridge").args(options)).fails(2, parts);
    }
    let line = ["bridge", "--topic", "a", "--key", "k", "--broker", "mqtt://127.0.0.1:1"];
    run(statestore().args(line).args(["--timeout", "3s"])).fails(3, &["--broker"]);
}
