//! Manual acknowledgements of a store: in order of arrival, after the response, and only on the
//! connection of the message.

use std::time::Duration;

use statestore_proto::transport::Transmit;
use statestore_rumqttc::RumqttcLink;
use statestore_testkit::brokers::scripted::{Peer, Scripted, Welcome};
use statestore_testkit::links::acknowledgement_suite::{acknowledgements, idle};
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::{Packet, Publish};
use statestore_tokio::{AsIncoming, Link, LinkEvent};

use crate::store;
use statestore_testkit::wire::requests::set_if_absent;

/// The next relevant packet. Subscriptions are granted and responses acknowledged.
async fn next(peer: &mut Peer) -> Packet {
    loop {
        match peer.read().await.expect("the connection lives") {
            Packet::Subscribe(subscribe) => peer.grant(subscribe.pkid, 1).await,
            Packet::PingReq => {}
            Packet::Publish(publish) => {
                peer.puback(publish.pkid, 0).await;
                return Packet::Publish(publish);
            }
            other => return other,
        }
    }
}

fn numbered(mut publish: Publish, id: u16, dup: bool) -> Publish {
    publish.pkid = id;
    publish.dup = dup;
    publish
}

#[tokio::test]
async fn acknowledgements_follow_the_responses_in_order_of_arrival() {
    timely(async {
        let broker = Scripted::start().await;
        let _service = store(&broker, |it| it);
        let mut peer = broker.welcome(Welcome::default()).await;
        let Packet::Connect(connect, ..) = &peer.connect else { panic!("a CONNECT") };
        assert!(!connect.clean_start);
        assert_eq!(connect.session_expiry, Some(300));
        assert_eq!(connect.receive_maximum, Some(1_024));
        assert!(connect.maximum_packet_size.is_some_and(|max| max > 1 << 20));
        assert_eq!(connect.topic_alias_maximum, None);

        let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
        peer.grant(subscribe.pkid, 1).await;
        peer.deliver(numbered(set_if_absent("a", "k"), 9, false)).await;
        // The topic is not UTF-8. The message is dropped and must be acknowledged nevertheless.
        let mut stray = numbered(set_if_absent("b", "k"), 4, false);
        stray.topic = bytes::Bytes::from_static(b"?");
        let mut stray = stray.to_bytes();
        let topic = stray.iter_mut().find(|byte| **byte == b'?').expect("the topic");
        *topic = 0xff;
        peer.send(&stray).await;
        peer.deliver(numbered(set_if_absent("b", "k"), 7, false)).await;

        let mut responses = Vec::new();
        let mut acknowledged = Vec::new();
        while acknowledged.len() < 3 {
            match next(&mut peer).await {
                Packet::Publish(publish) => responses.push(publish.payload),
                Packet::PubAck(ack) => {
                    if ack.pkid == 7 {
                        assert_eq!(responses.len(), 2, "acknowledged before its response");
                    }
                    assert!(!responses.is_empty(), "acknowledged before its response");
                    acknowledged.push(ack.pkid);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(acknowledged, [9, 4, 7]);
        assert_eq!(responses[0], &b"+OK\r\n"[..]);
        assert_ne!(responses[1], responses[0]);
    })
    .await;
}

#[tokio::test]
async fn messages_beyond_the_queue_stay_with_the_broker() {
    timely(async {
        let broker = Scripted::start().await;
        for manual_acks in [false, true] {
            let options = broker.options("c1").receive_maximum(4);
            let mut link = RumqttcLink::for_client(options).manual_acks(manual_acks);
            let mut peer = idle(&mut link, &broker).await;
            let count = if manual_acks { 4 } else { 100 };
            for id in 1..=count {
                peer.deliver(numbered(set_if_absent("a", "k"), id, false)).await;
            }
            let mut acknowledged = acknowledgements(&mut peer).await;
            // rumqttc acknowledges all packets of one read, up to ten, at once.
            assert!(acknowledged <= if manual_acks { 0 } else { 4 + 10 }, "{acknowledged}");
            if manual_acks {
                let nothing =
                    tokio::time::timeout(Duration::from_millis(50), link.next_event(false)).await;
                assert!(nothing.is_err(), "{nothing:?}");
            } else {
                link.next_event(false).await.expect_err("messages pile up");
            }
            for id in 1..=count {
                let Ok(LinkEvent::Message(message)) = link.next_event(true).await else {
                    panic!("one")
                };
                assert_eq!(message.message().packet().pkid, id);
                let incoming = message.as_incoming().expect("it can be read");
                assert_eq!(incoming.delivery.is_some(), manual_acks);
                if let Some(delivery) = incoming.delivery {
                    // A second acknowledgement has no effect.
                    assert!(link.try_send(Transmit::Acknowledge(delivery)).is_ok());
                    assert!(link.try_send(Transmit::Acknowledge(delivery)).is_ok());
                }
            }
            while acknowledged < count {
                let packet = peer.read().await;
                assert!(matches!(packet, Some(Packet::PubAck(_))), "{packet:?}");
                acknowledged += 1;
            }
            assert_eq!(acknowledgements(&mut peer).await, 0, "one for each");
        }
    })
    .await;
}

statestore_testkit::acknowledgement_suite!(crate::suite::Links);
