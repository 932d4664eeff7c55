//! The machines of the core in tests: requests and outputs, scripts of operations, a server.

mod alphabet;
pub mod redelivery;
pub mod request;
mod server;
mod watch_log;

pub use alphabet::{Alphabet, Args, Reader};
#[cfg(feature = "generators")]
pub use alphabet::{ops, script};
pub use server::Server;
pub use watch_log::{WatchLog, WatchState};
