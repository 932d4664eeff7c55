//! Two stores with one client id, on a broker that closes connections without a reason code.

use std::env;
use std::fs;
use std::process;
use std::time::Duration;

use statestore_proto::topic::REQUEST;
use statestore_rumqttc::{Options, RumqttcLink, connect, serve};
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Publish;
use statestore_testkit::wire::raw::{Hello, Raw};
use statestore_tokio::{StateStore, StoreService};

const CLAIM: &str = "clients/statestore/services/statestore/instance";

/// Subscribes to the topic of claims.
fn listener(broker: &Mosquitto) -> Raw {
    let mut listener = Raw::open(broker.port(), "listener", Hello::default());
    listener.subscribe(CLAIM);
    listener
}

/// The next message that is not a marker.
fn next_claim(listener: &mut Raw) -> String {
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

/// The retained claim, if any.
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
    service.wait_connected().await.expect("the store serves");
    service
}

fn client(broker: &Mosquitto) -> StateStore {
    connect(broker.options("c1")).expect("a client id")
}

fn number(claim: &str) -> u64 {
    claim.split_once(':').expect("a claim").0.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn store_started_last_serves_and_the_other_ends() {
    let test = "store_started_last_serves_and_the_other_ends";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let first = service(broker.options("statestore")).await;
        let mut listener = listener(&broker);
        let of_first = next_claim(&mut listener);
        let store = client(&broker);
        store.set("k", "v").await.expect("a version");

        let second = service(broker.options("statestore")).await;
        let reason = first.wait_closed().await.to_string();
        assert!(reason.contains("another store has taken over client id statestore;"), "{reason}");
        assert!(reason.contains(&format!("mosquitto_pub -r -n -t '{CLAIM}'")), "{reason}");
        for at in 0..100_u32 {
            store.set(format!("key {at}"), "v").await.expect("a version");
        }
        assert_eq!(second.stats().keys, 100, "the second store loses no request");

        let of_second = retained(&broker).expect("a claim");
        assert!(number(&of_second) > number(&of_first));
        second.shutdown().await;
        let mut claims: Vec<String> = Vec::new();
        while claims.last().is_none_or(|last| !last.is_empty()) {
            claims.push(next_claim(&mut listener));
        }
        claims.retain(|claims| claims != "after it");
        // The first store reconnects at most once, which disconnects the second, and then ends.
        assert!((2..=4).contains(&claims.len()), "{claims:?}");
        claims.dedup();
        assert_eq!(claims, [&*of_second, ""]);
        assert_eq!(retained(&broker), None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_keeps_its_claim_over_connections_and_removes_it_on_shutdown() {
    let test = "store_keeps_its_claim_over_connections_and_removes_it_on_shutdown";
    let Some(mut broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = service(broker.options("statestore")).await;
        let claim = retained(&broker);
        assert!(claim.is_some());
        // The broker loses its retained messages.
        assert!(broker.restart(), "the broker restarts");
        let mut listener = listener(&broker);
        assert_eq!(Some(next_claim(&mut listener)), claim);
        // Another client takes over the client id and leaves. The store claims again.
        let kept = Hello { session: Some(0), ..Hello::default() };
        drop(Raw::open(broker.port(), "statestore", kept));
        assert_eq!(Some(next_claim(&mut listener)), claim, "the store has reconnected");
        client(&broker).set("k", "v").await.expect("a version");
        service.shutdown().await;
        assert_eq!(retained(&broker), None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_serves_despite_remaining_claims_and_other_messages() {
    let test = "store_serves_despite_remaining_claims_and_other_messages";
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

/// A forged claim, at the start and while a store runs.
#[tokio::test(flavor = "multi_thread")]
async fn claim_far_ahead_of_the_clock_ends_no_store() {
    let test = "claim_far_ahead_of_the_clock_ends_no_store";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        for far in ["9000000000000000:00000000000000ff", "18446744073709551615:ffffffffffffffff"] {
            let mut listener = listener(&broker);
            listener.publish(CLAIM, true, far);
            let service = service(broker.options("statestore")).await;
            client(&broker).set("k", far).await.expect("a version");
            assert_ne!(retained(&broker).as_deref(), Some(far), "the store has replaced the claim");
            // Publish the forged claim again while the store serves, before it reconnects.
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

/// A broker with these access rules, which accepts every user name.
fn broker_with(test: &str, rules: &str, lines: &str) -> Option<Mosquitto> {
    let file = env::temp_dir().join(format!("statestore-rumqttc-{test}-{}", process::id()));
    fs::write(&file, rules).expect("a writable file");
    let broker = Mosquitto::start_with(test, &format!("{lines}\nacl_file {}", file.display()));
    fs::remove_file(file).expect("the file exists");
    broker
}

/// The broker queues without a bound, and closes the connection if its rules deny the marker.
#[tokio::test]
async fn store_that_may_not_claim_serves_nevertheless() {
    let test = "store_that_may_not_claim_serves_nevertheless";
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
async fn documented_access_rules_let_a_store_claim() {
    let test = "documented_access_rules_let_a_store_claim";
    let page = include_str!("../../../../docs/brokers.md");
    let from = page.find("\nuser statestore\n").expect("rules");
    let rules = &page[from..from + page[from..].find("```").expect("the end of the rules")];
    let Some(broker) = broker_with(test, rules, "use_username_as_clientid true") else { return };
    timely(async {
        let options = |user: &str| broker.options(user).credentials(user, "any password");
        let first = service(options("statestore")).await;
        let second = service(options("statestore")).await;
        let reason = first.wait_closed().await.to_string();
        assert!(reason.contains("another store has taken over"), "{reason}");
        let alice = connect(options("alice")).expect("a client id");
        alice.set("k", "v").await.expect("a version");
        second.shutdown().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_published_only_by_stores_that_claim() {
    let test = "claims_are_published_only_by_stores_that_claim";
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
            service.wait_connected().await.expect("it serves");
            assert_eq!(retained(&broker).is_some(), claims);
            service.shutdown().await;
        }
        let store = connect(plain()).expect("a client id");
        store.wait_connected().await.expect("a connection");
        assert_eq!(retained(&broker), None, "clients publish no claim");
    })
    .await;
}
