//! Seeded simulation: clients, a store and an unreliable network in simulated time.
//!
//! * [`Broker`]: an MQTT broker and the network around it, without I/O. A seed and [`Faults`]
//!   decide about delay, loss, duplication, reordering and disconnects. An [`Interceptor`] changes
//!   messages, a [`MessageDelay`] delays them.
//! * [`World`]: clients, a store, a journal and a broker, each with a clock, driven step by step.
//!   A [`DriverBug`] makes the store's driver faulty, to prove that a check detects it.
//! * [`runs`]: worlds with random requests and faults, and the checkers of their histories.
//!
//! Equal seeds and equal calls give equal runs, byte for byte.
//!
//! ```
//! use std::time::Duration;
//!
//! use statestore_proto::client::{Event, Request};
//! use statestore_proto::store::StoreConfig;
//! use statestore_sim::{Clock, Faults, World};
//!
//! let mut world = World::new(7, Faults::default(), StoreConfig::new(7));
//! let client = world.add_client("thermostat-7", Clock::default())?;
//! world.run_for(Duration::from_secs(1));
//! let (machine, now) = world.client(client).expect("the client exists");
//! let id = machine.submit(now, Request::set("setpoint", "21")).expect("the queue is empty");
//! world.run_for(Duration::from_secs(1));
//! let mut events = std::iter::from_fn(|| world.poll_event(client));
//! assert!(events.any(|event| matches!(event, Event::Completed { id: other, .. } if other == id)));
//! # Ok::<(), statestore_sim::Error>(())
//! ```
#![forbid(unsafe_code)]

mod broker;
mod error;
pub mod runs;
mod world;

pub use broker::{Broker, Faults, Interceptor, MessageDelay, Output};
pub use error::Error;
pub use statestore_loopback::Message;
pub use world::{ClientIndex, Clock, DriverBug, DriverConfig, TraceEvent, World};
