//! Shared code of the tests of this project.
//!
//! | Module | Contents |
//! |---|---|
//! | [`brokers`] | mosquitto and etcd as processes, a scripted MQTT server |
//! | [`conformance`] | suites for async handles, and the conformance suite in this process |
//! | [`credentials`] | certificates, tokens, and a secret that nothing may print |
//! | [`generators`] | random values of the protocol |
//! | [`history`] | histories of clients, and the checker whether one order explains them |
//! | [`links`] | suites that every MQTT link passes |
//! | [`machines`] | requests to a store and its output, scripts of operations, a stepwise server |
//! | [`process`] | commands, ports, logs, counted memory, a time limit for waits |
//! | [`mod@reference`] | the reference store that others are compared with |
//! | [`vectors`] | the golden vectors |
//! | [`wire`] | an MQTT client for tests, and packets as text |
//! | [`worlds`] | worlds small enough to explore every order of events |

pub mod brokers;
pub mod conformance;
pub mod credentials;
pub mod generators;
pub mod history;
#[cfg(feature = "mqtt")]
pub mod links;
pub mod machines;
pub mod process;
pub mod reference;
pub mod vectors;
pub mod wire;
pub mod worlds;
