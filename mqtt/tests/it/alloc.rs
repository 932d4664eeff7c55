//! Allocations of the codec.

use std::hint::black_box;

use statestore_mqtt::packet::{Header, Packet};
use statestore_mqtt::wire::Length;
use statestore_testkit::process::memory::allocations_of;

use crate::statements::{packet, vectors};

#[test]
fn decoding_and_encoding_do_not_allocate() {
    let mut buffer = [0; 1024];
    for case in vectors().cases() {
        let bytes = packet(case);
        let decode_and_encode = || {
            let _ = black_box(Header::read(&bytes, 1 << 20));
            let Ok(packet) = Packet::decode(black_box(&bytes)) else { return };
            match packet {
                Packet::Publish(publish) => drop(black_box(publish.properties.iter().count())),
                Packet::Subscribe(subscribe) => drop(black_box(subscribe.subscriptions.count())),
                Packet::Unsubscribe(unsubscribe) => drop(black_box(unsubscribe.filters.count())),
                _ => {}
            }
            packet.encode(&mut Length::default()).unwrap();
            packet.encode_into(&mut buffer).unwrap();
        };
        assert_eq!(allocations_of(decode_and_encode), 0, "{}", case.place());
    }
}
