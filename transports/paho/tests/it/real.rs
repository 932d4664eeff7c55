//! The link against mosquitto.

use std::collections::BTreeSet;
use std::time::Duration;

use statestore_paho::paho_mqtt::{self, AsyncClient, CreateOptionsBuilder};
use statestore_paho::{Options, PahoLink, connect, serve};
use statestore_proto::client::WatchEvent;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::topic;
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::timely;
use statestore_tokio::{CloseReason, Error, Link, LinkErrorKind, LinkEvent, StateStore};
use tokio::task::JoinSet;

/// Returns a client after the store has answered it.
async fn client(options: Options) -> StateStore {
    let store = connect(options).expect("a valid client id");
    // A connected store may not have subscribed yet, which Paho does not report.
    while store.get("probe").timeout(Duration::from_millis(300)).await.is_err() {}
    store
}

#[tokio::test]
async fn requests_succeed_after_the_broker_restarts() {
    let test = "requests_succeed_after_the_broker_restarts";
    let Some(mut broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        let store = client(broker.options("c1")).await;
        let mut calls = JoinSet::new();
        for at in 0..512_u32 {
            let call = store.set(format!("key {at}"), "v").timeout(Duration::from_secs(2));
            calls.spawn(call.into_future());
        }
        assert!(calls.join_next().await.is_some(), "some requests are in flight");
        assert!(broker.restart(), "the broker restarts");
        while let Some(outcome) = calls.join_next().await {
            match outcome.expect("an outcome") {
                Ok(_)
                | Err(
                    Error::ConnectionLost
                    | Error::NotSent { .. }
                    | Error::TimedOut
                    | Error::Unanswered { .. },
                ) => {}
                other => panic!("{other:?}"),
            }
        }
        service.wait_connected().await.expect("the store reconnects");
        let again = client(broker.options("c2")).await;
        again.set("k", "v").await.expect("a version");
        store.set("k", "w").await.expect("a version");
    })
    .await;
}

#[tokio::test]
async fn concurrent_requests_are_answered() {
    let Some(broker) = Mosquitto::start("concurrent_requests_are_answered") else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        let store = client(broker.options("c1")).await;
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
            assert!(found.expect("an outcome").expect("an answer").is_some());
        }
        assert_eq!(service.stats().keys, 512);
    })
    .await;
}

#[tokio::test]
async fn publish_denied_by_the_broker_reports_not_authorized() {
    let test = "publish_denied_by_the_broker_reports_not_authorized";
    let rules = std::env::temp_dir().join(format!("statestore-paho-acl-{}", std::process::id()));
    std::fs::write(&rules, "topic read #\n").expect("a file");
    let Some(broker) =
        Mosquitto::start_with(test, &format!("acl_file {}\nuser root", rules.display()))
    else {
        return;
    };
    timely(async {
        let store = connect(broker.options("c1")).expect("a valid client id");
        let refused = Err(Error::Undelivered(ReasonCode::NOT_AUTHORIZED));
        assert_eq!(store.get("k").await, refused);
    })
    .await;
    let _ = std::fs::remove_file(rules);
}

#[tokio::test]
async fn wrong_credentials_close_the_handle() {
    let test = "wrong_credentials_close_the_handle";
    let Some(broker) = Mosquitto::start_with(test, "allow_anonymous false") else { return };
    timely(async {
        let store =
            connect(broker.options("c1").credentials("me", "wrong")).expect("a valid client id");
        let Err(Error::Closed(closed)) = store.wait_connected().await else {
            panic!("the handle is not closed")
        };
        assert!(matches!(closed.reason, Some(CloseReason::NotAuthorized(_))));
    })
    .await;
}

#[tokio::test]
async fn later_of_two_links_with_one_client_id_stays_connected() {
    let test = "later_of_two_links_with_one_client_id_stays_connected";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut first = PahoLink::for_client(broker.options("c1"));
        let mut second = PahoLink::for_client(broker.options("c1"));
        first.connect().await.expect("a connection");
        second.connect().await.expect("a connection");
        // Versions of mosquitto differ in whether they send a DISCONNECT with a reason.
        assert!(first.next_event(true).await.is_err(), "the broker closed the connection");
        let quiet = tokio::time::timeout(Duration::from_millis(100), second.next_event(true)).await;
        assert!(quiet.is_err(), "{quiet:?}");
        second.disconnect().await;
    })
    .await;
}

