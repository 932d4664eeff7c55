//! `mirror`: copies between two stores.

use statestore_proto::hlc::{Hlc, NodeId};
use statestore_proto::time::UnixTime;
use statestore_testkit::wire::raw::unix_ms;

use crate::deployment::{Deployment, Mode, in_each_mode, test_name};
use crate::embedded_broker::Scratch;
use crate::process::{Running, run, statestore};

in_each_mode!(
    keys_and_changes_are_mirrored,
    mirror_continues_after_a_restart_of_the_target,
    target_that_restarted_empty_gets_all_keys_again,
    deletion_during_a_restart_of_the_target_is_copied,
    too_many_keys_are_refused_before_the_first_copy,
    older_copy_never_replaces_a_newer_one,
    refusal_that_passes_is_repeated,
    mirror_onto_itself_is_refused,
);

fn mirror(from: &Deployment, to: &Deployment, options: &[&str]) -> Running {
    let mut command = statestore();
    command.args(["mirror", &from.url(), &to.url(), "--keys", "rooms/*", "--timeout", "5s"]);
    Running::start(command.args(options))
}

fn keys_and_changes_are_mirrored(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let Some(to) = mode.start(&[]) else { return };
    from.run(&["set", "rooms/1", "21"]).version();
    from.run_with_input(&["set", "rooms/2", "--file", "-"], b"\x00\xff").version();
    from.run(&["set", "lamps/1", "on"]).version();
    let once = mirror(&from, &to, &["--once"]).end();
    assert_eq!(once.code, Some(0), "{once:?}");
    assert!(once.text().contains("stopped: copied 2, deleted 0,"), "{once:?}");
    assert!(once.text().contains(", refused 0, waiting 0, lag "), "{once:?}");
    to.run(&["get", "rooms/1"]).is(0, "21");
    assert_eq!(to.run(&["get", "rooms/2"]).out, b"\x00\xff");
    to.run(&["get", "lamps/1"]).is(1, "");

    let running = mirror(&from, &to, &["--output", "json"]);
    assert_eq!(running.json()["result"], "live");
    from.run(&["set", "rooms/1", "22"]).version();
    to.wait_for_value("rooms/1", 0, "22");
    from.run(&["del", "rooms/1"]).is(0, "");
    to.wait_for_value("rooms/1", 1, "");
    let watch = to.spawn(&["watch", "rooms/1", "--output", "json", "--count", "2"]);
    while watch.json()["result"] != "live" {}
    from.run(&["set", "rooms/1", "23", "--px", "300ms"]).version();
    assert_eq!(watch.json()["value"], "23");
    assert_eq!(watch.json()["result"], "deleted", "it expires");
    assert_eq!(watch.end().code, Some(0));
    // A new key is found by the next listing.
    from.run(&["set", "rooms/3", "new"]).version();
    to.wait_for_value("rooms/3", 0, "new");
    assert_eq!(to.run(&["keys", "*"]).text(), "rooms/2\nrooms/3\n", "the probe is deleted");
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn mirror_continues_after_a_restart_of_the_target(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let Some(mut to) = mode.start(&[]) else { return };
    from.run(&["set", "rooms/1", "1"]).version();
    let running = mirror(&from, &to, &[]);
    assert!(running.line().starts_with("live: "));
    to.wait_for_value("rooms/1", 0, "1");
    to.kill_store();
    from.run(&["set", "rooms/1", "2"]).version();
    from.run(&["set", "rooms/1", "3"]).version();
    to.start_store();
    to.wait_for_value("rooms/1", 0, "3");
    running.kill();
}

fn target_that_restarted_empty_gets_all_keys_again(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let Some(mut to) = mode.start(&[]) else { return };
    from.run(&["set", "rooms/1", "1"]).version();
    from.run(&["set", "rooms/2", "2"]).version();
    let running = mirror(&from, &to, &[]);
    assert!(running.line().starts_with("live: "));
    to.wait_for_value("rooms/1", 0, "1");
    to.kill_store();
    to.start_store();
    // No key of the source changes.
    while !running.complaint().contains("target: the store was restarted") {}
    to.wait_for_value("rooms/1", 0, "1");
    to.wait_for_value("rooms/2", 0, "2");
    // Changes are mirrored as before.
    from.run(&["set", "rooms/1", "3"]).version();
    to.wait_for_value("rooms/1", 0, "3");
    running.kill();
}

/// The source is paused, so that its key expires while the mirror cannot receive that.
fn deletion_during_a_restart_of_the_target_is_copied(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let directory = Scratch::new(&format!("{}-data", test_name()));
    let Some(mut to) = mode.start(&["--data-dir", directory.path(), "--durable", "all"]) else {
        return;
    };
    from.run(&["set", "rooms/1", "1"]).version();
    from.run(&["set", "rooms/2", "2"]).version();
    let running = mirror(&from, &to, &[]);
    assert!(running.line().starts_with("live: "));
    to.wait_for_value("rooms/1", 0, "1");
    from.run(&["set", "rooms/1", "1", "--px", "1s"]).version();
    from.store().signal("-STOP");
    to.kill_store();
    to.start_store();
    while !running.complaint().contains("target: the store was restarted") {}
    from.store().signal("-CONT");
    to.wait_for_value("rooms/1", 1, "");
    to.wait_for_value("rooms/2", 0, "2");
    running.kill();
}

fn too_many_keys_are_refused_before_the_first_copy(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let Some(to) = mode.start(&[]) else { return };
    let header = r#"{"format":"statestore-dump","format_version":1,"from":"requests"}"#;
    let keys = (0..1_001).map(|key| format!("{{\"key\":\"rooms/{key}\",\"value\":\"v\"}}\n"));
    let import = format!("{header}\n{}", keys.collect::<String>());
    from.run_with_input(&["import"], import.as_bytes())
        .is(0, "set 1001, not applied 0, expired 0, refused 0\n");
    mirror(&from, &to, &["--once"]).end().fails(2, &["more than 1000 keys match", "narrower"]);
    to.run(&["keys", "*"]).is(1, "");
}

fn older_copy_never_replaces_a_newer_one(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let Some(to) = mode.start(&[]) else { return };
    from.run(&["set", "rooms/1", "old"]).version();
    // A mirror of a later state of the source has written the key.
    let node = NodeId::new("StateStore").expect("a node id");
    let later = Hlc::new(UnixTime::from_millis(unix_ms() + 20_000), 0, node).to_string();
    to.run(&["set", "rooms/1", "newer", "--fencing-token", &later]).version();
    let ended = mirror(&from, &to, &["--once"]).end();
    assert!(ended.text().contains("copied 0, deleted 0, newer in the target 1"), "{ended:?}");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    to.run(&["get", "rooms/1"]).is(0, "newer");
}

fn refusal_that_passes_is_repeated(mode: Mode) {
    let Some(from) = mode.start(&[]) else { return };
    let Some(to) = mode.start(&["--max-keys", "2"]) else { return };
    to.run(&["set", "other/1", "v"]).version();
    let running = mirror(&from, &to, &[]);
    assert!(running.line().starts_with("live: "));
    to.run(&["set", "other/2", "v"]).version();
    from.run(&["set", "rooms/1", "21"]).version();
    let notice = running.complaint();
    assert!(notice.contains("rooms/1") && notice.contains("quota"), "{notice}");
    assert!(notice.ends_with("; trying again"), "{notice}");
    to.run(&["del", "other/2"]).is(0, "");
    to.wait_for_value("rooms/1", 0, "21");
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.text().contains("refused 0"), "{ended:?}");
}

