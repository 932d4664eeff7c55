//! Acknowledgements of a store's link, against a scripted broker: in order of arrival, after the
//! response, and only on the connection of the message. For links with manual acknowledgements.
#![expect(clippy::missing_panics_doc, reason = "every case panics if the link breaks its rule")]

use std::time::Duration;

use statestore_proto::topic::{REQUEST, TopicError};
use statestore_proto::transport::{Delivery, Transmit};
use statestore_tokio::{AsIncoming as _, Link, LinkEvent, Options, StoreService};

use crate::brokers::scripted::{Peer, Scripted, Welcome};
use crate::links::suite::Adapter;
use crate::wire::packets::{Packet, Publish};
use crate::wire::requests::{del, set_if_absent};

fn store<A: Adapter>(broker: &Scripted, change: impl FnOnce(Options) -> Options) -> StoreService {
    let options = change(broker.options("statestore"));
    StoreService::builder().spawn(A::store_without_claim(options))
}

/// The next packet. Grants subscriptions and acknowledges responses.
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

/// Polls a link, which may write and read only then, until `reading` is ready.
async fn driven<T>(link: &mut impl Link, reading: impl Future<Output = T>) -> T {
    tokio::select! {
        found = reading => found,
        event = link.next_event(true) => match event {
            Ok(_) => panic!("no event was expected"),
            Err(error) => panic!("{error}"),
        },
    }
}

/// Connects a link without a machine, and returns the broker's side of the connection.
///
/// # Panics
/// If the link does not connect.
pub async fn idle(link: &mut impl Link, broker: &Scripted) -> Peer {
    let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    connected.expect("a connection");
    peer
}

/// Number of acknowledgements that arrive before 200 ms of silence.
///
/// # Panics
/// If another packet arrives.
pub async fn acknowledgements(peer: &mut Peer) -> u16 {
    let mut count = 0;
    let silence = Duration::from_millis(200);
    while let Ok(Some(packet)) = tokio::time::timeout(silence, peer.read()).await {
        assert!(matches!(packet, Packet::PubAck(_)), "{packet:?}");
        count += 1;
    }
    count
}

/// A redelivered request gets the response of the first delivery.
pub async fn redelivered_request_gets_the_first_response<A: Adapter>() {
    let broker = Scripted::start().await;
    let service = store::<A>(&broker, |it| it);
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
}

/// While the window for responses is full, the acknowledgements of later requests wait too.
pub async fn response_precedes_the_acknowledgement_in_a_small_window<A: Adapter>() {
    let broker = Scripted::start().await;
    let _service =
        store::<A>(&broker, |it| it.receive_maximum(8).max_in_flight(1).max_queued_packets(1));
    let mut peer = broker.welcome(Welcome::default()).await;
    let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
    peer.grant(subscribe.pkid, 1).await;
    for id in 1..=8 {
        peer.deliver(numbered(set_if_absent(&format!("c{id}"), "k"), id, false)).await;
    }
    // One response may be in flight. The acknowledgement of its request may follow, and no other.
    let Some(Packet::Publish(first)) = peer.read().await else { panic!("a response") };
    let (mut answers, mut acknowledged) = (1, Vec::new());
    while let Ok(packet) = tokio::time::timeout(Duration::from_millis(100), peer.read()).await {
        let Some(Packet::PubAck(ack)) = packet else { panic!("{packet:?}") };
        acknowledged.push(ack.pkid);
    }
    assert!(matches!(acknowledged[..], [] | [1]), "{acknowledged:?}");
    peer.puback(first.pkid, 0).await;
    while acknowledged.len() < 8 {
        match next(&mut peer).await {
            Packet::Publish(_) => answers += 1,
            Packet::PubAck(ack) => {
                acknowledged.push(ack.pkid);
                assert!(acknowledged.len() <= answers, "acknowledged before its response");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((answers, acknowledged), (8, (1..=8).collect()));
}

/// Acknowledgements are sent in order of arrival, and those of a lost connection are dropped.
pub async fn acknowledgements_wait_for_those_of_earlier_messages<A: Adapter>() {
    let broker = Scripted::start().await;
    let mut link = A::store_without_claim(broker.options("statestore"));
    let mut peer = idle(&mut link, &broker).await;
    let mut deliveries = Vec::new();
    for id in [3, 1, 2] {
        peer.deliver(numbered(set_if_absent("a", "k"), id, false)).await;
        let Ok(LinkEvent::Message(message)) = link.next_event(true).await else { panic!("one") };
        deliveries.extend(message.as_incoming().and_then(|incoming| incoming.delivery));
    }
    for late in [2, 1] {
        assert!(link.try_send(Transmit::Acknowledge(deliveries[late])).is_ok());
    }
    assert_eq!(driven(&mut link, acknowledgements(&mut peer)).await, 0);
    assert!(link.try_send(Transmit::Acknowledge(deliveries[0])).is_ok());
    for expected in [3, 1, 2] {
        assert_eq!(driven(&mut link, acknowledged(&mut peer)).await, expected);
    }

    // Acknowledgements of a lost connection must not be sent, although the packet ids are reused.
    drop(peer);
    while link.next_event(true).await.is_ok() {}
    let mut peer = idle(&mut link, &broker).await;
    peer.deliver(numbered(set_if_absent("a", "k"), 3, true)).await;
    assert!(matches!(link.next_event(true).await, Ok(LinkEvent::Message(_))));
    assert!(link.try_send(Transmit::Acknowledge(deliveries[0])).is_ok());
    assert_eq!(driven(&mut link, acknowledgements(&mut peer)).await, 0);
    let (client_id, response_topic) = ("offender".into(), REQUEST.into());
    let offence = TopicError::RequestTopic;
    link.try_send(Transmit::Disconnect { client_id, response_topic, offence })
        .expect("it is counted");
    tokio::spawn(peer.serve());
    link.disconnect().await;
}

/// A packet id delivered twice on one connection does not block later acknowledgements.
pub async fn packet_id_delivered_twice_is_acknowledged_twice<A: Adapter>() {
    let broker = Scripted::start().await;
    let mut link = A::store_without_claim(broker.options("statestore"));
    let mut peer = idle(&mut link, &broker).await;
    let mut deliveries: Vec<Delivery> = Vec::new();
    for (id, dup) in [(7, false), (7, true), (8, false)] {
        peer.deliver(numbered(set_if_absent("a", "k"), id, dup)).await;
        let Ok(LinkEvent::Message(message)) = link.next_event(true).await else {
            panic!("a message")
        };
        deliveries.extend(message.as_incoming().and_then(|incoming| incoming.delivery));
    }
    for delivery in deliveries {
        assert!(link.try_send(Transmit::Acknowledge(delivery)).is_ok());
    }
    let reading = async {
        let mut found = Vec::new();
        while found.len() < 3 {
            found.push(acknowledged(&mut peer).await);
        }
        found
    };
    assert_eq!(driven(&mut link, reading).await, [7, 7, 8]);
}

/// One test for each case, for an [`Adapter`] with manual acknowledgements.
#[macro_export]
macro_rules! acknowledgement_suite {
    ($adapter:ty) => {
        $crate::acknowledgement_suite! { $adapter:
            redelivered_request_gets_the_first_response
            response_precedes_the_acknowledgement_in_a_small_window
            acknowledgements_wait_for_those_of_earlier_messages
            packet_id_delivered_twice_is_acknowledged_twice
        }
    };
    ($adapter:ty: $($case:ident)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::process::timely($crate::links::acknowledgement_suite::$case::<$adapter>()).await;
            }
        )+
    };
}
