//! The command line.

mod data;
mod decode;
mod doctor;
mod etcd;
mod file;
mod kept;
mod listen;
mod proxy;
mod ready;
mod recording;
mod serve;
mod top;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
pub(crate) use data::{Data, Dump, Restore};
pub(crate) use decode::{After, Decode, Kind};
pub(crate) use doctor::Doctor;
pub(crate) use etcd::Etcd;
#[cfg(feature = "etcd")]
pub(crate) use etcd::{EtcdAt, Reads, StatusOf};
pub(crate) use kept::{Durable, Kept};
pub(crate) use listen::Listen;
pub(crate) use proxy::Proxy;
pub(crate) use ready::Ready;
pub(crate) use recording::{Record, Replay};
pub(crate) use serve::{Dialect, Serve};
use statestore_proto::limits::CLOCK_DRIFT_MAX;
pub(crate) use top::Top;
pub(crate) use verify::{ReportForm, Verify};

/// The largest value that every store takes: what deployed ones allow, and what ours has room for in a packet beside the
/// longest key. A larger one may be dropped on its way without a word.
pub(crate) const VALUE_BYTES_MAX: u32 = 1 << 20;

/// A state store with a broker of its own or beside any MQTT 5 broker, and a client for it.
#[derive(Debug, Parser)]
#[command(
    name = "statestore",
    version,
    about,
    after_help = "\
Examples:
  statestore serve                           # a broker with a store in it, for this machine
  statestore serve --broker mqtt://HOST:1883 # a store beside another broker
  statestore serve --data /var/lib/statestore # what clients ask to be kept survives a crash
  statestore set thermostat 21
  statestore get thermostat
  statestore set lock me --nex --px 10s      # take or renew a lock for ten seconds
  statestore keys 'rooms/*'
  statestore watch thermostat
  statestore lock nightly --lease 30s -- ./backup.sh
  statestore elect heating --candidate node-1
  statestore verify --broker mqtt://HOST:1883 # whether a store keeps the rules
  statestore data dump DIR --output keys.jsonl # everything that `serve --data DIR` keeps

Exit codes: 0 done, 1 absent, not applied or a rule broken, 2 refused or bad input, 3 unreachable, 4 what is to be
printed cannot be: what was asked for was done, or said not to be, 5 what is to be kept on a disk cannot be, for want of
room or an error of that disk, also when a directory is opened: mend that and try again. A command that is interrupted ends
with 130 (SIGINT) or 143 (SIGTERM); `serve`, `watch` and `elect`, which go on until they are told to stop, end with 0.
Each option of a connection has an environment variable, STATESTORE_ and its name; STATESTORE_LOG=info shows more."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Hosts a state store until it is told to stop: in a broker of its own, or beside another one with --broker
    Serve(Box<Serve>),
    /// Adds a user to a password file for `serve`, or changes a password, which it asks for, or reads from standard input
    Passwd(Passwd),
    /// Tries who may do what by a policy
    Policy {
        #[command(subcommand)]
        verb: crate::policy::PolicyVerb,
    },
    /// Prints the value of a key
    Get(Get),
    /// Stores a value
    Set(Set),
    /// Deletes a key
    Del(Del),
    /// Deletes a key if it has this value
    Vdel(Vdel),
    /// Prints the keys that match a pattern
    Keys(Keys),
    /// Prints every change of a key
    Watch(Watch),
    /// Runs a command while holding a lock
    Lock(Lock),
    /// Prints who leads an election as it changes, and stands for it if asked to
    Elect(Elect),
    /// Says in words what a payload, a topic, a clock or captured packets of MQTT say
    Decode(Decode),
    /// Looks for what is wrong between here and a store, and says what to do about it
    Doctor(Doctor),
    /// Prints whether requests reach a store that was started with `serve --metrics`
    Ready(Ready),
    /// Shows a store on a screen: its keys, the values as they change, and its numbers
    Top(Top),
    /// Measures a store: requests a second and how long they take
    Bench(Bench),
    /// Stands between clients and their broker, and loses, repeats and holds packets and cuts connections as it is told
    Proxy(Proxy),
    /// Runs again what `serve --record` has recorded, and says where it differs
    Replay(Replay),
    /// Tries whether a store keeps the rules of the protocol
    Verify(Verify),
    /// Prints which of several stores over one etcd leads, and which stand by
    #[cfg(feature = "etcd")]
    Status(StatusOf),
    /// Checks, dumps, restores or compacts what `serve --data` keeps in a directory
    Data {
        #[command(subcommand)]
        verb: Box<Data>,
    },
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the manual page of this command, or of one of its commands: `statestore man serve`
    Man {
        /// The command, such as `serve` or `policy explain`
        command: Vec<String>,
    },
}

