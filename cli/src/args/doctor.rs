//! The options of `doctor`.

use std::time::Duration;

use super::{Connection, Output, duration};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends with 0 when nothing is wrong, 1 for warnings alone, 2 for what somebody has to change, and 3 where nothing answers: the
first thing that is wrong decides. It writes one key of its own, whose name begins with --key-prefix, which expires, and
removes it. Where the clock here is ahead of the store's by a second or more it writes once with the time here, as any client here would.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How long to wait for each answer, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "3s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Write nothing: clocks and notifications are not looked at then
    #[arg(long)]
    pub(crate) read_only: bool,
    /// What the name of its key begins with, for a client that may not write others; a random number follows
    #[arg(long, default_value = "statestore-doctor-", value_name = "TEXT")]
    pub(crate) key_prefix: String,
    /// How to print it
    #[arg(long, env = "STATESTORE_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}
