//! Messages of the server: QoS 0 to 2, flow control and topic aliases.

use statestore_mqtt::session::Violation;

use super::*;

#[test]
fn message_has_all_fields() {
    let mut rig = Rig::connected(options());
    let properties: Properties<'_> = &[Property::ContentType("text"), Property::User("a", "b")];
    rig.receive(Packet::Publish(Publish {
        dup: true,
        qos: Qos::AtLeastOnce,
        retain: true,
        topic: "a/b",
        id: Some(packet_id(5)),
        properties,
        payload: b"hello",
    }));
    let message = rig.message();
    assert_eq!((message.topic(), message.payload()), ("a/b", &b"hello"[..]));
    assert_eq!((message.qos(), message.retain(), message.dup()), (Qos::AtLeastOnce, true, true));
    assert_eq!(message.packet_id(), Some(packet_id(5)));
    assert_eq!(message.properties().iter().collect::<Vec<_>>(), properties);
    assert_eq!(message.payload_bytes(), "hello");
    assert_eq!(message.into_payload(), "hello");
}

#[test]
fn message_without_payload_and_properties_is_received() {
    let mut rig = Rig::connected(options());
    rig.receive_bytes(&[0x30, 4, 0, 1, b't', 0]);
    let message = rig.message();
    assert_eq!((message.topic(), message.payload()), ("t", &b""[..]));
    assert_eq!((message.properties().iter().count(), message.delivery()), (0, None));
    assert_eq!(message.into_payload(), "");
}

#[test]
fn payload_shares_the_memory_of_the_input() {
    let mut rig = Rig::connected(options());
    let mut bytes = BytesMut::new();
    bytes.extend_from_slice(&[0x30, 4 + 4, 0, 1, b't', 0, 1, 2, 3, 4]);
    let place = bytes[6..].as_ptr();
    rig.session.handle_bytes(rig.now, &mut bytes);
    let message = rig.message();
    assert_eq!(message.payload().as_ptr(), place);
    assert_eq!(message.into_payload().as_ptr(), place);
}

#[test]
fn debug_output_of_a_message_omits_the_payload() {
    let mut rig = Rig::connected(options());
    rig.receive_publish(Qos::AtMostOnce, 0, false, "t");
    let message = rig.message();
    let text = format!("{message:?}");
    assert!(text.contains("<7 bytes>") && !text.contains("payload\""), "{text}");
}

#[test]
fn messages_are_acknowledged_when_they_are_polled() {
    let mut rig = Rig::connected(options());
    rig.receive_publish(Qos::AtLeastOnce, 3, false, "t");
    assert_eq!(rig.sent(), []);
    assert_eq!(rig.session.unacknowledged(), 1);
    rig.message();
    assert_eq!(rig.sent(), [Sent::PubAck(3, Reason::SUCCESS)]);
    assert_eq!(rig.session.unacknowledged(), 0);
}

#[test]
fn qos_2_is_delivered_once_and_completed() {
    let mut rig = Rig::connected(options());
    rig.receive_publish(Qos::ExactlyOnce, 3, false, "t");
    rig.message();
    assert_eq!(rig.sent(), [Sent::PubRec(3, Reason::SUCCESS)]);
    rig.receive_publish(Qos::ExactlyOnce, 3, true, "t");
    assert_eq!((rig.events(), rig.sent()), (vec![], vec![Sent::PubRec(3, Reason::SUCCESS)]));
    assert_eq!(rig.session.unacknowledged(), 1, "until PUBREL");
    rig.receive(Packet::PubRel(ack(3, Reason::SUCCESS)));
    assert_eq!(rig.sent(), [Sent::PubComp(3, Reason::SUCCESS)]);
    rig.receive(Packet::PubRel(ack(3, Reason::SUCCESS)));
    assert_eq!(rig.sent(), [Sent::PubComp(3, Reason::PACKET_IDENTIFIER_NOT_FOUND)]);
    assert_eq!(rig.session.unacknowledged(), 0);
    rig.receive_publish(Qos::ExactlyOnce, 3, false, "t");
    rig.message();
}

#[test]
fn pubrel_before_pubrec_is_a_protocol_error() {
    let mut rig = Rig::connected(options().manual_acknowledgement(true));
    rig.receive_publish(Qos::ExactlyOnce, 3, false, "t");
    rig.message();
    rig.receive(Packet::PubRel(ack(3, Reason::SUCCESS)));
    rig.assert_refused(Reason::PROTOCOL_ERROR);
}

#[test]
fn more_messages_than_the_receive_maximum_end_the_connection() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let options = options().receive_maximum(2).manual_acknowledgement(true);
        let mut rig = Rig::connected(options);
        for id in 1..=2 {
            rig.receive_publish(qos, id, false, "t");
            rig.receive_publish(Qos::AtMostOnce, 0, false, "t");
        }
        assert_eq!(rig.events().len(), 4);
        rig.receive_publish(qos, 3, false, "t");
        rig.assert_refused(Reason::RECEIVE_MAXIMUM_EXCEEDED);
    }
}