#[tokio::test]
async fn broker_queues_requests_while_a_store_restarts() {
    let test = "broker_queues_requests_while_a_store_restarts";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        let store = client(broker.options("c1")).await;
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

/// Publishes the numbers from 0 to `count`.
async fn flood(broker: &Mosquitto, topic: &str, count: usize) -> AsyncClient {
    let create = CreateOptionsBuilder::new()
        .server_uri(format!("mqtt://127.0.0.1:{}", broker.port()))
        .client_id("flood")
        .persistence(None)
        .max_buffered_messages(i32::try_from(count).expect("a count of 31 bits"))
        .finalize();
    let client = AsyncClient::new(create).expect("a client");
    client.connect(None).await.expect("a connection");
    for number in 0..count {
        let message = paho_mqtt::Message::new(topic, number.to_string(), 1);
        client.try_publish(message).expect("capacity");
    }
    client
}

#[tokio::test]
async fn slow_store_receives_every_message_over_several_connections() {
    let test = "slow_store_receives_every_message_over_several_connections";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut link =
            PahoLink::for_store(broker.options("statestore")).configure(|paho| paho.inbox(500));
        let mut store = Store::new(StoreConfig::new(1));
        link.connect().await.expect("a connection");
        store.handle(
            statestore_proto::time::Now::default(),
            Input::Connected { session_present: false },
        );
        let subscribe = store.poll_transmit().expect("a subscription");
        let Transmit::Subscribe { filter, .. } = &subscribe else { panic!("{subscribe:?}") };
        let topic = filter.to_string();
        link.try_send(subscribe).expect("capacity");
        let subscribed = link.next_event(true).await;
        assert!(
            matches!(subscribed, Ok(LinkEvent::Subscribed(_, reason)) if !reason.is_error()),
            "{subscribed:?}"
        );

        let _flood = flood(&broker, &topic, 3_000).await;
        let (mut numbers, mut connections) = (BTreeSet::new(), 1);
        while numbers.len() < 3_000 {
            match link.next_event(true).await {
                Ok(LinkEvent::Message(message)) => {
                    numbers.insert(message.message().payload().clone());
                    if numbers.len() % 100 == 0 {
                        // Slow enough for a connection that is lost while messages wait.
                        tokio::time::sleep(Duration::from_millis(30)).await;
                    }
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), LinkErrorKind::Overloaded, "{error}");
                    assert!(error.to_string().contains("inbox"), "{error}");
                    let connected = link.connect().await.expect("a connection");
                    assert!(connected.session_present);
                    connections += 1;
                }
            }
        }
        assert!(connections > 1, "the inbox was never full");
    })
    .await;
}

#[tokio::test]
async fn presence_removes_the_registration_of_a_client_that_has_gone() {
    let lines = "log_dest topic\nlog_type notice\nlog_type error\n";
    let test = "presence_removes_the_registration_of_a_client_that_has_gone";
    let Some(broker) = Mosquitto::start_with(test, lines) else { return };
    timely(async {
        let service = serve(broker.options("statestore").read_mosquitto_log(true));
        let stays = client(broker.options("stays")).await;
        let _kept = stays.watch("k").await.expect("a watch");
        let goes = client(broker.options("two words")).await;
        let mut watch = goes.watch("k").await.expect("a watch");
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        assert_eq!(service.stats().registrations, 2);
        goes.shutdown().await;
        drop(watch);
        while service.stats().registrations != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stays.set("k", "v").await.expect("a version");
        assert_eq!(
            service.stats().registrations,
            1,
            "the registration of the other client remains"
        );
    })
    .await;
}

#[tokio::test]
async fn unsupported_output_of_the_machine_is_ignored() {
    let test = "unsupported_output_of_the_machine_is_ignored";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut link = PahoLink::for_client(broker.options("c1"));
        assert!(link.next_event(true).await.is_err(), "the link is not connected yet");
        link.connect().await.expect("a connection");
        let (client_id, response_topic) = ("other".into(), topic::REQUEST.into());
        let offence = topic::TopicError::RequestTopic;
        let disconnect = Transmit::Disconnect { client_id, response_topic, offence };
        assert!(link.try_send(disconnect).is_ok());
        let late = statestore_proto::transport::Delivery(7);
        assert!(link.try_send(Transmit::Acknowledge(late)).is_ok());
        link.disconnect().await;
        assert!(link.next_event(true).await.is_err());
    })
    .await;
}
