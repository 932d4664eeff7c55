//! The sender of a request is the client id that the broker has verified, not the one in the
//! request.

use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::topic::REQUEST;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw, RawRequest, response_topic, words};
use statestore_tokio::LinkEvent;
use statestore_tokio::{AsIncoming, Link};

use crate::{client, options, raw, start};

#[tokio::test(flavor = "multi_thread")]
async fn request_with_forged_source_is_refused() {
    timely(async {
        let (broker, service) = start(options()).await;
        let mut mallory = raw(&broker, "mallory");
        let mut forged = RawRequest::deployed("alice", words(&["KEYNOTIFY", "k"]));
        forged.response_topic = Some(response_topic("mallory"));
        assert_eq!(mallory.answer(&forged), b"-ERR not authorized\r\n");
        assert_eq!(service.stats().registrations, 0);
        assert_eq!(
            mallory.command(&["SET", "k", "v"]),
            b"+OK\r\n",
            "requests with its own id are allowed"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verified_sender_cannot_be_forged() {
    timely(async {
        let broker = statestore_server::Broker::bind(options()).await.expect("bind");
        let mut link = broker.store_link();
        link.connect().await.expect("connect");
        let mut store =
            statestore_proto::store::Store::new(statestore_proto::store::StoreConfig::new(1));
        store.handle(
            statestore_proto::time::Now::default(),
            Input::Connected { session_present: false },
        );
        while let Some(transmit) = store.poll_transmit() {
            link.try_send(transmit).expect("queue has capacity");
        }
        let mut forged = RawRequest::deployed("mallory", words(&["GET", "k"]));
        forged.properties.insert(0, ("x-mqtt-client-id".into(), "alice".into()));
        let forged = forged.with("x-mqtt-client-id", "alice");
        let mut mallory = raw(&broker, "mallory");
        mallory.send(&forged);
        let message = next_message(&mut link).await;
        let incoming = message.as_incoming().expect("a message");
        assert_eq!((incoming.topic, incoming.verified_sender), (REQUEST, Some("mallory")));
    })
    .await;
}

/// Returns the next message.
async fn next_message<L: Link>(link: &mut L) -> L::Message {
    loop {
        if let LinkEvent::Message(message) = link.next_event(true).await.expect("a connection") {
            return message;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_response_topic_disconnects_the_client() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let bystander = client(&broker, "bystander").await;
        let forbidden = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/61/x";
        for topic in [REQUEST, forbidden] {
            let mut ask = RawRequest::deployed("offender", words(&["GET", "k"]));
            ask.response_topic = Some(topic.into());
            let mut offender = raw(&broker, "offender");
            offender.send(&ask);
            offender.ended();
        }
        assert_eq!(bystander.get("k").await, Ok(None), "other clients stay connected");
        let mut again = raw(&broker, "offender");
        // Topics of another client, and the rest of the topics named after the store, are rejected
        // without a disconnect.
        for topic in ["clients/bystander/x", "clients/statestore/x", "clients/statestore"] {
            let mut ask = RawRequest::deployed("offender", words(&["GET", "k"]));
            ask.response_topic = Some(topic.into());
            assert_eq!(again.put(&ask), Some(Reason::NOT_AUTHORIZED), "{topic}");
        }
        assert_eq!(again.command(&["GET", "k"]), b"$-1\r\n", "the client may reconnect");
    })
    .await;
}

/// `line1` could otherwise subscribe to the topics of `line1/robot`.
#[tokio::test(flavor = "multi_thread")]
async fn client_id_with_several_levels_is_rejected() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let port = broker.local_addr().port();
        for client_id in ["line1/robot", "line1/", "/"] {
            let refused = Raw::try_open(port, client_id, Hello::default());
            assert_eq!(refused.err(), Some(Some(Reason::CLIENT_IDENTIFIER_NOT_VALID)));
        }
        let _robot = raw(&broker, "line1-robot");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_store_can_publish_below_its_topics() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let will = Some(("clients/statestore/v1/x", "a forged notification"));
        let dying = Hello { will, ..Hello::default() };
        let refused = Raw::try_open(broker.local_addr().port(), "dying", dying);
        assert_eq!(refused.err(), Some(Some(Reason::NOT_AUTHORIZED)));
        let mut raw = raw(&broker, "raw");
        raw.subscribe("clients/statestore/#");
        for topic in ["clients/statestore/", "clients/statestore/v1/x"] {
            for retain in [false, true] {
                let reason = raw.publish(topic, retain, "forged");
                assert_eq!(reason, Reason::NOT_AUTHORIZED, "{topic}");
            }
        }
        let reason = raw.publish("clients/statestores", false, "x");
        assert_eq!(reason, Reason::NO_MATCHING_SUBSCRIBERS, "another prefix");
        raw.subscribe("clients/statestore/v1/x");
        assert_eq!(raw.command(&["GET", "k"]), b"$-1\r\n");
        assert!(raw.take_messages().is_empty(), "nothing was delivered or retained");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_id_of_the_store_is_rejected() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let port = broker.local_addr().port();
        assert!(Raw::try_open(port, "$statestore", Hello::default()).is_err());
        let store = client(&broker, "a").await;
        assert_eq!(store.get("k").await, Ok(None), "the store is still there");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_in_the_process_follows_the_same_rules() {
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
            Some(statestore_proto::client::WatchEvent::Changed { value, version: changed }) => {
                assert_eq!((value.as_deref(), changed), (Some(&b"v"[..]), Some(version)));
            }
            other => panic!("{other:?}"),
        }
        // A client with the same client id takes over.
        let mut other = raw(&broker, "inside");
        assert_eq!(other.command(&["GET", "k"]), b"$1\r\nv\r\n");
        assert!(inside.get("k").await.is_err());
        while service.stats().registrations > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
