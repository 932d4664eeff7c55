//! Diagnostics: Nagle's algorithm, mosquitto's log, and texts from peers.

pub mod mosquitto;
pub mod nagle;
pub mod text;
