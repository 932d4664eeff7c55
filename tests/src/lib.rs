//! What proves `statestore-proto`, as a library: generators of its values, naive models as oracles,
//! fuzz bodies, and the reader of the golden vectors. The tests themselves are in the one binary
//! `it`. With the feature `mqtt` also both ends of an MQTT connection, for the tests of the
//! transports and of the command.

#[cfg(feature = "mqtt")]
pub mod acknowledgement_suite;
pub mod ask;
pub mod certificates;
pub mod conformance;
pub mod counting;
#[cfg(feature = "mqtt")]
pub mod deployed;
pub mod etcd;
pub mod fuzz;
pub mod generators;
#[cfg(feature = "mqtt")]
pub mod link_suite;
pub mod local_link_suite;
pub mod log;
pub mod machine_ops;
pub mod model;
pub mod mosquitto;
pub mod mqtt_text;
pub mod oracle;
#[cfg(feature = "mqtt")]
pub mod packets;
pub mod port;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "mqtt")]
pub mod raw;
pub mod redelivery;
#[cfg(feature = "mqtt")]
pub mod requests;
#[cfg(feature = "mqtt")]
pub mod scripted;
#[cfg(feature = "mqtt")]
pub mod several;
pub mod timely;
#[cfg(feature = "mqtt")]
pub mod tls_suite;
pub mod tokens;
pub mod vectors;
pub mod verify;
pub mod worlds;
