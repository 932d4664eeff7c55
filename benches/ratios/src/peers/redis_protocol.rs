//! The crate `redis-protocol`: its RESP3 codec.
//!
//! `decode_range` is the fastest of its zero-copy decoders: `decode_bytes` and `decode_bytes_mut`
//! call it first and then build a second tree of frames. It returns offsets, which are equivalent
//! to our slices. `encode_borrowed` is the only encoder that does not need an owned copy of the
//! value.

use redis_protocol::error::RedisProtocolError;
use redis_protocol::resp3::decode::complete::decode_range;
use redis_protocol::resp3::encode::complete::encode_borrowed;
use redis_protocol::resp3::types::{BorrowedFrame, RangeFrame};
use statestore_proto::resp::Frame;

use statestore_benches::wire::Wire;

/// Name of this peer in reports.
pub const NAME: &str = "redis-protocol";

/// Decodes a payload. Returns a tree of offsets and the number of bytes read.
///
/// # Errors
/// Those of the peer.
pub fn decode(payload: &[u8]) -> Result<Option<(RangeFrame, usize)>, RedisProtocolError> {
    decode_range(payload)
}

/// Returns the meaning of a decoded payload. `None` if it is not in our subset of RESP3.
///
/// `$-1` is such a case. It is RESP2, and this decoder accepts it as the start of a chunked string.
#[must_use]
pub fn meaning(payload: &[u8]) -> Option<Wire<'_>> {
    let (frame, used) = decode(payload).ok()??;
    let slice = |(from, to): (usize, usize)| payload.get(from..to);
    if used != payload.len() {
        return None;
    }
    Some(match frame {
        RangeFrame::Array { data, .. } => {
            let elements = data.into_iter().map(|element| match element {
                RangeFrame::BlobString { data, .. } => slice(data),
                _ => None,
            });
            Wire::Array(elements.collect::<Option<_>>()?)
        }
        RangeFrame::BlobString { data, .. } => Wire::Frame(Frame::Blob(slice(data)?)),
        RangeFrame::SimpleString { data, .. } => Wire::Frame(Frame::Simple(slice(data)?)),
        RangeFrame::SimpleError { data, .. } => {
            Wire::Frame(Frame::Error(slice(data)?.strip_prefix(b"ERR ")?))
        }
        RangeFrame::Number { data, .. } => Wire::Frame(Frame::Integer(data)),
        _ => return None,
    })
}

/// A message in the types of the peer, prepared before the measurement.
#[derive(Debug)]
pub struct Prepared<'a> {
    wire: &'a Wire<'a>,
    elements: Vec<BorrowedFrame<'a>>,
    error: String,
}

impl<'a> Prepared<'a> {
    /// Prepares a message.
    #[must_use]
    pub fn new(wire: &'a Wire<'a>) -> Self {
        let (mut elements, mut error) = (Vec::new(), String::new());
        match wire {
            Wire::Array(blobs) => elements.extend(
                blobs.iter().map(|data| BorrowedFrame::BlobString { data, attributes: None }),
            ),
            Wire::Frame(Frame::Error(text)) => {
                error = format!("ERR {}", String::from_utf8_lossy(text));
            }
            Wire::Frame(_) => {}
        }
        Self { wire, elements, error }
    }

    /// Returns the frame. `None` for `$-1`, which RESP3 encodes differently.
    #[must_use]
    pub fn frame(&self) -> Option<BorrowedFrame<'_>> {
        let attributes = None;
        Some(match *self.wire {
            Wire::Array(_) => BorrowedFrame::Array { data: &self.elements, attributes },
            Wire::Frame(Frame::Blob(data)) => BorrowedFrame::BlobString { data, attributes },
            Wire::Frame(Frame::Simple(data)) => BorrowedFrame::SimpleString { data, attributes },
            Wire::Frame(Frame::Error(_)) => {
                BorrowedFrame::SimpleError { data: &self.error, attributes }
            }
            Wire::Frame(Frame::Integer(data)) => BorrowedFrame::Number { data, attributes },
            Wire::Frame(Frame::Null) => return None,
        })
    }
}

/// Encodes a frame at the start of `out` and returns its length.
///
/// # Errors
/// Those of the peer.
pub fn encode_into(frame: &BorrowedFrame<'_>, out: &mut [u8]) -> Result<usize, RedisProtocolError> {
    encode_borrowed(out, frame, false)
}

/// Encodes a frame into a vector of exactly its length, empty on failure. The encoders of the peer
/// need an initialized buffer.
#[must_use]
pub fn encode(frame: &BorrowedFrame<'_>) -> Vec<u8> {
    let mut out = vec![0; frame.encode_len(false)];
    match encode_into(frame, &mut out) {
        Ok(_) => out,
        Err(_) => Vec::new(),
    }
}
