//! Against mosquitto.

use std::time::Duration;

use statestore_proto::client::WatchEvent;
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_proto::store::{Store, StoreConfig};
use statestore_rumqttc::{Options, RumqttcLink, connect, serve};
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::raw::{Ask, Raw, words};
use statestore_tests::timely::timely;
use statestore_tokio::{
    Error, Link, LinkEvent, Removal, StateStore, StoreService, VersionedValue, Watch,
};
use tokio::task::JoinSet;

/// A client, when a store answers it.
async fn client(options: Options) -> StateStore {
    let store = connect(options).expect("a client id");
    // A store that is connected may not be subscribed yet.
    while let Err(error) = store.get("is anybody there").timeout(Duration::from_secs(1)).await {
        assert!(!error.may_be_applied() || error == Error::Unknown, "{error}");
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
    match watch.next().await.expect("the watch goes on") {
        WatchEvent::Changed { value, .. } => value.map(|value| value.to_vec()),
        other => panic!("{other:?} instead of a change"),
    }
}

#[tokio::test]
async fn every_command_works() {
    let Some(broker) = Mosquitto::start("every_command_works") else { return };
    timely(async {
        let (service, store) = both(&broker).await;
        let version = store.set("k", "v").await.expect("a version");
        let found = store.get("k").await.expect("an answer").expect("a value");
        assert_eq!((&found.value[..], found.version), (&b"v"[..], Some(version)));

        assert_eq!(store.vdel("k", "other").await, Ok(Removal::Different));
        assert_eq!(store.vdel("k", "v").await, Ok(Removal::Removed));
        assert_eq!(store.vdel("k", "v").await, Ok(Removal::Absent));
        assert_eq!(store.del("k").await, Ok(false));
        assert_eq!(store.get("k").await, Ok(None));

        assert!(store.set("lock", "me").if_absent().await.expect("an answer").is_some());
        assert_eq!(store.set("lock", "you").if_absent().await, Ok(None));
        assert_eq!(store.set("lock", "you").if_absent_or_equal().await, Ok(None));
        assert!(store.set("lock", "me").if_absent_or_equal().await.expect("an answer").is_some());
        assert_eq!(store.del("lock").await, Ok(true));

        let stats = service.stats();
        assert_eq!((stats.keys, stats.counters.not_requests), (0, 0));
        store.shutdown().await;
        service.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn binary_keys_and_large_values_come_back() {
    let Some(broker) = Mosquitto::start("binary_keys_and_large_values_come_back") else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let large: Vec<u8> = (0..65_000_u32).map(|at| (at % 251) as u8).collect();
        let key = &b"\0\r\n\xff $5"[..];
        store.set(key, large.clone()).await.expect("a version");
        assert_eq!(value(&store.get(key).await.expect("an answer")), Some(&large[..]));
        let megabyte = vec![7; 1_000_000];
        store.set(key, megabyte.clone()).await.expect("a version");
        assert_eq!(value(&store.get(key).await.expect("an answer")), Some(&megabyte[..]));
    })
    .await;
}

#[tokio::test]
async fn an_expired_key_is_told() {
    let Some(broker) = Mosquitto::start("an_expired_key_is_told") else { return };
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
async fn many_requests_at_once_are_answered() {
    let Some(broker) = Mosquitto::start("many_requests_at_once_are_answered") else { return };
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
            assert!(value(&found.expect("an outcome").expect("an answer")).is_some());
        }
        assert_eq!(service.stats().keys, 512);
    })
    .await;
}

#[tokio::test]
async fn one_request_after_the_other() {
    let Some(broker) = Mosquitto::start("one_request_after_the_other") else { return };
    timely(async {
        let (_service, store) = both(&broker).await;
        let mut last = None;
        for at in 0..500_u32 {
            let version = store.set("k", at.to_string()).await.expect("a version");
            assert!(last.replace(version.clone()) < Some(version.clone()), "versions grow");
            let found = store.get("k").await.expect("an answer").expect("a value");
            assert_eq!(
                (&found.value[..], found.version),
                (at.to_string().as_bytes(), Some(version))
            );
        }
    })
    .await;
}

