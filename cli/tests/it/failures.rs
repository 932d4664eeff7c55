//! Refused requests and unreachable stores and brokers: the errors contain advice.

use std::net::{Ipv4Addr, TcpListener};

use statestore_testkit::brokers::Mosquitto;

use crate::deployment::{Mode, in_each_mode, test_name};
use crate::process::{Running, run, statestore};

in_each_mode!(refusals_are_reported, too_long_keys_are_refused);

fn refusals_are_reported(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for arguments in [&["get", ""][..], &["set", "", "v"], &["del", ""], &["vdel", "", "v"]] {
        here.run(arguments).fails(2, &["key"]);
    }
    here.run(&["watch", "", "--count", "1"]).fails(2, &["key"]);
}

fn too_long_keys_are_refused(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let long = "k".repeat(40_000);
    for line in [&["get", &long][..], &["set", &long, "v"], &["del", &long], &["watch", &long]] {
        here.run(line).fails(2, &["the key is too long"]);
    }
    let fits = "k".repeat(32_000);
    here.run(&["set", &fits, "v"]).version();
    here.run(&["get", &fits]).is(0, "v");
}

#[test]
fn missing_store_is_reported() {
    let Some(broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    for line in ["get k", "set k v", "del k", "vdel k v", "bench"] {
        let mut command = statestore();
        command.args(line.split(' ')).args(["--broker", &url]);
        run(&mut command).fails(3, &["no store", "statestore serve"]);
    }
}

#[test]
fn missing_broker_is_reported() {
    let url = "mqtt://127.0.0.1:1";
    for line in ["get k", "set k v", "watch k", "bench"] {
        let mut command = statestore();
        command.args(line.split(' ')).args(["--broker", url, "--timeout", "2s"]);
        run(&mut command).fails(3, &["refused", "--broker"]);
    }
    // It prints a message during its attempts.
    let mut command = statestore();
    command.args(["get", "k", "--broker", url, "--timeout", "5s"]);
    run(&mut command).fails(3, &["not connected to mqtt://127.0.0.1:1 yet", "refused"]);
    // A listener that sends nothing is not a broker either.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("mqtt://127.0.0.1:{}", silent.local_addr().expect("its address").port());
    let mut command = statestore();
    command.args(["get", "k", "--broker", &url, "--timeout", "300ms"]);
    run(&mut command).fails(3, &["--broker", "--timeout"]);
}

#[test]
fn timeout_limits_the_connection_of_a_lock() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let silent_url =
        format!("mqtt://127.0.0.1:{}", silent.local_addr().expect("an address").port());
    for url in ["mqtt://127.0.0.1:1", &silent_url] {
        for wait in [&[][..], &["--wait", "1h"]] {
            let mut command = statestore();
            command.args(["lock", "l", "--broker", url, "--timeout", "300ms"]).args(wait);
            run(command.args(["--", "true"])).fails(3, &["no connection", "--broker"]);
        }
    }
}

#[test]
fn command_that_waits_for_a_broker_can_be_stopped() {
    for (line, code) in [("watch k", 0), ("elect e", 0), ("lock l -- true", 130)] {
        let mut command = statestore();
        let broker = ["--broker", "mqtt://127.0.0.1:1", "--timeout", "10m"];
        let (verb, rest) = line.split_once(' ').expect("a verb");
        command.arg(verb).args(broker).args(rest.split(' '));
        let waiting = Running::start(&mut command);
        assert!(waiting.complaint().contains("still trying"), "{line}");
        waiting.signal("-INT");
        assert_eq!(waiting.end().code, Some(code), "{line}");
    }
}

#[test]
fn broker_that_requires_a_password_is_reported() {
    let lines = "allow_anonymous false\npassword_file /dev/null";
    let Some(broker) = Mosquitto::start_with(&test_name(), lines) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    for (line, password) in [
        ("get k", "STATESTORE_PASSWORD"),
        ("watch k", "STATESTORE_PASSWORD"),
        ("serve", "STATESTORE_SERVE_PASSWORD"),
    ] {
        for login in [&[][..], &["--user", "u", "--password", "wrong"]] {
            let mut command = statestore();
            command.args(line.split(' ')).args(["--broker", &url]).args(login);
            run(&mut command).fails(2, &["refused the connection", "--user", password]);
        }
    }
}

#[test]
fn serve_waits_for_its_broker() {
    let Some(mut broker) = Mosquitto::start(&test_name()) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    broker.kill();
    let mut command = statestore();
    command.args(["serve", "--broker", &url]).env("STATESTORE_LOG", "warn");
    let waiting = Running::start(&mut command);
    assert!(waiting.complaint().contains("will retry"));
    assert!(broker.restart(), "mosquitto starts again");
    assert!(waiting.line().starts_with(&format!("statestore: ready on {url}")));
    waiting.signal("-TERM");
    assert_eq!(waiting.end().code, Some(0));
    // A store that never finds its broker can be stopped too.
    broker.kill();
    let waiting = Running::start(&mut command);
    assert!(waiting.complaint().contains("will retry"));
    waiting.signal("-INT");
    waiting.end().is(0, "");
}
