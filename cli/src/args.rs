//! The command line.

mod azure;
mod client;
mod connection;
mod data;
mod dev;
mod doctor;
mod etcd;
mod help;
mod login;
mod replay;
mod serve;
mod status;
mod top;
mod transfer;
mod variables;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
pub(crate) use client::{Bench, Del, Elect, Get, Keys, Lock, Set, Vdel, Watch};
pub(crate) use connection::{Common, Connection, Format, Output, TimeLimit};
pub(crate) use data::{Data, Dump, Restore};
pub(crate) use dev::{Dev, DevEnv, DevFormat, DevListen, DevLogin, DevRun, DevVerb};
pub(crate) use doctor::Doctor;
#[cfg(not(feature = "etcd"))]
pub(crate) use etcd::Etcd;
#[cfg(feature = "etcd")]
pub(crate) use etcd::EtcdConnection;
pub(crate) use login::Login;
pub(crate) use replay::Replay;
pub(crate) use serve::{Origins, Serve};
pub(crate) use status::Status;
pub(crate) use top::Top;
pub(crate) use transfer::{Export, Import};
pub(crate) use verify::{ReportFormat, Verify};

/// Largest value in bytes that every store accepts. Brokers may drop larger messages silently.
pub(crate) const VALUE_BYTES_MAX: u32 = 1 << 20;

/// Key-value store over MQTT 5, with an embedded or an external broker, and its clients
#[derive(Debug, Parser)]
#[command(
    name = "statestore",
    version,
    help_template = help::template(),
    after_help = help::short(),
    after_long_help = help::long()
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    #[command(about = serve::ABOUT)]
    Serve(Box<Serve>),
    /// Run a store for development, with certificates and tokens as in a cluster
    Dev(Box<Dev>),
    /// Add, change, delete or list users in a password file for `serve`
    ///
    /// Prompts for the password, or reads it from standard input.
    Passwd(Passwd),
    /// Create a CA, a server and a client certificate for a test setup
    Certificates(Certificates),
    /// Check, test or explain an authorization policy
    Policy {
        #[command(subcommand)]
        verb: crate::policy::PolicyVerb,
    },
    /// Print the value of a key
    Get(Get),
    /// Set the value of a key, and print its version
    #[command(visible_alias = "put")]
    Set(Set),
    /// Delete a key
    #[command(visible_alias = "rm")]
    Del(Del),
    /// Delete a key if it has a given value
    Vdel(Vdel),
    /// List the keys that match a pattern
    #[command(visible_alias = "ls")]
    Keys(Keys),
    /// Watch a key, or the keys that match a pattern, and print every change
    Watch(Watch),
    /// Write keys and values of a store as lines of JSON
    Export(Export),
    /// Set the keys of an export in a store
    Import(Import),
    /// Run a command while holding a lock
    Lock(Lock),
    /// Follow an election, or be a candidate
    Elect(Elect),
    /// Check the connection to a store step by step, with advice
    Doctor(Doctor),
    /// Print whether a store responds, and with --etcd which store leads
    Status(Status),
    /// Show keys, values and metrics of a store in a terminal interface
    Top(Top),
    /// Measure throughput and latency of a store
    Bench(Bench),
    /// Replay a capture of `serve --capture` and print the differences
    Replay(Replay),
    /// Run the conformance suite against a store
    Verify(Verify),
    /// Check, dump or restore the data directory of a store
    Data {
        #[command(subcommand)]
        verb: Box<Data>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of this command or of a subcommand
    Man {
        /// Subcommand, for example `serve` or `policy explain`
        command: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Writes ca.pem, ca.key, server.pem, server.key, NAME.pem and NAME.key, and prints command lines that
use them. Only this user can read the keys. The certificates are valid for 825 days. Existing files
are never overwritten. Keep ca.key secret, or delete it if you need no further certificates.")]
pub(crate) struct Certificates {
    /// Directory of the new files; created if absent
    pub(crate) dir: PathBuf,
    /// Further host name or IP address of the server; repeatable
    ///
    /// The server certificate is always valid for localhost, 127.0.0.1, `::1` and the name of this
    /// machine.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Common name and file name of the client certificate
    #[arg(long, default_value = "client", value_name = "NAME")]
    pub(crate) client: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Passwd {
    /// Password file; created if absent
    pub(crate) file: PathBuf,
    /// User name
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    pub(crate) user: Option<String>,
    /// Delete the user
    #[arg(long, conflicts_with = "list")]
    pub(crate) delete: bool,
    /// Print the names of all users
    #[arg(long)]
    pub(crate) list: bool,
}

/// Parses the command line of this process. Exits with advice if it is invalid.
pub(crate) fn parse() -> Args {
    let mut command = Args::command();
    let line: Vec<_> = std::env::args_os().collect();
    let matches = command.try_get_matches_from_mut(&line).unwrap_or_else(|error| {
        let error = variables::without_stray_value(error, &command, &line);
        let error = variables::with_full_usage(error, &command, &line);
        variables::name_variable(error, &command, &line).exit();
    });
    if let Some(error) = variables::misspelt(&command, &line) {
        error.exit();
    }
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be 1ms or more, for example 500ms or 3s".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) if text.parse::<f64>().is_ok() => {
            Err(format!("a time needs a unit, for example {text}ms or {text}s"))
        }
        Err(_) => Err("must be a number with a unit; write it like 500ms or 3s".to_owned()),
    }
}

/// A lease: at most a hundred years, so that clocks can add it.
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
    fn command_line_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_need_a_unit_and_must_be_positive() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        assert!(duration("3").unwrap_err().contains("3ms or 3s"));
        assert!(duration("0s").is_err());
        assert!(lease("101y").is_err() && lease("0s").is_err() && lease("99y").is_ok());
        assert!(duration("-1s").is_err());
    }

    #[test]
    fn set_requires_one_source_of_the_value() {
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        assert!(parse("statestore set k v").is_ok());
        assert!(parse("statestore set k --file -").is_ok());
        assert!(parse("statestore set k").is_err());
        assert!(parse("statestore set k v --file f").is_err());
        assert!(parse("statestore set k v --nx --nex").is_err());
    }

    #[test]
    fn familiar_names_are_aliases() {
        let parse = |line: &str| Args::try_parse_from(line.split(' ')).map(|args| args.verb);
        let Ok(Verb::Set(set)) = parse("statestore put k v --px 3s") else { panic!("put") };
        assert_eq!(set.ttl, Some(Duration::from_secs(3)));
        assert!(matches!(parse("statestore ls *"), Ok(Verb::Keys(_))));
        assert!(matches!(parse("statestore rm k"), Ok(Verb::Del(_))));
    }
}
