//! Operations on the machines, parsed from bytes, and the fuzz bodies that compare with oracles.
//!
//! In an input, an operation is its letter and five argument bytes. Bytes that are not a letter of
//! the alphabet are skipped, so an input keeps its meaning when operations are added.

mod client;
mod seeds;
mod store;
mod world;

pub use client::{ClientOp, ClientRig, client_events};
pub use seeds::{Seed, client_seeds, store_seeds, world_seeds};
pub use store::{StoreInput, StoreOp, StoreScript, store_ops};
pub use world::{WorldOp, world};
