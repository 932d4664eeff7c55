//! MQTT 5 as far as the state store protocol needs it, over plain TCP and without a runtime: what the examples stand on.
//! The packets are those of the package `statestore-mqtt`.
//!
//! | Module | What it knows | Needs |
//! |---|---|---|
//! | [`session`] | packet ids, flow control, keep alive, acknowledgements | memory |
//! | [`connection`] | a socket and the clocks | `std` |
//! | [`drive`](mod@drive) | the loop between a machine of `statestore_proto` and a connection | the rest |
//!
//! An application that has an MQTT 5 library takes only the last of these as a pattern.

pub mod connection;
pub mod drive;
pub mod session;

pub use connection::{Clock, Connection};
pub use drive::drive;
pub use session::{Error, Options};

#[cfg(test)]
mod tests;
