//! Arguments of `data`.

use std::path::PathBuf;

use super::{Common, Connection, Format, Login, TimeLimit};

#[derive(Debug, clap::Subcommand)]
#[command(
    after_help = "\
Examples:
  statestore data check /var/lib/statestore
  statestore data dump /var/lib/statestore --output keys.jsonl
  statestore data restore /var/lib/statestore-new keys.jsonl
  statestore data dump --broker mqtt://HOST:1883 | gzip > keys.jsonl.gz",
    after_long_help = "\
Examples:
  statestore data check /var/lib/statestore
  statestore data dump /var/lib/statestore --output keys.jsonl
  statestore data restore /var/lib/statestore-new keys.jsonl
  statestore data dump --broker mqtt://HOST:1883 | gzip > keys.jsonl.gz

`check` and `dump` can read a directory while a store has it open. They read the state at that
moment. `restore` creates a new directory. Long operations show their progress on a terminal.
`statestore --help` lists the exit codes."
)]
pub(crate) enum Data {
    /// Read a directory and print a summary of its contents
    #[command(after_long_help = "\
The exit code is 2 if the directory is damaged or is not a data directory.")]
    Check {
        /// Data directory
        dir: PathBuf,
    },
    /// Print all keys of a directory or a running store, one JSON object per line
    Dump(Dump),
    /// Create a directory from a dump, or set its keys in a running store
    Restore(Restore),
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "statestore data dump [OPTIONS] DIR
       statestore data dump [OPTIONS] --broker URL",
    after_long_help = "\
Examples:
  statestore data dump /var/lib/statestore --output keys.jsonl
  statestore data dump /var/lib/statestore | jq -r 'select(.key) | .key'
  statestore data dump --broker mqtt://HOST:1883 --output keys.jsonl

The first line describes the dump: its format, the greatest issued version, and the number of keys.
Each other line is a key:
  key, value            text; key_base64 and value_base64 if it is not UTF-8
  version
  fencing_token         if the key is fenced
  expires               at (Unix time in milliseconds), after (lifetime in milliseconds), lease
  persist               if the client requested persistence
A restored directory contains all of that. When a store writes a snapshot, `after`
becomes the remaining lifetime, so it may differ between two dumps. Recorded responses and
registrations for notifications are not dumped.

With --broker, keys are listed and read one by one while other clients may write. The dump then
contains neither fencing tokens nor expiries. STATESTORE_BROKER is ignored here: the option must be
on the command line.

A dump of a directory takes about as much memory as the store. With --broker, it takes about four
times the longest line."
)]
pub(crate) struct Dump {
    /// Data directory
    #[arg(required_unless_present = "broker")]
    pub(crate) dir: Option<PathBuf>,
    /// File to write; - for standard output
    ///
    /// Only this user can read the file. It appears under its name once it is complete.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: RunningStore,
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "statestore data restore [OPTIONS] DIR [FILE]
       statestore data restore [OPTIONS] --broker URL [FILE]",
    after_long_help = "\
Examples:
  statestore data restore /var/lib/statestore-new keys.jsonl
  zcat keys.jsonl.gz | statestore data restore /var/lib/statestore-new
  statestore data restore --broker mqtt://HOST:1883 keys.jsonl

A directory is written as DIR.partial, and renamed to DIR once it is complete. If a line is invalid,
the error names it and nothing is restored. If a key occurs twice, the last line wins, and both
lines count. A line has at most 16 MiB.

An existing, empty directory keeps its mode and its owner, who then also owns the files if this user
may change owners. Check the owner of a directory that another user has created. No other user
should be able to write to its parent directory.

A store issues only versions that are greater than the restored ones. A dump with a version or
fencing token that is more than a day ahead of the clock is rejected; --allow-future-versions
accepts it.

With --broker, each key is set: it gets a new version and no fencing token. A value that expires
gets its remaining lifetime by the clock of this machine; expired values are skipped. Keys that were
set before an error remain. A key that is fenced in the store cannot be set. STATESTORE_BROKER is
ignored here: the option must be on the command line.

A dump made with --broker does not contain which keys are durable, so all become durable. With a
dump of a directory, the keys with `persist` become durable."
)]
pub(crate) struct Restore {
    /// New or empty directory; with --broker, the dump
    #[arg(required_unless_present = "broker", value_name = "DIR")]
    pub(crate) first: Option<PathBuf>,
    /// Dump; - for standard input [default: -]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Accept versions that are more than a day ahead of the clock
    ///
    /// Also applies to fencing tokens.
    #[arg(long, conflicts_with = "broker")]
    pub(crate) allow_future_versions: bool,
    #[command(flatten)]
    pub(crate) store: RunningStore,
}

/// A running store, in place of a directory.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunningStore {
    /// Use the store at this broker instead of a directory; `mqtts://` for TLS
    ///
    /// The form is `mqtt://HOST[:PORT]` or `mqtts://HOST[:PORT]`.
    #[arg(long, value_delimiter = ',', value_name = "URL", help_heading = "Connection")]
    pub(crate) broker: Vec<String>,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    time_limit: TimeLimit,
}

impl RunningStore {
    /// The options of requests, if a broker is given.
    pub(crate) fn common(&self) -> Option<Common> {
        let Self { broker, login, time_limit } = self;
        if broker.is_empty() {
            return None;
        }
        let connection = Connection { broker: broker.clone(), login: login.clone() };
        Some(Common { connection, time_limit: *time_limit, format: Format::default() })
    }
}
