//! The crate `redis`, known as redis-rs: the parser and the packer inside of a Redis client.
//!
//! It is a client, so it packs arrays and no replies. Its parsed values own copies of every blob.

use redis::{RedisResult, Value};
use statestore_proto::resp::Frame;

use statestore_benches::wire::Wire;

/// This peer's name in reports.
pub const NAME: &str = "redis-rs";

/// Reads a payload.
///
/// # Errors
/// Those of the peer.
pub fn decode(payload: &[u8]) -> RedisResult<Value> {
    redis::parse_redis_value(payload)
}

/// Whether a parsed value means this message.
#[must_use]
pub fn means(value: &Value, wire: &Wire<'_>) -> bool {
    match (value, wire) {
        (Value::Array(values), Wire::Array(elements)) => {
            let blob = |value: &Value, element: &&[u8]| matches!(value, Value::BulkString(bytes) if bytes == element);
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

/// From verb and arguments to a payload: what a caller of this crate does for each request.
#[must_use]
pub fn encode(elements: &[&[u8]]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for element in elements {
        command.arg(element);
    }
    command.get_packed_command()
}
