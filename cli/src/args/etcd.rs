//! Options of a connection to etcd.

#[cfg(feature = "etcd")]
use std::path::PathBuf;

#[cfg(not(feature = "etcd"))]
use crate::failure::Failure;

/// The option `--etcd` of a build without etcd.
#[cfg(not(feature = "etcd"))]
#[derive(Debug, clap::Args)]
pub(crate) struct Etcd {
    /// Not in this build
    #[arg(long, env = "STATESTORE_ETCD", value_name = "URLS", hide = true)]
    etcd: Option<String>,
}

#[cfg(not(feature = "etcd"))]
impl Etcd {
    /// Returns an error with the remedy if `--etcd` is given.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.etcd {
            None => Ok(()),
            Some(_) => Err(Failure::bad_input(
                "--etcd: this command was built without etcd; install protobuf-compiler and \
                 libprotobuf-dev, and build it with `--features etcd`",
            )),
        }
    }
}

/// Addresses of etcd, login and TLS.
#[cfg(feature = "etcd")]
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct EtcdConnection {
    /// URLs of the etcd members, separated by commas
    ///
    /// Environment: `STATESTORE_ETCD`.
    #[arg(
        long,
        env = "STATESTORE_ETCD",
        hide_env = true,
        value_name = "URLS",
        value_delimiter = ','
    )]
    pub(crate) etcd: Vec<String>,
    /// Prefix of all keys of the cluster in etcd
    ///
    /// Stores with the same etcd and prefix are standbys of each other. Environment:
    /// `STATESTORE_ETCD_PREFIX`.
    #[arg(
        long,
        env = "STATESTORE_ETCD_PREFIX",
        hide_env = true,
        value_name = "PREFIX",
        requires = "etcd",
        default_value = "/statestore/"
    )]
    pub(crate) etcd_prefix: String,
    /// User name for etcd; set the password as `STATESTORE_ETCD_PASSWORD`
    ///
    /// Environment: `STATESTORE_ETCD_USER`.
    #[arg(
        long,
        env = "STATESTORE_ETCD_USER",
        hide_env = true,
        value_name = "NAME",
        requires = "etcd"
    )]
    pub(crate) etcd_user: Option<String>,
    /// Password for etcd
    #[arg(
        long,
        env = "STATESTORE_ETCD_PASSWORD",
        hide_env_values = true,
        hide = true,
        value_name = "PASSWORD"
    )]
    pub(crate) etcd_password: Option<String>,
    /// Trusted CA certificates for https URLs, PEM
    ///
    /// Environment: `STATESTORE_ETCD_TLS_CA`.
    #[arg(
        long,
        env = "STATESTORE_ETCD_TLS_CA",
        hide_env = true,
        value_name = "PATH",
        requires = "etcd"
    )]
    pub(crate) etcd_tls_ca: Option<PathBuf>,
    /// Certificate chain of this client of etcd, PEM
    ///
    /// Environment: `STATESTORE_ETCD_TLS_CERT`.
    #[arg(
        long,
        env = "STATESTORE_ETCD_TLS_CERT",
        hide_env = true,
        value_name = "PATH",
        requires = "etcd_tls_ca",
        requires = "etcd_tls_key"
    )]
    pub(crate) etcd_tls_cert: Option<PathBuf>,
    /// Private key of this client of etcd, PEM
    ///
    /// Environment: `STATESTORE_ETCD_TLS_KEY`.
    #[arg(
        long,
        env = "STATESTORE_ETCD_TLS_KEY",
        hide_env = true,
        value_name = "PATH",
        requires = "etcd_tls_cert"
    )]
    pub(crate) etcd_tls_key: Option<PathBuf>,
}
