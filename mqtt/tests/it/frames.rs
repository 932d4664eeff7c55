//! Packets from a byte stream.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
use statestore_mqtt::frame::Framed;
use statestore_mqtt::{Kind, Malformed};

/// A PUBLISH at QoS 0 to the topic `t` with a payload of this length.
fn publish(payload: usize) -> Vec<u8> {
    let body = 4 + payload;
    let mut bytes = vec![0x30];
    match body {
        0..128 => bytes.push(u8::try_from(body).expect("a byte")),
        _ => bytes.extend([u8::try_from(body % 128).expect("a byte") | 0x80, {
            u8::try_from(body / 128).expect("two bytes of length")
        }]),
    }
    bytes.extend([0, 1, b't', 0]);
    bytes.resize(bytes.len() + payload, b'v');
    bytes
}

fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec((0..300_usize).prop_map(publish), 0..8)
}

proptest! {
    #[test]
    fn division_of_the_stream_does_not_change_the_packets(
        packets in packets(),
        sizes in vec(1..200_usize, 1..8),
    ) {
        let stream = packets.concat();
        let mut framed = Framed::new(400);
        let mut found = Vec::new();
        let mut rest = &stream[..];
        for size in sizes.into_iter().cycle() {
            let (chunk, tail) = rest.split_at(size.min(rest.len()));
            framed.buffer_mut().extend_from_slice(chunk);
            while let Some(packet) = framed.next_packet().unwrap() {
                found.push(packet.to_vec());
            }
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, packets);
        prop_assert_eq!(framed.buffer(), b"");
    }

    #[test]
    fn any_bytes_are_split_without_loss(bytes in vec(any::<u8>(), 0..64)) {
        let mut framed = Framed::new(16);
        framed.buffer_mut().extend_from_slice(&bytes);
        let mut found = Vec::new();
        while let Ok(Some(packet)) = framed.next_packet() {
            found.extend_from_slice(&packet);
        }
        found.extend_from_slice(framed.buffer());
        prop_assert_eq!(found, bytes);
    }
}

#[test]
fn packet_of_the_maximum_size_is_accepted_and_a_larger_one_is_not() {
    let packet = publish(20);
    let mut framed = Framed::new(packet.len());
    framed.buffer_mut().extend_from_slice(&packet);
    assert_eq!(framed.next_packet().unwrap().as_deref(), Some(&packet[..]));

    // The header suffices to reject the packet.
    let larger = publish(21);
    framed.buffer_mut().extend_from_slice(&larger[..2]);
    let too_large = Err(Malformed::TooLarge { len: larger.len() });
    assert_eq!(framed.next_packet(), too_large);
    framed.buffer_mut().extend_from_slice(&larger[2..]);
    assert_eq!(framed.next_packet(), too_large, "the error repeats");
}

#[test]
fn bytes_that_are_not_mqtt_are_an_error() {
    let mut framed = Framed::new(1_024);
    assert_eq!(framed.next_packet(), Ok(None));
    framed.buffer_mut().extend_from_slice(b"\x00HTTP");
    assert_eq!(framed.next_packet(), Err(Malformed::First(0)));
    assert_eq!(framed.buffer(), b"\x00HTTP");
}

#[test]
fn packets_share_the_memory_of_the_buffer() {
    let packet = publish(200);
    let mut framed = Framed::new(1_024);
    framed.buffer_mut().extend_from_slice(&packet.repeat(2));
    let start = framed.buffer().as_ptr() as usize;
    let [first, second] = [(); 2].map(|()| framed.next_packet().unwrap().unwrap());
    assert_eq!(first.as_ptr() as usize, start);
    assert_eq!(second.as_ptr() as usize, start + packet.len());
    assert_eq!(Kind::of(second[0]), Ok(Kind::Publish));
}

#[test]
fn debug_output_omits_the_bytes() {
    let mut framed = Framed::new(64);
    framed.buffer_mut().extend_from_slice(&publish(3));
    assert_eq!(format!("{framed:?}"), "Framed { buffered: 9, maximum: 64 }");
}
