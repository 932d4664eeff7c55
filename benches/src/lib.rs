//! Inputs of the criterion benches, which `statestore-ratios` uses too.
//!
//! [`stage`] has a filled store and a connected client. [`cases`] has the messages, and their bytes
//! from an independent writer ([`wire`]). [`packets`] has a request as an MQTT packet.

pub mod cases;
pub mod hot_paths;
pub mod instructions;
pub mod packets;
pub mod stage;
pub mod wire;
