//! An in-memory MQTT 5 broker for the state store protocol, so that an application can be tested
//! in one process, without a network.
//!
//! [`Hub`] is the broker. It can run a store, and returns handles of `statestore-tokio` for
//! clients:
//!
//! ```
//! use statestore_loopback::Hub;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = Hub::with_store().await?;
//! let store = hub.connect("thermostat-7")?;
//! let version = store.set("setpoint", "21").await?;
//! let found = store.get("setpoint").await?.expect("the value was just set");
//! assert_eq!((&found.value[..], found.version), (b"21".as_slice(), Some(version)));
//!
//! let mut status = store.status();
//! status.current();
//! hub.disconnect("thermostat-7");
//! status.changed().await; // the client has noticed the loss, and connects again
//! assert!(store.get("setpoint").await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Code without async uses the blocking handle of `statestore-tokio` on a [link](Hub::link):
//!
//! ```
//! use statestore_loopback::Hub;
//! use statestore_tokio::blocking::StateStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tokio::runtime::Runtime::new()?; // runs the store
//! let hub = runtime.block_on(Hub::with_store())?;
//! let store = StateStore::spawn(hub.link("thermostat-7"), |builder| builder)?;
//! store.set("setpoint", "21").wait()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod connection;
mod hub;
mod link;
mod message;
mod raw;

pub use hub::Hub;
pub use link::HubLink;
pub use message::Message;
pub use raw::RawClient;

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
