//! Identity of a client, TLS, and the proxy.

use std::path::PathBuf;
use std::time::Duration;

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
        requires = "user",
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
        requires = "tls_key",
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
        requires = "tls_cert",
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
