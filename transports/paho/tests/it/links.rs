//! A link alone: what it hands out, and when.

use std::time::Duration;

use statestore_paho::{Options, PahoLink};
use statestore_tests::mqttbytes::QoS;
use statestore_tests::mqttbytes::v5::{Packet, Publish};
use statestore_tests::scripted::{Peer, Scripted, Welcome};
use statestore_tests::timely::timely;
use statestore_tokio::{Link, LinkEvent};

const SOON: Duration = Duration::from_millis(300);

fn message(topic: &str, id: u16) -> Publish {
    let mut publish = Publish::new(topic, QoS::AtLeastOnce, id.to_string(), None);
    publish.pkid = id;
    publish
}

/// A link and its broker.
async fn both(broker: &Scripted, options: Options) -> (PahoLink, Peer) {
    connected(broker, PahoLink::for_client(options)).await
}

async fn connected(broker: &Scripted, mut link: PahoLink) -> (PahoLink, Peer) {
    let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    connected.expect("a connection");
    (link, peer)
}

#[tokio::test]
async fn what_a_slow_reader_does_not_take_stays_with_the_broker() {
    timely(async {
        let broker = Scripted::start().await;
        let (mut link, mut peer) =
            connected(&broker, PahoLink::for_client(broker.options("c1")).inbox(10)).await;
        for id in 1..=11 {
            peer.deliver(message("t", id)).await;
        }
        // All of them were acknowledged, so all of them are handed out before the link says that it has left.
        for _ in 1..=11 {
            assert!(matches!(peer.read().await, Some(Packet::PubAck(_))));
        }
        for id in 1..=11 {
            match link.next(true).await {
                Ok(LinkEvent::Message(message)) => {
                    assert_eq!(message.payload(), id.to_string().as_bytes());
                }
                other => panic!("{other:?} instead of {id}"),
            }
        }
        let error = link.next(true).await.expect_err("it has left");
        assert!(error.is_transient(), "{error}");
        assert!(matches!(peer.read().await, Some(Packet::Disconnect(_))), "it said goodbye");
        let (connected, mut peer) =
            tokio::join!(link.connect(), broker.welcome(Welcome::default()));
        connected.expect("a connection");
        peer.deliver(message("t", 12)).await;
        assert!(matches!(link.next(true).await, Ok(LinkEvent::Message(_))));
    })
    .await;
}

#[tokio::test]
async fn nothing_of_a_lost_connection_is_heard_on_the_next() {
    timely(async {
        let broker = Scripted::start().await;
        let (mut link, mut peer) = both(&broker, broker.options("c1")).await;
        peer.deliver(message("old", 1)).await;
        assert!(matches!(peer.read().await, Some(Packet::PubAck(_))));
        let (connected, mut peer) =
            tokio::join!(link.connect(), broker.welcome(Welcome::default()));
        connected.expect("a connection");
        peer.deliver(message("new", 1)).await;
        match link.next(true).await {
            Ok(LinkEvent::Message(message)) => assert_eq!(message.topic(), "new"),
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn a_wait_that_is_dropped_loses_nothing() {
    timely(async {
        let broker = Scripted::start().await;
        let (mut link, mut peer) = both(&broker, broker.options("c1")).await;
        for id in 1..=200 {
            peer.deliver(message("t", id)).await;
            // Sometimes before it arrives, sometimes after.
            let pause = Duration::from_micros(u64::from(id % 7) * 20);
            let _ = tokio::time::timeout(pause, link.next(false)).await;
            match link.next(true).await {
                Ok(LinkEvent::Message(message)) => {
                    assert_eq!(message.payload(), id.to_string().as_bytes());
                }
                other => panic!("{other:?} instead of {id}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_attempt_that_is_dropped_leaves_nothing_behind() {
    timely(async {
        let broker = Scripted::start().await;
        let mut link = PahoLink::for_client(broker.options("c1"));
        for _ in 0..3 {
            assert!(tokio::time::timeout(SOON / 10, link.connect()).await.is_err());
            // The welcome comes too late: whoever asked for it has gone.
            let mut late = broker.welcome(Welcome::default()).await;
            assert!(matches!(late.read().await, Some(Packet::Disconnect(_))));
        }
        let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
        connected.expect("a connection");
        drop((link, peer));
        assert!(broker.is_left_alone(SOON).await);
    })
    .await;
}
