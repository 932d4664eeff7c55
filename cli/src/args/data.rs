//! What `data` takes.

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

A directory may be checked and dumped while a store has it open: it is read as it is at that moment. Only `compact` takes it
for itself, and `restore` makes a new one. What may run long shows how far it is on a terminal. Exit codes are those of
`statestore --help`.")]
pub(crate) enum Data {
    /// Reads everything in a directory, and says what is there: exit code 2 if it is damaged or no store's
    Check {
        /// The directory
        dir: PathBuf,
    },
    /// Prints all keys with all that a store needs of them, a line of JSON for each
    Dump(Dump),
    /// Makes a directory of a dump, or sets its keys through a broker
    Restore(Restore),
    /// Puts a snapshot in the place of the log of a directory, which no store may have open
    #[command(after_help = "\
A store does so itself from time to time; done before it starts, it starts faster. The files do not shrink: what is free in
them is used again. For small ones, dump the directory and restore it elsewhere. It may be stopped at any time: the
directory has all that it had.")]
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

The first line says what the dump is: its format, the greatest version that was issued, how many lines follow. Each other
line is a key, with key and value as text, or as key_base64 and value_base64 where they are none; the version; the
fencing_token that fences it; expires, with at (Unix time in milliseconds), after (the milliseconds that it was given) and
lease; and persist, where its writer asked to have it kept. Restored elsewhere, all of that is the same. Where a store or
`compact` has made a snapshot, after is what was left of the time by then, so two dumps may differ in it. Answers that are
remembered for requests that come again, and registrations for notifications, are not dumped.

Through a broker keys are listed and read one by one while others may write: fences and expiries are not known then. That
takes a --broker on the command line: STATESTORE_BROKER does not count here."
)]
pub(crate) struct Dump {
    /// The directory
    #[arg(required_unless_present = "broker")]
    pub(crate) dir: Option<PathBuf>,
    /// Write to this file, for this user alone, which is there only once it is whole; to standard output for -
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

A directory is written as DIR.partial, and is DIR only once it is whole; a line that cannot be used is named, and nothing is
restored then. Where a key is there twice, the last line counts. A line has 16 MiB at most. A directory that was there, with
nothing in it, keeps its mode and, as far as this user may give things away, its owner, who gets the files too.

Through a broker each key is set: versions are new ones, and fences are not set. A value that expires has what the clock here
leaves of its time, and is left out if that is nothing. What was set before an error stays. A key that is fenced there cannot
be set. That takes a --broker on the command line: STATESTORE_BROKER does not count here.

By either way the keys of a dump that was made through a broker are kept as if their writers had asked for it, since such a
dump does not say which were; those of a directory's dump are if they have persist."
)]
pub(crate) struct Restore {
    /// The directory, which is not there or has nothing in it; with --broker, the file
    #[arg(required_unless_present = "broker", value_name = "DIR")]
    pub(crate) first: Option<PathBuf>,
    /// The dump; standard input unless given, or for -
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) through: Through,
}

/// A store that is reached by requests rather than by its directory.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Through {
    /// Through the store at this broker instead of a directory: mqtt://HOST:PORT, or mqtts://HOST:PORT with TLS
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub(crate) broker: Vec<String>,
    #[command(flatten)]
    login: Login,
    /// With --broker: how long to wait for an answer, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "10s", value_parser = duration)]
    timeout: Duration,
}

impl Through {
    /// What the requests have, if it is by requests.
    pub(crate) fn common(&self) -> Option<Common> {
        let Self { broker, login, timeout } = self;
        if broker.is_empty() {
            return None;
        }
        let connection = Connection { broker: broker.clone(), login: login.clone() };
        Some(Common { connection, timeout: *timeout, output: Output::Text })
    }
}
