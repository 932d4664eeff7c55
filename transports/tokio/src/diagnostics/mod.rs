//! What brokers do and do not say: Nagle's delay, and mosquitto's log.

pub mod mosquitto;
pub mod nagle;
