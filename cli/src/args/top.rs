//! The options of `top`.

use super::{Connection, duration};
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys:
  1 keys   2 metrics   3 traffic; s changes the order   ? help   q quit
  arrows, PageUp, PageDown  select a key
  /  list another pattern   r  list again   g  go to a key by name
  v  show the value as text, JSON or hex   e  edit the value   d  delete the key

The selected key is watched. Values of more than 4 KiB cannot be edited here: use
`statestore set --file`. The protocol does not report the expiry of a value or the fencing token of a
key, so these are shown only for values that were set here.

Metrics require `statestore serve --metrics-listen` and --metrics-url. Traffic requires
`serve --traffic`.")]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Pattern of the listed keys, see `statestore keys`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Time limit of a request, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Metrics listener of the store, http://HOST:PORT
    #[arg(long, env = "STATESTORE_METRICS_URL", value_name = "URL")]
    pub(crate) metrics_url: Option<String>,
}
