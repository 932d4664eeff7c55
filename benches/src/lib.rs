//! Inputs of the benches. Criterion measures their time, the program `instructions` counts their
//! instructions, and `statestore-ratios` compares them with those of other implementations.
//!
//! [`paths`] lists what is measured. [`cases`] has the messages, and their bytes from an independent
//! writer ([`wire`]). With the feature `machines`, `stage` has a filled store and a connected
//! client, and `packets` has a request as an MQTT packet.

pub mod cases;
#[cfg(feature = "machines")]
pub mod instructions;
#[cfg(feature = "machines")]
pub mod packets;
pub mod paths;
#[cfg(feature = "machines")]
pub mod stage;
pub mod wire;
