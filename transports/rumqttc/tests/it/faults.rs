//! Reactions of a link to faults of a broker.

use std::time::Duration;

use statestore_proto::transport::ReasonCode;
use statestore_rumqttc::{Options, connect};
use statestore_testkit::brokers::scripted::{Scripted, Welcome};
use statestore_testkit::links::gets;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Packet;
use statestore_tokio::{Error, StateStore};

const SOON: Duration = Duration::from_millis(300);

fn client(options: Options) -> StateStore {
    connect(options).expect("a client id")
}

#[tokio::test]
async fn refusal_releases_the_request_that_waits_for_its_packet_id() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let welcome = Welcome { receive_maximum: Some(3), ..Welcome::default() };
        let mut peer = broker.welcome(welcome).await;
        let mut calls = gets(&store, 5);
        let (a, b, c) = (peer.publish().await, peer.publish().await, peer.publish().await);
        assert_eq!((a.pkid, b.pkid, c.pkid), (2, 3, 1), "the SUBSCRIBE has the first id");
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
async fn broker_without_keep_alive_receives_at_most_one_ping() {
    timely(async {
        let broker = Scripted::start().await;
        let store = client(broker.options("c1"));
        let welcome = Welcome { keep_alive: Some(0), ..Welcome::default() };
        let mut peer = broker.welcome(welcome).await;
        let mut pings = 0;
        let watched = async {
            loop {
                match peer.read().await.expect("the connection lives") {
                    Packet::PingReq => {
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
