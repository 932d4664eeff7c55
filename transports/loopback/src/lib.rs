//! The state store protocol without a network: an in-memory MQTT 5 broker, clients and a store, in simulated time.
//!
//! Three layers, each usable alone:
//!
//! * [`Session`]: a store and some clients in one process, driven by plain calls. For a first look, for examples, and
//!   for tests of code that uses a state store.
//! * [`World`]: the same machines with a clock each and a network between them, driven step by step.
//! * [`Broker`]: the network, itself a state machine without I/O, with a seed and rates for delay, loss, duplication,
//!   reordering and disconnects. Equal seeds and equal calls give equal results.
//!
//! With the feature `tokio`, `Hub` is the broker as a link for the async handles of `statestore-tokio`.
//!
//! ```
//! use statestore_loopback::Session;
//!
//! let mut session = Session::new();
//! let alice = session.connect("alice")?;
//! let version = session.set(alice, "thermostat", "21")?;
//! let found = session.get(alice, "thermostat")?.unwrap();
//! assert_eq!((&found.value[..], found.version), (b"21".as_slice(), Some(version)));
//! # Ok::<(), statestore_loopback::Error>(())
//! ```
#![forbid(unsafe_code)]

mod broker;
mod error;
#[cfg(feature = "tokio")]
mod hub;
mod message;
mod session;
mod world;

pub use broker::{Broker, Detain, Faults, Output, Tamper};
pub use error::Error;
#[cfg(feature = "tokio")]
pub use hub::{Hub, HubClient, HubLink};
pub use message::Message;
pub use session::Session;
pub use world::{ClientIndex, Clock, Driver, Flaw, Traced, World};
