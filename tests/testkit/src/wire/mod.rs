//! MQTT packets: an MQTT client for tests, requests as packets, and packets as text.

#[cfg(feature = "mqtt")]
pub mod client;
#[cfg(feature = "mqtt")]
pub mod deployed;
pub mod mqtt_text;
#[cfg(feature = "mqtt")]
pub mod packets;
#[cfg(feature = "mqtt")]
pub mod raw;
#[cfg(feature = "mqtt")]
pub mod requests;
