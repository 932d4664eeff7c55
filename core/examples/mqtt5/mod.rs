//! A driver over plain TCP, without a runtime. The MQTT 5 session is that of `statestore-mqtt`.
//!
//! * [`adapter`]: a machine's outputs to the session, its events to the machine. No I/O.
//! * [`connection`]: the socket and the clocks.
//! * [`drive`](mod@drive): the loop between a machine of `statestore_proto` and a connection.
//!
//! If you have an MQTT 5 library, you need only the last module, as a template.

pub mod adapter;
pub mod connection;
pub mod drive;

pub use adapter::{Error, Role};
pub use connection::{Clock, Connection};
pub use drive::drive;

#[cfg(test)]
mod tests;
