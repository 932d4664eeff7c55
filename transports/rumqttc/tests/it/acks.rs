//! A store acknowledges by hand: in order of arrival, after the answer, and only on the connection of the message.

use std::time::Duration;

use statestore_proto::mqtt::Transmit;
use statestore_proto::topic::{REQUEST, TopicError};
use statestore_rumqttc::RumqttcLink;
use statestore_tests::mqttbytes::v5::{Packet, Publish};
use statestore_tests::scripted::{Peer, Scripted, Welcome};
use statestore_tests::timely::timely;
use statestore_tokio::{AsIncoming, Link, LinkEvent};

use crate::requests::{del, set_if_absent};
use crate::store;

/// The next packet that says something: subscriptions are granted, answers acknowledged.
async fn next(peer: &mut Peer) -> Packet {
    loop {
        match peer.read().await.expect("the connection lives") {
            Packet::Subscribe(subscribe) => peer.grant(subscribe.pkid, 1).await,
            Packet::PingReq(_) => {}
            Packet::Publish(publish) => {
                peer.puback(publish.pkid, 0).await;
                return Packet::Publish(publish);
            }
            other => return other,
        }
    }
}

async fn answer(peer: &mut Peer) -> Publish {
    match next(peer).await {
        Packet::Publish(publish) => publish,
        other => panic!("{other:?} instead of an answer"),
    }
}

async fn acknowledged(peer: &mut Peer) -> u16 {
    match next(peer).await {
        Packet::PubAck(ack) => ack.pkid,
        other => panic!("{other:?} instead of a PUBACK"),
    }
}

fn numbered(mut publish: Publish, id: u16, dup: bool) -> Publish {
    publish.pkid = id;
    publish.dup = dup;
    publish
}

