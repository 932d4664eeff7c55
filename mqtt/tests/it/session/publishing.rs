//! Publishes of the caller: QoS 0 to 2, flow control, limits and topic aliases of the server.

use statestore_mqtt::session::Violation;
use statestore_mqtt::{Kind, Malformed};

use super::*;

/// Makes a packet of an acknowledgement.
type Acknowledgement = fn(Ack<Properties<'static>>) -> Packet<'static, Properties<'static>>;

fn ids(sent: &[Sent]) -> Vec<u16> {
    sent.iter().map(Sent::id).collect()
}

#[test]
fn qos_0_is_sent_at_once_and_has_no_event() {
    let mut rig = Rig::connected(options());
    rig.publish(Qos::AtMostOnce, "topic").unwrap();
    let expected = Sent::Publish {
        topic: "topic".into(),
        payload: b"payload".into(),
        qos: Qos::AtMostOnce,
        dup: false,
        retain: false,
        id: 0,
        properties: vec![],
    };
    assert_eq!(rig.sent(), [expected]);
    assert_eq!((rig.events(), rig.session.publishes()), (vec![], 0));
}

#[test]
fn publish_contains_all_fields() {
    let mut rig = Rig::connected(options());
    let properties =
        [Property::MessageExpiry(9), Property::User("a", "b"), Property::User("c", "d")];
    let publish = session::Publish {
        topic: "topic",
        payload: Bytes::from_static(b"x"),
        qos: Qos::AtLeastOnce,
        retain: true,
        properties: &properties[..],
        token: 1,
    };
    rig.session.publish(publish).unwrap();
    let sent = rig.sent();
    let [Sent::Publish { retain: true, dup: false, properties: sent, .. }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    assert_eq!(sent, &text(properties));
}

#[test]
fn qos_1_ends_with_puback_and_its_reason() {
    let mut rig = Rig::connected(options());
    let token = rig.publish(Qos::AtLeastOnce, "t").unwrap();
    let id = rig.sent()[0].id();
    assert_eq!((rig.session.publishes(), rig.session.publish_bytes()), (1, 8));
    let properties: Properties<'_> = &[Property::ReasonString("no subscribers")];
    let reason = Reason::NO_MATCHING_SUBSCRIBERS;
    rig.receive(Packet::PubAck(Ack { id: packet_id(id), reason, properties }));
    let events = rig.events();
    let [Event::Published { properties, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(properties.reason_string(), Some("no subscribers"));
    assert_eq!(outcomes(&events), [(token, Ok(reason))]);
    assert_eq!((rig.session.publishes(), rig.session.publish_bytes()), (0, 0));
}

#[test]
fn qos_2_ends_with_pubcomp() {
    let mut rig = Rig::connected(options());
    let token = rig.publish(Qos::ExactlyOnce, "t").unwrap();
    let id = rig.sent()[0].id();
    rig.receive(Packet::PubRec(ack(id, Reason::NO_MATCHING_SUBSCRIBERS)));
    assert_eq!(rig.sent(), [Sent::PubRel(id, Reason::SUCCESS)]);
    assert_eq!((rig.session.publishes(), rig.session.publish_bytes()), (1, 0), "payload is freed");
    rig.receive(Packet::PubRec(ack(id, Reason::SUCCESS)));
    assert_eq!(rig.sent(), [Sent::PubRel(id, Reason::SUCCESS)], "PUBREL is repeated");
    assert_eq!(rig.events(), []);
    rig.receive(Packet::PubComp(ack(id, Reason::SUCCESS)));
    assert_eq!(outcomes(&rig.events()), [(token, Ok(Reason::NO_MATCHING_SUBSCRIBERS))]);
    assert_eq!(rig.session.publishes(), 0);
}

#[test]
fn pubrec_with_an_error_ends_the_publish() {
    let mut rig = Rig::connected(options());
    let token = rig.publish(Qos::ExactlyOnce, "t").unwrap();
    let id = rig.sent()[0].id();
    rig.receive(Packet::PubRec(ack(id, Reason::QUOTA_EXCEEDED)));
    assert_eq!(outcomes(&rig.events()), [(token, Ok(Reason::QUOTA_EXCEEDED))]);
    assert_eq!((rig.sent(), rig.session.publishes()), (vec![], 0));
}

#[test]
fn puback_of_an_unknown_publish_is_an_error_and_pubrec_is_completed() {
    let violations: [(Packet<'_, Properties<'_>>, Kind); 1] =
        [(Packet::PubAck(ack(9, Reason::SUCCESS)), Kind::PubAck)];
    for (packet, kind) in violations {
        let mut rig = Rig::connected(options());
        rig.receive(packet);
        assert_eq!(rig.end(), Error::Protocol(Violation::PacketId(kind, packet_id(9))));
    }
    let mut rig = Rig::connected(options());
    rig.receive(Packet::PubRec(ack(9, Reason::SUCCESS)));
    assert_eq!(rig.sent(), [Sent::PubRel(9, Reason::PACKET_IDENTIFIER_NOT_FOUND)]);
    rig.receive(Packet::PubRec(ack(9, Reason::QUOTA_EXCEEDED)));
    rig.receive(Packet::PubComp(ack(9, Reason::PACKET_IDENTIFIER_NOT_FOUND)));
    assert_eq!((rig.sent(), rig.events()), (vec![], vec![]));
}

#[test]
fn acknowledgement_of_another_qos_is_a_protocol_error() {
    let cases: [(Qos, Acknowledgement); 4] = [
        (Qos::AtLeastOnce, Packet::PubRec),
        (Qos::AtLeastOnce, Packet::PubComp),
        (Qos::ExactlyOnce, Packet::PubAck),
        (Qos::ExactlyOnce, Packet::PubComp),
    ];
    for (qos, packet) in cases {
        let mut rig = Rig::connected(options());
        rig.publish(qos, "t").unwrap();
        let id = rig.sent()[0].id();
        rig.receive(packet(ack(id, Reason::SUCCESS)));
        rig.assert_refused(Reason::PROTOCOL_ERROR);
        assert_eq!(rig.session.publishes(), 1, "it waits for the next connection");
    }
}

#[test]
fn receive_maximum_of_the_server_bounds_publishes_in_flight() {
    let mut rig = Rig::with_server(options(), &[Property::ReceiveMaximum(2)]);
    for _ in 0..5 {
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
    }
    assert!(!rig.session.can_publish(1));
    let first = ids(&rig.sent());
    assert_eq!(first.len(), 2);
    rig.publish(Qos::AtMostOnce, "t").unwrap();
    assert_eq!(ids(&rig.sent()), [0], "QoS 0 is not counted");
    rig.puback(first[1]);
    assert_eq!(rig.sent().len(), 1);
    rig.puback(first[0]);
    assert_eq!(rig.sent().len(), 1);
    assert_eq!(rig.session.publishes(), 3);
}

#[test]
fn qos_2_counts_for_the_receive_maximum_until_pubcomp() {
    let mut rig = Rig::with_server(options(), &[Property::ReceiveMaximum(1)]);
    rig.publish(Qos::ExactlyOnce, "t").unwrap();
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    let id = rig.sent()[0].id();
    rig.receive(Packet::PubRec(ack(id, Reason::SUCCESS)));
    assert_eq!(rig.sent(), [Sent::PubRel(id, Reason::SUCCESS)]);
    rig.receive(Packet::PubComp(ack(id, Reason::SUCCESS)));
    assert!(matches!(rig.sent().as_slice(), [Sent::Publish { .. }]));
}

#[test]
fn in_flight_option_bounds_publishes_too() {
    let mut rig = Rig::connected(options().in_flight(1));
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    assert_eq!(rig.sent().len(), 1);
}

#[test]
fn packet_identifiers_in_use_are_not_reused() {
    let mut rig = Rig::connected(options().in_flight(u16::MAX).output_bytes(usize::MAX / 2));
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..200 {
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
    }
    used.extend(ids(&rig.sent()));
    assert_eq!(used.len(), 200);
    for round in 0..2_000_u64 {
        let at = usize::try_from(round * 31 % 200).unwrap();
        let id = *used.iter().nth(at).unwrap();
        used.remove(&id);
        rig.puback(id);
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
        let new = rig.sent()[0].id();
        assert_ne!(new, id, "an identifier rests before it is used again");
        assert!(used.insert(new), "{new} is in use");
    }
}

#[test]
fn all_packet_identifiers_can_be_in_use() {
    let options = options().in_flight(u16::MAX).publishes(70_000).output_bytes(usize::MAX / 2);
    let mut rig = Rig::connected(options);
    for _ in 0..66_000 {
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
    }
    let sent: std::collections::BTreeSet<_> = ids(&rig.sent()).into_iter().collect();
    assert_eq!(sent, (1..=u16::MAX).collect());
    rig.puback(77);
    assert_eq!(ids(&rig.sent()), [77]);
}

#[test]
fn limits_of_the_server_are_observed() {
    let properties = [
        Property::MaximumQos(Qos::AtLeastOnce),
        Property::RetainAvailable(false),
        Property::MaximumPacketSize(20),
    ];
    let mut rig = Rig::with_server(options(), &properties);
    let refused = rig.publish(Qos::ExactlyOnce, "t");
    assert_eq!(refused, Err(SendError::QosUnsupported { maximum: Qos::AtLeastOnce }));
    let publish = session::Publish {
        topic: "t",
        payload: Bytes::new(),
        qos: Qos::AtMostOnce,
        retain: true,
        properties: (),
        token: 1,
    };
    assert_eq!(rig.session.publish(publish), Err(SendError::RetainUnsupported));
    let payload = |len| Bytes::from(vec![0; len]);
    let refused = rig.publish_payload(Qos::AtLeastOnce, "t", payload(13));
    assert_eq!(refused, Err(SendError::TooLarge { size: 21, limit: 20 }));
    rig.publish_payload(Qos::AtLeastOnce, "t", payload(12)).unwrap();
    assert_eq!(rig.session.output_len(), 20);
}

#[test]
fn invalid_publishes_are_refused() {
    let mut rig = Rig::connected(options());
    let long = "x".repeat(65_536);
    for topic in ["", "a/+", "a/#", "nul\0"] {
        assert_eq!(rig.publish(Qos::AtMostOnce, topic), Err(SendError::InvalidTopic), "{topic:?}");
    }
    let refused = rig.publish(Qos::AtLeastOnce, &long);
    assert!(matches!(refused, Err(SendError::TooLarge { .. })));
    let cases = [
        Property::TopicAlias(1),
        Property::SubscriptionId(1),
        Property::ReceiveMaximum(1),
        Property::ResponseTopic("a/#"),
        Property::User("nul\0", ""),
        Property::User(&long, ""),
    ];
    for property in cases {
        let publish = session::Publish {
            topic: "t",
            payload: Bytes::new(),
            qos: Qos::AtLeastOnce,
            retain: false,
            properties: property,
            token: 1,
        };
        let refused = rig.session.publish(publish);
        assert!(
            matches!(refused, Err(SendError::InvalidProperties(_) | SendError::Unwritable(_))),
            "{property:?}: {refused:?}"
        );
    }
    let misplaced = SendError::InvalidProperties(Malformed::Misplaced(0x23));
    assert_eq!(misplaced.to_string(), "invalid properties: property 0x23 is not allowed");
    assert_eq!((rig.sent(), rig.session.publishes()), (vec![], 0));
}

#[test]
fn publishes_wait_for_a_connection_at_qos_1_and_2_only() {
    let mut rig = Rig::new(options());
    assert_eq!(rig.publish(Qos::AtMostOnce, "t"), Err(SendError::NotConnected));
    rig.publish(Qos::AtLeastOnce, "a").unwrap();
    rig.publish(Qos::ExactlyOnce, "b").unwrap();
    let sent = rig.connect(false, &[]);
    assert!(
        matches!(
            sent.as_slice(),
            [
                Sent::Publish { qos: Qos::AtLeastOnce, dup: false, .. },
                Sent::Publish { qos: Qos::ExactlyOnce, dup: false, .. },
            ]
        ),
        "{sent:?}"
    );
}

#[test]
fn waiting_publish_that_the_server_does_not_take_is_lost() {
    let mut rig = Rig::new(options());
    let token = rig.publish(Qos::ExactlyOnce, "t").unwrap();
    assert_eq!(rig.connect(false, &[Property::MaximumQos(Qos::AtLeastOnce)]), []);
    let cause = Lost::Unsendable(SendError::QosUnsupported { maximum: Qos::AtLeastOnce });
    assert_eq!(outcomes(&rig.events()), [(token, Err(cause))]);
    assert_eq!((rig.session.publishes(), rig.session.publish_bytes()), (0, 0));
}

#[test]
fn queue_of_publishes_is_bounded_in_number_and_bytes() {
    let mut rig = Rig::new(options().publishes(2));
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    assert_eq!(rig.publish(Qos::AtLeastOnce, "t"), Err(SendError::Full));

    let mut rig = Rig::connected(options().publish_bytes(20));
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    assert!(rig.session.can_publish(12) && !rig.session.can_publish(13));
    rig.publish(Qos::AtLeastOnce, "t").unwrap();
    assert_eq!(rig.publish(Qos::AtLeastOnce, "t"), Err(SendError::Full));
    assert_eq!(rig.session.publish_bytes(), 16);
    let refused = rig.publish_payload(Qos::AtLeastOnce, "t", Bytes::from(vec![0; 20]));
    assert_eq!(refused, Err(SendError::TooLarge { size: 21, limit: 20 }));
}

#[test]
fn publishes_wait_while_the_output_is_full() {
    let mut rig = Rig::connected(options().output_bytes(20));
    for _ in 0..4 {
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
    }
    assert!(rig.session.output_len() < 40, "one packet may exceed the limit");
    assert_eq!(rig.publish(Qos::AtMostOnce, "t"), Err(SendError::Full));
    assert_eq!(rig.sent().len() + rig.sent().len(), 4);
    rig.publish(Qos::AtMostOnce, "t").unwrap();
}

#[test]
fn large_payloads_are_not_copied() {
    let mut rig = Rig::connected(options());
    let payload = Bytes::from(vec![7; 5_000]);
    rig.publish_payload(Qos::AtLeastOnce, "t", payload.clone()).unwrap();
    rig.publish_payload(Qos::AtMostOnce, "t", payload.clone()).unwrap();
    let chunks: Vec<_> = rig.session.chunks().collect();
    let shared = chunks.iter().filter(|chunk| chunk.as_ptr() == payload.as_ptr()).count();
    assert_eq!((chunks.len(), shared), (4, 2));
}

#[test]
fn output_can_be_written_in_any_pieces() {
    for piece in [1, 3, 7, 300, 4_096] {
        let mut rig = Rig::connected(options());
        let mut expected = Vec::new();
        let mut written = Vec::new();
        for len in [0, 10, 256, 257, 3_000, 5] {
            rig.publish_payload(Qos::AtMostOnce, "t", Bytes::from(vec![9; len])).unwrap();
        }
        rig.session.chunks().for_each(|chunk| expected.extend_from_slice(chunk));
        while rig.session.output_len() > 0 {
            let first = rig.session.chunks().next().expect("a chunk");
            let len = first.len().min(piece);
            written.extend_from_slice(&first[..len]);
            rig.session.written(rig.now, len);
        }
        assert_eq!(written, expected);
        rig.session.written(rig.now, 1);
        assert_eq!(rig.session.output_len(), 0);
    }
}

#[test]
fn first_topics_of_a_connection_get_topic_aliases() {
    let mut rig = Rig::with_server(options().topic_aliases(8), &[Property::TopicAliasMaximum(2)]);
    let mut publish = |topic: &str| {
        rig.publish(Qos::AtLeastOnce, topic).unwrap();
        match rig.sent().remove(0) {
            Sent::Publish { topic, properties, .. } => (topic, properties),
            other => panic!("{other:?}"),
        }
    };
    let alias = |number| text([Property::TopicAlias(number)]);
    assert_eq!(publish("topic/1"), ("topic/1".into(), alias(1)));
    assert_eq!(publish("topic/2"), ("topic/2".into(), alias(2)));
    assert_eq!(publish("topic/3"), ("topic/3".into(), vec![]));
    assert_eq!(publish("topic/1"), (String::new(), alias(1)));
    assert_eq!(publish("topic/2"), (String::new(), alias(2)));
    assert_eq!(publish("abc"), ("abc".into(), vec![]), "an alias is not shorter");
}

#[test]
fn topic_aliases_end_with_the_connection() {
    let aliases = [Property::TopicAliasMaximum(2)];
    let mut rig = Rig::with_server(options(), &aliases);
    rig.publish(Qos::AtLeastOnce, "topic/1").unwrap();
    rig.publish(Qos::AtLeastOnce, "topic/1").unwrap();
    assert!(matches!(&rig.sent()[1], Sent::Publish { topic, .. } if topic.is_empty()));
    rig.session.handle_disconnected();
    rig.events();
    let sent = rig.connect(true, &aliases);
    assert!(matches!(&sent[0], Sent::Publish { topic, dup: true, .. } if topic == "topic/1"));
    assert!(matches!(&sent[1], Sent::Publish { topic, dup: true, .. } if topic.is_empty()));
    rig.session.handle_disconnected();
    rig.events();
    let sent = rig.connect(true, &[]);
    assert!(
        matches!(&sent[1], Sent::Publish { topic, properties, .. }
        if topic == "topic/1" && properties.is_empty()),
        "no aliases on this connection"
    );
}

#[test]
fn topic_alias_that_would_exceed_the_packet_size_is_omitted() {
    let limits = [Property::TopicAliasMaximum(2), Property::MaximumPacketSize(30)];
    let mut rig = Rig::with_server(options(), &limits);
    let payload = Bytes::from(vec![0; 16]);
    rig.publish_payload(Qos::AtMostOnce, "topic/789", payload).unwrap();
    assert_eq!(rig.session.output_len(), 30);
    let sent = rig.sent();
    assert!(matches!(&sent[0], Sent::Publish { properties, .. } if properties.is_empty()));
}
