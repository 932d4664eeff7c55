//! Stores that fail over, with a real etcd.

use statestore_testkit::brokers::Etcd;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::Port;
use statestore_testkit::wire::raw::{Raw, RawRequest, array, response_topic};

use crate::deployment::test_name;
use crate::process::{Running, run, statestore};

/// The shortest valid lease.
const SHORT: &str = "2s";

/// A store with an embedded broker on a free port.
struct Store {
    process: Running,
    url: String,
}

/// Starts `serve` with this etcd.
fn serve(etcd: &str, options: &[&str]) -> Running {
    serve_for(etcd, SHORT, options)
}

fn serve_for(etcd: &str, lease: &str, options: &[&str]) -> Running {
    let mut command = statestore();
    command.args(["serve", "--etcd", etcd, "--etcd-lease", lease]).args(options);
    Running::start(&mut command)
}

/// Starts a store that leads.
fn leader(etcd: &str) -> Store {
    leader_for(etcd, SHORT)
}

fn leader_for(etcd: &str, lease: &str) -> Store {
    let process = serve_for(etcd, lease, &["--listen", "127.0.0.1:0"]);
    let line = process.line();
    let url = line.split_once("ready on ").and_then(|(_, rest)| rest.split_once(';'));
    let url = url.expect("where it is").0.to_owned();
    assert!(line.contains("all keys survive in etcd at "), "{line}");
    Store { process, url }
}

/// Starts a standby. It reports its role once it knows the leader.
fn standby(etcd: &str, port: &Port) -> Running {
    let process = serve(etcd, &["--listen", &format!("127.0.0.1:{}", port.number())]);
    until(&process, "leads, at 127.0.0.1:");
    process
}

/// Reads messages up to the first one that contains this text.
fn until(process: &Running, part: &str) -> String {
    loop {
        let line = process.complaint();
        if line.contains(part) {
            return line;
        }
    }
}

#[test]
fn standby_redirects_clients_and_takes_over() {
    let Some(etcd) = Etcd::start(&test_name()) else { return };
    let first = leader_for(&etcd.url(), "600s");
    run(statestore().args(["set", "--broker", &first.url, "k", "v"])).version();
    let port = Port::free();
    let second = standby(&etcd.url(), &port);
    let other = format!("mqtt://127.0.0.1:{}", port.number());
    let refused = run(statestore().args(["get", "--broker", &other, "--timeout", "5s", "k"]));
    refused.fails(3, &["use another server"]);
    let both = format!("{other},{}", first.url);
    let get = |timeout: &str| {
        run(statestore().args(["get", "--broker", &both, "--timeout", timeout, "k"]))
    };
    get("20s").is(0, "v");
    // The leader resigns, so the standby does not wait for the lease of ten minutes.
    first.process.signal("-TERM");
    assert!(second.line().contains("1 key loaded"));
    first.process.end().is(0, "");
    get("20s").is(0, "v");
    // A standby also succeeds a killed leader.
    let third_port = Port::free();
    let third = standby(&etcd.url(), &third_port);
    second.kill();
    assert!(third.line().contains("1 key loaded"));
    third.signal("-TERM");
    third.end().is(0, "");
}

#[test]
fn status_shows_leader_and_standbys() {
    let Some(etcd) = Etcd::start(&test_name()) else { return };
    let url = etcd.url();
    let status =
        |options: &[&str]| run(statestore().args(["status", "--etcd", &url]).args(options));
    status(&[]).fails(2, &["no store has written below the prefix /statestore/"]);
    let first = leader(&url);
    let port = Port::free();
    let second = standby(&url, &port);
    // The standby publishes its state within a second of its first read.
    let seen = loop {
        let seen = status(&["--output", "json"]).json();
        if seen["standbys"].as_array().is_some_and(|standbys| !standbys.is_empty()) {
            break seen;
        }
    };
    assert_eq!((&seen["epoch"], &seen["standbys"][0]["lag"]), (&1.into(), &0.into()));
    let address = first.url.trim_start_matches("mqtt://");
    assert_eq!(
        (&seen["leader"]["address"], seen["standbys"].as_array().unwrap().len()),
        (&address.into(), 1)
    );
    let text = status(&[]);
    assert_eq!(text.code, Some(0));
    let lines: Vec<&str> = text.text().lines().collect();
    assert!(
        lines[0].starts_with("leads      ")
            && lines[0].contains(&format!(" at {address}, since 20"))
            && lines[0].contains(", lease expires in "),
        "{lines:?}"
    );
    assert!(lines[1].contains(" at 127.0.0.1:") && lines.len() == 2, "{lines:?}");
    assert!(lines[1].contains(", 0 transactions behind, last report "), "{lines:?}");
    first.process.signal("-TERM");
    first.process.end().is(0, "");
    assert!(second.line().contains("0 keys loaded"));
    second.signal("-TERM");
    second.end().is(0, "");
    let cluster = status(&[]);
    assert_eq!(cluster.code, Some(1), "{cluster:?}");
    assert!(cluster.text().starts_with("no store leads; "), "{cluster:?}");
}

