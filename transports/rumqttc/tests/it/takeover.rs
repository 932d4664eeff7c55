//! Two stores with one client id, on a broker that does not say why it closes a connection.

use std::env;
use std::fs;
use std::process;
use std::time::Duration;

use statestore_proto::topic::REQUEST;
use statestore_rumqttc::{Options, RumqttcLink, connect, serve};
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::mqttbytes::v5::{Packet, Publish};
use statestore_tests::raw::{Hello, Raw};
use statestore_tests::scripted::{Peer, Scripted, Welcome};
use statestore_tests::timely::{HANGS, timely};
use statestore_tokio::{StateStore, StoreService};
use tokio::time::timeout;

const CLAIM: &str = "clients/statestore/services/statestore/instance";

/// Hears what is said on the topic of claims.
fn listener(broker: &Mosquitto) -> Raw {
    let mut listener = Raw::open(broker.port(), "listener", Hello::default());
    listener.subscribe(CLAIM);
    listener
}

/// The next message that is no marker.
fn said(listener: &mut Raw) -> String {
    loop {
        let message = listener.message();
        if !message.payload.starts_with(b"?") {
            return text(&message);
        }
    }
}

fn text(message: &Publish) -> String {
    String::from_utf8(message.payload.to_vec()).expect("text")
}

/// The claim that is retained now.
fn retained(broker: &Mosquitto) -> Option<String> {
    let mut reader = Raw::open(broker.port(), "reader", Hello::default());
    reader.subscribe(CLAIM);
    reader.publish(CLAIM, false, "after it");
    loop {
        let message = reader.message();
        if message.retain || message.payload == "after it" {
            return message.retain.then(|| text(&message));
        }
    }
}

async fn service(options: Options) -> StoreService {
    let service = serve(options);
    service.connected().await.expect("it serves");
    service
}

fn client(broker: &Mosquitto) -> StateStore {
    connect(broker.options("c1")).expect("a client id")
}

