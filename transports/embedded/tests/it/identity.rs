//! Who asked is what the broker says, not what a request says.

use rumqttc::v5::mqttbytes::v5::PubAckReason;
use statestore_proto::topic::REQUEST;
use statestore_tokio::LinkEvent;
use statestore_tokio::{AsIncoming, Link};

use crate::raw::Raw;
use crate::{client, options, start, timely};

#[tokio::test]
async fn a_claim_that_the_broker_contradicts_is_refused() {
    timely(async {
        let (broker, service) = start(options()).await;
        let mut mallory = Raw::connect(&broker, "mallory").await;
        let answers = "clients/mallory/answers";
        let forged = mallory.request_as(&["KEYNOTIFY", "k"], "alice", answers);
        let answer = mallory.answer(forged).await;
        assert_eq!(answer.payload, &b"-ERR not authorized\r\n"[..]);
        assert_eq!(service.stats().watches, 0);
        assert_eq!(mallory.ask(&["SET", "k", "v"]).await, &b"+OK\r\n"[..], "as itself it may");
    })
    .await;
}

#[tokio::test]
async fn the_sender_of_a_request_cannot_be_forged() {
    timely(async {
        let broker = statestore_embedded::Broker::bind(options()).await.expect("it listens");
        let mut link = broker.store_link();
        link.connect().await.expect("it runs");
        let mut store =
            statestore_proto::store::Store::new(statestore_proto::store::StoreConfig::new(1));
        store.handle_connected();
        while let Some(transmit) = store.poll_transmit() {
            link.try_send(transmit).expect("room");
        }
        let mut mallory = Raw::connect(&broker, "mallory").await;
        let mut request = mallory.request(&["GET", "k"]);
        let properties = request.properties.as_mut().expect("properties");
        properties.user_properties.insert(0, ("x-mqtt-client-id".into(), "alice".into()));
        properties.user_properties.push(("x-mqtt-client-id".into(), "alice".into()));
        mallory.send(request);
        let (message, ()) = tokio::join!(arrival(&mut link), async {
            mallory.publish("somewhere", false, "so that it is sent").await;
        });
        let incoming = message.as_incoming().expect("a message");
        assert_eq!((incoming.topic, incoming.verified_sender), (REQUEST, Some("mallory")));
    })
    .await;
}

/// The next message.
async fn arrival<L: Link>(link: &mut L) -> L::Message {
    loop {
        if let LinkEvent::Message(message) = link.next(true).await.expect("a connection") {
            return message;
        }
    }
}

#[tokio::test]
async fn a_request_to_be_answered_where_nobody_may_publish_ends_the_connection() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let bystander = client(&broker, "bystander").await;
        let forbidden = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/61/x";
        for response_topic in [REQUEST, forbidden] {
            let mut offender = Raw::connect(&broker, "offender").await;
            offender.send(offender.request_as(&["GET", "k"], "offender", response_topic));
            offender.ended().await;
        }
        assert_eq!(bystander.get("k").await, Ok(None), "others stay");
        let mut again = Raw::connect(&broker, "offender").await;
        assert_eq!(again.ask(&["GET", "k"]).await, &b"$-1\r\n"[..], "it may come back");
    })
    .await;
}

#[tokio::test]
async fn nobody_but_the_store_publishes_below_its_topics() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let will = "clients/statestore/v1/x";
        let dying = Raw::open(&broker, "dying", |options| {
            options.set_last_will(Raw::will(will, b"a forged notification"));
        });
        let (dying, _) = dying.await.expect("a connection");
        let mut raw = Raw::connect(&broker, "raw").await;
        raw.subscribe("clients/statestore/#").await;
        for topic in ["clients/statestore/", "clients/statestore/v1/x"] {
            for retain in [false, true] {
                let reason = raw.publish(topic, retain, "forged").await;
                assert_eq!(reason, PubAckReason::NotAuthorized, "{topic}");
            }
        }
        drop(dying);
        assert_eq!(raw.publish("clients/statestores", false, "x").await, PubAckReason::Success);
        raw.subscribe("clients/statestore/v1/x").await;
        assert_eq!(raw.ask(&["GET", "k"]).await, &b"$-1\r\n"[..]);
        assert_eq!(raw.payloads().len(), 0, "nothing was delivered or retained");
    })
    .await;
}

#[tokio::test]
async fn the_client_id_of_the_store_is_not_to_be_had() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let refused = Raw::open(&broker, "$statestore", |_| {}).await;
        assert!(refused.is_err());
        let store = client(&broker, "a").await;
        assert_eq!(store.get("k").await, Ok(None), "the store is still there");
    })
    .await;
}

#[tokio::test]
async fn a_client_in_the_process_keeps_to_the_same_rules() {
    timely(async {
        let (broker, service) = start(options()).await;
        let inside = statestore_tokio::StateStore::builder()
            .spawn(broker.link("inside"))
            .expect("a client id");
        let outside = client(&broker, "outside").await;
        let mut changes = inside.watch("k").await.expect("a watch");
        assert_eq!(changes.next().await, Some(statestore_proto::client::WatchEvent::Live));
        let version = outside.set("k", "v").await.expect("a version");
        match changes.next().await {
            Some(statestore_proto::client::WatchEvent::Changed { value, version: told }) => {
                assert_eq!((value.as_deref(), told), (Some(&b"v"[..]), Some(version)));
            }
            other => panic!("{other:?}"),
        }
        // Whoever comes with its client id takes its place.
        let mut other = Raw::connect(&broker, "inside").await;
        assert_eq!(other.ask(&["GET", "k"]).await, &b"$1\r\nv\r\n"[..]);
        assert!(inside.get("k").await.is_err());
        while service.stats().watches > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
