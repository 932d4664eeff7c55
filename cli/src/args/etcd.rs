//! The options of a store that leads or stands by, over etcd.

#[cfg(feature = "etcd")]
use std::path::PathBuf;
#[cfg(feature = "etcd")]
use std::time::Duration;

#[cfg(feature = "etcd")]
use clap::ValueEnum;

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
    /// Says how to have what is asked for.
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
        default_value = "/ss/statestore/"
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
    /// With --etcd https://…: show this certificate, which belongs to --etcd-key
    #[arg(
        long,
        env = "STATESTORE_ETCD_CERT",
        value_name = "PATH",
        requires = "etcd_ca",
        requires = "etcd_key"
    )]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// With --etcd-cert: its key
    #[arg(long, env = "STATESTORE_ETCD_KEY", value_name = "PATH", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
}

/// A store that leads or stands by, over etcd.
#[cfg(feature = "etcd")]
#[derive(Debug, clap::Args)]
pub(crate) struct Etcd {
    #[command(flatten)]
    pub(crate) at: EtcdAt,
    /// With --etcd: what the others, and `status`, call this store. By default the name of the machine and the number of the process;
    /// give each its own
    #[arg(long, env = "STATESTORE_ETCD_NAME", value_name = "NAME", requires = "etcd")]
    pub(crate) etcd_name: Option<String>,
    /// With --etcd: how long nobody leads after the leader has died, in whole seconds from 2s to 600s
    #[arg(long, env = "STATESTORE_ETCD_LEASE", default_value = "5s", value_parser = super::duration, value_name = "TIME", requires = "etcd")]
    pub(crate) etcd_lease: Duration,
    /// With --etcd: what a read waits for
    #[arg(long, env = "STATESTORE_ETCD_READS", value_enum, default_value_t, requires = "etcd")]
    pub(crate) etcd_reads: Reads,
    /// With --etcd: where clients reach this store when it leads, for those that come to a store that stands by; HOST:PORT. By
    /// default --listen
    #[arg(long, env = "STATESTORE_ADVERTISE", value_name = "ADDRESS", requires = "etcd")]
    pub(crate) advertise: Option<String>,
}

#[cfg(feature = "etcd")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reads {
    /// For etcd to say that this store still leads, once for all reads that wait: none is ever out of date
    #[default]
    Strict,
    /// For nothing while this store has the lease: a process that stood still just before it answers may send what is out of
    /// date
    Lease,
}

#[cfg(feature = "etcd")]
impl Etcd {
    /// Whether a store is to lead or stand by.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.at.etcd.is_empty()
    }
}

/// Who leads, and who stands by.
#[cfg(feature = "etcd")]
#[derive(Debug, clap::Args)]
pub(crate) struct StatusOf {
    #[command(flatten)]
    pub(crate) at: EtcdAt,
    /// How to print it
    #[arg(long, env = "STATESTORE_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: super::Output,
}
