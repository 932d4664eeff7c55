//! `serve --capture` and `replay`: a replay has the same effects, and differences are reported.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use statestore_capture::{CapturedStore, Next, next_frame};
use statestore_proto::store::StoreConfig;
use statestore_testkit::process::HANGS;
use tokio::time::Instant;

use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{Ended, run, statestore};

const SECRET: &str = "a value that must not be shown";

/// A directory that is removed when the test ends.
struct Kept(Scratch);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.path());
    }
}

fn replay(file: &Scratch, options: &[&str]) -> Ended {
    run(statestore().args(["replay", file.path()]).args(options))
}

/// Sends requests of several clients. Some requests are invalid.
fn work(server: &EmbeddedStore) {
    let run = |arguments: &[&str]| run(&mut server.command("mqtt", arguments));
    run(&["set", "k", SECRET, "--persist"]).version();
    run(&["set", "k", "other", "--nx"]).is(1, "");
    run(&["get", "k"]).is(0, SECRET);
    run(&["keys", "*"]).is(0, "k\n");
    run(&["set", "leased", SECRET, "--px", "1ms"]).version();
    run(&["vdel", "k", "other"]);
    run(&["vdel", "k", SECRET]);
    run(&["set", "kept", SECRET, "--persist"]).version();
}

fn stop(server: EmbeddedStore) {
    server.store.signal("-TERM");
    let ended = server.store.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn holds(file: &Scratch, text: &str) -> bool {
    let bytes = fs::read(file.path()).expect("the capture");
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn replay_repeats_the_captured_run() {
    let directory = Kept(Scratch::new("captured-data"));
    let data = directory.0.path();
    let (first, second) = (Scratch::new("first.rec"), Scratch::new("second.rec"));
    let server = EmbeddedStore::start(&["--data-dir", data, "--capture", first.path()]);
    work(&server);
    // A capture to an existing file would destroy the earlier capture.
    let mut again = statestore();
    again.args(["serve", "--listen", "127.0.0.1:0", "--capture", first.path()]);
    run(&mut again).fails(2, &["exists", "use another name"]);
    stop(server);
    let mode = fs::metadata(first.path()).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(holds(&first, SECRET), "the capture contains the values");
    let played = replay(&first, &[]);
    assert_eq!(played.code, Some(0), "{played:?}");
    assert!(played.text().ends_with("the end: the store has ended\nno difference\n"), "{played:?}");

    // The next store loads the data of the first one and is killed.
    let server = EmbeddedStore::start(&["--data-dir", data, "--capture", second.path()]);
    run(&mut server.command("mqtt", &["get", "kept"])).is(0, SECRET);
    // A thread writes the capture, so the file may be complete a little later.
    let waiting = Instant::now();
    while !holds(&second, SECRET) {
        assert!(waiting.elapsed() < HANGS, "the capture is not written in time");
        std::thread::yield_now();
    }
    server.store.kill();
    let played = replay(&second, &["--output", "json"]);
    assert_eq!(played.code, Some(0), "{played:?}");
    let report = played.json();
    assert_eq!(report["differences"], 0);
    assert!(report["restored"].as_u64() > Some(0), "{report}");
    assert!(report["end"].as_str().is_some_and(|end| end.contains("cut off")), "{report}");
}

#[test]
fn redacted_capture_contains_no_values() {
    let (plain, redacted, copy) =
        (Scratch::new("plain.rec"), Scratch::new("redacted.rec"), Scratch::new("copy.rec"));
    for (file, options) in [(&plain, &[][..]), (&redacted, &["--capture-redacted"])] {
        let server = EmbeddedStore::start(
            &[&["--explain-refusals", "--capture", file.path()], options].concat(),
        );
        work(&server);
        stop(server);
    }
    assert!(holds(&plain, SECRET) && !holds(&redacted, SECRET));
    assert!(holds(&redacted, "leased"), "keys are not replaced");
    replay(&plain, &["--redact", copy.path()]);
    assert!(!holds(&copy, SECRET));
    for file in [&plain, &redacted, &copy] {
        let played = replay(file, &["--output", "json"]);
        assert_eq!(played.code, Some(0), "{played:?}");
        assert_eq!(played.json()["messages"], 8, "{played:?}");
    }
    replay(&plain, &["--redact", copy.path()]).fails(2, &["exists"]);
}

/// The capture contains the decisions of the policy, so a replay does not need the policy.
#[test]
fn replay_does_not_need_the_policy() {
    let (policy, file) = (Scratch::new("captured.yaml"), Scratch::new("policy.rec"));
    let rules = r#"rules:
  - principals: {clientIds: [ann]}
    brokerResources:
      - method: Connect
      - method: Publish
        topics: ["statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"]
      - method: Subscribe
        topics: ["clients/{principal.clientId}/#", "clients/statestore/+/+/+/command/notify/+"]
    stateStoreResources:
      - {method: ReadWrite, keys: [k]}
"#;
    fs::write(policy.path(), rules).expect("a file");
    let server = EmbeddedStore::start(&["--policy", policy.path(), "--capture", file.path()]);
    run(&mut server.command("mqtt", &["set", "k", "v", "--client-id", "ann"])).version();
    run(&mut server.command("mqtt", &["set", "other", "v", "--client-id", "ann"]))
        .fails(2, &["not authorized"]);
    stop(server);
    let played = replay(&file, &[]);
    assert_eq!(played.code, Some(0), "{played:?}");
}

#[test]
fn capture_ends_at_its_size_limit() {
    let file = Scratch::new("short.rec");
    let server = EmbeddedStore::start(&["--capture", file.path(), "--capture-max-bytes", "2000"]);
    work(&server);
    stop(server);
    assert!(fs::metadata(file.path()).expect("the file").len() < 2_200);
    let played = replay(&file, &[]);
    assert_eq!(played.code, Some(0), "{played:?}");
    assert!(played.text().contains("the file has reached its maximum size"), "{played:?}");
}

/// Returns the first frame of a capture and the remaining bytes.
fn split(capture: &[u8]) -> (&[u8], &[u8]) {
    let Ok(Next::Frame(_, rest)) = next_frame(capture) else { panic!("no frame") };
    capture.split_at(capture.len() - rest.len())
}

/// A store with another configuration behaves differently, as a faulty store would.
#[test]
fn replay_reports_differences() {
    let file = Scratch::new("differs.rec");
    let server = EmbeddedStore::start(&["--capture", file.path()]);
    run(&mut server.command("mqtt", &["set", "k", "v", "--fencing-token", "1:0:x"])).version();
    stop(server);
    let mut other = CapturedStore::capturing(StoreConfig::new(7).incarnation(1), None);
    let other = other.take_capture();
    let capture = fs::read(file.path()).expect("the capture");
    fs::write(file.path(), [split(&other).0, split(&capture).1].concat()).expect("a file");
    let played = replay(&file, &[]);
    assert_eq!(played.code, Some(1), "{played:?}");
    let text = played.text();
    let shown = ["after message 1: SET \"k\"", "  captured: PUBLISH", "  replayed: PUBLISH"];
    assert!(shown.iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(
        replay(&file, &["--output", "json", "--differences", "0"]).json()["shown"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    // A damaged capture, and a file that is not a capture.
    let mut damaged = capture;
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(file.path(), damaged).expect("a file");
    let played = replay(&file, &["--output", "json"]);
    assert_eq!((played.code, &played.json()["messages"]), (Some(2), &1.into()), "{played:?}");
    for nothing in ["", "a text"] {
        fs::write(file.path(), nothing).expect("a file");
        replay(&file, &[]).fails(2, &["statestore serve --capture"]);
    }
}
