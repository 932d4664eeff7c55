//! What proves `statestore-proto`, as a library: generators of its values, naive models as oracles, fuzz bodies, and
//! the reader of the golden vectors. The tests themselves are in the one binary `it`. With the feature `mqtt` also both
//! ends of an MQTT connection, for the tests of the transports and of the command.

pub mod ask;
pub mod certificates;
pub mod conformance;
pub mod counting;
#[cfg(feature = "mqtt")]
pub mod deployed;
pub mod etcd;
pub mod fuzz;
pub mod generators;
pub mod log;
pub mod machine_ops;
pub mod model;
pub mod mosquitto;
pub mod mqtt_text;
pub mod oracle;
#[cfg(feature = "mqtt")]
mod packets;
pub mod port;
#[cfg(feature = "mqtt")]
pub mod raw;
#[cfg(feature = "mqtt")]
pub mod scripted;
#[cfg(feature = "mqtt")]
pub mod several;
pub mod sim;
pub mod timely;
pub mod tokens;
pub mod vectors;
pub mod verify;
pub mod worlds;

#[cfg(feature = "mqtt")]
pub use rumqttc::v5::mqttbytes;
