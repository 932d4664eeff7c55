//! Options of `doctor`.

use std::time::Duration;

use super::{Connection, Output, duration};

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes: 0 no problem, 1 warnings only, 2 the operator must change something, 3 no response. The
first problem decides.

`doctor` writes one key that starts with --key-prefix, with an expiry, and deletes it. If the clock
of this machine is a second or more ahead of the store's clock, it writes once with that time, as
any client on this machine would.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Time limit for each response, for example 500ms
    ///
    /// Environment: `STATESTORE_TIMEOUT`.
    #[arg(
        long,
        env = "STATESTORE_TIMEOUT",
        hide_env = true,
        default_value = "3s",
        value_parser = duration,
        value_name = "TIME",
        help_heading = "Connection"
    )]
    pub(crate) timeout: Duration,
    /// Do not write; skips the checks of clocks and notifications
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Prefix of the test key
    ///
    /// A random number follows. For clients that may write certain keys only.
    #[arg(long, default_value = "statestore-doctor-", value_name = "TEXT")]
    pub(crate) key_prefix: String,
    /// Output format
    ///
    /// Environment: `STATESTORE_OUTPUT`.
    #[arg(
        long,
        env = "STATESTORE_OUTPUT",
        hide_env = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Output"
    )]
    pub(crate) output: Output,
}
