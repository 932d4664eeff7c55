//! Other implementations of a codec: their functions to decode and to encode.
//!
//! Each function uses the fastest public interface of its peer. Some peers do less than we do, such
//! as without verbs, arity and options. The difference is in favour of the peer.

pub mod redis_protocol;
pub mod redis_rs;
pub mod rumqttc;
