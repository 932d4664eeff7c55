//! Options of `export` and `import`.

use std::path::PathBuf;

use super::{Common, Connection, Format, TimeLimit};

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The first line describes the export. Each other line is a JSON object with key, value and version of
a key; key_base64 and value_base64 replace key and value that are not text. The protocol reports
neither expiries nor fencing tokens, so an export contains none of them. It is the format of
`statestore data dump`, which reads the directory of a store and contains both.

Keys are listed and read one by one, while other clients may write. An interrupted export does not
replace the file: run it again. An export without a key is complete too, since a store may be empty.
It prints that no key matched, and the exit code is 0.")]
pub(crate) struct Export {
    /// Pattern of the keys, for example 'rooms/*'; see `statestore keys`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// File that appears once it is complete [default: standard output]
    ///
    /// Only this user can read it.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) time_limit: TimeLimit,
}

impl Export {
    /// The options of requests.
    pub(crate) fn common(&self) -> Common {
        let (connection, time_limit) = (self.connection.clone(), self.time_limit);
        Common { connection, time_limit, format: Format::default() }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Reads the output of `statestore export` or `statestore data dump`. Keys get new versions. An expiry
in the file is kept, and keys that have expired are left out. Keys become durable as in `statestore
data restore`.

Prints the number of keys that were set, not applied (with --if-absent), expired and refused. A
refused key does not end the import: its error is printed, and the exit code is 2 at the end. If the
connection is lost, or the file is invalid, the message contains the option --skip with which the
next run continues. An import can also be repeated from the start.")]
pub(crate) struct Import {
    /// File with the keys; standard input by default, and for -
    pub(crate) file: Option<PathBuf>,
    /// Set only keys that are absent
    #[arg(long)]
    pub(crate) if_absent: bool,
    /// Skip this number of keys at the start of the file
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) skip: u64,
    #[command(flatten)]
    pub(crate) common: Common,
}
