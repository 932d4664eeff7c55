//! Diagnostics of brokers: Nagle's algorithm, and mosquitto's log.

pub mod mosquitto;
pub mod nagle;
