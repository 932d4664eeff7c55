//! Options of `top`.

use super::{Connection, TimeLimit};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Press ? in the interface for its keys.",
    after_long_help = "\
Keys:
  1 keys   2 metrics   3 traffic; s changes the order   ? help   q quit
  arrows, PageUp, PageDown  select a key
  /  list another pattern   r  list again   g  go to a key by name
  v  show the value as text, JSON or hex   e  edit the value   d  delete the key

The selected key is watched. Values of more than 4 KiB cannot be edited here: use
`statestore set --file`. The protocol does not report the expiry of a value or the fencing token of
a key, so these are shown only for values that were set here.

A build from source has `top` only with its feature: `cargo install --path cli --features top`. The
binaries of a release, the Debian package and the container image have it.

Metrics require `statestore serve --metrics-listen` and --metrics-url. Traffic requires
`serve --traffic`."
)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Pattern of the listed keys, see `statestore keys`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    #[command(flatten)]
    pub(crate) time_limit: TimeLimit,
    /// Metrics listener of the store, http://HOST:PORT
    ///
    /// Environment: `STATESTORE_METRICS_URL`.
    #[arg(
        long,
        env = "STATESTORE_METRICS_URL",
        hide_env = true,
        value_name = "URL",
        help_heading = "Connection"
    )]
    pub(crate) metrics_url: Option<String>,
}
