//! Options of `doctor`.

use super::{Connection, Format, TimeLimit};

#[derive(Debug, clap::Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("3s")))]
#[command(after_long_help = "\
Exit codes: 0 no problem, 1 warnings only, 2 the operator must change something, 3 no response. The
first problem decides.

`doctor` writes one key that starts with --key-prefix, with an expiry, and deletes it. If the clock
of this machine is a second or more ahead of the store's clock, it writes once with that time, as
any client on this machine would.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) time_limit: TimeLimit,
    /// Do not write; skips the checks of clocks and notifications
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Prefix of the test key
    ///
    /// A random number follows. For clients that may write certain keys only.
    #[arg(long, default_value = "statestore-doctor-", value_name = "TEXT")]
    pub(crate) key_prefix: String,
    #[command(flatten)]
    pub(crate) format: Format,
}
