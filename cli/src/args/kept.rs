//! What of a store survives its end.

use std::path::PathBuf;

use clap::ValueEnum;

/// What of a store survives its end.
#[derive(Debug, clap::Args)]
pub(crate) struct Kept {
    /// Keep what is to survive in this directory, which is made if it is not there. Without it everything is in memory
    #[arg(long, env = "STATESTORE_DATA", value_name = "DIR", conflicts_with = "etcd")]
    pub(crate) data: Option<PathBuf>,
    /// Which values survive: with --data those whose clients ask for it unless this says otherwise, with --etcd all. Their
    /// answers wait for that, and others do not
    #[arg(long, env = "STATESTORE_DURABLE", value_enum)]
    pub(crate) durable: Option<Durable>,
    /// With --data or --etcd: keys that survive whether or not their clients ask, a pattern as of `statestore keys`; may be repeated
    #[arg(long, env = "STATESTORE_DURABLE_KEYS", value_name = "PATTERN")]
    pub(crate) durable_keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durable {
    /// Those whose clients ask for it, by `aio-persistence`
    #[default]
    Requested,
    /// All
    All,
}