#[test]
fn suspended_leader_becomes_standby_and_sends_no_stale_data() {
    let Some(etcd) = Etcd::start(&test_name()) else { return };
    let first = leader(&etcd.url());
    let port: u16 = first.url.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let mut raw = Raw::connect(port, "raw");
    raw.subscribe(&response_topic("raw"));
    assert_eq!(raw.command(&["SET", "k", "old"]), b"+OK\r\n");
    let second_port = Port::free();
    let second = standby(&etcd.url(), &second_port);
    first.process.signal("-STOP");
    let line = second.line();
    let url = line.split_once("ready on ").and_then(|(_, rest)| rest.split_once(';'));
    let url = url.expect("where it is").0;
    run(statestore().args(["set", "--broker", url, "k", "new"])).version();
    // The stopped leader reads this request before it learns about the new leader.
    let ask = RawRequest::deployed("raw", array(&[b"GET", b"k"]));
    raw.send(&ask);
    first.process.signal("-CONT");
    until(&first.process, "standby again");
    until(&first.process, "leads, at 127.0.0.1:");
    let _ = raw.ended();
    let stale = raw.take_messages();
    assert!(stale.is_empty(), "stale packets: {stale:?}");
    run(statestore().args(["get", "--broker", url, "k"])).is(0, "new");
    second.kill();
    assert!(first.process.line().contains("1 key loaded"));
    run(statestore().args(["get", "--broker", &first.url, "k"])).is(0, "new");
}

#[test]
fn next_leader_at_an_external_broker_processes_pending_requests() {
    let Some(etcd) = Etcd::start(&test_name()) else { return };
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let external = ["--broker", &url, "--advertise", "a"];
    let first = serve(&etcd.url(), &[&external[..], &["--etcd-name", "one"]].concat());
    assert!(first.line().contains("as client statestore"));
    let second = serve(&etcd.url(), &["--broker", &url, "--advertise", "b"]);
    until(&second, "one leads, at a");
    let mut raw = Raw::connect(broker.port(), "raw");
    raw.subscribe(&response_topic("raw"));
    assert_eq!(raw.command(&["SET", "k", "1"]), b"+OK\r\n");
    first.signal("-STOP");
    let ask = RawRequest::deployed("raw", array(&[b"SET", b"k", b"2"]));
    assert!(raw.deliver(&ask), "the broker has it");
    assert!(second.line().contains("1 key loaded"));
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
    first.signal("-CONT");
    until(&first, "standby again");
    assert_eq!(raw.command(&["GET", "k"]), b"$1\r\n2\r\n");
    assert!(raw.receives_nothing_more(), "one answer to each");
    second.signal("-TERM");
    second.end().is(0, "");
    assert!(first.line().contains("1 key loaded"));
}

#[test]
fn invalid_options_are_reported_and_missing_etcd_is_awaited() {
    let closed = Port::free();
    let unreachable = format!("http://127.0.0.1:{}", closed.number());
    let waits = serve(&unreachable, &["--listen", "127.0.0.1:0"]);
    let line = until(&waits, "standby again");
    assert!(line.contains(&format!("cannot reach etcd at {unreachable}")), "{line}");
    waits.signal("-TERM");
    waits.end().is(0, "");
    for (options, part) in [
        (&["--etcd-prefix", "no"][..], "is not a valid prefix"),
        (&["--etcd-lease", "1s"], "--etcd-lease: it must be from 2s to 600s"),
        (&["--etcd-user", "root"], "--etcd-user: it requires etcd-password"),
        (&["--etcd", "mqtt://h"], "etcd endpoint 2 is invalid"),
        (&["--etcd", "http://root:secret@h:1"], "an etcd endpoint contains a user"),
        (&["--etcd", "https://h:1"], "https URLs require etcd-tls-ca"),
        (&["--etcd-tls-ca", "ca.pem"], "--etcd-tls-ca: it requires https URLs"),
        (&["--etcd-tls-cert", "cert.pem"], "--etcd-tls-cert: it requires etcd-tls-key"),
        (&["--etcd-name", "a\nb"], "is not a valid name or address"),
        (&["--data-dir", "d"], "--data-dir: use either data-dir or etcd"),
    ] {
        let mut command = statestore();
        let etcd = ["serve", "--etcd", &unreachable, "--listen", "127.0.0.1:0"];
        let ended = run(command.args(etcd).args(options));
        assert!(!ended.err.contains("secret"), "{ended:?}");
        ended.fails(2, &[part]);
    }
    // Without etcd these options would be ignored, and the store would be in memory only.
    for option in ["--etcd-prefix=/p/", "--etcd-lease=9s", "--etcd-name=a", "--etcd-reads=lease"] {
        let ended = run(statestore().args(["serve", "--listen", "127.0.0.1:0", option]));
        ended.fails(2, &["it is for a cluster: give etcd too"]);
    }
    run(statestore().args(["status", "--etcd", &unreachable])).fails(3, &["cannot reach etcd at"]);
    run(statestore().args(["status", "--etcd", "mqtt://h"]))
        .fails(2, &["etcd endpoint 1 is invalid"]);
}

#[test]
fn only_values_too_large_for_etcd_are_refused() {
    let Some(etcd) = Etcd::start(&test_name()) else { return };
    let durable = ["--durable", "requested", "--durable-keys", "k", "--listen", "127.0.0.1:0"];
    let store = serve(&etcd.url(), &durable);
    assert!(store.line().contains("keys that clients persist survive in etcd"));
    store.signal("-TERM");
    store.end().is(0, "");
    let store = leader(&etcd.url());
    let set = |value: &str| run(statestore().args(["set", "--broker", &store.url, "k", value]));
    // This is the longest value that fits in an argument.
    set(&"v".repeat(100_000)).version();
    let port: u16 = store.url.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let mut raw = Raw::connect(port, "raw");
    raw.subscribe(&response_topic("raw"));
    let large = vec![b'x'; (1 << 20) + 1];
    let reply = raw.ask(&RawRequest::deployed("raw", array(&[b"SET", b"large", &large])));
    assert!(reply.payload.starts_with(b"-ERR the quota has been exceeded"), "{:?}", reply.payload);
    assert_eq!(raw.command(&["SET", "k", "v"]), b"+OK\r\n");
}
