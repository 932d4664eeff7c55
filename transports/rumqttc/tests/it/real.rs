//! The link against mosquitto.

use std::time::Duration;

use statestore_proto::client::WatchEvent;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_rumqttc::{Options, RumqttcLink, connect, serve};
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::timely;
use statestore_testkit::wire::raw::{Raw, RawRequest, words};
use statestore_tokio::service::StoreStats;
use statestore_tokio::{
    Error, Link, LinkEvent, Removal, StateStore, StoreService, VersionedValue, Watch,
};
use tokio::task::JoinSet;

/// A client, as soon as a store responds to it.
async fn client(options: Options) -> StateStore {
    let store = connect(options).expect("a client id");
    // A connected store may not be subscribed yet.
    while let Err(error) = store.get("probe").timeout(Duration::from_secs(1)).await {
        assert!(!error.may_be_applied() || error == Error::ConnectionLost, "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store
}

async fn both(broker: &Mosquitto) -> (StoreService, StateStore) {
    (serve(broker.options("statestore")), client(broker.options("c1")).await)
}

fn value(found: &Option<VersionedValue>) -> Option<&[u8]> {
    found.as_ref().map(|found| &found.value[..])
}

async fn changed(watch: &mut Watch) -> Option<Vec<u8>> {
    match watch.next().await.expect("the watch continues") {
        WatchEvent::Changed { value, .. } => value.map(|value| value.to_vec()),
        other => panic!("{other:?} instead of a change"),
    }
}

#[tokio::test]
async fn each_command_returns_its_result() {
    let Some(broker) = Mosquitto::start("each_command_returns_its_result") else { return };
    timely(async {
        let (service, store) = both(&broker).await;
        let version = store.set("k", "v").await.expect("a version");
        let found = store.get("k").await.expect("a response").expect("a value");
        assert_eq!((&found.value[..], found.version), (&b"v"[..], Some(version)));

        assert_eq!(store.vdel("k", "other").await, Ok(Removal::NotApplied));
        assert_eq!(store.vdel("k", "v").await, Ok(Removal::Removed));
        assert_eq!(store.vdel("k", "v").await, Ok(Removal::NothingRemoved));
        assert_eq!(store.del("k").await, Ok(false));
        assert_eq!(store.get("k").await, Ok(None));

        assert!(store.set("lock", "me").if_absent().await.expect("a response").is_some());
        assert_eq!(store.set("lock", "you").if_absent().await, Ok(None));
        assert_eq!(store.set("lock", "you").if_absent_or_equal().await, Ok(None));
        assert!(store.set("lock", "me").if_absent_or_equal().await.expect("a response").is_some());
        assert_eq!(store.del("lock").await, Ok(true));

        let stats = service.stats();
        assert_eq!((stats.keys, stats.counters.not_requests), (0, 0));
        store.shutdown().await;
        service.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn binary_keys_and_large_values_round_trip() {
    let Some(broker) = Mosquitto::start("binary_keys_and_large_values_round_trip") else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let large: Vec<u8> = (0..65_000_u32).map(|at| (at % 251) as u8).collect();
        let key = &b"\0\r\n\xff $5"[..];
        store.set(key, large.clone()).await.expect("a version");
        assert_eq!(value(&store.get(key).await.expect("a response")), Some(&large[..]));
        let megabyte = vec![7; 1_000_000];
        store.set(key, megabyte.clone()).await.expect("a version");
        assert_eq!(value(&store.get(key).await.expect("a response")), Some(&megabyte[..]));
    })
    .await;
}

#[tokio::test]
async fn expiry_is_notified() {
    let Some(broker) = Mosquitto::start("expiry_is_notified") else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let other = client(broker.options("c2")).await;
        let mut watch = store.watch("k").await.expect("a watch");
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        let soon = Duration::from_millis(200);
        other.set("k", "v").expires_after(soon).await.expect("a version");
        assert_eq!(changed(&mut watch).await.as_deref(), Some(&b"v"[..]));
        assert_eq!(changed(&mut watch).await, None);
        assert_eq!(other.get("k").await, Ok(None));
    })
    .await;
}

#[tokio::test]
async fn concurrent_requests_all_get_a_response() {
    let Some(broker) = Mosquitto::start("concurrent_requests_all_get_a_response") else { return };
    timely(async {
        let (service, store) = both(&broker).await;
        let mut calls = JoinSet::new();
        for at in 0..2_000_u32 {
            let store = store.clone();
            calls.spawn(async move {
                let key = format!("key {}", at % 512);
                store.set(key.clone(), at.to_string()).await?;
                store.get(key).await
            });
        }
        while let Some(found) = calls.join_next().await {
            assert!(value(&found.expect("an outcome").expect("a response")).is_some());
        }
        assert_eq!(service.stats().keys, 512);
    })
    .await;
}

#[tokio::test]
async fn sequential_requests_read_their_writes() {
    let Some(broker) = Mosquitto::start("sequential_requests_read_their_writes") else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let mut last = None;
        for at in 0..500_u32 {
            let version = store.set("k", at.to_string()).await.expect("a version");
            assert!(last.replace(version.clone()) < Some(version.clone()), "versions grow");
            let found = store.get("k").await.expect("a response").expect("a value");
            assert_eq!(
                (&found.value[..], found.version),
                (at.to_string().as_bytes(), Some(version))
            );
        }
    })
    .await;
}

