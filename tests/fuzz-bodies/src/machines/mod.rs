//! Machines, MQTT packets, policies, records and captures.
//!
//! In an input of a machine, an operation is its letter and five argument bytes. Bytes that are not
//! a letter of the alphabet are skipped, so an input keeps its meaning when operations are added.

mod captures;
mod client;
mod mqtt_broker;
mod mqtt_packet;
mod mqtt_session;
mod policy;
mod records;
mod seeds;
mod store;
mod world;

pub use captures::captures;
pub use client::{ClientOp, ClientRig, client_events};
pub use mqtt_broker::{BrokerOp, mqtt_broker};
pub use mqtt_packet::mqtt_packet;
pub use mqtt_session::{SessionOp, mqtt_session};
pub use policy::policy;
pub use records::records;
pub use seeds::{Seed, client_seeds, store_seeds, world_seeds};
pub use store::{StoreInput, StoreOp, StoreScript, store_ops};
pub use world::{WorldOp, world};
