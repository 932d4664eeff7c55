//! The options of `replay`.

use std::path::PathBuf;

use super::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It makes a store as the captured one was, with its limits, tells it what that one was told, at the same times, and compares what
it sends and keeps. Nothing is connected to, and time does not pass. What the policy allowed is in the capture.

A store that is told the same says the same, so a difference is a fault: of the store, or of the machine that it ran on. To
report one, attach what --redact writes: a capture with other values in place of the stored ones, of the same length,
equal where they are equal. Nobody can have the values back; keys, topics, client ids and correlation data stay.

A capture that was cut off, as by a crash, is good up to there.

Exit codes: 0 no difference; 1 a difference; 2 no capture, or a damaged one.")]
pub(crate) struct Replay {
    /// File that `statestore serve --capture` has written
    pub(crate) file: PathBuf,
    /// Write the capture once more with other values, into this file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    pub(crate) redact: Option<PathBuf>,
    /// Differences that are shown; they have the first bytes of values
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) differences: usize,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
}
