//! The command line.

mod abuse;
mod decode;
mod faults;
mod proxy;

use clap::{Parser, Subcommand};

pub(crate) use abuse::Abuse;
pub(crate) use decode::{After, Decode, Kind, Output};
pub(crate) use faults::Faults;
pub(crate) use proxy::Proxy;

/// Attacks, faults and diagnosis of a state store.
#[derive(Debug, Parser)]
#[command(name = "statestore-chaos", version, about)]
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
    /// Attack `statestore serve` in all known ways, while an honest client must not notice
    ///
    /// `STATESTORE_BIN` is the path of the command; otherwise cargo builds it in the profile of this
    /// program.
    Abuse(Abuse),
    /// Let stores that fail over through etcd fail under load, and check the histories of clients
    ///
    /// `STATESTORE_BIN` is the path of the command, built with `--features etcd`; otherwise cargo
    /// builds it in the profile of this program.
    Faults(Faults),
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
