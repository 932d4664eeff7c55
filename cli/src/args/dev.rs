//! Options of `dev`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::duration;

/// Default ports: those in the SDK repository's `.env`, and that of WebSocket.
const PLAIN: u16 = 1883;
const CERTIFICATE: u16 = 8883;
const TOKEN: u16 = 8884;
const WEBSOCKET: u16 = 9001;

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Without COMMAND, the store runs until it is stopped, and `statestore dev env` prints the variables
for another shell. With COMMAND, the store runs as long as the command, and the command has these
variables. Each run has its own store. The exit code is that of the command.

The directory contains broker-ca.crt, token.txt, client.crt and client.key, as the `.env` of the SDK
repository names them. They are made at the first start and reused afterwards. Tokens are renewed
while the store runs. Other programs' files are never overwritten. Delete the directory to start
again.

Examples:
  statestore dev                                    # then: eval \"$(statestore dev env)\"
  statestore dev --ports any -- dotnet test
  statestore dev --login certificate -- cargo test
  statestore dev --service-account shop/robot       # the account of token.txt"
)]
pub(crate) struct Dev {
    #[command(subcommand)]
    pub(crate) verb: Option<DevVerb>,
    #[command(flatten)]
    pub(crate) run: DevRun,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DevVerb {
    /// Print the variables of a store that `dev` runs: eval "$(statestore dev env)"
    Env(DevEnv),
}

/// Directory of the certificates and tokens.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DevDirectory {
    /// Directory of certificates, keys and tokens
    ///
    /// `dev` creates it if it is absent.
    #[arg(long, value_name = "DIR", default_value = ".session")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevEnv {
    #[command(flatten)]
    pub(crate) directory: DevDirectory,
    /// Login
    ///
    /// The variables are those of this login.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) login: DevLogin,
    /// Syntax of the output
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: DevFormat,
}

/// How a client logs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DevLogin {
    /// TLS and a service account token
    #[default]
    Token,
    /// TLS and a client certificate
    Certificate,
    /// Neither TLS nor a login
    None,
}

/// Syntax of variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DevFormat {
    /// sh, bash and zsh
    #[default]
    Sh,
    /// PowerShell
    Ps1,
    /// JSON
    Json,
}

/// Choice of the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DevPorts {
    /// The ports in the SDK repository's `.env`
    #[default]
    Sdk,
    /// Free ports, which are printed
    Any,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevRun {
    /// Command that the store runs for, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) directory: DevDirectory,
    #[command(flatten, next_help_heading = "Listeners")]
    pub(crate) listen: DevListen,
    #[command(flatten, next_help_heading = "Logins")]
    pub(crate) logins: DevLogins,
    #[command(flatten, next_help_heading = "Store")]
    pub(crate) store: DevStore,
}

/// Addresses of the listeners.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DevListen {
    /// Choice of the ports
    #[arg(long, value_enum, default_value_t)]
    pub(crate) ports: DevPorts,
    /// Port without TLS and login [default: 1883]
    #[arg(long, value_name = "PORT")]
    pub(crate) plain_port: Option<u16>,
    /// Port of TLS with a client certificate [default: 8883]
    #[arg(long, value_name = "PORT")]
    pub(crate) certificate_port: Option<u16>,
    /// Port of TLS with a service account token [default: 8884]
    #[arg(long, value_name = "PORT")]
    pub(crate) token_port: Option<u16>,
    /// Port of MQTT over WebSocket [default: 9001]
    ///
    /// Without TLS and login.
    #[arg(long, value_name = "PORT")]
    pub(crate) websocket_port: Option<u16>,
    /// Origin of web pages that may connect; repeatable
    ///
    /// For example `http://localhost:3000`.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) websocket_origin: Vec<String>,
    /// Let other machines connect, by the two ports with login only
    ///
    /// The ports without login are not opened then.
    #[arg(long)]
    pub(crate) listen_all: bool,
    /// Further name or IP address in the certificate; repeatable
    ///
    /// With `--listen-all`, the variables contain the first one.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
}

impl DevListen {
    /// The ports without TLS, of certificates, of tokens and of WebSocket. Zero selects a free one.
    pub(crate) fn ports(&self) -> [u16; 4] {
        let port = |given: Option<u16>, default| match self.ports {
            DevPorts::Sdk => given.unwrap_or(default),
            DevPorts::Any => given.unwrap_or(0),
        };
        [
            port(self.plain_port, PLAIN),
            port(self.certificate_port, CERTIFICATE),
            port(self.token_port, TOKEN),
            port(self.websocket_port, WEBSOCKET),
        ]
    }
}

/// Logins of clients.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DevLogins {
    /// Login of COMMAND: token, certificate or none [default: token]
    ///
    /// `token` is TLS with a service account token, `certificate` is TLS with a client certificate,
    /// and `none` is neither TLS nor a login.
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) login: DevLogin,
    /// Service account with a token; repeatable
    ///
    /// The form is NAMESPACE/NAME. Without the option: `azure-iot-operations/default`.
    ///
    /// The first one is that of token.txt. Each has a token in tokens/NAMESPACE.NAME.txt.
    #[arg(
        long,
        value_name = "ACCOUNT",
        default_value = "azure-iot-operations/default",
        hide_default_value = true
    )]
    pub(crate) service_account: Vec<String>,
    /// Validity of each token
    ///
    /// From 10s to 24h. Tokens are renewed after half of it.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) token_lifetime: Duration,
}

/// Options of the store, as of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DevStore {
    /// Directory for durable keys
    ///
    /// Without it, keys are in memory.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// JSON file with keys that are set at the start, as of `serve`
    #[arg(long, value_name = "PATH")]
    pub(crate) seed: Option<PathBuf>,
    /// Authorization policy, as of `serve`
    ///
    /// A `BrokerAuthorization` document. It is reloaded when it changes.
    #[arg(long, value_name = "PATH")]
    pub(crate) policy: Option<PathBuf>,
    /// Add the reason to each refusal, as of `serve`
    #[arg(long)]
    pub(crate) explain_refusals: bool,
    /// New file for all inputs and outputs of the store
    ///
    /// `statestore replay` reads it.
    #[arg(long, value_name = "PATH")]
    pub(crate) capture: Option<PathBuf>,
    /// Address for plain HTTP: /metrics, /healthz, /readyz
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics_listen: Option<String>,
}
