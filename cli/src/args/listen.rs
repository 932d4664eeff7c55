//! The options of the broker of `serve` itself.

use std::path::PathBuf;

use clap::ValueEnum;
use statestore_embedded::CertificateName;

use crate::policy::Principals;

/// The broker of its own.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("users").multiple(true).args(["password_file", "certificate_user", "service_account_keys"]))]
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
    /// Take this name in a client's certificate for its user; other names, and certificates with several, are refused
    #[arg(
        long,
        env = "STATESTORE_CERTIFICATE_USER",
        value_name = "NAME",
        value_enum,
        requires = "tls_client_ca"
    )]
    pub(crate) certificate_user: Option<CertificateUser>,
    /// Which certificates have which attributes, for rules of the --policy: `authorizationAttributes` as in a
    /// `BrokerAuthentication`, in JSON or YAML. SIGHUP reads it again
    #[arg(
        long,
        env = "STATESTORE_CERTIFICATE_ATTRIBUTES",
        value_name = "PATH",
        requires = "certificate_user"
    )]
    pub(crate) certificate_attributes: Option<PathBuf>,
    /// Only users in this file, which `statestore passwd` writes; without it everybody who reaches the port
    #[arg(long, env = "STATESTORE_PASSWORD_FILE", value_name = "PATH")]
    pub(crate) password_file: Option<PathBuf>,
    /// Let Kubernetes service accounts in by their tokens (method K8S-SAT), beside the users above: the public keys of whoever
    /// issues tokens, a JSON Web Key Set, as `kubectl get --raw /openid/v1/jwks` prints it. SIGHUP reads it again
    #[arg(
        long,
        env = "STATESTORE_SERVICE_ACCOUNT_KEYS",
        value_name = "PATH",
        requires = "service_account_issuer"
    )]
    pub(crate) service_account_keys: Option<PathBuf>,
    /// The issuer that tokens must name: `issuer` in what `kubectl get --raw /.well-known/openid-configuration` prints
    #[arg(
        long,
        env = "STATESTORE_SERVICE_ACCOUNT_ISSUER",
        value_name = "URL",
        requires = "service_account_keys"
    )]
    pub(crate) service_account_issuer: Option<String>,
    /// An audience, one of which tokens must be for; may be given several times
    #[arg(
        long,
        env = "STATESTORE_SERVICE_ACCOUNT_AUDIENCE",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "aio-internal",
        requires = "service_account_keys"
    )]
    pub(crate) service_account_audience: Vec<String>,
    /// Let users have any client id; otherwise it is the user's name, or begins with that and a hyphen, or is one that the policy
    /// names for Connect
    #[arg(long, env = "STATESTORE_ANY_CLIENT_ID", requires = "users")]
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

/// Which name in a certificate is the user's, in the words of OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CertificateUser {
    /// Common name of the subject
    Cn,
    /// DNS name of the subject's alternative names
    Dns,
    /// E-mail address of the subject's alternative names
    Email,
}

impl CertificateUser {
    pub(crate) const fn name(self) -> CertificateName {
        match self {
            Self::Cn => CertificateName::CommonName,
            Self::Dns => CertificateName::Dns,
            Self::Email => CertificateName::Email,
        }
    }
}

impl Listen {
    /// Whether clients have user names, and attributes.
    pub(crate) const fn principals(&self) -> Principals {
        Principals {
            user_names: self.password_file.is_some()
                || self.certificate_user.is_some()
                || self.service_account_keys.is_some(),
            attributes: self.certificate_attributes.is_some()
                || self.service_account_keys.is_some(),
        }
    }
}
