//! Settings of the embedded broker: its listeners, their TLS, its logins and its limits.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Listeners of the embedded broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Listen {
    /// Address for MQTT without TLS; port 0 selects a free one
    ///
    /// The default is 127.0.0.1:1883 if no other address is given. Other machines can connect if
    /// the address is not a loopback address
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "HOST:PORT"))]
    pub listen: Vec<String>,
    /// Address for MQTT with TLS
    ///
    /// Requires --listen-tls-cert
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "HOST:PORT"))]
    pub listen_tls: Vec<String>,
    /// Address for MQTT over WebSocket, as web pages use it
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "HOST:PORT"))]
    pub listen_websocket: Vec<String>,
    /// Address for MQTT over WebSocket with TLS
    ///
    /// Requires --listen-tls-cert
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "HOST:PORT"))]
    pub listen_websocket_tls: Vec<String>,
    /// Origin of web pages that may connect, or * for all
    ///
    /// For example `https://panel.example`. By default no web page may connect
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "ORIGIN"))]
    pub websocket_origin: Vec<String>,
    /// Let other machines connect without a login or a policy
    #[cfg_attr(feature = "clap", arg(long))]
    pub allow_anonymous: bool,
}

/// Certificates of the embedded broker, all PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ListenTls {
    /// Certificate chain of this server
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub listen_tls_cert: Option<PathBuf>,
    /// Private key of this server
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub listen_tls_key: Option<PathBuf>,
    /// CAs for client certificates
    ///
    /// TLS connections then require a client certificate
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub listen_tls_client_ca: Option<PathBuf>,
    /// Certificate revocation lists for client certificates
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub listen_tls_crl: Option<PathBuf>,
    /// Require a revocation list that has not expired
    ///
    /// Client certificates of a CA without such a list are rejected
    #[cfg_attr(feature = "clap", arg(long))]
    pub listen_tls_require_crl: bool,
}

/// Logins at the embedded broker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Login {
    /// Users and password hashes, as `statestore passwd` writes them
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub password_file: Option<PathBuf>,
    /// Name in a client certificate that is the user name
    ///
    /// Certificates without exactly one such name are rejected. Requires --listen-tls-client-ca
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "NAME"))]
    pub certificate_user: Option<CertificateUser>,
    /// Attributes of certificates for the policy, JSON or YAML
    ///
    /// The form is that of `authorizationAttributes` of a `BrokerAuthentication`. Requires
    /// --certificate-user
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub certificate_attributes: Option<PathBuf>,
    /// Public keys for tokens of Kubernetes service accounts (method K8S-SAT)
    ///
    /// A JSON Web Key Set, as `kubectl get --raw /openid/v1/jwks` prints it
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub service_account_keys: Option<PathBuf>,
    /// Issuer that tokens must contain
    ///
    /// `issuer` in the output of `kubectl get --raw /.well-known/openid-configuration`
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL"))]
    pub service_account_issuer: Option<String>,
    /// Audience of tokens
    ///
    /// A token must be for one of the audiences
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "NAME"))]
    pub service_account_audience: Vec<String>,
    /// Let users have any client id
    ///
    /// By default a client id is the user name, or the user name, a hyphen and any suffix, or one
    /// that the policy names
    #[cfg_attr(feature = "clap", arg(long))]
    pub no_client_id_binding: bool,
}

impl Default for Login {
    fn default() -> Self {
        Self {
            password_file: None,
            certificate_user: None,
            certificate_attributes: None,
            service_account_keys: None,
            service_account_issuer: None,
            service_account_audience: vec!["aio-internal".to_owned()],
            no_client_id_binding: false,
        }
    }
}

/// Name in a client certificate that is the user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CertificateUser {
    /// Common name of the subject
    Cn,
    /// DNS name of the subject alternative names
    Dns,
    /// E-mail address of the subject alternative names
    Email,
}

/// Limits of the embedded broker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct BrokerLimits {
    /// Connections at a time
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_connections: u32,
    /// Connections from one address, except loopback
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_address_connections: u32,
    /// Sessions, also of disconnected clients
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_sessions: u32,
    /// Subscriptions of one client
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_subscriptions: u32,
    /// Bytes of connections, sessions and queues
    ///
    /// Subscriptions are included. When the limit is reached, the client that uses most is
    /// disconnected. Keys and values, TLS (at most 96 KiB for each connection) and password checks
    /// (38 MiB) are not included
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub max_broker_memory: u64,
    /// Bytes of one client
    ///
    /// They count for --max-broker-memory. A client that needs more is disconnected
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub max_client_memory: u64,
    /// Bytes of retained messages
    ///
    /// They count for --max-broker-memory
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub max_retained_memory: u64,
    /// Messages that each client may publish per second
    ///
    /// By default unlimited
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub rate_limit: Option<u32>,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        Self {
            max_connections: 1_000,
            max_address_connections: 500,
            max_sessions: 10_000,
            max_subscriptions: 1_000,
            max_broker_memory: 64 << 20,
            max_client_memory: 8 << 20,
            max_retained_memory: 16 << 20,
            rate_limit: None,
        }
    }
}
