//! The command itself, over a real broker: what a person types, what comes back, how it exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use statestore_tests::mosquitto::Mosquitto;

/// A broker and a store beside it.
struct Beside {
    broker: Mosquitto,
    store: Child,
}

impl Beside {
    fn start(test: &str, options: &[&str]) -> Option<Self> {
        let broker = Mosquitto::start(test)?;
        let store = serve(&broker, options);
        Some(Self { broker, store })
    }

    /// Runs the command against this broker.
    fn run(&self, arguments: &[&str]) -> Output {
        command(&self.broker).args(arguments).output().expect("the command runs")
    }

    /// Runs it and gives exit code and standard output.
    fn told(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.store.kill();
        let _ = self.store.wait();
    }
}

fn command(broker: &Mosquitto) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statestore"));
    command.env("STATESTORE_BROKER", format!("mqtt://127.0.0.1:{}", broker.port()));
    command.env("STATESTORE_TIMEOUT", "5s");
    command
}

/// Starts a store and waits for its line.
fn serve(broker: &Mosquitto, options: &[&str]) -> Child {
    let mut child = command(broker)
        .arg("serve")
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .expect("serve starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("statestore: ready on mqtt://127.0.0.1:"), "{line:?}");
    child
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {name}");
}

#[test]
fn values_come_and_go() {
    let Some(here) = Beside::start("values_come_and_go", &[]) else { return };
    assert_eq!(here.told(&["get", "k"]), (Some(1), String::new()));
    let (code, version) = here.told(&["set", "k", "21"]);
    assert_eq!(code, Some(0));
    assert!(version.ends_with(":StateStore\n"), "{version:?}");
    assert_eq!(here.told(&["get", "k"]), (Some(0), "21".to_owned()));
    let json = here.told(&["get", "k", "--output", "json"]).1;
    assert_eq!(
        json,
        format!(
            "{{\"key\":\"k\",\"result\":\"found\",\"value\":\"21\",\"version\":\"{}\"}}\n",
            version.trim()
        )
    );
    assert_eq!(here.told(&["vdel", "k", "22"]).0, Some(1));
    assert_eq!(here.told(&["vdel", "k", "21"]).0, Some(0));
    assert_eq!(here.told(&["del", "k"]).0, Some(1));
}

#[test]
fn any_bytes_go_through_a_file_and_standard_input() {
    let Some(here) = Beside::start("any_bytes_go_through_a_file_and_standard_input", &[]) else {
        return;
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(65_000).collect();
    let mut set = command(&here.broker)
        .args(["set", "blob", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("set starts");
    set.stdin.take().expect("piped").write_all(&bytes).expect("it reads");
    assert!(set.wait().expect("it ends").success());
    assert_eq!(here.run(&["get", "blob"]).stdout, bytes);
}

#[test]
fn conditions_and_tokens_hold() {
    let Some(here) = Beside::start("conditions_and_tokens_hold", &["--node-id", "edge-1"]) else {
        return;
    };
    let (code, first) = here.told(&["set", "lock", "me", "--nex", "--px", "60s"]);
    assert_eq!((code, first.trim().rsplit(':').next()), (Some(0), Some("edge-1")));
    assert_eq!(
        here.told(&["set", "lock", "you", "--nex", "--px", "60s"]),
        (Some(1), String::new())
    );
    assert_eq!(here.told(&["set", "lock", "you", "--nx"]).0, Some(1));
    let (code, second) = here.told(&["set", "lock", "me", "--nex", "--px", "60s"]);
    assert_eq!(code, Some(0));
    assert_eq!(here.told(&["set", "valve", "open", "--fencing-token", second.trim()]).0, Some(0));
    let stale = here.run(&["set", "valve", "shut", "--fencing-token", first.trim()]);
    assert_eq!(stale.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&stale.stderr).contains("lower version"));
    assert_eq!(here.told(&["del", "valve"]).0, Some(2), "a fenced key needs a token");
    assert_eq!(here.told(&["set", "valve", "x", "--fencing-token", "1:2"]).0, Some(2));
}

#[test]
fn a_watch_prints_what_happens() {
    let Some(here) = Beside::start("a_watch_prints_what_happens", &[]) else { return };
    assert_eq!(here.told(&["set", "k", "one"]).0, Some(0));
    let mut watch = command(&here.broker)
        .args(["watch", "k", "--output", "json", "--count", "4"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("watch starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut next = || {
        let line = lines.next().expect("another line").expect("text");
        line.split("\"version\"").next().unwrap_or_default().to_owned()
    };
    assert_eq!(next(), r#"{"key":"k","result":"set","value":"one","#);
    assert_eq!(next(), r#"{"key":"k","result":"live"}"#);
    assert_eq!(here.told(&["set", "k", "two", "--px", "50ms"]).0, Some(0));
    assert_eq!(next(), r#"{"key":"k","result":"set","value":"two","#);
    assert_eq!(next(), r#"{"key":"k","result":"deleted","#, "it expires");
    assert_eq!(here.told(&["set", "k", "three"]).0, Some(0));
    assert_eq!(next(), r#"{"key":"k","result":"set","value":"three","#);
    assert!(watch.wait().expect("it ends").success(), "after four changes");
}

#[test]
fn without_a_store_or_a_broker_it_says_what_to_do() {
    let Some(broker) = Mosquitto::start("without_a_store_or_a_broker_it_says_what_to_do") else {
        return;
    };
    let output = command(&broker).args(["get", "k"]).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("statestore serve"), "{output:?}");
    let nowhere = ["get", "k", "--broker", "mqtt://127.0.0.1:1", "--timeout", "300ms"];
    let output = command(&broker).args(nowhere).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--broker"), "{output:?}");
    let output = command(&broker)
        .args(["get", "k", "--broker", "tcp://x"])
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn serve_ends_cleanly_on_both_signals() {
    let Some(broker) = Mosquitto::start("serve_ends_cleanly_on_both_signals") else { return };
    for name in ["-INT", "-TERM"] {
        let mut child = serve(&broker, &["--dialect", "page", "--strict-verbs", "--max-keys", "1"]);
        let set = |key: &str| {
            command(&broker).args(["set", key, "v"]).output().expect("the command runs")
        };
        assert_eq!(set("a").status.code(), Some(0));
        let refused = set("b");
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("quota"));
        signal(&child, name);
        assert!(child.wait().expect("it ends").success(), "{name}");
        let mut rest = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "", "one line and no more");
    }
}

#[test]
fn bench_measures_and_cleans_up() {
    let Some(here) = Beside::start("bench_measures_and_cleans_up", &[]) else { return };
    let (code, table) =
        here.told(&["bench", "--requests", "500", "--in-flight", "16", "--output", "json"]);
    assert_eq!(code, Some(0));
    assert!(table.contains("\"requests\":500") && table.contains("\"p99_ms\""), "{table}");
}

#[test]
fn completions_and_manual_need_no_broker() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_statestore")).args(arguments).output();
        String::from_utf8(output.expect("the command runs").stdout).expect("text")
    };
    assert!(run(&["completions", "bash"]).contains("_statestore"));
    assert!(run(&["man"]).contains(".TH statestore 1"));
    assert!(run(&["--help"]).contains("Exit codes"));
}
