//! What a broker can do to a link.

use std::time::Duration;

use statestore_proto::mqtt::ReasonCode;
use statestore_rumqttc::{Options, RumqttcLink, connect};
use statestore_tests::mqttbytes::v5::{Packet, Publish};
use statestore_tests::scripted::{self, Scripted, Welcome};
use statestore_tests::timely::timely;
use statestore_tokio::{Error, StateStore, VersionedValue};
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
        for reason in [0x87, 0x10, 0x97, 0x80] {
            let call = tokio::spawn(store.get("k").into_future());
            let request = peer.publish().await;
            peer.puback(request.pkid, reason).await;
            let outcome = call.await.expect("an outcome");
            assert_eq!(outcome, Err(Error::Undelivered(ReasonCode(reason))));
        }
        let call = tokio::spawn(store.get("k").into_future());
        let request = peer.publish().await;
        peer.puback(request.pkid, 0).await;
        peer.answer(&request).await;
        assert_eq!(call.await.expect("an outcome"), Ok(None));
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
        broker.welcome(Welcome::default()).await.disconnect(0x8e).await;
        broker.welcome(Welcome::default()).await.disconnect(0x98).await;
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
        assert_eq!((&*login.username, &*login.password), ("me", "wrong"));
        peer.send(&[0x20, 3, 0, 0x86, 0]).await;
        let Err(Error::Closed(closed)) = store.connected().await else { panic!("it is over") };
        assert!(closed.reason.is_some_and(|reason| reason.contains("BadUserNamePassword")));
        assert!(broker.is_left_alone(SOON).await);
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
                for request in open.drain(..) {
                    peer.puback(request.pkid, 0).await;
                    peer.answer(&request).await;
                }
            }
            open.push(peer.publish().await);
        }
        for request in open.drain(..) {
            peer.puback(request.pkid, 0).await;
            peer.answer(&request).await;
        }
        while let Some(outcome) = calls.join_next().await {
            assert_eq!(outcome.expect("an outcome"), Ok(None));
        }
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
            .spawn(RumqttcLink::for_client(options))
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
async fn other_disconnects_are_followed_by_a_new_connection() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        // Packet too large, administrative action, server shutting down.
        for reason in [0x95, 0x98, 0x8b] {
            let mut peer = broker.welcome(Welcome::default()).await;
            let call = tokio::spawn(store.get("k").into_future());
            peer.publish().await;
            peer.disconnect(reason).await;
            assert_eq!(call.await.expect("an outcome"), Err(Error::Unknown), "{reason:#x}");
        }
        let peer = broker.welcome(Welcome::default()).await;
        tokio::spawn(peer.serve());
        assert_eq!(store.get("k").await, Ok(None));
    })
    .await;
}

#[tokio::test]
async fn requests_beyond_every_queue_do_not_stall() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1").in_flight(512).queue(10));
        // Nobody welcomes the connection before all of them wait.
        let mut calls = gets(&store, 10_000);
        tokio::task::yield_now().await;
        let peer = broker.welcome(Welcome::default()).await;
        tokio::spawn(peer.serve());
        while let Some(outcome) = calls.join_next().await {
            assert_eq!(outcome.expect("an outcome"), Ok(None));
        }
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
async fn a_refusal_frees_the_request_that_waits_for_its_packet_id() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let welcome = Welcome { receive_maximum: Some(3), ..Welcome::default() };
        let mut peer = broker.welcome(welcome).await;
        let mut calls = gets(&store, 5);
        let (a, b, c) = (peer.publish().await, peer.publish().await, peer.publish().await);
        assert_eq!((a.pkid, b.pkid, c.pkid), (2, 3, 1), "the SUBSCRIBE had the first");
        // Out of order: the next packet id is that of a request without an acknowledgement.
        peer.puback(b.pkid, 0).await;
        peer.answer(&b).await;
        assert!(tokio::time::timeout(SOON / 3, peer.publish()).await.is_err());
        peer.puback(a.pkid, 0x87).await;
        let d = peer.publish().await;
        assert_eq!(d.pkid, a.pkid);
        peer.puback(c.pkid, 0).await;
        let e = peer.publish().await;
        for late in [&c, &d, &e] {
            peer.answer(late).await;
        }
        for acknowledged in [d, e] {
            peer.puback(acknowledged.pkid, 0).await;
        }
        let (mut refused, mut answered) = (0, 0);
        while let Some(outcome) = calls.join_next().await {
            match outcome.expect("an outcome") {
                Ok(None) => answered += 1,
                Err(Error::Undelivered(ReasonCode::NOT_AUTHORIZED)) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((refused, answered), (1, 4));
    })
    .await;
}

#[tokio::test]
async fn a_broker_without_keep_alive_is_not_flooded() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let welcome = Welcome { keep_alive: Some(0), ..Welcome::default() };
        let mut peer = broker.welcome(welcome).await;
        let mut pings = 0;
        let watched = async {
            loop {
                match peer.read().await.expect("the connection lives") {
                    Packet::PingReq(_) => {
                        pings += 1;
                        peer.send(&[0xd0, 0]).await;
                    }
                    Packet::Subscribe(subscribe) => peer.grant(subscribe.pkid, 1).await,
                    other => panic!("{other:?}"),
                }
            }
        };
        assert!(tokio::time::timeout(SOON, watched).await.is_err());
        assert!(pings <= 1, "{pings} pings");
        store.shutdown().await;
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
        drop(peer);
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
