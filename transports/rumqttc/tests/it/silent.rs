//! Brokers that withhold or delay packets without an error.

use std::env;
use std::fs;
use std::process;
use std::time::Duration;

use statestore_proto::client::WatchEvent;
use statestore_rumqttc::{connect, serve};
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::brokers::scripted::{Scripted, Welcome};
use statestore_testkit::process::Log;
use statestore_testkit::process::timely;
use statestore_tokio::Error;
use tokio::time::Instant;

use crate::store;
use statestore_testkit::wire::requests::{set_if_absent, watch};

/// All clients may send requests; only the client `allowed` may read responses.
const RULES: &str = "\
    topic readwrite statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke\n\
    topic write clients/#\n\
    topic read clients/allowed/#\n";

#[tokio::test]
async fn withheld_responses_are_reported_as_unanswered() {
    let test = "withheld_responses_are_reported_as_unanswered";
    let rules = env::temp_dir().join(format!("statestore-rumqttc-acl-{}", process::id()));
    fs::write(&rules, RULES).expect("a writable file");
    let broker = Mosquitto::start_with(test, &format!("acl_file {}", rules.display()));
    let Some(broker) = broker else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.wait_connected().await.expect("the store connects");
        let client = |client_id: &str| connect(broker.options(client_id)).expect("a client id");
        client("allowed").set("k", "v").await.expect("a version");

        let denied = client("denied");
        // The broker grants the subscription nevertheless.
        denied.wait_connected().await.expect("the subscription is granted");
        let silence = denied.set("k", "w").timeout(Duration::from_secs(2)).await;
        let silence = silence.expect_err("no response");
        assert!(matches!(silence, Error::Unanswered { .. }) && silence.may_be_applied());
        let text = silence.to_string();
        assert!(text.contains("access rules"), "{text}");
        assert!(text.contains("clients/denied/services/statestore/_any_/command/invoke/response"));
        let found = client("allowed").get("k").await.expect("a response").expect("a value");
        assert_eq!(&found.value[..], b"w", "the SET was applied");
    })
    .await;
    let _ = fs::remove_file(rules);
}

/// Sends sequential requests at this broker until `is_over` returns true for their durations.
async fn single_requests(broker: &Mosquitto, is_over: impl Fn(&[Duration]) -> bool) {
    let service = serve(broker.options("statestore"));
    service.wait_connected().await.expect("the store connects");
    let store = connect(broker.options("c1")).expect("a client id");
    store.set("k", "v").await.expect("a version");
    let mut times = Vec::new();
    while !is_over(&times) {
        let since = Instant::now();
        store.get("k").await.expect("a response");
        times.push(since.elapsed());
    }
}

#[tokio::test]
async fn broker_that_delays_packets_is_reported() {
    let test = "broker_that_delays_packets_is_reported";
    let log = Log::listen();
    let warnings = || log.with(&["WARN", "set_tcp_nodelay true"]).len();
    let Some(prompt) = Mosquitto::start_with(test, "") else { return };
    let Some(slow) = Mosquitto::start_with(test, "set_tcp_nodelay false") else { return };
    timely(async {
        // Without a delay, some request of a busy machine is fast too.
        let is_fast = |time: &Duration| *time < Duration::from_millis(30);
        single_requests(&prompt, |times| times.len() >= 200 && times.iter().any(is_fast)).await;
        assert_eq!(warnings(), 0);
        // A busy machine can spread the durations of some requests.
        single_requests(&slow, |_| warnings() > 0).await;
        assert_eq!(warnings(), 1);
    })
    .await;
}

#[tokio::test]
async fn notification_without_subscribers_silences_the_registration() {
    timely(async {
        let broker = Scripted::start().await;
        let service = store(&broker, |it| it);
        let mut peer = broker.welcome(Welcome::default()).await;
        for (id, mut request) in (1..).zip([watch("gone", "k"), watch("stays", "l")]) {
            request.pkid = id;
            peer.deliver(request).await;
            let response = peer.publish().await;
            assert_eq!(response.payload, &b"+OK\r\n"[..]);
            peer.puback(response.pkid, 0).await;
        }
        assert_eq!(service.stats().registrations, 2);
        for (id, key) in (3..).zip(["l", "k"]) {
            let mut request = set_if_absent(key, key);
            request.pkid = id;
            peer.deliver(request).await;
            let (mut notified, mut answered) = (false, false);
            while !(notified && answered) {
                let sent = peer.publish().await;
                let is_notification = sent.topic.starts_with(b"clients/statestore/");
                let reason = if is_notification && key == "k" { 0x10 } else { 0 };
                peer.puback(sent.pkid, reason).await;
                notified |= is_notification;
                answered |= !is_notification;
            }
        }
        while service.stats().silenced_registrations != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let stats = service.stats();
        assert_eq!((stats.registrations, stats.counters.registrations_silenced), (2, 1));
        assert_eq!(stats.counters.registrations_lost, 0);
    })
    .await;
}

#[tokio::test]
async fn watches_share_a_registration_over_mosquitto() {
    let test = "watches_share_a_registration_over_mosquitto";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.wait_connected().await.expect("the store connects");
        let store = connect(broker.options("c1")).expect("a client id");
        let mut first = store.watch("k").await.expect("a watch");
        assert_eq!(first.next().await, Some(WatchEvent::Live));
        let mut second = store.watch("k").await.expect("another");
        assert_eq!(second.next().await, Some(WatchEvent::Live));
        let version = store.set("k", "v").await.expect("a version");
        let change = WatchEvent::Changed { value: Some("v".into()), version: Some(version) };
        assert_eq!(first.next().await.as_ref(), Some(&change));
        assert_eq!(second.next().await, Some(change));
        assert_eq!(service.stats().registrations, 1);
    })
    .await;
}