#[tokio::test]
async fn acknowledgements_follow_the_answers_in_order_of_arrival() {
    timely(async {
        let broker = Scripted::start().await;
        let _service = store(&broker, |it| it);
        let mut peer = broker.welcome(Welcome::default()).await;
        let Packet::Connect(connect, ..) = &peer.connect else { panic!("a CONNECT") };
        let properties = connect.properties.as_ref().expect("properties");
        assert!(!connect.clean_start);
        assert_eq!(properties.session_expiry_interval, Some(300));
        assert_eq!(properties.receive_maximum, Some(1_024));
        assert!(properties.max_packet_size.is_some_and(|max| max > 1 << 20));
        assert_eq!(properties.topic_alias_max, None);

        let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
        peer.grant(subscribe.pkid, 1).await;
        peer.deliver(numbered(set_if_absent("a", "k"), 9, false)).await;
        // Not UTF-8, so no request, but to be acknowledged all the same.
        let mut stray = numbered(set_if_absent("b", "k"), 4, false);
        stray.topic = bytes::Bytes::from_static(b"\xff");
        peer.deliver(stray).await;
        peer.deliver(numbered(set_if_absent("b", "k"), 7, false)).await;

        let mut answers = Vec::new();
        let mut acknowledged = Vec::new();
        while acknowledged.len() < 3 {
            match next(&mut peer).await {
                Packet::Publish(publish) => answers.push(publish.payload),
                Packet::PubAck(ack) => {
                    if ack.pkid == 7 {
                        assert_eq!(answers.len(), 2, "acknowledged before it was answered");
                    }
                    assert!(!answers.is_empty(), "acknowledged before it was answered");
                    acknowledged.push(ack.pkid);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(acknowledged, [9, 4, 7]);
        assert_eq!(answers[0], &b"+OK\r\n"[..]);
        assert_ne!(answers[1], answers[0]);
    })
    .await;
}

#[tokio::test]
async fn a_request_that_comes_again_gets_the_same_answer() {
    timely(async {
        let broker = Scripted::start().await;
        let service = store(&broker, |it| it);
        let (set, del) = (set_if_absent("a", "k"), del("b", "k"));
        let mut peer = broker.welcome(Welcome::default()).await;
        peer.deliver(numbered(set.clone(), 1, false)).await;
        let first = answer(&mut peer).await;
        // The acknowledgement is lost with the connection.
        drop(peer);

        let resumed = Welcome { session_present: true, ..Welcome::default() };
        let mut peer = broker.welcome(resumed).await;
        peer.deliver(numbered(set.clone(), 1, true)).await;
        let again = answer(&mut peer).await;
        assert_eq!((again.payload, again.topic), (first.payload.clone(), first.topic));
        assert_eq!(again.properties, first.properties);
        assert_eq!(acknowledged(&mut peer).await, 1);

        // A publisher's own repetition comes without DUP and with another packet id.
        peer.deliver(numbered(del.clone(), 2, false)).await;
        let removed = answer(&mut peer).await;
        assert_eq!((&removed.payload[..], acknowledged(&mut peer).await), (&b":1\r\n"[..], 2));
        peer.deliver(numbered(del, 3, false)).await;
        let again = answer(&mut peer).await;
        assert_eq!((again.payload, again.properties), (removed.payload, removed.properties));
        assert_eq!(acknowledged(&mut peer).await, 3);
        assert_eq!(service.stats().keys, 0);
    })
    .await;
}

#[tokio::test]
async fn the_broker_may_fill_the_receive_maximum_of_a_busy_store() {
    timely(async {
        let broker = Scripted::start().await;
        let _service = store(&broker, |it| it.receive_maximum(8).in_flight(1).queue(1));
        let mut peer = broker.welcome(Welcome::default()).await;
        let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
        peer.grant(subscribe.pkid, 1).await;
        for id in 1..=8 {
            peer.deliver(numbered(set_if_absent(&format!("c{id}"), "k"), id, false)).await;
        }
        // One answer may be on its way, and acknowledgements wait behind it.
        let Some(Packet::Publish(first)) = peer.read().await else { panic!("an answer") };
        let waits = tokio::time::timeout(Duration::from_millis(100), peer.read()).await;
        assert!(waits.is_err(), "{waits:?}");
        peer.puback(first.pkid, 0).await;
        let (mut answers, mut acknowledged) = (1, Vec::new());
        while acknowledged.len() < 8 {
            match next(&mut peer).await {
                Packet::Publish(_) => answers += 1,
                Packet::PubAck(ack) => acknowledged.push(ack.pkid),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((answers, acknowledged), (8, (1..=8).collect()));
    })
    .await;
}

/// A link that was told nothing to do, and its broker.
async fn idle(link: &mut RumqttcLink, broker: &Scripted) -> Peer {
    let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    connected.expect("a connection");
    peer
}

/// How many acknowledgements come before there is silence.
async fn acknowledgements(peer: &mut Peer) -> u16 {
    let mut count = 0;
    let silence = Duration::from_millis(200);
    while let Ok(Some(packet)) = tokio::time::timeout(silence, peer.read()).await {
        assert!(matches!(packet, Packet::PubAck(_)), "{packet:?}");
        count += 1;
    }
    count
}

#[tokio::test]
async fn messages_that_nobody_takes_stay_with_the_broker() {
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
            // What rumqttc reads at once it acknowledges at once: ten packets.
            assert!(acknowledged <= if manual_acks { 0 } else { 4 + 10 }, "{acknowledged}");
            let piled_up = tokio::time::timeout(Duration::from_millis(50), link.next(false)).await;
            assert_eq!(matches!(piled_up, Ok(Err(_))), !manual_acks, "{piled_up:?}");
            for id in 1..=count {
                let Ok(LinkEvent::Message(message)) = link.next(true).await else { panic!("one") };
                assert_eq!(message.packet().pkid, id);
                let incoming = message.as_incoming().expect("it can be read");
                assert_eq!(incoming.delivery.is_some(), manual_acks);
                if let Some(delivery) = incoming.delivery {
                    // Twice is once.
                    assert!(link.try_send(Transmit::Acknowledge(delivery)).is_ok());
                    assert!(link.try_send(Transmit::Acknowledge(delivery)).is_ok());
                }
            }
            acknowledged += acknowledgements(&mut peer).await;
            assert_eq!(acknowledged, count);
        }
    })
    .await;
}

#[tokio::test]
async fn acknowledgements_wait_for_those_of_earlier_messages() {
    timely(async {
        let broker = Scripted::start().await;
        let mut link = RumqttcLink::for_store(broker.options("statestore")).without_claim();
        let mut peer = idle(&mut link, &broker).await;
        let mut deliveries = Vec::new();
        for id in [3, 1, 2] {
            peer.deliver(numbered(set_if_absent("a", "k"), id, false)).await;
            let Ok(LinkEvent::Message(message)) = link.next(true).await else { panic!("one") };
            deliveries.extend(message.as_incoming().and_then(|incoming| incoming.delivery));
        }
        for late in [2, 1] {
            assert!(link.try_send(Transmit::Acknowledge(deliveries[late])).is_ok());
        }
        assert_eq!(acknowledgements(&mut peer).await, 0);
        assert!(link.try_send(Transmit::Acknowledge(deliveries[0])).is_ok());
        for expected in [3, 1, 2] {
            assert_eq!(acknowledged(&mut peer).await, expected);
        }

        // Those of a lost connection name nothing on the next one, though the packet ids are the same.
        drop(peer);
        while link.next(true).await.is_ok() {}
        let mut peer = idle(&mut link, &broker).await;
        peer.deliver(numbered(set_if_absent("a", "k"), 3, true)).await;
        assert!(matches!(link.next(true).await, Ok(LinkEvent::Message(_))));
        assert!(link.try_send(Transmit::Acknowledge(deliveries[0])).is_ok());
        assert_eq!(acknowledgements(&mut peer).await, 0);
        let (client_id, response_topic) = ("offender".into(), REQUEST.into());
        let offence = TopicError::RequestTopic;
        link.try_send(Transmit::Disconnect { client_id, response_topic, offence })
            .expect("it is counted");
        tokio::spawn(peer.serve());
        link.disconnect().await;
    })
    .await;
}
