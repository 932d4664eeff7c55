//! The session over several connections.

use super::*;

#[test]
fn publishes_are_sent_again_in_order_with_dup() {
    let mut rig = Rig::connected(options());
    for topic in ["1", "2", "3"] {
        rig.publish(Qos::AtLeastOnce, topic).unwrap();
    }
    let first = rig.sent();
    rig.puback(first[1].id());
    let again = rig.reconnect(true);
    let expected: Vec<_> = [&first[0], &first[2]]
        .into_iter()
        .cloned()
        .map(|mut sent| {
            if let Sent::Publish { dup, .. } = &mut sent {
                *dup = true;
            }
            sent
        })
        .collect();
    assert_eq!(again, expected);
}

#[test]
fn order_is_that_of_the_publishes_and_not_of_the_identifiers() {
    let mut rig = Rig::connected(options().in_flight(40));
    for _ in 0..40 {
        rig.publish(Qos::AtLeastOnce, "old").unwrap();
    }
    let mut ids: Vec<_> = rig.sent().iter().map(Sent::id).collect();
    for id in ids.drain(5..25).rev() {
        rig.puback(id);
    }
    for _ in 0..20 {
        rig.publish(Qos::AtLeastOnce, "new").unwrap();
    }
    ids.extend(rig.sent().iter().map(Sent::id));
    let again: Vec<_> = rig.reconnect(true).iter().map(Sent::id).collect();
    assert_eq!(again, ids);
    assert!(!ids.is_sorted());
}

#[test]
fn pubrel_is_sent_again_instead_of_the_publish() {
    let mut rig = Rig::connected(options());
    let tokens: Vec<_> =
        ["1", "2"].map(|topic| rig.publish(Qos::ExactlyOnce, topic).unwrap()).into();
    let ids: Vec<_> = rig.sent().iter().map(Sent::id).collect();
    rig.receive(Packet::PubRec(ack(ids[0], Reason::SUCCESS)));
    rig.sent();
    let again = rig.reconnect(true);
    assert_eq!(again[0], Sent::PubRel(ids[0], Reason::SUCCESS));
    assert!(matches!(&again[1], Sent::Publish { dup: true, id, .. } if *id == ids[1]));
    rig.receive(Packet::PubComp(ack(ids[0], Reason::PACKET_IDENTIFIER_NOT_FOUND)));
    let outcome = (tokens[0], Ok(Reason::SUCCESS));
    assert_eq!(outcomes(&rig.events()), [outcome], "not an error during recovery");
    rig.receive(Packet::PubRec(ack(ids[1], Reason::SUCCESS)));
    rig.receive(Packet::PubComp(ack(ids[1], Reason::PACKET_IDENTIFIER_NOT_FOUND)));
    let outcome = (tokens[1], Ok(Reason::PACKET_IDENTIFIER_NOT_FOUND));
    assert_eq!(outcomes(&rig.events()), [outcome], "an error at other times");
}

#[test]
fn pubrels_are_sent_again_in_the_order_of_their_pubrecs() {
    let mut rig = Rig::connected(options());
    for _ in 0..3 {
        rig.publish(Qos::ExactlyOnce, "t").unwrap();
    }
    let ids: Vec<_> = rig.sent().iter().map(Sent::id).collect();
    let order = [ids[1], ids[0], ids[2]];
    for id in order {
        rig.receive(Packet::PubRec(ack(id, Reason::SUCCESS)));
    }
    let expected = order.map(|id| Sent::PubRel(id, Reason::SUCCESS));
    assert_eq!(rig.sent(), expected);
    assert_eq!(rig.reconnect(true), expected);
}

#[test]
fn receive_maximum_of_the_new_connection_bounds_redelivery() {
    let mut rig = Rig::connected(options());
    for _ in 0..4 {
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
    }
    let ids: Vec<_> = rig.sent().iter().map(Sent::id).collect();
    rig.session.handle_disconnected();
    rig.events();
    rig.publish(Qos::AtLeastOnce, "new").unwrap();
    let mut sent = rig.connect(true, &[Property::ReceiveMaximum(1)]);
    for id in &ids {
        assert!(
            matches!(sent.as_slice(), [Sent::Publish { dup: true, id: sent, .. }] if sent == id),
            "{sent:?}"
        );
        rig.puback(*id);
        sent = rig.sent();
    }
    assert!(matches!(sent.as_slice(), [Sent::Publish { dup: false, .. }]), "the new one is last");
}

#[test]
fn acknowledgement_of_a_publish_that_was_not_sent_again_is_a_protocol_error() {
    let mut rig = Rig::connected(options());
    for _ in 0..2 {
        rig.publish(Qos::AtLeastOnce, "t").unwrap();
    }
    let second = rig.sent()[1].id();
    rig.session.handle_disconnected();
    rig.events();
    rig.connect(true, &[Property::ReceiveMaximum(1)]);
    rig.puback(second);
    rig.assert_refused(Reason::PROTOCOL_ERROR);
}

#[test]
fn lost_session_loses_publishes_in_flight_and_sends_those_that_wait() {
    let mut rig = Rig::with_server(options(), &[Property::ReceiveMaximum(2)]);
    let tokens: Vec<_> =
        ["1", "2", "3"].map(|topic| rig.publish(Qos::ExactlyOnce, topic).unwrap()).into();
    let id = rig.sent()[1].id();
    rig.receive(Packet::PubRec(ack(id, Reason::SUCCESS)));
    rig.session.handle_disconnected();
    rig.events();
    let sent = rig.connect(false, &[]);
    let lost = Err(Lost::SessionLost);
    assert_eq!(outcomes(&rig.events()), [(tokens[0], lost), (tokens[1], lost)]);
    assert!(
        matches!(sent.as_slice(), [Sent::Publish { dup: false, topic, .. }] if topic == "3"),
        "{sent:?}"
    );
    assert_eq!((rig.session.publishes(), rig.session.publish_bytes()), (1, 8));
}

#[test]
fn publish_in_flight_that_the_new_server_does_not_take_is_lost() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut rig = Rig::connected(options());
        let token = rig.publish_payload(qos, "t", Bytes::from(vec![0; 50])).unwrap();
        let id = rig.sent()[0].id();
        rig.session.handle_disconnected();
        rig.events();
        let sent = rig.connect(true, &[Property::MaximumPacketSize(30)]);
        let outcome = outcomes(&rig.events());
        assert!(
            matches!(outcome.as_slice(), [(of, Err(Lost::Unsendable(_)))] if *of == token),
            "{outcome:?}"
        );
        if qos == Qos::ExactlyOnce {
            assert_eq!(sent, [Sent::PubRel(id, Reason::SUCCESS)], "the server may have its id");
            rig.receive(Packet::PubComp(ack(id, Reason::PACKET_IDENTIFIER_NOT_FOUND)));
        }
        assert_eq!((rig.events(), rig.session.publishes()), (vec![], 0));
        rig.publish(qos, "t").unwrap();
        assert!(matches!(rig.sent().as_slice(), [Sent::Publish { .. }]), "the window is free");
    }
}

#[test]
fn retained_publish_survives_several_lost_connections() {
    let mut rig = Rig::connected(options());
    let token = rig.publish(Qos::AtLeastOnce, "t").unwrap();
    let id = rig.sent()[0].id();
    for _ in 0..3 {
        assert_eq!(rig.reconnect(true).len(), 1);
    }
    rig.puback(id);
    assert_eq!(outcomes(&rig.events()), [(token, Ok(Reason::SUCCESS))]);
}
