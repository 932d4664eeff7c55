//! The options of `top`.

use super::{Connection, duration};
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: 1 the keys, 2 the numbers of the store, 3 who asks for what, in an order that s changes; arrows, PageUp and PageDown move; / another pattern, r lists anew, g goes to a key by its
name; v shows the value as text, JSON or hex, e edits it, d deletes the key; ? helps, q ends it.

The key that is chosen is watched, so what others write is there at once. A value of more than 4 KiB is not
edited here: take statestore set --file. The protocol does not tell when a value expires or which token fences its key, so that is
shown of what was set here.

The numbers are those of statestore serve --metrics: name it with --metrics. Who asks for what it counts with --traffic.")]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Which keys are listed, a pattern as of `statestore keys`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// How long to wait for an answer, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Where the store serves its numbers over plain HTTP, as http://HOST:PORT
    #[arg(long, env = "STATESTORE_METRICS_URL", value_name = "URL")]
    pub(crate) metrics: Option<String>,
}
