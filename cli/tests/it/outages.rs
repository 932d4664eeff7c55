//! Brokers and stores that die and come back.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use statestore_testkit::wire::raw::{Ask, array};

use crate::dialects::order;
use crate::place::{Form, Place, everywhere};
use crate::process::Running;

everywhere!(
    a_watch_outlives_the_broker,
    a_store_outlives_its_broker,
    a_watch_and_a_store_that_starts_again,
    requests_wait_for_a_store_that_starts_again,
    who_gives_back_to_nobody_can_be_told_to_end,
);

/// A watch that tries again soon.
fn watch(here: &Place) -> Running {
    Running::start(
        here.command(&["watch", "k", "--output", "json"]).env("STATESTORE_TIMEOUT", "500ms"),
    )
}

/// Sets the key as soon as there is a store.
fn set(here: &Place, value: &str) -> String {
    // A request can be lost with a connection; its exit code says so.
    for _ in 0..400 {
        let ended = here.run(&["set", "k", value, "--timeout", "1s"]);
        if ended.code != Some(3) {
            return ended.version();
        }
        pause();
    }
    panic!("nobody takes the value {value}");
}

/// Reads what a watch prints until it is this value; gives what it printed before that was no change of the value.
fn until(watch: &Running, value: Option<&str>) -> Vec<Value> {
    let mut others = Vec::new();
    loop {
        let told = watch.json();
        match told["result"].as_str() {
            Some("set") if told["value"].as_str() == value => return others,
            Some("deleted") if value.is_none() => return others,
            Some("set" | "deleted") => {}
            _ => others.push(told["result"].clone()),
        }
    }
}

fn a_watch_outlives_the_broker(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    set(&here, "before");
    let mut watch = watch(&here);
    assert_eq!(until(&watch, Some("before")), [json!(null); 0]);
    assert_eq!(watch.json()["result"], "live");
    for turn in ["first", "second"] {
        here.restart_broker();
        assert_eq!(watch.json(), json!({"key": "k", "result": "gap"}), "{turn}");
        set(&here, turn);
        let mut told = until(&watch, Some(turn));
        // The gap is closed before that change or after it.
        if told.is_empty() {
            told.push(watch.json()["result"].clone());
        }
        assert_eq!(told, ["live"], "{turn}");
        here.run(&["del", "k"]).is(0, "");
        assert!(until(&watch, None).is_empty(), "{turn}");
    }
    assert!(watch.runs());
    watch.signal("-TERM");
    watch.end().is(0, "");
}

fn a_store_outlives_its_broker(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("the store is gone with its broker");
    }
    let Some(mut here) = form.start(&[]) else { return };
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

fn a_watch_and_a_store_that_starts_again(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    let before = set(&here, "before");
    let mut watch = watch(&here);
    until(&watch, Some("before"));
    assert_eq!(watch.json()["result"], "live");
    here.kill_store();
    here.start_store();
    // What a store keeps in memory is gone with it, the versions it issues go on.
    here.run(&["get", "k"]).is(1, "");
    let after = set(&here, "after");
    assert!(order(&after) > order(&before), "{after} after {before}");
    // Whoever comes now is served in full.
    let other = here.spawn(&["watch", "k", "--output", "json", "--count", "2"]);
    assert_eq!(other.json()["value"], "after");
    set(&here, "again");
    until(&other, Some("again"));
    other.end().is(0, "");
    // The watch from before may have noticed or not. It is told at the latest by its next connection.
    assert!(watch.runs());
    here.restart_broker();
    set(&here, "last");
    let told = until(&watch, Some("last"));
    assert!(told.iter().any(|told| told == "gap"), "{told:?}");
    watch.signal("-TERM");
    assert_eq!(watch.end().code, Some(0));
}

fn requests_wait_for_a_store_that_starts_again(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("there is no broker to keep them");
    }
    let Some(mut here) = form.start(&[]) else { return };
    for signal in ["-KILL", "-TERM"] {
        let store = here.take_store();
        store.signal(signal);
        store.end();
        let mut raw = here.raw("raw");
        let payload = array(&[b"SET", b"k", signal.as_bytes()]);
        let ask = Ask::deployed("raw", payload);
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

fn who_gives_back_to_nobody_can_be_told_to_end(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    let script = "echo held; read line";
    let mut command = here.command(&["lock", "l", "--lease", "10m", "--", "sh", "-c", script]);
    let mut holder = Running::start(command.stdin(Stdio::piped()));
    let leader = here.spawn(&["elect", "e", "--candidate", "me", "--lease", "10m"]);
    assert_eq!(holder.line(), "held");
    while leader.line() != "me" {}
    here.kill_store();
    leader.signal("-TERM");
    holder.say("go on");
    // Of these signals one may still reach the command, and the next one ends the wait.
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
