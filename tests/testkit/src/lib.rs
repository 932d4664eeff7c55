//! Shared code of tests that start processes, brokers and connections. The package
//! `statestore-models` has what they compare with.
//!
//! | Module | Contents |
//! |---|---|
//! | [`brokers`] | mosquitto and etcd as processes, a scripted MQTT server |
//! | [`conformance`] | suites for async handles, and the conformance suite in this process |
//! | [`credentials`] | certificates, tokens, and a secret that nothing may print |
//! | [`Depth`] | how many seeds the longest tests run |
//! | [`links`] | suites that every MQTT link passes |
//! | [`process`] | commands, ports, logs, counted memory, a time limit for waits |
//! | [`vectors`] | the golden vectors |
//! | [`wire`] | an MQTT client for tests, and packets as text |

pub mod brokers;
pub mod conformance;
pub mod credentials;
mod depth;
#[cfg(feature = "mqtt")]
pub mod links;
pub mod process;
pub mod vectors;
pub mod wire;

pub use depth::Depth;
