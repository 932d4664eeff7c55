//! The options of what records a store, and of `replay`.

use std::path::PathBuf;

use super::Output;

/// The recording of a store.
#[derive(Debug, clap::Args)]
pub(crate) struct Record {
    /// Record all that the store is told and gives out in this file, which must not be there yet, for `statestore replay`. It holds
    /// keys, values and topics, and only its owner may read it
    #[arg(long, env = "STATESTORE_RECORD", value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// With --record: put other values in place of those that are stored, of the same length, by a key that is drawn for this
    /// run and kept nowhere. Keys, topics, client ids and correlation data stay
    #[arg(
        long,
        env = "STATESTORE_RECORD_REDACTED",
        requires = "record",
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    pub(crate) record_redacted: bool,
    /// With --record: bytes of the file at most; where they are reached, the recording ends and the store goes on
    #[arg(
        long,
        env = "STATESTORE_RECORD_MAX_BYTES",
        requires = "record",
        default_value_t = 1 << 30,
        value_name = "N"
    )]
    pub(crate) record_max_bytes: u64,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It makes a store as the recorded one was, with its limits, tells it what that one was told, at the same times, and compares what
it sends and keeps. Nothing is connected to, and time does not pass. What the policy allowed is in the recording.

A store that is told the same says the same, so a difference is a fault: of the store, or of the machine that it ran on. To
report one, attach what --redact writes: a recording with other values in place of the stored ones, of the same length,
equal where they are equal. Nobody can have the values back; keys, topics, client ids and correlation data stay.

A recording that was cut off, as by a crash, is good up to there.

Exit codes: 0 no difference; 1 a difference; 2 no recording, or a damaged one.")]
pub(crate) struct Replay {
    /// What `statestore serve --record` has written
    pub(crate) file: PathBuf,
    /// Write the recording once more with other values, into this file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    pub(crate) redact: Option<PathBuf>,
    /// Differences that are shown; they have the first bytes of values
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) differences: usize,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
}
