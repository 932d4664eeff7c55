//! What a broker can do to a link.

use std::time::Duration;

use statestore_paho::{Options, PahoLink, connect};
use statestore_proto::mqtt::ReasonCode;
use statestore_tests::mqttbytes::v5::{Packet, Publish};
use statestore_tests::scripted::{self, Peer, Scripted, Welcome};
use statestore_tests::timely::timely;
use statestore_tokio::{Error, Link, StateStore, VersionedValue};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_millis(300);

fn gets(store: &StateStore, count: usize) -> JoinSet<Result<Option<VersionedValue>, Error>> {
    let mut calls = JoinSet::new();
    for key in 0..count {
        let call = store.get(format!("key {key}"));
        calls.spawn(async move { call.await });
    }
    calls
}

fn client(options: Options) -> StateStore {
    connect(options).expect("a client id")
}

#[tokio::test]
async fn a_refused_subscription_is_the_reason_and_is_asked_for_again() {
    timely(scripted::a_refused_subscription_is_asked_for_again(client)).await;
}

#[tokio::test]
async fn refused_publishes_are_told_apart() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let mut peer = broker.welcome(Welcome::default()).await;
        for reason in [0x87, 0x97, 0x80, 0x83, 0x90, 0x99] {
            let call = tokio::spawn(store.get("k").into_future());
            let request = peer.publish().await;
            peer.puback(request.pkid, reason).await;
            let outcome = call.await.expect("an outcome");
            assert_eq!(outcome, Err(Error::Undelivered(ReasonCode(reason))));
        }
        // Paho keeps the reason of a success to itself.
        for reason in [0, 0x10] {
            let call = tokio::spawn(store.get("k").into_future());
            let request = peer.publish().await;
            peer.puback(request.pkid, reason).await;
            peer.answer(&request).await;
            assert_eq!(call.await.expect("an outcome"), Ok(None));
        }
    })
    .await;
}

#[tokio::test]
async fn what_the_broker_does_not_take_is_not_sent() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let welcome = Welcome { max_packet_size: Some(600), ..Welcome::default() };
        let peer = broker.welcome(welcome).await;
        let served = tokio::spawn(peer.serve());
        assert_eq!(store.get("k").await, Ok(None));
        let too_large = store.set("k", vec![0; 600]).await;
        assert_eq!(too_large, Err(Error::Undelivered(ReasonCode::PACKET_TOO_LARGE)));
        assert_eq!(store.get("k").await, Ok(None), "the same connection goes on");
        assert!(!served.is_finished());
        assert!(broker.is_left_alone(SOON).await);
    })
    .await;
}

#[tokio::test]
async fn a_takeover_is_the_end() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let mut peer = broker.welcome(Welcome::default()).await;
        let call = tokio::spawn(store.get("k").into_future());
        peer.publish().await;
        peer.disconnect(0x8e).await;
        assert_eq!(call.await.expect("an outcome"), Err(Error::Unknown));
        let Err(Error::Closed(closed)) = store.get("k").await else { panic!("it is over") };
        assert!(closed.reason.is_some_and(|reason| reason.contains("0x8e")));
        assert!(broker.is_left_alone(SOON).await);
    })
    .await;
}

#[tokio::test]
async fn a_takeover_may_be_answered_if_asked_for() {
    timely(async {
        let broker = Scripted::start().await;
        let _store = client(broker.options("c1").retry_after_takeover(true));
        for reason in [0x8e, 0x98, 0x95, 0x8b] {
            broker.welcome(Welcome::default()).await.disconnect(reason).await;
        }
        broker.welcome(Welcome::default()).await;
    })
    .await;
}

#[tokio::test]
async fn wrong_credentials_are_the_end() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1").credentials("me", "wrong"));
        let mut peer = broker.accept().await;
        let Packet::Connect(connect, _, Some(login)) = &peer.connect else { panic!("credentials") };
        assert!(connect.clean_start);
        let session = connect.properties.as_ref().and_then(|it| it.session_expiry_interval);
        assert_eq!(session, Some(1), "with less, Paho crashes");
        assert_eq!((&*login.username, &*login.password), ("me", "wrong"));
        peer.send(&[0x20, 3, 0, 0x86, 0]).await;
        let Err(Error::Closed(closed)) = store.connected().await else { panic!("it is over") };
        assert!(closed.reason.is_some_and(|reason| reason.contains("BadUserNameOrPassword")));
        assert!(broker.is_left_alone(SOON).await);
    })
    .await;
}

#[tokio::test]
async fn options_reach_the_broker() {
    timely(async {
        let broker = Scripted::start().await;
        let options = broker.options("statestore").receive_maximum(77).max_packet_size(5_000);
        let _service = statestore_paho::serve(options.keep_alive(Duration::from_secs(44)));
        let peer = broker.accept().await;
        let Packet::Connect(connect, None, None) = &peer.connect else { panic!("a CONNECT") };
        assert_eq!((&*connect.client_id, connect.keep_alive), ("statestore", 44));
        assert!(!connect.clean_start);
        let properties = connect.properties.as_ref().expect("properties");
        assert_eq!(properties.session_expiry_interval, Some(300));
        assert_eq!(properties.receive_maximum, Some(77));
        assert_eq!(properties.max_packet_size, Some(5_000));
    })
    .await;
}