/// Where the broker is, and who connects.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// The broker: mqtt://HOST:PORT, or mqtts://HOST:PORT with TLS; several, with commas between them or given several times,
    /// where machines stand by for one another: they are tried in this order
    #[arg(
        long,
        env = "STATESTORE_BROKER",
        hide_env_values = true,
        default_value = "mqtt://127.0.0.1:1883",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub(crate) broker: Vec<String>,
    #[command(flatten)]
    pub(crate) login: Login,
}

/// Who connects, and how it and the broker prove who they are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Login {
    /// MQTT client id; unless given a new one for each run, or `statestore` for a store
    #[arg(long, env = "STATESTORE_CLIENT_ID", value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// User name for the broker
    #[arg(long, env = "STATESTORE_USER", value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Password for the broker; better by its environment variable, since command lines can be read by others
    #[arg(long, env = "STATESTORE_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// Log in as a Kubernetes service account, by the token in this file, which is read for each connection
    #[arg(
        long,
        env = "STATESTORE_SERVICE_ACCOUNT_TOKEN_FILE",
        value_name = "PATH",
        conflicts_with = "password"
    )]
    pub(crate) service_account_token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust with mqtts://, a PEM file; by default those that this machine trusts
    #[arg(long, env = "STATESTORE_CA", value_name = "PATH")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate chain of this client, a PEM file
    #[arg(long, env = "STATESTORE_CERT", value_name = "PATH")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of this client, a PEM file
    #[arg(long, env = "STATESTORE_KEY_FILE", value_name = "PATH")]
    pub(crate) key_file: Option<PathBuf>,
}

