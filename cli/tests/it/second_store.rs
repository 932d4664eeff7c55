//! A second store with the same client id.

use std::fs;
use std::process::Command;

use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::brokers::scripted::{Scripted, Welcome};
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Packet;
use statestore_testkit::wire::raw::{Hello, Raw, RawRequest, array, response_topic};

use crate::deployment::{Deployment, Mode, in_each_mode, test_name};
use crate::embedded_broker::Scratch;
use crate::process::{Running, run, statestore};

in_each_mode!(
    second_store_takes_over_and_the_first_ends,
    store_does_not_take_over_another_that_responds,
    pending_request_is_processed_by_the_second_store,
);

/// Starts another store on this broker, with the same client id.
fn standby(here: &Deployment) -> Running {
    let second = Running::start(here.serve().arg("--take-over"));
    assert!(second.line().contains("as client the store"), "it is ready");
    second
}

fn second_store_takes_over_and_the_first_ends(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("a broker is served by one store");
    }
    let Some(mut here) = mode.start(&["--client-id", "the store"]) else { return };
    here.run(&["set", "k", "v"]).version();
    let mut serves = here.take_store();
    for _ in 0..2 {
        let second = standby(&here);
        let cause = "another store has taken over client id the store; to serve here";
        serves.end().fails(3, &[cause]);
        // The second store starts empty and responds.
        here.run(&["get", "k"]).is(1, "");
        here.run(&["set", "k", "w"]).version();
        here.run(&["get", "k"]).is(0, "w");
        serves = second;
    }
    serves.signal("-TERM");
    serves.end().is(0, "");
}

fn store_does_not_take_over_another_that_responds(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("a broker is served by one store");
    }
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "k", "v"]).version();
    for client_id in ["statestore", "another"] {
        let second = run(here.serve().args(["--client-id", client_id]));
        second.fails(3, &["another store responds at this broker", "take-over"]);
        assert!(!second.err.contains("--tls-ca"), "{second:?}");
    }
    here.run(&["get", "k"]).is(0, "v");
}

/// The broker derives client ids from user names, so the check would connect with the client id of
/// the store.
#[test]
fn requests_wait_for_a_store_whose_broker_derives_client_ids() {
    let users = Scratch::new("derived-ids");
    let add = |arguments: &[&str]| {
        let made = Command::new("mosquitto_passwd").args(arguments).status();
        made.is_ok_and(|made| made.success())
    };
    if !add(&["-c", "-b", users.path(), "store", "secret"]) {
        return println!("{}: skipped, mosquitto_passwd is not installed", test_name());
    }
    assert!(add(&["-b", users.path(), "raw", "secret"]));
    let lines = format!("use_username_as_clientid true\npassword_file {}", users.path());
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let mut serve = statestore();
    serve.args(["serve", "--broker", &url, "--client-id", "store", "--user", "store"]);
    serve.env("STATESTORE_SERVE_PASSWORD", "secret");
    let first = Running::start(&mut serve);
    first.line();
    first.kill();
    let hello = Hello { login: Some(("raw", "secret")), ..Hello::default() };
    let mut raw = Raw::open(broker.port(), "raw", hello);
    raw.subscribe(&response_topic("raw"));
    let ask = RawRequest::deployed("raw", array(&[b"SET", b"k", b"v"]));
    assert!(raw.deliver(&ask), "the session of the store has it");
    let second = Running::start(&mut serve);
    assert!(second.complaint().contains("no check for another store"));
    second.line();
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
}

/// A broker that grants the subscription and withholds the messages.
#[test]
fn store_starts_with_a_warning_if_the_check_receives_nothing() {
    let rules = Scratch::new("withheld");
    let request = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
    let text = format!("topic readwrite {request}\npattern write clients/#\n");
    fs::write(rules.path(), text).expect("the access rules");
    let lines = format!("user root\nacl_file {}", rules.path());
    let Some(broker) = Mosquitto::start_with(&test_name(), &lines) else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let first = Running::start(statestore().args(["serve", "--broker", &url]));
    first.line();
    let second = Running::start(statestore().args(["serve", "--broker", &url, "--client-id", "b"]));
    assert!(second.complaint().contains("delivers no message to a second client"));
    second.line();
}

fn pending_request_is_processed_by_the_second_store(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("a broker is served by one store");
    }
    let Some(mut here) = mode.start(&["--client-id", "the store"]) else { return };
    let first = here.take_store();
    let mut raw = here.raw("raw");
    // The suspended store has received the request and will process it later.
    first.signal("-STOP");
    let ask = RawRequest::deployed("raw", array(&[b"SET", b"k", b"v"]));
    assert!(raw.deliver(&ask), "the broker has it");
    // A store that does not respond needs no --take-over.
    let second = Running::start(&mut here.serve());
    assert!(second.line().contains("as client the store"), "it is ready");
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
    first.signal("-CONT");
    first.end().fails(3, &["another store has taken over client id the store"]);
    here.run(&["get", "k"]).is(0, "v");
    second.signal("-TERM");
    second.end().is(0, "");
}

/// A broker grants the first subscription, and then disconnects the store because of a takeover.
#[tokio::test]
async fn store_ends_after_a_takeover() {
    timely(async {
        let broker = Scripted::start().await;
        let url = format!("mqtt://127.0.0.1:{}", broker.port());
        let serve = move || run(statestore().args(["serve", "--take-over", "--broker", &url]));
        let serves = tokio::task::spawn_blocking(serve);
        let mut peer = broker.welcome(Welcome::default()).await;
        let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
        peer.grant(subscribe.pkid, 1).await;
        peer.disconnect(0x8e).await;
        let ended = serves.await.expect("it ends");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let cause = "disconnected by the broker: session taken over (0x8e)";
        assert!(ended.err.contains(cause), "{ended:?}");
    })
    .await;
}