#[tokio::test]
async fn an_watch_outlives_the_broker() {
    let Some(mut broker) = Mosquitto::start("an_watch_outlives_the_broker") else { return };
    timely(async {
        let _service = serve(broker.options("statestore"));
        // A watch that finds no store tries again after its time-out.
        let store = StateStore::builder()
            .timeout(Duration::from_millis(500))
            .spawn(RumqttcLink::for_client(broker.options("c1")))
            .expect("a client id");
        let other = client(broker.options("c2")).await;
        store.set("k", "before").await.expect("a version");
        let mut watch = store.watch("k").await.expect("a watch");
        assert_eq!(changed(&mut watch).await.as_deref(), Some(&b"before"[..]));
        assert_eq!(watch.next().await, Some(WatchEvent::Live));

        assert!(broker.restart(), "it starts again");
        assert_eq!(watch.next().await, Some(WatchEvent::Gap));
        while other.set("k", "after").timeout(Duration::from_secs(1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The gap is closed before that change or after it.
        let mut live = 0;
        for expected in [Some("after"), None, Some("again")] {
            match expected {
                Some("again") => _ = other.set("k", "again").await.expect("a version"),
                None => assert_eq!(other.del("k").await, Ok(true)),
                Some(_) => {}
            }
            let value = loop {
                match watch.next().await.expect("it goes on") {
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
        assert!(broker.restart(), "it starts again");
        while let Some(outcome) = calls.join_next().await {
            match outcome.expect("an outcome") {
                Ok(_) | Err(Error::Unknown | Error::NotSent) => {}
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
async fn without_a_store_the_broker_says_so() {
    let Some(broker) = Mosquitto::start("without_a_store_the_broker_says_so") else { return };
    timely(async {
        let store = connect(broker.options("c1")).expect("a client id");
        let nobody = Err(Error::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS));
        assert_eq!(store.get("k").await, nobody);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_has_one_effect_and_one_answer() {
    let Some(broker) = Mosquitto::start("a_repeated_request_has_one_effect_and_one_answer") else {
        return;
    };
    timely(async {
        let (_service, store) = both(&broker).await;
        let mut raw = Raw::connect(broker.port(), "raw");
        let mut twice = |elements: &[&str]| {
            let ask = Ask::deployed("raw", words(elements));
            let [mut first, mut second] = [(); 2].map(|()| raw.ask(&ask));
            (first.pkid, second.pkid) = (0, 0);
            assert_eq!(first, second, "byte for byte");
            first.payload
        };
        assert_eq!(twice(&["SET", "k", "value", "NX"]), &b"+OK\r\n"[..]);
        assert_eq!(value(&store.get("k").await.expect("an answer")), Some(&b"value"[..]));
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
        assert!(calls.iter().all(|call| !call.is_finished()), "the broker keeps them");
        let service = serve(broker.options("statestore"));
        for call in calls {
            call.await.expect("an outcome").expect("a version");
        }
        assert_eq!(service.stats().keys, 10);
    })
    .await;
}

#[tokio::test]
async fn what_a_store_did_not_answer_its_successor_does() {
    let Some(broker) = Mosquitto::start("what_a_store_did_not_answer_its_successor_does") else {
        return;
    };
    timely(async {
        let options = broker.options("statestore");
        let mut link = RumqttcLink::for_store(options).without_claim();
        let mut store = Store::new(StoreConfig::new(1));
        link.connect().await.expect("a connection");
        store.handle_connected();
        while let Some(transmit) = store.poll_transmit() {
            link.try_send(transmit).expect("room");
        }
        assert!(matches!(link.next(true).await, Ok(LinkEvent::Subscribed(_, reason)) if !reason.is_error()));

        let client = connect(broker.options("c1")).expect("a client id");
        let calls: Vec<_> = (0..4_u32)
            .map(|at| tokio::spawn(client.set(format!("key {at}"), "v").into_future()))
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 4 {
            match link.next(true).await.expect("the connection lives") {
                LinkEvent::Message(message) => taken.push(message.packet().pkid),
                other => panic!("{other:?}"),
            }
        }
        // It takes them and says nothing more. Another store comes with the same client id.
        let successor = serve(broker.options("statestore"));
        for call in calls {
            call.await.expect("an outcome").expect("a version");
        }
        assert!(link.next(true).await.is_err(), "the broker has closed the first connection");
        assert_eq!(successor.stats().keys, 4);
        // An acknowledgement that belongs to the lost connection goes nowhere.
        link.connect().await.expect("a connection");
        let late = statestore_proto::mqtt::Delivery(1 << 18 | 1 << 16 | 1);
        assert!(link.try_send(Transmit::Acknowledge(late)).is_ok());
        link.disconnect().await;
    })
    .await;
}

#[tokio::test]
async fn a_store_learns_who_has_gone() {
    let lines = "log_dest topic\nlog_type notice\nlog_type error\n";
    let Some(broker) = Mosquitto::start_with("a_store_learns_who_has_gone", lines) else { return };
    timely(async {
        let service = serve(broker.options("statestore").presence(true));
        let stays = client(broker.options("stays")).await;
        let _kept = stays.watch("k").await.expect("a watch");
        for end in ["goodbye", "takeover"] {
            let id = format!("two words {end}");
            let store = client(broker.options(&id)).await;
            let mut watch = store.watch("k").await.expect("a watch");
            assert_eq!(watch.next().await, Some(WatchEvent::Live));
            assert_eq!(service.stats().watches, 2);
            match end {
                "goodbye" => store.shutdown().await,
                // Another with its client id, which watches nothing and goes without a word.
                _ => {
                    let mut link = RumqttcLink::for_client(broker.options(&id));
                    link.connect().await.expect("a connection");
                    drop(link);
                    store.shutdown().await;
                }
            }
            drop(watch);
            while service.stats().watches != 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        stays.set("k", "v").await.expect("a version");
        assert_eq!(service.stats().watches, 1, "and who has stayed");
    })
    .await;
}