#[tokio::test]
async fn a_user_name_that_cannot_be_sent_is_no_panic() {
    timely(async {
        let options = Options::new("c1", "127.0.0.1", 1).credentials("a\0b", "");
        let error = PahoLink::for_client(options).connect().await.expect_err("no user name");
        assert!(!error.is_transient() && error.to_string().contains("NUL"), "{error}");
        for (id, host) in [("c\0", "127.0.0.1"), ("c1", "a\0b")] {
            let mut link = PahoLink::for_client(Options::new(id, host, 1));
            assert!(!link.connect().await.expect_err("no text").is_transient());
        }
    })
    .await;
}

#[tokio::test]
async fn a_busy_broker_is_tried_again() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        broker.accept().await.send(&[0x20, 3, 0, 0x89, 0]).await;
        drop(broker.accept().await);
        let peer = broker.welcome(Welcome::default()).await;
        tokio::spawn(peer.serve());
        assert_eq!(store.get("k").await, Ok(None));
    })
    .await;
}

#[tokio::test]
async fn requests_of_a_lost_connection_end_and_the_next_one_may_allow_less() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let mut peer = broker.welcome(Welcome::default()).await;
        let mut calls = gets(&store, 256);
        for _ in 0..256 {
            let request = peer.publish().await;
            if request.pkid % 3 == 0 {
                peer.puback(request.pkid, 0).await;
            }
        }
        drop(peer);
        while let Some(outcome) = calls.join_next().await {
            assert_eq!(outcome.expect("an outcome"), Err(Error::Unknown));
        }

        let welcome = Welcome { receive_maximum: Some(20), ..Welcome::default() };
        let mut peer = broker.welcome(welcome).await;
        let mut calls = gets(&store, 300);
        let mut open: Vec<Publish> = Vec::new();
        for _ in 0..300 {
            if open.len() == 20 {
                // As many as there may be: now there is silence until one is acknowledged.
                assert!(tokio::time::timeout(SOON / 30, peer.publish()).await.is_err());
                acknowledge(&mut peer, &mut open).await;
            }
            open.push(peer.publish().await);
        }
        acknowledge(&mut peer, &mut open).await;
        while let Some(outcome) = calls.join_next().await {
            assert_eq!(outcome.expect("an outcome"), Ok(None));
        }
    })
    .await;
}

async fn acknowledge(peer: &mut Peer, open: &mut Vec<Publish>) {
    for request in open.drain(..) {
        peer.puback(request.pkid, 0).await;
        peer.answer(&request).await;
    }
}

#[tokio::test]
async fn acknowledgements_may_come_in_any_order() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let mut peer = broker.welcome(Welcome::default()).await;
        let first = tokio::spawn(store.get("first").into_future());
        let held = peer.publish().await;
        let second = tokio::spawn(store.get("second").into_future());
        let refused = peer.publish().await;
        peer.puback(refused.pkid, 0x87).await;
        let outcome = second.await.expect("an outcome");
        assert_eq!(outcome, Err(Error::Undelivered(ReasonCode::NOT_AUTHORIZED)));
        peer.puback(held.pkid, 0).await;
        peer.answer(&held).await;
        assert_eq!(first.await.expect("an outcome"), Ok(None));
    })
    .await;
}

#[tokio::test]
async fn requests_that_wait_in_every_queue_end_with_the_connection() {
    timely(async {
        let broker = Scripted::start().await;
        let options = broker.options("c1").in_flight(2).queue(3);
        let store = StateStore::builder()
            .timeout(Duration::from_secs(2))
            .spawn(PahoLink::for_client(options))
            .expect("a client id");
        let mut peer = broker.welcome(Welcome::default()).await;
        let mut calls = gets(&store, 100);
        peer.publish().await;
        peer.publish().await;
        drop(peer);
        let peer = broker.welcome(Welcome::default()).await;
        tokio::spawn(peer.serve());
        let (mut unknown, mut answered) = (0, 0);
        while let Some(outcome) = calls.join_next().await {
            match outcome.expect("an outcome") {
                Ok(None) => answered += 1,
                Err(Error::Unknown) => unknown += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!((2..=6).contains(&unknown), "{unknown} of those offered, {answered} others");
        assert_eq!(unknown + answered, 100);
    })
    .await;
}

#[tokio::test]
async fn small_queues_do_not_stall() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1").in_flight(1).queue(1));
        let peer = broker.welcome(Welcome::default()).await;
        tokio::spawn(peer.serve());
        let mut calls = gets(&store, 1_500);
        while let Some(outcome) = calls.join_next().await {
            assert_eq!(outcome.expect("an outcome"), Ok(None));
        }
    })
    .await;
}

#[tokio::test]
async fn a_goodbye_follows_what_was_sent() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let mut peer = broker.welcome(Welcome::default()).await;
        let call = tokio::spawn(store.get("k").into_future());
        let request = peer.publish().await;
        peer.puback(request.pkid, 0).await;
        let goodbye = tokio::spawn(store.shutdown());
        assert!(matches!(peer.read().await, Some(Packet::Disconnect(_))));
        goodbye.await.expect("it returns");
        assert!(call.await.expect("an outcome").is_err());
        assert!(broker.is_left_alone(SOON).await);
    })
    .await;
}

#[tokio::test]
async fn a_silent_broker_does_not_hold_up_the_goodbye() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1").in_flight(1).queue(2));
        let mut peer = broker.welcome(Welcome::default()).await;
        let mut calls = gets(&store, 20);
        peer.publish().await;
        store.shutdown().await;
        while let Some(outcome) = calls.join_next().await {
            assert!(outcome.expect("an outcome").is_err());
        }
    })
    .await;
}
