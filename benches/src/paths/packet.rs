//! The MQTT packet of a request, to bytes and from bytes.

use std::hint::black_box;

use bytes::BytesMut;

use super::Path;
use crate::packets::{PROPERTIES, decode, encode, request, request_bytes};

/// Decode and encode of a PUBLISH with its properties.
#[must_use]
pub fn packet() -> Vec<Path> {
    let len = request_bytes().len();
    let decode = Path::new("packet/decode", || {
        let bytes = request_bytes();
        assert_eq!(decode(&bytes), PROPERTIES.len(), "all properties are decoded");
        move || _ = black_box(decode(black_box(&bytes)))
    });
    let encode = Path::new("packet/encode", || {
        let (packet, mut buffer) = (request(), BytesMut::new());
        encode(&packet, &mut buffer);
        assert_eq!(buffer, request_bytes());
        move || encode(black_box(&packet), black_box(&mut buffer))
    });
    vec![decode.bytes(len).counted(), encode.bytes(len).counted()]
}
