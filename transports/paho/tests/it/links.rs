//! The events of a link without a machine.

use std::time::Duration;

use statestore_paho::PahoLink;
use statestore_testkit::brokers::scripted::{Peer, Scripted, Welcome};
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::{Packet, Publish, Qos};
use statestore_tokio::{Link, LinkEvent};

const SOON: Duration = Duration::from_millis(300);

fn message(topic: &str, id: u16) -> Publish {
    let mut publish = Publish::new(topic, Qos::AtLeastOnce, id.to_string(), None);
    publish.pkid = id;
    publish
}

async fn connected(broker: &Scripted, mut link: PahoLink) -> (PahoLink, Peer) {
    let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    connected.expect("a connection");
    (link, peer)
}

#[tokio::test]
async fn full_inbox_is_returned_before_the_link_disconnects_and_reconnects() {
    timely(async {
        let broker = Scripted::start().await;
        let (mut link, mut peer) = connected(
            &broker,
            PahoLink::for_client(broker.options("c1")).configure(|paho| paho.inbox(10)),
        )
        .await;
        for id in 1..=11 {
            peer.deliver(message("t", id)).await;
        }
        // All messages were acknowledged, so the link returns all before the error.
        for _ in 1..=11 {
            assert!(matches!(peer.read().await, Some(Packet::PubAck(_))));
        }
        for id in 1..=11 {
            match link.next_event(true).await {
                Ok(LinkEvent::Message(message)) => {
                    assert_eq!(message.message().payload(), id.to_string().as_bytes());
                }
                other => panic!("{other:?} instead of {id}"),
            }
        }
        let error = link.next_event(true).await.expect_err("the link has disconnected");
        assert!(error.is_transient(), "{error}");
        assert!(
            matches!(peer.read().await, Some(Packet::Disconnect(_))),
            "the link sent a DISCONNECT"
        );
        let (connected, mut peer) =
            tokio::join!(link.connect(), broker.welcome(Welcome::default()));
        connected.expect("a connection");
        peer.deliver(message("t", 12)).await;
        assert!(matches!(link.next_event(true).await, Ok(LinkEvent::Message(_))));
    })
    .await;
}

#[tokio::test]
async fn dropped_attempt_disconnects_when_the_broker_accepts_it() {
    timely(async {
        let broker = Scripted::start().await;
        let mut link = PahoLink::for_client(broker.options("c1"));
        for _ in 0..3 {
            assert!(tokio::time::timeout(SOON / 10, link.connect()).await.is_err());
            // The CONNACK arrives after the future was dropped.
            let mut late = broker.welcome(Welcome::default()).await;
            assert!(matches!(late.read().await, Some(Packet::Disconnect(_))));
        }
        let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
        connected.expect("a connection");
        drop((link, peer));
        assert!(broker.receives_no_connection(SOON).await);
    })
    .await;
}
