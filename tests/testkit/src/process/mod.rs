//! The process of a test and those that it starts: commands, ports, logs, memory and time.

#[cfg(feature = "process")]
pub mod command;
mod log;
pub mod memory;
mod port;
mod timely;

pub use log::Log;
pub use port::{Port, wait_free};
pub use timely::{HANGS, timely};
