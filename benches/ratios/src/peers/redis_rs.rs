//! The crate `redis` (redis-rs): the parser and the encoder of a Redis client.
//!
//! As a client it encodes arrays only, not replies. Its parsed values own copies of all blobs.

use redis::{RedisResult, Value};
use statestore_proto::resp::Frame;

use statestore_benches::wire::Wire;

/// Name of this peer in reports.
pub const NAME: &str = "redis-rs";

/// Decodes a payload.
///
/// # Errors
/// Those of the peer.
pub fn decode(payload: &[u8]) -> RedisResult<Value> {
    redis::parse_redis_value(payload)
}

/// Returns whether a parsed value has the content of a message.
#[must_use]
pub fn means(value: &Value, wire: &Wire<'_>) -> bool {
    match (value, wire) {
        (Value::Array(values), Wire::Array(elements)) => {
            let blob = |value: &Value, element: &&[u8]| match value {
                Value::BulkString(bytes) => bytes == element,
                _ => false,
            };
            values.len() == elements.len()
                && values.iter().zip(elements).all(|(value, element)| blob(value, element))
        }
        (Value::BulkString(bytes), Wire::Frame(Frame::Blob(blob))) => bytes == blob,
        (Value::Okay, Wire::Frame(Frame::Simple(text))) => *text == b"OK",
        (Value::Int(number), Wire::Frame(Frame::Integer(expected))) => number == expected,
        (Value::Nil, Wire::Frame(Frame::Null)) => true,
        (Value::ServerError(error), Wire::Frame(Frame::Error(text))) => {
            error.code() == "ERR"
                && error.details().is_some_and(|details| details.as_bytes() == *text)
        }
        _ => false,
    }
}

/// Encodes a verb and arguments, as a caller of this crate does for each request.
#[must_use]
pub fn encode(elements: &[&[u8]]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for element in elements {
        command.arg(element);
    }
    command.get_packed_command()
}
