//! Options of a client's connection, of its requests and of its output.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, ValueEnum};

use super::azure::Resolved;
use super::login::Login;
use super::{azure, duration};
use crate::sources;

/// Address of the broker, and login: from the command line, or from the variables of Azure IoT
/// Operations.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) broker: Vec<String>,
    pub(crate) login: Login,
}

impl clap::Args for Connection {
    fn augment_args(command: Command) -> Command {
        Given::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Given::augment_args_for_update(command)
    }
}

impl FromArgMatches for Connection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Given { mut broker, mut login } = Given::from_arg_matches(matches)?;
        // A given broker must not receive the login of another one.
        if matches.value_source("broker") == Some(ValueSource::DefaultValue) {
            let invalid = |error| {
                let text = format!(
                    "{error}; correct the AIO_ variables, or set --broker, which replaces them\n"
                );
                clap::Error::raw(ErrorKind::ValueValidation, text)
            };
            if let Some(resolved) = azure::resolve(&mut login).map_err(invalid)? {
                let Resolved { url, sources } = resolved;
                broker = vec![url];
                sources::record(sources);
            }
        }
        Ok(Self { broker, login })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of a [`Connection`].
#[derive(Debug, clap::Args)]
struct Given {
    /// URL of the broker; `mqtts://` for TLS
    ///
    /// The form is `mqtt://HOST[:PORT]`, `mqtts://HOST[:PORT]` or `HOST:PORT`, which is without
    /// TLS. The default ports are 1883 and 8883. Separate several brokers by commas, or repeat the
    /// option. The client tries them in order and uses the first one that accepts it. Environment:
    /// `STATESTORE_BROKER`.
    ///
    /// Without it, the variables AIO_ of the SDKs of Azure IoT Operations are read, if set.
    #[arg(
        long,
        env = "STATESTORE_BROKER",
        hide_env = true,
        default_value = "mqtt://127.0.0.1:1883",
        value_delimiter = ',',
        value_name = "URL",
        help_heading = "Connection"
    )]
    broker: Vec<String>,
    #[command(flatten)]
    login: Login,
}

/// Time limit of a command.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct TimeLimit {
    /// Time limit of the connection and of each response
    ///
    /// A number with a unit, for example 500ms or 3s.
    ///
    /// Environment: `STATESTORE_TIMEOUT`.
    #[arg(
        long,
        env = "STATESTORE_TIMEOUT",
        hide_env = true,
        default_value = "10s",
        value_parser = duration,
        value_name = "TIME",
        help_heading = "Connection"
    )]
    pub(crate) timeout: Duration,
}

/// Format of the output of a command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Format {
    /// Output format
    ///
    /// Environment: `STATESTORE_OUTPUT`.
    #[arg(
        long,
        env = "STATESTORE_OUTPUT",
        hide_env = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Output"
    )]
    pub(crate) output: Output,
}

/// Options of every command that sends requests.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) time_limit: TimeLimit,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Values only; exact bytes if standard output is not a terminal
    #[default]
    Text,
    /// One JSON object per line, with versions
    Json,
}
