//! The MQTT packet of a request, to bytes and from bytes.

use std::hint::black_box;

use bytes::BytesMut;

use crate::packets::{PROPERTIES, decode, encode, request, request_bytes};

pub(super) fn encode_publish(_: usize) -> Box<dyn FnMut()> {
    let (packet, mut buffer) = (request(), BytesMut::new());
    encode(&packet, &mut buffer);
    assert_eq!(buffer, request_bytes());
    Box::new(move || encode(black_box(&packet), black_box(&mut buffer)))
}

pub(super) fn decode_publish(_: usize) -> Box<dyn FnMut()> {
    let bytes = request_bytes();
    assert_eq!(decode(&bytes), PROPERTIES.len());
    Box::new(move || _ = black_box(decode(black_box(&bytes))))
}
