//! Brokers that hinder and do not say so.

use std::env;
use std::fs;
use std::process;
use std::time::Duration;

use statestore_proto::client::WatchEvent;
use statestore_rumqttc::{RumqttcLink, connect, serve};
use statestore_tests::log::Log;
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::scripted::{Scripted, Welcome};
use statestore_tests::timely::timely;
use statestore_tokio::{Error, StateStore};
use tokio::time::Instant;

use crate::requests::{set_if_absent, watch};
use crate::store;

/// Everybody may send requests; only the client `allowed` may read answers.
const RULES: &str = "topic readwrite statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke\n\
                     topic write clients/#\ntopic read clients/allowed/#\n";

#[tokio::test]
async fn answers_that_the_broker_withholds_are_told_as_such() {
    let test = "answers_that_the_broker_withholds_are_told_as_such";
    let rules = env::temp_dir().join(format!("statestore-rumqttc-acl-{}", process::id()));
    fs::write(&rules, RULES).expect("a file of our own");
    let broker = Mosquitto::start_with(test, &format!("acl_file {}", rules.display()));
    let Some(broker) = broker else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.connected().await.expect("the store connects");
        let client = |client_id: &str| {
            StateStore::builder()
                .timeout(Duration::from_millis(500))
                .spawn(RumqttcLink::for_client(broker.options(client_id)))
                .expect("a client id")
        };
        client("allowed").set("k", "v").await.expect("a version");

        let denied = client("denied");
        // The broker grants the subscription all the same.
        denied.connected().await.expect("it is granted");
        let silence = denied.set("k", "w").await.expect_err("it hears nothing");
        assert!(matches!(silence, Error::Unanswered { .. }) && silence.may_be_applied());
        let text = silence.to_string();
        assert!(text.contains("access rules"), "{text}");
        assert!(text.contains("clients/denied/services/statestore/_any_/command/invoke/response"));
        let found = client("allowed").get("k").await.expect("an answer").expect("a value");
        assert_eq!(&found.value[..], b"w", "it was applied");
    })
    .await;
    let _ = fs::remove_file(rules);
}

/// How long single requests take against a broker with this line in its file.
async fn single_requests(broker: &Mosquitto, count: usize) -> Vec<Duration> {
    let service = serve(broker.options("statestore"));
    service.connected().await.expect("the store connects");
    let store = connect(broker.options("c1")).expect("a client id");
    store.set("k", "v").await.expect("a version");
    let mut times = Vec::new();
    for _ in 0..count {
        let since = Instant::now();
        store.get("k").await.expect("an answer");
        times.push(since.elapsed());
    }
    times.sort();
    times
}

#[tokio::test]
async fn a_broker_that_holds_packets_back_is_told_as_such() {
    let test = "a_broker_that_holds_packets_back_is_told_as_such";
    let log = Log::listen();
    let warnings = || log.with(&["WARN", "set_tcp_nodelay true"]).len();
    let Some(prompt) = Mosquitto::start_with(test, "") else { return };
    let Some(slow) = Mosquitto::start_with(test, "set_tcp_nodelay false") else { return };
    timely(async {
        let times = single_requests(&prompt, 200).await;
        // The others may be those of a busy machine.
        assert!(times[0] < Duration::from_millis(1), "{times:?}");
        assert!(times[100] < Duration::from_millis(35), "{times:?}");
        assert_eq!(warnings(), 0);
        let times = single_requests(&slow, 40).await;
        assert_eq!(warnings(), 1, "{times:?}");
    })
    .await;
}

#[tokio::test]
async fn a_notification_that_reaches_nobody_ends_the_watch() {
    timely(async {
        let broker = Scripted::start().await;
        let service = store(&broker, |it| it);
        let mut peer = broker.welcome(Welcome::default()).await;
        for (id, mut request) in (1..).zip([watch("gone", "k"), watch("stays", "l")]) {
            request.pkid = id;
            peer.deliver(request).await;
            let answer = peer.publish().await;
            assert_eq!(answer.payload, &b"+OK\r\n"[..]);
            peer.puback(answer.pkid, 0).await;
        }
        assert_eq!(service.stats().watches, 2);
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
        while service.stats().watches != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(service.stats().counters.watches_lost, 1);
    })
    .await;
}

#[tokio::test]
async fn watches_share_a_registration_over_a_real_broker_too() {
    let test = "watches_share_a_registration_over_a_real_broker_too";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.connected().await.expect("the store connects");
        let store = connect(broker.options("c1")).expect("a client id");
        let mut first = store.watch("k").await.expect("a watch");
        assert_eq!(first.next().await, Some(WatchEvent::Live));
        let mut second = store.watch("k").await.expect("another");
        assert_eq!(second.next().await, Some(WatchEvent::Live));
        let version = store.set("k", "v").await.expect("a version");
        let change = WatchEvent::Changed { value: Some("v".into()), version: Some(version) };
        assert_eq!(first.next().await.as_ref(), Some(&change));
        assert_eq!(second.next().await, Some(change));
        assert_eq!(service.stats().watches, 1);
    })
    .await;
}
