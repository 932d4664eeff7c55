//! The options of a store that leads or stands by, over etcd.

#[cfg(feature = "etcd")]
use std::path::PathBuf;

#[cfg(not(feature = "etcd"))]
use crate::failure::Failure;

/// A store that leads or stands by, over etcd: not in this build.
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
                "--etcd: this command was built without it; install protobuf-compiler and libprotobuf-dev and build it with \
                 `--features etcd`",
            )),
        }
    }
}

/// Where etcd is, and who asks.
#[cfg(feature = "etcd")]
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdAt {
    /// The members of the etcd in which stores keep everything and stand by for the one that leads: URLs with commas in between
    #[arg(long, env = "STATESTORE_ETCD", value_name = "URLS", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// With --etcd: what all keys in etcd begin with. Stores with one prefix stand by for each other
    #[arg(
        long,
        env = "STATESTORE_ETCD_PREFIX",
        value_name = "PREFIX",
        requires = "etcd",
        default_value = "/statestore/"
    )]
    pub(crate) etcd_prefix: String,
    /// With --etcd: log in there as this user, with the password in the environment
    #[arg(long, env = "STATESTORE_ETCD_USER", value_name = "NAME", requires = "etcd")]
    pub(crate) etcd_user: Option<String>,
    /// That password
    #[arg(
        long,
        env = "STATESTORE_ETCD_PASSWORD",
        hide_env_values = true,
        hide = true,
        value_name = "PASSWORD"
    )]
    pub(crate) etcd_password: Option<String>,
    /// With --etcd https://…: trust what these authorities have signed
    #[arg(long, env = "STATESTORE_ETCD_CA", value_name = "PATH", requires = "etcd")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// With --etcd https://…: show this certificate, which belongs to --etcd-tls-key
    #[arg(
        long,
        env = "STATESTORE_ETCD_CERT",
        value_name = "PATH",
        requires = "etcd_ca",
        requires = "etcd_key"
    )]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// With --etcd-tls-cert: its key
    #[arg(long, env = "STATESTORE_ETCD_KEY", value_name = "PATH", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
}