fn mirror_onto_itself_is_refused(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    mirror(&here, &here, &[]).end().fails(2, &["FROM and TO are the same store"]);
    // By another name of the same machine.
    let (url, other) = (here.url(), here.url().replace("127.0.0.1", "localhost"));
    let mut command = statestore();
    command.args(["mirror", &url, &other, "--keys", "rooms/*", "--timeout", "5s"]);
    run(&mut command).fails(2, &["FROM and TO are the same store", "another target"]);
    here.run(&["keys", "*"]).is(1, "");
}

#[test]
fn mirror_of_everything_is_refused() {
    for keys in ["*", "**", "?*", "*?*", "???"] {
        let line = ["mirror", "mqtt://a", "mqtt://b", "--keys", keys];
        run(statestore().args(line)).fails(2, &["every key", "'rooms/*'", "statestore export"]);
    }
    let line = ["mirror", "mqtt://127.0.0.1:1", "mqtt://127.0.0.1:2", "--keys", "a/*"];
    let ended = run(statestore().args(line).args(["--timeout", "200ms"]));
    ended.fails(3, &["target: ", "check TO"]);
    let line = ["mirror", "http://a", "mqtt://b", "--keys", "a/*"];
    run(statestore().args(line)).fails(2, &["source: FROM: URL 1 is invalid", "mqtt://HOST:PORT"]);
    let line = ["mirror", "mqtt://a", "mqtt://b", "--keys", "a/*", "--to-password", "secret"];
    run(statestore().args(line)).fails(2, &["target: --to-password requires --to-user"]);
}
