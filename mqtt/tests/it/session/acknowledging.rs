//! Manual acknowledgement.

use statestore_mqtt::session::{Delivery, Stale};

use super::*;

fn rig() -> Rig {
    Rig::connected(options().manual_acknowledgement(true))
}

impl Rig {
    /// Receives messages with these packet identifiers.
    fn deliver(&mut self, messages: &[(Qos, u16)]) -> Vec<Delivery> {
        for (qos, id) in messages {
            self.receive_publish(*qos, *id, false, "t");
        }
        let deliveries = self.events().into_iter().map(|event| match event {
            Event::Message(message) => message.delivery().expect("QoS 1 or 2"),
            other => panic!("{other:?}"),
        });
        deliveries.collect()
    }
}

#[test]
fn acknowledgements_are_sent_in_order_of_arrival() {
    use Qos::{AtLeastOnce, ExactlyOnce};
    let mut rig = rig();
    let all =
        rig.deliver(&[(AtLeastOnce, 9), (ExactlyOnce, 4), (AtLeastOnce, 2), (AtLeastOnce, 7)]);
    rig.session.acknowledge(all[2], Reason::SUCCESS).unwrap();
    rig.session.acknowledge(all[1], Reason::SUCCESS).unwrap();
    assert_eq!(rig.sent(), []);
    rig.session.acknowledge(all[0], Reason::SUCCESS).unwrap();
    let expected = [
        Sent::PubAck(9, Reason::SUCCESS),
        Sent::PubRec(4, Reason::SUCCESS),
        Sent::PubAck(2, Reason::SUCCESS),
    ];
    assert_eq!(rig.sent(), expected);
    rig.session.acknowledge(all[3], Reason::QUOTA_EXCEEDED).unwrap();
    assert_eq!(rig.sent(), [Sent::PubAck(7, Reason::QUOTA_EXCEEDED)]);
}

#[test]
fn second_acknowledgement_is_stale() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut rig = rig();
        let all = rig.deliver(&[(qos, 1), (qos, 2)]);
        for delivery in [all[1], all[0]] {
            assert_eq!(rig.session.acknowledge(delivery, Reason::SUCCESS), Ok(()));
            assert_eq!(rig.session.acknowledge(delivery, Reason::SUCCESS), Err(Stale));
        }
        assert_eq!(rig.sent().len(), 2);
    }
}

#[test]
fn invalid_reason_is_sent_as_unspecified_error() {
    let mut rig = rig();
    let all = rig.deliver(&[(Qos::AtLeastOnce, 1)]);
    rig.session.acknowledge(all[0], Reason::SERVER_MOVED).unwrap();
    assert_eq!(rig.sent(), [Sent::PubAck(1, Reason::UNSPECIFIED_ERROR)]);
}

#[test]
fn error_in_pubrec_ends_the_message() {
    let mut rig = rig();
    let all = rig.deliver(&[(Qos::ExactlyOnce, 1)]);
    rig.session.acknowledge(all[0], Reason::NOT_AUTHORIZED).unwrap();
    assert_eq!(rig.sent(), [Sent::PubRec(1, Reason::NOT_AUTHORIZED)]);
    assert_eq!(rig.session.unacknowledged(), 0);
    assert_eq!(rig.deliver(&[(Qos::ExactlyOnce, 1)]).len(), 1, "the identifier is free");
}

#[test]
fn qos_1_of_a_former_connection_is_stale() {
    let mut rig = rig();
    let old = rig.deliver(&[(Qos::AtLeastOnce, 1)]);
    rig.reconnect(true);
    let new = rig.deliver(&[(Qos::AtLeastOnce, 1)]);
    assert_eq!(rig.session.acknowledge(old[0], Reason::SUCCESS), Err(Stale));
    assert_eq!(rig.sent(), []);
    assert_eq!(rig.session.acknowledge(new[0], Reason::SUCCESS), Ok(()));
    assert_eq!(rig.sent(), [Sent::PubAck(1, Reason::SUCCESS)]);
}

#[test]
fn qos_2_of_a_former_connection_is_not_delivered_again() {
    for is_acknowledged_before in [true, false] {
        let mut rig = rig();
        let old = rig.deliver(&[(Qos::ExactlyOnce, 1)]);
        rig.session.handle_disconnected();
        if is_acknowledged_before {
            assert_eq!(rig.session.acknowledge(old[0], Reason::SUCCESS), Ok(()));
        }
        assert_eq!(rig.connect_again(true, &[]), []);
        rig.receive_publish(Qos::ExactlyOnce, 1, true, "t");
        assert_eq!(rig.events(), [], "the caller has the message");
        if !is_acknowledged_before {
            assert_eq!(rig.sent(), []);
            assert_eq!(rig.session.acknowledge(old[0], Reason::SUCCESS), Ok(()));
        }
        assert_eq!(rig.sent(), [Sent::PubRec(1, Reason::SUCCESS)]);
        assert_eq!(rig.session.acknowledge(old[0], Reason::SUCCESS), Err(Stale));
    }
}

#[test]
fn pubrec_that_was_lost_is_sent_again() {
    let mut rig = Rig::connected(options());
    rig.receive_publish(Qos::ExactlyOnce, 1, false, "t");
    rig.message();
    rig.reconnect(true);
    rig.receive_publish(Qos::ExactlyOnce, 1, true, "t");
    assert_eq!((rig.events(), rig.sent()), (vec![], vec![Sent::PubRec(1, Reason::SUCCESS)]));
    rig.receive(Packet::PubRel(ack(1, Reason::SUCCESS)));
    assert_eq!(rig.sent(), [Sent::PubComp(1, Reason::SUCCESS)]);
    assert_eq!(rig.session.unacknowledged(), 0);
}

#[test]
fn lost_session_forgets_messages_at_qos_2() {
    let mut rig = rig();
    let old = rig.deliver(&[(Qos::ExactlyOnce, 1)]);
    rig.reconnect(false);
    assert_eq!(rig.session.acknowledge(old[0], Reason::SUCCESS), Err(Stale));
    assert_eq!(rig.deliver(&[(Qos::ExactlyOnce, 1)]).len(), 1);
}