fn number(claim: &str) -> u64 {
    claim.split_once(':').expect("a claim").0.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_that_comes_last_serves_and_the_other_ends() {
    let test = "the_store_that_comes_last_serves_and_the_other_ends";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut first = service(broker.options("statestore")).await;
        let mut listener = listener(&broker);
        let of_first = said(&mut listener);
        let store = client(&broker);
        store.set("k", "v").await.expect("a version");

        let second = service(broker.options("statestore")).await;
        let reason = first.stopped().await.reason.expect("a reason");
        assert!(reason.contains("another store has taken over client id statestore;"), "{reason}");
        assert!(reason.contains(&format!("mosquitto_pub -r -n -t '{CLAIM}'")), "{reason}");
        for at in 0..100_u32 {
            store.set(format!("key {at}"), "v").await.expect("a version");
        }
        assert_eq!(second.stats().keys, 100, "it began with nothing and misses nothing");

        let of_second = retained(&broker).expect("a claim");
        assert!(number(&of_second) > number(&of_first));
        second.shutdown().await;
        let mut heard: Vec<String> = Vec::new();
        while heard.last().is_none_or(|last| !last.is_empty()) {
            heard.push(said(&mut listener));
        }
        heard.retain(|heard| heard != "after it");
        // The first threw the second out once, to learn of it; after that nobody was thrown out.
        assert!((2..=4).contains(&heard.len()), "{heard:?}");
        heard.dedup();
        assert_eq!(heard, [&*of_second, ""]);
        assert_eq!(retained(&broker), None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_keeps_its_claim_over_connections_and_removes_it_at_its_end() {
    let test = "a_store_keeps_its_claim_over_connections_and_removes_it_at_its_end";
    let Some(mut broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = service(broker.options("statestore")).await;
        let claim = retained(&broker);
        assert!(claim.is_some());
        // It forgets what it has retained.
        assert!(broker.restart(), "it starts again");
        let mut listener = listener(&broker);
        assert_eq!(Some(said(&mut listener)), claim);
        // Somebody takes the client id and leaves: the claim is still there, and its own.
        let kept = Hello { session: Some(0), ..Hello::default() };
        drop(Raw::open(broker.port(), "statestore", kept));
        assert_eq!(Some(said(&mut listener)), claim, "it is back");
        client(&broker).set("k", "v").await.expect("a version");
        service.shutdown().await;
        assert_eq!(retained(&broker), None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_left_behind_does_no_harm() {
    let test = "what_others_have_left_behind_does_no_harm";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut listener = listener(&broker);
        for left in ["9000000000000000:00000000000000ff", "9000000000000000", "+OK\r\n"] {
            listener.publish(CLAIM, true, left);
            let service = service(broker.options("statestore")).await;
            let claim = retained(&broker).expect("a claim");
            let is_claim = left.contains(':');
            assert_eq!(number(&claim) == 9_000_000_000_000_001, is_claim, "{claim} after {left}");
            client(&broker).set("k", left).await.expect("a version");
            service.shutdown().await;
            assert_eq!(retained(&broker), None);
        }
    })
    .await;
}

/// What no store has left, at the start and while one runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_far_beyond_the_clock_ends_no_store() {
    let test = "a_claim_far_beyond_the_clock_ends_no_store";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        for far in ["9000000000000000:00000000000000ff", "18446744073709551615:ffffffffffffffff"] {
            let mut listener = listener(&broker);
            listener.publish(CLAIM, true, far);
            let service = service(broker.options("statestore")).await;
            client(&broker).set("k", far).await.expect("a version");
            assert_ne!(retained(&broker).as_deref(), Some(far), "it has left its own");
            // And once more while it serves, before it connects again.
            listener.publish(CLAIM, true, far);
            drop(Raw::open(
                broker.port(),
                "statestore",
                Hello { session: Some(0), ..Hello::default() },
            ));
            while retained(&broker).as_deref() == Some(far) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            client(&broker).set("k", "again").await.expect("a version");
            service.shutdown().await;
            assert_eq!(retained(&broker), None);
        }
    })
    .await;
}

/// A broker with these access rules, which believes every user name.
fn broker_with(test: &str, rules: &str, lines: &str) -> Option<Mosquitto> {
    let file = env::temp_dir().join(format!("statestore-rumqttc-{test}-{}", process::id()));
    fs::write(&file, rules).expect("a file of our own");
    let broker = Mosquitto::start_with(test, &format!("{lines}\nacl_file {}", file.display()));
    fs::remove_file(file).expect("it was read at the start");
    broker
}

/// The broker has a queue without bound, and then closes the connection for the marker when that is denied.
#[tokio::test]
async fn a_store_that_may_not_claim_serves_all_the_same() {
    let test = "a_store_that_may_not_claim_serves_all_the_same";
    for rule in ["deny", "read", "write"] {
        let rules = format!(
            "topic {rule} {CLAIM}\ntopic readwrite {REQUEST}\ntopic readwrite clients/c1/#\n"
        );
        let Some(broker) = broker_with(test, &rules, "") else { return };
        timely(async {
            let service = service(broker.options("statestore")).await;
            client(&broker).set("k", "v").await.expect("a version");
            assert_eq!(service.stats().keys, 1, "{rule}");
            service.shutdown().await;
        })
        .await;
    }
}

#[tokio::test]
async fn the_access_rules_of_the_documentation_let_a_store_claim() {
    let test = "the_access_rules_of_the_documentation_let_a_store_claim";
    let page = include_str!("../../../../docs/brokers.md");
    let from = page.find("\nuser statestore\n").expect("its rules");
    let rules = &page[from..from + page[from..].find("```").expect("their end")];
    let Some(broker) = broker_with(test, rules, "use_username_as_clientid true") else { return };
    timely(async {
        let options = |user: &str| broker.options(user).credentials(user, "any password");
        let mut first = service(options("statestore")).await;
        let second = service(options("statestore")).await;
        let reason = first.stopped().await.reason.expect("a reason");
        assert!(reason.contains("another store has taken over"), "{reason}");
        let alice = connect(options("alice")).expect("a client id");
        alice.set("k", "v").await.expect("a version");
        second.shutdown().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_left_only_where_it_is_wanted() {
    let test = "a_claim_is_left_only_where_it_is_wanted";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let plain = || broker.options("statestore");
        for (options, claim, claims) in [
            (plain(), false, false),
            (plain().retry_after_takeover(true), true, false),
            (plain(), true, true),
        ] {
            let link = RumqttcLink::for_store(options);
            let link = if claim { link } else { link.without_claim() };
            let service = StoreService::builder().spawn(link);
            service.connected().await.expect("it serves");
            assert_eq!(retained(&broker).is_some(), claims);
            service.shutdown().await;
        }
        let store = connect(plain()).expect("a client id");
        store.connected().await.expect("a connection");
        assert_eq!(retained(&broker), None, "clients never do");
    })
    .await;
}

/// What is subscribed next.
async fn filter(peer: &mut Peer) -> String {
    match timeout(HANGS, peer.read()).await.expect("in time") {
        Some(Packet::Subscribe(subscribe)) => subscribe.filters[0].path.clone(),
        other => panic!("{other:?} instead of a SUBSCRIBE"),
    }
}

#[tokio::test]
async fn a_broker_that_retains_nothing_is_asked_for_nothing() {
    timely(async {
        let broker = Scripted::start().await;
        let _service = serve(broker.options("statestore"));
        let welcome = Welcome { retain_available: Some(0), ..Welcome::default() };
        assert_eq!(filter(&mut broker.welcome(welcome).await).await, REQUEST);
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_thrown_out_for_its_claim_goes_without() {
    timely(async {
        let broker = Scripted::start().await;
        let _service = serve(broker.options("statestore"));
        for expected in [CLAIM, CLAIM, REQUEST, CLAIM] {
            let mut peer = broker.welcome(Welcome::default()).await;
            assert_eq!(filter(&mut peer).await, expected);
        }
    })
    .await;
}
