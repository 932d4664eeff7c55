//! Arguments of `data`.

use std::path::PathBuf;
use std::time::Duration;

use super::{Common, Connection, Login, Output, duration};

#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  statestore data check /var/lib/statestore
  statestore data dump /var/lib/statestore --output keys.jsonl
  statestore data restore /var/lib/statestore-new keys.jsonl
  statestore data compact /var/lib/statestore
  statestore data dump --broker mqtt://HOST:1883 | gzip > keys.jsonl.gz

`check` and `dump` can read a directory while a store has it open; they read the state at that moment. `compact` needs the
directory for itself, and `restore` creates a new one. Long operations show their progress on a terminal. For exit codes see
`statestore --help`.")]
pub(crate) enum Data {
    /// Reads a directory and prints what it contains; exit code 2 if it is damaged or not a data directory
    Check {
        /// The directory
        dir: PathBuf,
    },
    /// Prints all keys with everything that a store needs of them, one line of JSON for each
    Dump(Dump),
    /// Creates a directory from a dump, or sets its keys in a running store
    Restore(Restore),
    /// Replaces the log of a directory by a snapshot; no store may have it open
    #[command(after_help = "\
A store does this from time to time. After it, a store starts faster. The files do not shrink: free space in them is used
again. For smaller files, dump the directory and restore it elsewhere. `compact` can be interrupted at any time; the
directory then keeps its contents.")]
    Compact {
        /// The directory
        dir: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "statestore data dump [OPTIONS] DIR\n       statestore data dump [OPTIONS] --broker URL",
    after_help = "\
Examples:
  statestore data dump /var/lib/statestore --output keys.jsonl
  statestore data dump /var/lib/statestore | jq -r 'select(.key) | .key'
  statestore data dump --broker mqtt://HOST:1883 --output keys.jsonl

The first line describes the dump: its format, the greatest version that was issued, the number of keys. Each other line is
a key:
  key, value            as text; or key_base64, value_base64 if they are not text
  version
  fencing_token         if it is fenced
  expires               at (Unix time in milliseconds), after (its lifetime in milliseconds), lease
  persist               if its writer asked the store to persist it
A restored directory contains all of that. If a store or `compact` has written a snapshot, after is the lifetime that was
left then, so two dumps may differ in it. Recorded responses and registrations for notifications are not dumped.

With --broker, keys are listed and read one by one while others may write. Fencing tokens and expiries are unknown then. The
option must be on the command line: STATESTORE_BROKER is ignored here. The dump takes about as much memory as the store; with
--broker about four times the longest line."
)]
pub(crate) struct Dump {
    /// The directory
    #[arg(required_unless_present = "broker")]
    pub(crate) dir: Option<PathBuf>,
    /// Write to this file, which only this user can read and which appears once it is complete; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) through: Through,
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "statestore data restore [OPTIONS] DIR [FILE]\n       statestore data restore [OPTIONS] --broker URL [FILE]",
    after_help = "\
Examples:
  statestore data restore /var/lib/statestore-new keys.jsonl
  zcat keys.jsonl.gz | statestore data restore /var/lib/statestore-new
  statestore data restore --broker mqtt://HOST:1883 keys.jsonl

A directory is written as DIR.partial, and renamed to DIR once it is complete. If a line is invalid, the error names it and
nothing is restored. If a key occurs twice, the last line wins, and both lines count. A line has at most 16 MiB. An existing, empty directory keeps
its mode. It also keeps its owner, who then owns the files too, as far as this user may change owners: so check the owner of
a directory that another user has created. No other user should be able to write to its parent directory.

A store issues only versions greater than those that it has restored. So a dump with a version or fencing token that is more
than a day ahead of the clock is rejected, unless --allow-future-versions is given.

With --broker, each key is set: it gets a new version and no fencing token. A value that expires gets the rest of its
lifetime by the clock of this machine, and is left out if none is left. Keys that were set before an error remain. A key that
is fenced in the store cannot be set. The option must be on the command line: STATESTORE_BROKER is ignored here.

A dump made with --broker does not contain which keys are durable, so all become durable. From a dump of a directory, those
with persist do."
)]
pub(crate) struct Restore {
    /// The directory, which does not exist or is empty; with --broker, the dump
    #[arg(required_unless_present = "broker", value_name = "DIR")]
    pub(crate) first: Option<PathBuf>,
    /// The dump; standard input by default, and for -
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Accept versions and fencing tokens that are more than a day ahead of the clock
    #[arg(long, conflicts_with = "broker")]
    pub(crate) allow_future_versions: bool,
    #[command(flatten)]
    pub(crate) through: Through,
}

/// A running store, in place of a directory.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Through {
    /// Use the store at this broker instead of a directory: mqtt://HOST:PORT, or mqtts://HOST:PORT with TLS
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub(crate) broker: Vec<String>,
    #[command(flatten)]
    login: Login,
    /// With --broker: how long to wait for a response, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "10s", value_parser = duration)]
    timeout: Duration,
}

impl Through {
    /// The options of requests, if a broker is given.
    pub(crate) fn common(&self) -> Option<Common> {
        let Self { broker, login, timeout } = self;
        if broker.is_empty() {
            return None;
        }
        let connection = Connection { broker: broker.clone(), login: login.clone() };
        Some(Common { connection, timeout: *timeout, output: Output::Text })
    }
}
