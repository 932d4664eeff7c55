//! Allocations of a connection at work.

use statestore_testkit::process::memory::{allocations_of, live_bytes};

use super::*;

/// Sends eight publishes.
fn publish(rig: &mut Rig, qos: Qos, payload: &Bytes) {
    for _ in 0..8 {
        let publish = session::Publish {
            topic: "topic/of/a/request",
            payload: payload.clone(),
            qos,
            retain: false,
            properties: Property::User("name", "value"),
            token: 1,
        };
        rig.session.publish(publish).unwrap();
    }
}

/// Receives messages and acknowledgements.
fn receive(rig: &mut Rig, input: &mut BytesMut) {
    rig.session.handle_bytes(rig.now, input);
    while let Some(event) = rig.session.poll_event() {
        drop(std::hint::black_box(event));
    }
    rig.session.written(rig.now, rig.session.output_len());
}

/// Messages of one round, and the acknowledgements of all publishes in flight.
fn input(qos: Qos, ids: &[u16]) -> BytesMut {
    let mut input = BytesMut::with_capacity(4_096);
    let topic = "topic/of/a/response";
    for id in 1..=8 {
        let id = (qos != Qos::AtMostOnce).then(|| packet_id(id));
        let properties: Properties<'_> = &[Property::User("name", "value")];
        let payload = b"payload";
        let publish = Publish { dup: false, qos, retain: false, topic, id, properties, payload };
        Packet::Publish(publish).encode(&mut input).unwrap();
    }
    for id in ids {
        Packet::PubAck(ack(*id, Reason::SUCCESS)).encode(&mut input).unwrap();
    }
    input
}

#[test]
fn only_data_for_redelivery_is_allocated() {
    let payload = Bytes::from_static(&[7; 1_000]);
    for (qos, expected) in [(Qos::AtMostOnce, 0), (Qos::AtLeastOnce, 8)] {
        let mut rig = Rig::connected(options());
        let mut count = 0;
        for _ in 0..40 {
            count = allocations_of(|| publish(&mut rig, qos, &payload));
            let ids: Vec<_> = rig.sent().iter().map(Sent::id).filter(|id| *id > 0).collect();
            let mut input = input(qos, &ids);
            // Dividing a buffer for the first time allocates once in `bytes`.
            drop(input.split_to(0));
            count += allocations_of(|| receive(&mut rig, &mut input));
            assert!(rig.session.is_connected() && rig.session.publishes() == 0);
        }
        assert!(count <= expected + 1, "{qos:?}: {count} allocations in a round of 8 publishes");
    }
}

#[test]
fn memory_is_released_after_a_burst() {
    let mut rig = Rig::connected(options().in_flight(u16::MAX));
    let before = live_bytes();
    for _ in 0..5_000 {
        rig.publish_payload(Qos::AtLeastOnce, "t", Bytes::from(vec![1; 1_000])).unwrap();
    }
    assert!(live_bytes() - before > 5_000_000);
    loop {
        let sent = rig.sent();
        if sent.is_empty() {
            break;
        }
        sent.iter().for_each(|sent| rig.puback(sent.id()));
        rig.events();
    }
    assert_eq!(rig.session.publishes(), 0);
    let left = live_bytes() - before;
    assert!(left < 1_500_000, "{left} bytes are left, of tables that keep their capacity");
}
