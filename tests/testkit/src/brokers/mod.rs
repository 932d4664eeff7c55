//! Programs that tests start, and a scripted MQTT server.

mod etcd;
mod mosquitto;
#[cfg(feature = "mqtt")]
pub mod scripted;

pub use etcd::Etcd;
pub use mosquitto::Mosquitto;