/// What every request has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How long to wait for an answer, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// How to print what comes back
    #[arg(long, env = "STATESTORE_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Values as they are, and nothing else
    #[default]
    Raw,
    /// One JSON object for each thing, with the version
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Passwd {
    /// The file; it is made when there is none
    pub(crate) file: PathBuf,
    /// The user
    pub(crate) user: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The key
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// The key
    pub(crate) key: String,
    /// The value
    #[arg(
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    pub(crate) value: Option<String>,
    /// Take the value from this file, or from standard input for -
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Only if the key does not exist
    #[arg(long, conflicts_with = "nex")]
    pub(crate) nx: bool,
    /// Only if the key does not exist or has this very value: takes and renews a lock
    #[arg(long)]
    pub(crate) nex: bool,
    /// Let the value expire after this time, such as 500ms or 10s
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) px: Option<Duration>,
    /// Ask the store to keep the key on disk. Each SET says so anew: without it, a key that was kept is kept no more
    #[arg(long)]
    pub(crate) persist: bool,
    /// Fencing token of the write: the version that took the lock
    #[arg(long, value_name = "VERSION")]
    pub(crate) fencing_token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Del {
    /// The key
    pub(crate) key: String,
    /// Fencing token of the write: the version that took the lock
    #[arg(long, value_name = "VERSION")]
    pub(crate) fencing_token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Vdel {
    /// The key
    pub(crate) key: String,
    /// The value it must have
    #[arg(
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    pub(crate) value: Option<String>,
    /// Take the value from this file, or from standard input for -
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Fencing token of the write: the version that took the lock
    #[arg(long, value_name = "VERSION")]
    pub(crate) fencing_token: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A pattern is compared with the whole key. * stands for any characters, / included, ? for one, [ab] and [a-z] for one of
these, [!ab] for one but these; quote it, or the shell takes it for files. Keys come in no order that all stores share. A
line is a key, and with --values a tab and the value; what is not text on one line, or has a backslash, is escaped. A key
that is set or deleted meanwhile is printed or is not. The exit code is 1 when there is none.")]
pub(crate) struct Keys {
    /// The pattern, such as 'rooms/*'
    pub(crate) pattern: String,
    /// Print the value of each key as well
    #[arg(long)]
    pub(crate) values: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Standard output has a line for each value. Standard error says the rest: `absent`, when there is no value at the start;
`live`, when what was printed is current and changes follow; `deleted`; and `gap`, when changes may be missed until it is
live again. With --output json all of it is on standard output, as \"result\": set, absent, live, deleted or gap.")]
pub(crate) struct Watch {
    /// The key
    pub(crate) key: String,
    /// End after so many changes
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command finds the fencing token in STATESTORE_FENCING_TOKEN: `statestore set KEY VALUE --fencing-token` with it is
refused once a newer holder has written KEY. When the lock is lost, the command and whatever it has started in its process
group get SIGTERM, and SIGKILL a tenth of the lease later, but not within a second; with a lease below ten seconds another
may hold the lock before that. SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on to them. When this command itself is killed
the other runs on, and only its writes with the token are refused once the lease is over and another holder has written.
The exit code is the command's, or 128 and the signal's number when a signal ended it; 124 when the lock was lost, and 1
when it was not free in time. A lock is a key like others: it outlives a store that starts again only if it is kept (`serve
--data` with `--durable all` or `--durable-keys 'locks/*'`), and its holder is told of any restart as the loss of it.")]
pub(crate) struct Lock {
    /// The lock: a key of the store
    pub(crate) name: String,
    /// How long the lock stays taken when this machine dies
    #[arg(long, default_value = "10s", value_parser = lease, value_name = "TIME")]
    pub(crate) lease: Duration,
    /// How long to wait for the lock, once there is a connection; for ever unless given
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: Common,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One line for each change: the name of the leader, - when nobody leads, ? when that is not known.")]
pub(crate) struct Elect {
    /// The election: a key of the store
    pub(crate) name: String,
    /// Stand for election under this name, until stopped
    #[arg(long, value_name = "NAME")]
    pub(crate) candidate: Option<String>,
    /// How long a leader that dies is still the leader
    #[arg(long, default_value = "10s", value_parser = lease, value_name = "TIME")]
    pub(crate) lease: Duration,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Its keys begin with statestore-bench- and eight digits, and are removed at the end, also after SIGINT, SIGTERM and SIGHUP;
told so once more it leaves them, and names them.")]
pub(crate) struct Bench {
    /// Requests to send
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) requests: u64,
    /// Requests outstanding at a time
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) in_flight: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 64, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=i64::from(VALUE_BYTES_MAX)))]
    pub(crate) value_size: u32,
    /// Draw requests a second and how long they took, over the time of the run, into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The command line of this process. Ends it with advice when it cannot be one.
pub(crate) fn parse() -> Args {
    let mut all = Args::command();
    all.build();
    let told = file::expand(&all, std::env::args_os().collect())
        .unwrap_or_else(|error| all.error(ErrorKind::ValueValidation, error).exit());
    let matches = all.clone().get_matches_from(&told.line);
    let args = checked(&matches).unwrap_or_else(|error| error.exit());
    if let (Some(("serve", given)), Some(serve)) =
        (matches.subcommand(), all.find_subcommand("serve"))
        && given.get_flag("print_config")
    {
        let printed = crate::output::raw(file::print(serve, given, &told.by_file).as_bytes());
        let code = printed.err().map_or(0, |_| 4);
        std::process::exit(code);
    }
    args
}

fn checked(matches: &ArgMatches) -> Result<Args, clap::Error> {
    if let Some(("serve", serve)) = matches.subcommand()
        && let Some(advice) = contradiction(serve)
    {
        return Err(Args::command().error(ErrorKind::ArgumentConflict, advice));
    }
    Args::from_arg_matches(matches)
}