#[tokio::test]
async fn watch_survives_a_broker_restart() {
    let Some(mut broker) = Mosquitto::start("watch_survives_a_broker_restart") else { return };
    timely(async {
        let _service = serve(broker.options("statestore"));
        // A watch without a store retries after its timeout.
        let store = StateStore::builder()
            .timeout(Duration::from_millis(500))
            .spawn(RumqttcLink::for_client(broker.options("c1")))
            .expect("a client id");
        let other = client(broker.options("c2")).await;
        other.set("k", "before").await.expect("a version");
        let mut watch = store.watch("k").await.expect("a watch");
        assert_eq!(changed(&mut watch).await.as_deref(), Some(&b"before"[..]));
        assert_eq!(watch.next().await, Some(WatchEvent::Live));

        assert!(broker.restart(), "the broker restarts");
        assert_eq!(watch.next().await, Some(WatchEvent::Gap));
        while other.set("k", "after").timeout(Duration::from_secs(1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The gap ends before or after this change.
        let mut live = 0;
        for expected in [Some("after"), None, Some("again")] {
            match expected {
                Some("again") => _ = other.set("k", "again").await.expect("a version"),
                None => assert_eq!(other.del("k").await, Ok(true)),
                Some(_) => {}
            }
            let value = loop {
                match watch.next().await.expect("the watch continues") {
                    WatchEvent::Changed { value, .. } => break value,
                    WatchEvent::Live => live += 1,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(value.as_deref(), expected.map(str::as_bytes));
        }
        assert_eq!(live, 1);
    })
    .await;
}

#[tokio::test]
async fn requests_end_when_the_broker_dies() {
    let Some(mut broker) = Mosquitto::start("requests_end_when_the_broker_dies") else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let mut calls = JoinSet::new();
        for at in 0..256_u32 {
            let call = store.set(format!("key {at}"), "v").timeout(Duration::from_secs(3));
            calls.spawn(call.into_future());
        }
        broker.kill();
        assert!(broker.restart(), "the broker restarts");
        while let Some(outcome) = calls.join_next().await {
            match outcome.expect("an outcome") {
                Ok(_) | Err(Error::ConnectionLost | Error::NotSent { .. }) => {}
                Err(Error::TimedOut | Error::Unanswered { .. }) => {}
                Err(Error::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS)) => {}
                other => panic!("{other:?}"),
            }
        }
        let again = client(broker.options("c2")).await;
        again.set("k", "v").await.expect("a version");
    })
    .await;
}

#[tokio::test]
async fn request_without_a_store_is_undelivered() {
    let Some(broker) = Mosquitto::start("request_without_a_store_is_undelivered") else { return };
    timely(async {
        let store = connect(broker.options("c1")).expect("a client id");
        let undelivered = Err(Error::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS));
        assert_eq!(store.get("k").await, undelivered);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_request_has_one_effect_and_the_same_response() {
    let test = "duplicate_request_has_one_effect_and_the_same_response";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let mut raw = Raw::connect(broker.port(), "raw");
        let mut twice = |elements: &[&str]| {
            let ask = RawRequest::deployed("raw", words(elements));
            let [mut first, mut second] = [(); 2].map(|()| raw.ask(&ask));
            (first.pkid, second.pkid) = (0, 0);
            assert_eq!(first, second, "byte for byte");
            first.payload
        };
        assert_eq!(twice(&["SET", "k", "value", "NX"]), &b"+OK\r\n"[..]);
        assert_eq!(value(&store.get("k").await.expect("a response")), Some(&b"value"[..]));
        assert_eq!(twice(&["DEL", "k"]), &b":1\r\n"[..]);
    })
    .await;
}

#[tokio::test]
async fn requests_wait_while_a_store_restarts() {
    let Some(broker) = Mosquitto::start("requests_wait_while_a_store_restarts") else { return };
    timely(async {
        let (service, store) = both(&broker).await;
        service.shutdown().await;
        let calls: Vec<_> = (0..10_u32)
            .map(|at| tokio::spawn(store.set(format!("key {at}"), "v").into_future()))
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(calls.iter().all(|call| !call.is_finished()), "the broker queues the requests");
        let service = serve(broker.options("statestore"));
        for call in calls {
            call.await.expect("an outcome").expect("a version");
        }
        assert_eq!(service.stats().keys, 10);
    })
    .await;
}

#[tokio::test]
async fn successor_responds_to_unanswered_requests() {
    let Some(broker) = Mosquitto::start("successor_responds_to_unanswered_requests") else {
        return;
    };
    timely(async {
        let options = broker.options("statestore");
        let mut link = RumqttcLink::for_store(options).without_claim();
        let mut store = Store::new(StoreConfig::new(1));
        link.connect().await.expect("a connection");
        store.handle(
            statestore_proto::time::Now::default(),
            Input::Connected { session_present: false },
        );
        while let Some(transmit) = store.poll_transmit() {
            link.try_send(transmit).expect("capacity");
        }
        match link.next_event(true).await.expect("a SUBACK") {
            LinkEvent::Subscribed(_, reason) => assert!(!reason.is_error(), "{reason}"),
            other => panic!("{other:?}"),
        }

        let client = connect(broker.options("c1")).expect("a client id");
        let calls: Vec<_> = (0..4_u32)
            .map(|at| tokio::spawn(client.set(format!("key {at}"), "v").into_future()))
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 4 {
            match link.next_event(true).await.expect("the connection lives") {
                LinkEvent::Message(message) => taken.push(message.message().packet().pkid),
                other => panic!("{other:?}"),
            }
        }
        // The store receives the requests and does not respond. Another store connects with the
        // same client id.
        let successor = serve(broker.options("statestore"));
        for call in calls {
            call.await.expect("an outcome").expect("a version");
        }
        assert!(link.next_event(true).await.is_err(), "the broker has closed the first connection");
        assert_eq!(successor.stats().keys, 4);
        // An acknowledgement of the lost connection is ignored.
        link.connect().await.expect("a connection");
        let late = statestore_proto::transport::Delivery(1 << 18 | 1 << 16 | 1);
        assert!(link.try_send(Transmit::Acknowledge(late)).is_ok());
        link.disconnect().await;
    })
    .await;
}

#[tokio::test]
async fn store_drops_registrations_of_disconnected_clients() {
    let lines = "log_dest topic\nlog_type notice\nlog_type error\n";
    let test = "store_drops_registrations_of_disconnected_clients";
    let Some(broker) = Mosquitto::start_with(test, lines) else { return };
    timely(async {
        let service = serve(broker.options("statestore").read_mosquitto_log(true));
        let stays = client(broker.options("stays")).await;
        let _kept = stays.watch("k").await.expect("a watch");
        for end in ["goodbye", "takeover"] {
            let id = format!("two words {end}");
            let store = client(broker.options(&id)).await;
            let mut watch = store.watch("k").await.expect("a watch");
            assert_eq!(watch.next().await, Some(WatchEvent::Live));
            assert_eq!(service.stats().registrations, 2);
            match end {
                "goodbye" => store.shutdown().await,
                // Another client takes over the client id, watches nothing and disconnects.
                _ => {
                    let mut link = RumqttcLink::for_client(broker.options(&id));
                    link.connect().await.expect("a connection");
                    drop(link);
                    store.shutdown().await;
                }
            }
            drop(watch);
            while service.stats().registrations != 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        stays.set("k", "v").await.expect("a version");
        assert_eq!(
            service.stats().registrations,
            1,
            "the registration of the connected client remains"
        );
    })
    .await;
}

/// Clients that never subscribed, or are gone, cost a store one notification for each registration.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_for_silenced_registrations() {
    const CLIENTS: usize = 500;
    const ROUNDS: usize = 10;
    let test = "nothing_is_published_for_silenced_registrations";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let (service, store) = both(&broker).await;
        let mut raw = Raw::connect(broker.port(), "raw");
        let mut register = |client: &str, key: &str, stop: &[&str]| {
            let command = [&["KEYNOTIFY", key], stop].concat();
            let ask = RawRequest::deployed("raw", words(&command)).replacing("__srcId", client);
            assert_eq!(raw.answer(&ask), b"+OK\r\n", "{client}");
        };
        let names: Vec<(String, String)> =
            (0..CLIENTS).map(|it| (format!("gone-{it}"), format!("key-{}", it % 50))).collect();
        for (client, key) in &names {
            register(client, key, &[]);
        }
        register("raw", "key-0", &[]);
        let mut published = Vec::new();
        for round in 0..ROUNDS {
            for key in 0..50 {
                store.set(format!("key-{key}"), round.to_string()).await.expect("a version");
            }
            // One for each registration at first, and then those of the only subscriber.
            let expected = (CLIENTS + 1 + round) as u64;
            let is_done = |stats: StoreStats| {
                stats.silenced_registrations == CLIENTS && stats.counters.notifications >= expected
            };
            while !is_done(service.stats()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            published.push(service.stats().counters.notifications);
            assert_eq!(published[round], expected);
        }
        println!("{test}: notifications after each round of 50 writes: {published:?}");
        for (client, key) in &names {
            register(client, key, &["STOP"]);
        }
        while service.stats().registrations != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(service.stats().silenced_registrations, 0);
    })
    .await;
}
