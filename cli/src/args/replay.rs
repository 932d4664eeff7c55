//! Options of `replay`.

use std::path::PathBuf;

use super::Format;

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Creates a store with the configuration of the captured one, and repeats its calls with the captured
times. Then compares the packets and records with the captured ones. It neither connects to anything
nor waits. The decisions of the policy are part of the capture.

The store is deterministic, so each difference is a defect: of the store, or of the machine that it
ran on. To report one, attach the file that --redact writes. It has other values of the same lengths
in place of the captured ones, and equal values stay equal. The original values cannot be recovered.
Keys, topics, client ids and correlation data are not replaced.

A capture that was cut off, for example by a crash, is replayed up to its last complete frame.

Exit codes: 0 no difference; 1 a difference; 2 the file is not a capture, or is damaged.")]
pub(crate) struct Replay {
    /// File that `statestore serve --capture` has written
    pub(crate) file: PathBuf,
    /// Write a copy of the capture with replaced values to this new file
    #[arg(long, value_name = "FILE")]
    pub(crate) redact: Option<PathBuf>,
    /// Maximum number of printed differences
    ///
    /// They contain the first bytes of values.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) differences: usize,
    #[command(flatten)]
    pub(crate) format: Format,
}
