//! Operations on the machines, parsed from bytes, and the fuzz bodies that compare with oracles.
//!
//! In an input, an operation is its letter and five argument bytes. Bytes that are not a letter of
//! the alphabet are skipped, so an input keeps its meaning when operations are added.

mod alphabet;
mod client;
mod seeds;
mod server;
mod store;
mod watch_log;
mod world;

pub use alphabet::{Alphabet, Args, ops, script};
pub use client::{ClientOp, ClientRig, client_events};
pub use seeds::{Seed, client_seeds, store_seeds, world_seeds};
pub use server::Server;
pub use store::{StoreInput, StoreOp, StoreScript, store_ops};
pub use watch_log::WatchLog;
pub use world::{WorldOp, world};

pub(crate) use alphabet::Reader;
