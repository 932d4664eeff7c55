//! Outages and restarts of brokers and stores.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use statestore_testkit::wire::raw::{RawRequest, array};

use crate::deployment::{Deployment, Mode, in_each_mode};
use crate::dialects::order;
use crate::process::Running;

in_each_mode!(
    watch_survives_a_restart_of_the_broker,
    store_survives_a_restart_of_its_broker,
    watch_reports_a_restart_of_the_store,
    requests_wait_for_a_restarted_store,
    release_without_a_store_can_be_stopped,
);

/// A watch with a short retry interval, which is also the time limit of its first connection.
fn watch(here: &Deployment) -> Running {
    Running::start(
        here.command(&["watch", "k", "--output", "json"]).env("STATESTORE_TIMEOUT", "5s"),
    )
}

/// Sets the key as soon as a store is available.
fn set(here: &Deployment, value: &str) -> String {
    // A request can be lost with a connection. Its exit code then reports that.
    for _ in 0..400 {
        let ended = here.run(&["set", "k", value, "--timeout", "1s"]);
        if ended.code != Some(3) {
            return ended.version();
        }
        pause();
    }
    panic!("no request sets the value {value}");
}

/// Reads the output of a watch up to this value. Returns the earlier lines that report no change of
/// the value.
fn until(watch: &Running, value: Option<&str>) -> Vec<Value> {
    let mut others = Vec::new();
    loop {
        let event = watch.json();
        match event["result"].as_str() {
            Some("set") if event["value"].as_str() == value => return others,
            Some("deleted") if value.is_none() => return others,
            Some("set" | "deleted") => {}
            _ => others.push(event["result"].clone()),
        }
    }
}

fn watch_survives_a_restart_of_the_broker(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    set(&here, "before");
    let mut watch = watch(&here);
    assert_eq!(until(&watch, Some("before")), [json!(null); 0]);
    assert_eq!(watch.json()["result"], "live");
    for turn in ["first", "second"] {
        here.restart_broker();
        assert_eq!(watch.json(), json!({"key": "k", "result": "gap"}), "{turn}");
        set(&here, turn);
        let mut results = until(&watch, Some(turn));
        // The gap closes before that change or after it.
        if results.is_empty() {
            results.push(watch.json()["result"].clone());
        }
        assert_eq!(results, ["live"], "{turn}");
        here.run(&["del", "k"]).is(0, "");
        assert!(until(&watch, None).is_empty(), "{turn}");
    }
    assert!(watch.runs());
    watch.signal("-TERM");
    watch.end().is(0, "");
}

fn store_survives_a_restart_of_its_broker(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("the store is gone with its broker");
    }
    let Some(mut here) = mode.start(&[]) else { return };
    let version = set(&here, "before");
    here.run(&["set", "fenced", "v", "--fencing-token", &version]).version();
    here.restart_broker();
    let after = set(&here, "after");
    assert!(order(&after) > order(&version));
    here.run(&["get", "k"]).is(0, "after");
    here.run(&["del", "fenced"]).fails(2, &["fencing token is required"]);
    let mut store = here.take_store();
    assert!(store.runs());
    store.signal("-INT");
    store.end().is(0, "");
}

fn watch_reports_a_restart_of_the_store(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    let before = set(&here, "before");
    let mut watch = watch(&here);
    until(&watch, Some("before"));
    assert_eq!(watch.json()["result"], "live");
    here.kill_store();
    here.start_store();
    // The keys in memory are lost. The issued versions still grow.
    here.run(&["get", "k"]).is(1, "");
    let after = set(&here, "after");
    assert!(order(&after) > order(&before), "{after} after {before}");
    // New clients are served without restrictions.
    let other = here.spawn(&["watch", "k", "--output", "json", "--count", "2"]);
    assert_eq!(other.json()["value"], "after");
    set(&here, "again");
    until(&other, Some("again"));
    other.end().is(0, "");
    // The earlier watch may have noticed the restart. Otherwise it learns about it on its next
    // connection.
    assert!(watch.runs());
    here.restart_broker();
    set(&here, "last");
    let results = until(&watch, Some("last"));
    assert!(results.iter().any(|result| result == "gap"), "{results:?}");
    watch.signal("-TERM");
    assert_eq!(watch.end().code, Some(0));
}

fn requests_wait_for_a_restarted_store(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("the broker ends with the store");
    }
    let Some(mut here) = mode.start(&[]) else { return };
    for signal in ["-KILL", "-TERM"] {
        let store = here.take_store();
        store.signal(signal);
        store.end();
        let mut raw = here.raw("raw");
        let payload = array(&[b"SET", b"k", signal.as_bytes()]);
        let ask = RawRequest::deployed("raw", payload);
        assert!(raw.deliver(&ask), "the broker has it");
        here.start_store();
        assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
        here.run(&["get", "k"]).is(0, signal);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "whether a store is back shows by asking, again and again"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

fn release_without_a_store_can_be_stopped(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    let script = "echo held; read line";
    let mut command = here.command(&["lock", "l", "--lease", "10m", "--", "sh", "-c", script]);
    let mut holder = Running::start(command.stdin(Stdio::piped()));
    let leader = here.spawn(&["elect", "e", "--candidate", "me", "--lease", "10m"]);
    assert_eq!(holder.line(), "held");
    while leader.line() != "me" {}
    here.kill_store();
    leader.signal("-TERM");
    holder.write_line("go on");
    // One of these signals may still reach the command. The next one ends the wait.
    for _ in 0..50 {
        pause();
        if !holder.runs() {
            break;
        }
        holder.signal("-TERM");
    }
    let ended = holder.end();
    assert!(ended.err.contains("did not confirm the release of l"), "{ended:?}");
    let ended = leader.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("did not confirm the release of e"), "{ended:?}");
}
