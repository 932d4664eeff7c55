//! The other implementations, each reduced to what is compared: reading a payload and writing one.
//!
//! Every function here takes its peer's fastest public way. Where a peer does less than we do (it knows no verbs, no
//! arity and no options), the difference counts for the peer.

pub mod redis_protocol;
pub mod redis_rs;
pub mod rumqttc;
