//! The options of the broker of `serve` itself.

use std::path::PathBuf;

/// The broker of its own.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Listen {
    /// Where to listen; port 0 takes a free one, and 0.0.0.0 lets other machines connect
    #[arg(
        long,
        env = "STATESTORE_LISTEN",
        default_value = "127.0.0.1:1883",
        value_name = "HOST:PORT"
    )]
    pub(crate) listen: String,
    /// Where to listen for MQTT over WebSocket too, as web pages need it
    #[arg(long, env = "STATESTORE_WEBSOCKET", value_name = "HOST:PORT")]
    pub(crate) websocket: Option<String>,
    /// Web pages of this origin may connect, such as `https://panel.example`, or * for all; may be given several times. No page
    /// may unless given: a browser lets anybody's page connect to any address, this machine included
    #[arg(
        long,
        env = "STATESTORE_WEBSOCKET_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ',',
        requires = "websocket"
    )]
    pub(crate) websocket_origin: Vec<String>,
    /// Certificate chain of this broker, a PEM file: clients connect with mqtts:// and wss://
    #[arg(long, env = "STATESTORE_TLS_CERT", value_name = "PATH", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of this broker, a PEM file
    #[arg(long, env = "STATESTORE_TLS_KEY", value_name = "PATH", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Only clients with a certificate from these authorities, a PEM file
    #[arg(long, env = "STATESTORE_TLS_CLIENT_CA", value_name = "PATH", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Only users in this file, which `statestore passwd` writes; without it everybody who reaches the port
    #[arg(long, env = "STATESTORE_PASSWORD_FILE", value_name = "PATH")]
    pub(crate) password_file: Option<PathBuf>,
    /// Let users have any client id; otherwise it is the user's name, or begins with that and a hyphen, or is one that the policy
    /// names for Connect
    #[arg(long, env = "STATESTORE_ANY_CLIENT_ID", requires = "password_file")]
    pub(crate) any_client_id: bool,
    /// Other machines may connect and do everything: what --listen with their addresses takes where there is no --policy
    #[arg(long, env = "STATESTORE_ALLOW_ALL", conflicts_with = "policy")]
    pub(crate) allow_all: bool,
    /// Connections at a time
    #[arg(long, env = "STATESTORE_MAX_CONNECTIONS", default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Connections at a time from one other machine
    #[arg(long, env = "STATESTORE_MAX_ADDRESS_CONNECTIONS", default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_address_connections: u32,
    /// Sessions at a time, those of clients that are away included
    #[arg(long, env = "STATESTORE_MAX_SESSIONS", default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_sessions: u32,
    /// Subscriptions of one client
    #[arg(long, env = "STATESTORE_MAX_SUBSCRIPTIONS", default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_subscriptions: u32,
    /// Bytes for everything that is no key or value: connections, sessions, subscriptions, messages that wait; whoever holds
    /// most is disconnected when it is taken. On top come TLS, 96 KiB at most for each connection, and with a password file
    /// 38 MiB
    #[arg(long, env = "STATESTORE_MEMORY", default_value_t = 64 << 20, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 20..))]
    pub(crate) memory: u64,
    /// Bytes of that for one client, which is disconnected when it needs more
    #[arg(long, env = "STATESTORE_CLIENT_MEMORY", default_value_t = 8 << 20, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(64 << 10..))]
    pub(crate) client_memory: u64,
    /// Bytes of that for retained messages
    #[arg(long, env = "STATESTORE_RETAINED_MEMORY", default_value_t = 16 << 20, value_name = "BYTES")]
    pub(crate) retained_memory: u64,
    /// Messages that each client may publish in a second; any number unless given
    #[arg(long, env = "STATESTORE_RATE_LIMIT", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate_limit: Option<u32>,
}
