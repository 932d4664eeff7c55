//! The command line.

mod decode;
mod proxy;

use clap::{Parser, Subcommand};

pub(crate) use decode::{After, Decode, Kind, Output};
pub(crate) use proxy::Proxy;

/// Tools for tests and diagnosis of a state store.
#[derive(Debug, Parser)]
#[command(name = "statestore-tools", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Describe a payload, a topic, a clock or captured MQTT packets in words
    Decode(Decode),
    /// Run a fault-injecting MQTT proxy between clients and their broker
    Proxy(Proxy),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
