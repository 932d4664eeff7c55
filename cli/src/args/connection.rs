//! Options of a client's connection, of its requests and of its output.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, ValueEnum};

use super::azure::Resolved;
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

/// Identity of the client, TLS, and the proxy.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Login {
    /// HTTP proxy between this client and the broker
    ///
    /// The form is `http://[USER:PASSWORD@]HOST[:PORT]`, percent-encoded; the default port is 80.
    /// Other users of this machine can read command lines, so set a URL with a password in the
    /// environment: `STATESTORE_PROXY`. `HTTPS_PROXY` and similar variables are not read.
    #[arg(
        long,
        env = "STATESTORE_PROXY",
        hide_env = true,
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Connection",
        hide_short_help = true
    )]
    pub(crate) proxy: Option<String>,
    /// MQTT client id
    ///
    /// Default: a new one for each run; for `serve --broker`, `statestore`. Environment:
    /// `STATESTORE_CLIENT_ID`. The client id in `AIO_MQTT_CLIENT_ID` gets a random suffix.
    #[arg(
        long,
        env = "STATESTORE_CLIENT_ID",
        hide_env = true,
        value_name = "ID",
        help_heading = "Login",
        hide_short_help = true
    )]
    pub(crate) client_id: Option<String>,
    /// User name
    ///
    /// Environment: `STATESTORE_USER`.
    #[arg(
        long,
        env = "STATESTORE_USER",
        hide_env = true,
        value_name = "NAME",
        help_heading = "Login"
    )]
    pub(crate) user: Option<String>,
    /// Password; prefer the environment variable `STATESTORE_PASSWORD`
    ///
    /// Other users of this machine can read command lines.
    #[arg(
        long,
        env = "STATESTORE_PASSWORD",
        hide_env = true,
        hide_env_values = true,
        help_heading = "Login"
    )]
    pub(crate) password: Option<String>,
    /// Log in as a Kubernetes service account with the token in this file
    ///
    /// The file is read for each connection. While connected, it is checked every 10 seconds, and a
    /// new token is sent to the broker. Environment: `STATESTORE_SERVICE_ACCOUNT_TOKEN_FILE`.
    #[arg(
        long,
        env = "STATESTORE_SERVICE_ACCOUNT_TOKEN_FILE",
        hide_env = true,
        value_name = "PATH",
        conflicts_with = "password",
        help_heading = "Login",
        hide_short_help = true
    )]
    pub(crate) service_account_token_file: Option<PathBuf>,
    /// Trusted CA certificates, PEM [default: those of this machine]
    ///
    /// Requires `mqtts://`. Environment: `STATESTORE_TLS_CA`.
    #[arg(
        long,
        env = "STATESTORE_TLS_CA",
        hide_env = true,
        value_name = "PATH",
        help_heading = "TLS"
    )]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate chain of this client, PEM
    ///
    /// Environment: `STATESTORE_TLS_CERT`.
    #[arg(
        long,
        env = "STATESTORE_TLS_CERT",
        hide_env = true,
        value_name = "PATH",
        help_heading = "TLS"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of this client, PEM
    ///
    /// Environment: `STATESTORE_TLS_KEY`.
    #[arg(
        long,
        env = "STATESTORE_TLS_KEY",
        hide_env = true,
        value_name = "PATH",
        help_heading = "TLS"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with the password of an encrypted private key (PKCS #8)
    ///
    /// `openssl pkcs8 -topk8` encrypts a key. Environment: `STATESTORE_TLS_KEY_PASSWORD_FILE`.
    #[arg(
        long,
        env = "STATESTORE_TLS_KEY_PASSWORD_FILE",
        hide_env = true,
        value_name = "PATH",
        help_heading = "TLS",
        hide_short_help = true
    )]
    pub(crate) tls_key_password_file: Option<PathBuf>,
    /// Keep-alive interval, from a variable of Azure IoT Operations.
    #[arg(skip)]
    pub(crate) keep_alive: Option<Duration>,
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
