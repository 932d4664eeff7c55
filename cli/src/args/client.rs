//! Options of the commands that send requests.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use clap::value_parser;

use super::{Common, VALUE_BYTES_MAX, duration, lease};
use crate::failure::Failure;

/// A key of the store.
#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// Key
    key: String,
    /// KEY is Base64, for a key that is not text
    #[arg(long)]
    key_base64: bool,
}

impl Key {
    pub(crate) fn bytes(self) -> Result<Bytes, Failure> {
        if !self.key_base64 {
            return Ok(self.key.into());
        }
        let key = BASE64_STANDARD.decode(&self.key);
        key.map(Bytes::from).map_err(|_| Failure::bad_input("--key-base64: KEY is not Base64"))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
If the key is absent, the exit code is 1.

Redirected output is the exact bytes of the value, without a newline at the end. To print several
values, use --output json, which prints a line for each. At a terminal, `get` escapes control
characters, ends the value with a newline, and prints `absent` on standard error.")]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Prints the version of the new value, for example 1795523180725:0:StateStore. After --nex on a lock
key, this version is the fencing token of the lock: pass it to later writes with --fencing-token.

If the condition of --nx or --nex does not hold, nothing is printed on standard output and the exit
code is 1. At a terminal, the reason is printed on standard error.")]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Value
    #[arg(
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    pub(crate) value: Option<String>,
    /// Read the value from this file, or from standard input with -
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Set only if the key is absent
    #[arg(long, conflicts_with = "nex")]
    pub(crate) nx: bool,
    /// Set only if the key is absent or has this value
    ///
    /// Acquires or renews a lock.
    #[arg(long)]
    pub(crate) nex: bool,
    /// Time to live of the value, for example 500ms or 10s
    #[arg(long, visible_alias = "px", value_parser = duration, value_name = "TIME")]
    pub(crate) ttl: Option<Duration>,
    /// Persist the key, if the store has a disk
    ///
    /// Persistence is per write: a later SET without --persist makes the key volatile again.
    #[arg(long)]
    pub(crate) persist: bool,
    /// Fencing token of a lock; `lock` passes it to its command
    #[arg(long, value_name = "VERSION")]
    pub(crate) fencing_token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
If the key is absent, the exit code is 1. At a terminal, `absent` is printed on standard error.")]
pub(crate) struct Del {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Fencing token of a lock; `lock` passes it to its command
    #[arg(long, value_name = "VERSION")]
    pub(crate) fencing_token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
If the key is absent or has another value, the exit code is 1. At a terminal, the reason is printed
on standard error.")]
pub(crate) struct Vdel {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Required value of the key
    #[arg(
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    pub(crate) value: Option<String>,
    /// Read the value from this file, or from standard input with -
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Fencing token of a lock; `lock` passes it to its command
    #[arg(long, value_name = "VERSION")]
    pub(crate) fencing_token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The pattern is compared with the whole key. * matches any characters including /, ? matches one
character, [ab] and [a-z] match one character of a set, and [!ab] matches one that is not in the
set. A byte that is not UTF-8 counts as one character. Quote the pattern so that the shell does not
expand it.

Prints one key per line, and with --values a tab and the value. Control characters, backslashes and
bytes that are not UTF-8 are escaped. With --output json, a key that is not UTF-8 is printed as
key_base64, and `get --key-base64` reads it. The order of the keys depends on the store. Keys that
are set or deleted during the listing may be included or not. If no key matches, the exit code is
1.")]
pub(crate) struct Keys {
    /// Pattern, for example 'rooms/*'
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Print the values too
    #[arg(long)]
    pub(crate) values: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Prints one value per line on standard output, and with --pattern its key and a tab before it.
Events are printed on standard error: `absent` if the key is absent at the start; `live` once the
current state is printed and changes follow; `deleted`; and `gap` if changes may be missed until the
next `live`. With --output json, all of these are printed on standard output as \"result\": set,
absent, live, deleted or gap.

The protocol has no watches of patterns. With --pattern, the keys are listed every 10 seconds, and
each of them is watched: up to 1,000 keys. A new key is printed after the next listing.")]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) key: Key,
    /// KEY is a pattern of keys, as of `statestore keys`
    #[arg(long, conflicts_with = "key_base64")]
    pub(crate) pattern: bool,
    /// Exit after this number of lines; the present value is one
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The command receives the fencing token in STATESTORE_FENCING_TOKEN. `statestore set KEY VALUE
--fencing-token TOKEN` with it is refused once a newer holder has written KEY.

If the lock is lost, the process group of the command receives SIGTERM. After a tenth of the lease,
and at least one second, it receives SIGKILL. With a lease below ten seconds, another client may
hold the lock before that. SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded to the group. If
`statestore lock` itself is killed, the command continues; its fenced writes are refused once
another holder has written.

The exit code is that of the command, or 128 plus the number of the signal that ended it. It is 124
if the lock was lost, 1 if the lock was not free within --wait, and 3 if no store responded within
--timeout.

A lock is an ordinary key. It survives a restart of the store only if the store persists it, for
example with `serve --data-dir DIR --durable-keys 'locks/*'`. Every restart counts as loss of the
lock.")]
pub(crate) struct Lock {
    /// Name of the lock: a key of the store
    pub(crate) name: String,
    /// Time until the lock expires if this machine fails
    #[arg(long, default_value = "10s", value_parser = lease, value_name = "TIME")]
    pub(crate) lease: Duration,
    /// Maximum time to wait for another holder [default: unlimited]
    ///
    /// The time before the first response of the store is limited by --timeout instead.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: Common,
    /// Command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Prints one line per change: the name of the leader, - without a leader, ? if it is unknown.")]
pub(crate) struct Elect {
    /// Name of the election: a key of the store
    pub(crate) name: String,
    /// Be a candidate with this name until stopped
    #[arg(long, value_name = "NAME")]
    pub(crate) candidate: Option<String>,
    /// Time until the leadership expires if the leader fails
    #[arg(long, default_value = "10s", value_parser = lease, value_name = "TIME")]
    pub(crate) lease: Duration,
    /// Exit after this number of lines
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Half of the requests are SET, half are GET. The keys begin with statestore-bench- and eight digits.
They are deleted at the end, also after SIGINT, SIGTERM and SIGHUP. A second signal stops at once:
the remaining keys are not deleted, and their prefix is printed.")]
pub(crate) struct Bench {
    /// Number of requests
    #[arg(
        long,
        default_value_t = 20_000,
        value_name = "N",
        value_parser = value_parser!(u64).range(1..=10_000_000)
    )]
    pub(crate) requests: u64,
    /// Maximum number of requests without a response
    #[arg(
        long,
        default_value_t = 64,
        value_name = "N",
        value_parser = value_parser!(u64).range(1..=1_000)
    )]
    pub(crate) in_flight: u64,
    /// Size of each value in bytes
    #[arg(
        long,
        default_value_t = 64,
        value_name = "BYTES",
        value_parser = value_parser!(u32).range(..=i64::from(VALUE_BYTES_MAX))
    )]
    pub(crate) value_size: u32,
    #[command(flatten)]
    pub(crate) common: Common,
}