/// Options of a broker of its own beside --broker, or the other way round, and what survives where nothing does. What the environment says is for both kinds,
/// and counts where it applies.
fn contradiction(serve: &ArgMatches) -> Option<String> {
    const OWN: [&str; 22] = [
        "any_client_id",
        "allow_all",
        "listen",
        "websocket",
        "websocket_origin",
        "tls_cert",
        "tls_key",
        "tls_client_ca",
        "certificate_user",
        "certificate_attributes",
        "password_file",
        "service_account_keys",
        "service_account_issuer",
        "service_account_audience",
        "max_connections",
        "max_address_connections",
        "max_sessions",
        "max_subscriptions",
        "memory",
        "client_memory",
        "retained_memory",
        "rate_limit",
    ];
    const OTHER: [&str; 8] = [
        "client_id",
        "user",
        "password",
        "service_account_token_file",
        "ca",
        "cert",
        "key_file",
        "presence",
    ];
    let given = |names: &[&'static str]| {
        let is_given = |name: &&str| serve.value_source(name) == Some(ValueSource::CommandLine);
        let name = names.iter().find(|name| is_given(name))?;
        Some(format!("--{}", name.replace('_', "-")))
    };
    if serve.value_source("data").is_none()
        && serve.value_source("etcd").is_none()
        && let Some(option) = given(&["durable", "durable_keys"])
    {
        return Some(format!(
            "{option} says what survives, and without --data nothing does: give a directory with --data DIR, or leave it out"
        ));
    }
    match serve.value_source("broker") {
        None => given(&OTHER).map(|option| {
            format!("{option} is for a store beside another broker: say which one with --broker URL, or leave it out")
        }),
        Some(ValueSource::EnvVariable) => given(&OWN).map(|option| {
            format!(
                "{option} is for a broker of its own, and STATESTORE_BROKER says to serve beside another one: unset \
                 that, or leave {option} out"
            )
        }),
        Some(_) => given(&OWN).map(|option| {
            format!("{option} is for a broker of its own: leave --broker out to have one")
        }),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be more than nothing".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write it like 500ms or 3s")),
    }
}

/// As far as the protocol lets a clock be ahead, and no less than clocks are apart that are seldom set.
fn drift(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_secs(1)..=CLOCK_DRIFT_MAX;
    duration(text).and_then(|drift| match allowed.contains(&drift) {
        true => Ok(drift),
        false => Err("must be between 1s and the 60s of the protocol".to_owned()),
    })
}

/// A duration whose tenth a clock can still count on by.
fn lease(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
    duration(text).and_then(|lease| match lease > LONGEST {
        true => Err("must be a hundred years at most".to_owned()),
        false => Ok(lease),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_have_units_and_are_not_nothing() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        assert!(duration("3").unwrap_err().contains("3s"));
        assert!(duration("0s").is_err());
        assert!(lease("101y").is_err() && lease("0s").is_err() && lease("99y").is_ok());
        assert!(duration("-1s").is_err());
        assert!(drift("999ms").is_err() && drift("1s").is_ok());
        assert!(drift("60001ms").is_err() && drift("1m").is_ok());
    }

    #[test]
    fn serve_has_a_broker_of_its_own_or_another_one() {
        let parse = |line: &str| {
            let matches = Args::command().try_get_matches_from(line.split(' '))?;
            checked(&matches)
        };
        for line in [
            "statestore serve",
            "statestore serve --listen 0.0.0.0:0 --password-file p --rate-limit 9",
            "statestore serve --tls-cert c --tls-key k --tls-client-ca a",
            "statestore serve --broker mqtt://h --client-id s --presence",
            "statestore serve --data d --durable all --durable-keys k",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for (line, advice) in [
            ("statestore serve --broker mqtt://h --listen 127.0.0.1:0", "leave --broker out"),
            ("statestore serve --broker mqtt://h --password-file p", "leave --broker out"),
            ("statestore serve --user u --password p", "--broker URL"),
            ("statestore serve --presence", "--broker URL"),
            ("statestore serve --tls-cert c", "--tls-key"),
            ("statestore serve --tls-client-ca c", "--tls-cert"),
            ("statestore serve --certificate-user cn", "--tls-client-ca"),
            ("statestore serve --certificate-attributes f", "--certificate-user"),
            ("statestore serve --any-client-id", "--password-file"),
            ("statestore serve --service-account-keys k", "--service-account-issuer"),
            ("statestore serve --service-account-audience a", "--service-account-keys"),
            ("statestore serve --service-account-token-file t", "--broker URL"),
            ("statestore serve --max-connections 0", "--max-connections"),
            ("statestore serve --durable all", "--durable says what survives"),
            ("statestore serve --durable-keys k", "--durable-keys says what survives"),
            ("statestore serve --data d --durable none", "requested, all"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(advice), "{line}: {error}");
        }
    }

    #[test]
    fn a_value_comes_from_one_place() {
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        assert!(parse("statestore set k v").is_ok());
        assert!(parse("statestore set k --file -").is_ok());
        assert!(parse("statestore set k").is_err());
        assert!(parse("statestore set k v --file f").is_err());
        assert!(parse("statestore set k v --nx --nex").is_err());
    }
}
