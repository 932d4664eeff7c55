//! What of a store survives its end.

use std::path::PathBuf;

use clap::ValueEnum;

/// What of a store survives its end.
#[derive(Debug, clap::Args)]
pub(crate) struct Kept {
    /// Keep what is to survive in this directory, which is made if it is not there. Without it everything is in memory
    #[arg(long, env = "STATESTORE_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// With --data: which values survive. Their answers wait for the disk, and others do not
    #[arg(long, value_enum, default_value_t)]
    pub(crate) durable: Durable,
    /// With --data: keys that survive whether or not their clients ask, a pattern as of `statestore keys`; may be repeated
    #[arg(long, value_name = "PATTERN")]
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