/// A Response Topic with a wildcard, which some servers forward.
#[test]
fn publish_with_invalid_properties_is_acknowledged_and_discarded() {
    let mut rig = Rig::connected(options().manual_acknowledgement(true));
    rig.receive_publish(Qos::AtLeastOnce, 1, false, "t");
    rig.receive_bytes(&[0x32, 11, 0, 1, b't', 0, 2, 4, 0x08, 0, 1, b'#', b'x']);
    assert_eq!(rig.events().len(), 1, "the first message only");
    assert!(rig.session.is_connected());
    rig.receive_bytes(&[0x30, 9, 0, 1, b't', 4, 0x08, 0, 1, b'#', b'x']);
    assert_eq!(rig.events().len(), 0);
    assert!(rig.session.is_connected());
}

#[test]
fn accepted_excess_is_added_to_the_receive_maximum() {
    let options = options().receive_maximum(1).receive_excess(2).manual_acknowledgement(true);
    let mut rig = Rig::connected(options);
    for id in 1..=3 {
        rig.receive_publish(Qos::AtLeastOnce, id, false, "t");
    }
    assert_eq!(rig.events().len(), 3);
    rig.receive_publish(Qos::AtLeastOnce, 4, false, "t");
    rig.assert_refused(Reason::RECEIVE_MAXIMUM_EXCEEDED);
}

#[test]
fn repeated_publish_at_qos_2_does_not_count_twice() {
    let mut rig = Rig::connected(options().receive_maximum(1));
    for _ in 0..3 {
        rig.receive_publish(Qos::ExactlyOnce, 1, true, "t");
    }
    assert_eq!(rig.events().len(), 1);
    assert!(rig.session.is_connected());
}

#[test]
fn larger_packet_than_the_maximum_ends_the_connection_at_its_header() {
    let mut rig = Rig::connected(options().maximum_packet_size(20));
    rig.receive_bytes(&[0x30, 18]);
    assert!(rig.session.is_connected(), "20 bytes");
    let mut rig = Rig::connected(options().maximum_packet_size(20));
    rig.receive_bytes(&[0x30, 19]);
    rig.assert_refused(Reason::PACKET_TOO_LARGE);
}

#[test]
fn topic_aliases_of_the_server_are_resolved() {
    let mut rig = Rig::connected(options().topic_alias_maximum(2));
    rig.receive_with(Qos::AtMostOnce, 0, false, "one", &[Property::TopicAlias(1)]);
    rig.receive_with(Qos::AtMostOnce, 0, false, "two", &[Property::TopicAlias(2)]);
    rig.receive_with(Qos::AtMostOnce, 0, false, "", &[Property::TopicAlias(1)]);
    rig.receive_with(Qos::AtMostOnce, 0, false, "other", &[Property::TopicAlias(1)]);
    rig.receive_with(Qos::AtMostOnce, 0, false, "", &[Property::TopicAlias(1)]);
    let topics: Vec<_> = rig
        .events()
        .iter()
        .map(|event| match event {
            Event::Message(message) => message.topic().to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(topics, ["one", "two", "one", "other", "other"]);
}

#[test]
fn invalid_topic_aliases_end_the_connection() {
    let mut rig = Rig::connected(options().topic_alias_maximum(2));
    rig.receive_with(Qos::AtMostOnce, 0, false, "t", &[Property::TopicAlias(3)]);
    assert_eq!(rig.end(), Error::Protocol(Violation::TopicAlias(3)));
    assert_eq!(rig.sent(), [Sent::Disconnect(Reason::TOPIC_ALIAS_INVALID, vec![])]);

    let mut rig = Rig::connected(options());
    rig.receive_with(Qos::AtMostOnce, 0, false, "", &[Property::TopicAlias(1)]);
    assert_eq!(rig.end(), Error::Protocol(Violation::UnknownTopicAlias(1)));

    let mut rig = Rig::connected(options());
    rig.receive_with(Qos::AtMostOnce, 0, false, "t", &[Property::TopicAlias(1)]);
    rig.reconnect(true);
    rig.receive_with(Qos::AtMostOnce, 0, false, "", &[Property::TopicAlias(1)]);
    assert_eq!(rig.end(), Error::Protocol(Violation::UnknownTopicAlias(1)), "a new connection");
}

#[test]
fn full_event_queue_stops_input_until_events_are_polled() {
    let mut rig = Rig::connected(options().events(2));
    for _ in 0..5 {
        let publish = [0x30, 4, 0, 1, b't', 0];
        rig.input.extend_from_slice(&publish);
    }
    rig.take_input();
    assert!(!rig.session.wants_input());
    assert_eq!(rig.input.len(), 18);
    let mut count = 0;
    while !rig.input.is_empty() {
        count += rig.events().len();
        rig.take_input();
    }
    assert_eq!(count + rig.events().len(), 5);
}

#[test]
fn bytes_of_events_stop_input_too() {
    let mut rig = Rig::connected(options().event_bytes(10));
    rig.input.extend_from_slice(&[0x30, 4, 0, 1, b't', 0].repeat(5));
    rig.take_input();
    assert_eq!(rig.events().len(), 2, "one message may exceed the limit");
}

#[test]
fn full_output_stops_input() {
    let mut rig = Rig::connected(options().output_bytes(8));
    for id in 1..=9 {
        rig.receive(Packet::PubRel(ack(id, Reason::SUCCESS)));
    }
    assert!(!rig.session.wants_input() && !rig.input.is_empty());
    assert!(rig.session.output_len() < 24);
    let mut sent = 0;
    while !rig.input.is_empty() {
        sent += rig.sent().len();
        rig.take_input();
    }
    assert_eq!(sent + rig.sent().len(), 9);
}
