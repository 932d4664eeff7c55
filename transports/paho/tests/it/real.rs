//! Against mosquitto.

use std::collections::BTreeSet;
use std::time::Duration;

use statestore_paho::paho_mqtt::{self, AsyncClient, CreateOptionsBuilder};
use statestore_paho::{Options, PahoLink, connect, serve};
use statestore_proto::client::WatchEvent;
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::topic;
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::timely::timely;
use statestore_tokio::{Error, Link, LinkEvent, StateStore};
use tokio::task::JoinSet;

/// A client, when a store answers it.
async fn client(options: Options) -> StateStore {
    let store = connect(options).expect("a client id");
    // A store that is connected may not be subscribed yet, which Paho does not tell.
    while store.get("is anybody there").timeout(Duration::from_millis(300)).await.is_err() {}
    store
}

#[tokio::test]
async fn load_goes_on_after_the_broker_was_restarted() {
    let test = "load_goes_on_after_the_broker_was_restarted";
    let Some(mut broker) = Mosquitto::start(test) else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        let store = client(broker.options("c1")).await;
        let mut calls = JoinSet::new();
        for at in 0..512_u32 {
            let call = store.set(format!("key {at}"), "v").timeout(Duration::from_secs(2));
            calls.spawn(call.into_future());
        }
        assert!(calls.join_next().await.is_some(), "some are under way");
        assert!(broker.restart(), "it starts again");
        while let Some(outcome) = calls.join_next().await {
            match outcome.expect("an outcome") {
                Ok(_)
                | Err(
                    Error::Unknown | Error::NotSent | Error::TimedOut | Error::Unanswered { .. },
                ) => {}
                other => panic!("{other:?}"),
            }
        }
        service.connected().await.expect("again");
        let again = client(broker.options("c2")).await;
        again.set("k", "v").await.expect("a version");
        store.set("k", "w").await.expect("a version");
    })
    .await;
}

#[tokio::test]
async fn many_requests_at_once_are_answered() {
    let Some(broker) = Mosquitto::start("many_requests_at_once_are_answered") else { return };
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
async fn access_rules_are_told() {
    let test = "access_rules_are_told";
    let rules = std::env::temp_dir().join(format!("statestore-paho-acl-{}", std::process::id()));
    std::fs::write(&rules, "topic read #\n").expect("a file");
    let Some(broker) =
        Mosquitto::start_with(test, &format!("acl_file {}\nuser root", rules.display()))
    else {
        return;
    };
    timely(async {
        let store = connect(broker.options("c1")).expect("a client id");
        let refused = Err(Error::Undelivered(ReasonCode::NOT_AUTHORIZED));
        assert_eq!(store.get("k").await, refused);
    })
    .await;
    let _ = std::fs::remove_file(rules);
}

#[tokio::test]
async fn wrong_credentials_are_the_end() {
    let test = "wrong_credentials_are_the_end";
    let Some(broker) = Mosquitto::start_with(test, "allow_anonymous false") else { return };
    timely(async {
        let store = connect(broker.options("c1").credentials("me", "wrong")).expect("a client id");
        let Err(Error::Closed(closed)) = store.connected().await else { panic!("it is over") };
        assert!(closed.reason.is_some_and(|reason| reason.contains("NotAuthorized")));
    })
    .await;
}

#[tokio::test]
async fn of_two_with_one_client_id_the_later_stays() {
    let test = "of_two_with_one_client_id_the_later_stays";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut first = PahoLink::for_client(broker.options("c1"));
        let mut second = PahoLink::for_client(broker.options("c1"));
        first.connect().await.expect("a connection");
        second.connect().await.expect("a connection");
        // This version of mosquitto may say why or not, so only that it is over is for sure.
        assert!(first.next(true).await.is_err(), "the broker has closed it");
        let quiet = tokio::time::timeout(Duration::from_millis(100), second.next(true)).await;
        assert!(quiet.is_err(), "{quiet:?}");
        second.disconnect().await;
    })
    .await;
}

#[tokio::test]
async fn requests_wait_while_a_store_restarts() {
    let Some(broker) = Mosquitto::start("requests_wait_while_a_store_restarts") else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        let store = client(broker.options("c1")).await;
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

/// Publishes numbers.
async fn flood(broker: &Mosquitto, topic: &str, count: usize) -> AsyncClient {
    let create = CreateOptionsBuilder::new()
        .server_uri(format!("mqtt://127.0.0.1:{}", broker.port()))
        .client_id("flood")
        .persistence(None)
        .max_buffered_messages(i32::try_from(count).expect("few"))
        .finalize();
    let client = AsyncClient::new(create).expect("a client");
    client.connect(None).await.expect("a connection");
    for number in 0..count {
        let message = paho_mqtt::Message::new(topic, number.to_string(), 1);
        client.try_publish(message).expect("room");
    }
    client
}

#[tokio::test]
async fn a_store_that_reads_slowly_leaves_requests_with_the_broker() {
    let test = "a_store_that_reads_slowly_leaves_requests_with_the_broker";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut link = PahoLink::for_store(broker.options("statestore")).inbox(500);
        let mut store = Store::new(StoreConfig::new(1));
        link.connect().await.expect("a connection");
        store.handle_connected();
        let subscribe = store.poll_transmit().expect("a subscription");
        let Transmit::Subscribe { filter, .. } = &subscribe else { panic!("{subscribe:?}") };
        let topic = filter.to_string();
        link.try_send(subscribe).expect("room");
        assert!(matches!(link.next(true).await, Ok(LinkEvent::Subscribed(_, reason)) if !reason.is_error()));

        let _flood = flood(&broker, &topic, 3_000).await;
        let (mut numbers, mut connections) = (BTreeSet::new(), 1);
        while numbers.len() < 3_000 {
            match link.next(true).await {
                Ok(LinkEvent::Message(message)) => {
                    numbers.insert(message.payload().clone());
                    if numbers.len() % 100 == 0 {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert!(error.to_string().contains("inbox"), "{error}");
                    let connected = link.connect().await.expect("a connection");
                    assert!(connected.session_present);
                    connections += 1;
                }
            }
        }
        assert!(connections > 1, "it was too slow");
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
        let goes = client(broker.options("two words")).await;
        let mut watch = goes.watch("k").await.expect("a watch");
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        assert_eq!(service.stats().watches, 2);
        goes.shutdown().await;
        drop(watch);
        while service.stats().watches != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stays.set("k", "v").await.expect("a version");
        assert_eq!(service.stats().watches, 1, "and who has stayed");
    })
    .await;
}

#[tokio::test]
async fn what_belongs_to_others_is_taken_without_harm() {
    let test = "what_belongs_to_others_is_taken_without_harm";
    let Some(broker) = Mosquitto::start(test) else { return };
    timely(async {
        let mut link = PahoLink::for_client(broker.options("c1"));
        assert!(link.next(true).await.is_err(), "there is no connection yet");
        link.connect().await.expect("a connection");
        let (client_id, response_topic) = ("somebody".into(), topic::REQUEST.into());
        let offence = topic::TopicError::RequestTopic;
        let disconnect = Transmit::Disconnect { client_id, response_topic, offence };
        assert!(link.try_send(disconnect).is_ok());
        let late = statestore_proto::mqtt::Delivery(7);
        assert!(link.try_send(Transmit::Acknowledge(late)).is_ok());
        link.disconnect().await;
        assert!(link.next(true).await.is_err());
    })
    .await;
}
