//! Trying a policy before it counts, and the file of one that does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use statestore_embedded::SharedPolicy;
use statestore_policy::{Action, Cases, Policy, Principal};

use crate::escape::printable;
use crate::failure::Failure;
use crate::output::{self, say};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyVerb {
    /// Reads a policy, and prints what was hardly meant: exit code 1 if there is anything
    Check {
        /// The policy, JSON or YAML
        file: PathBuf,
    },
    /// Tries a policy on a table of who, what and whether that is allowed: exit code 1 if one of them differs
    #[command(after_help = "\
The table has one case on each line:
  allow  id=lamp user=ann group=sensors  SET      readings/ann/lux
  deny   id=lamp user=ann                GET      readings/bob/lux
  allow  id=lamp                         CONNECT

First allow or deny; then who: id, the client id, user, the user name, and any attributes; then CONNECT, PUBLISH,
SUBSCRIBE, GET, SCAN, KEYNOTIFY, SET, DEL or VDEL, and the topic or the key to the end of the line. # begins a comment.")]
    Test {
        /// The policy, JSON or YAML
        file: PathBuf,
        /// The table
        cases: PathBuf,
    },
    /// Says whether somebody may do something, and which rule says so or comes nearest: exit code 1 if not
    Explain(Explain),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The policy, JSON or YAML
    file: PathBuf,
    /// What somebody wants to do
    #[arg(value_enum, ignore_case = true)]
    verb: Verb,
    /// The key, the topic or the topic filter; none for CONNECT
    object: Option<String>,
    /// The client id
    #[arg(long, default_value = "")]
    client_id: String,
    /// The user name
    #[arg(long)]
    user: Option<String>,
    /// An attribute, as NAME=VALUE; may be there several times
    #[arg(long, value_parser = attribute)]
    attribute: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Verb {
    Connect,
    Publish,
    Subscribe,
    Get,
    Scan,
    Keynotify,
    Set,
    Del,
    Vdel,
}

fn attribute(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("it is no NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(verb: &PolicyVerb) -> Result<ExitCode, Failure> {
    let is_good = match verb {
        PolicyVerb::Check { file } => check(file)?,
        PolicyVerb::Test { file, cases } => test(file, cases)?,
        PolicyVerb::Explain(args) => explain(args)?,
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A policy that is in force, and the file that has it.
pub(crate) struct PolicyFile {
    path: PathBuf,
    policy: SharedPolicy,
}

impl PolicyFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let read = policy(path)?;
        warn(path, &read);
        Ok(Self { path: path.to_owned(), policy: read.into() })
    }

    pub(crate) const fn shared(&self) -> &SharedPolicy {
        &self.policy
    }

    /// Reads the file again. One that is of no use changes nothing.
    pub(crate) fn reload(&self) {
        match policy(&self.path) {
            Ok(read) => {
                say(format_args!("{}: read again: {} rules", self.path.display(), read.len()));
                warn(&self.path, &read);
                self.policy.replace(read);
            }
            Err(failure) => say(format_args!("{failure}; nothing has changed")),
        }
    }
}

/// Says how many doubts there are about a policy.
fn warn(path: &Path, policy: &Policy) {
    let count = policy.warnings().len();
    if count > 0 {
        let path = path.display();
        say(format_args!("{path}: {count} warnings; statestore policy check {path} prints them"));
    }
}

fn text(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", file.display())))
}

fn policy(file: &Path) -> Result<Policy, Failure> {
    Policy::parse(&text(file)?)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", file.display())))
}

/// Prints a line, whatever names from a file are in it.
fn line(what: impl std::fmt::Display) -> Result<(), Failure> {
    let mut line = printable(&what.to_string());
    line.push('\n');
    output::raw(line.as_bytes())
}

fn check(file: &Path) -> Result<bool, Failure> {
    let policy = policy(file)?;
    let warnings = policy.warnings();
    for warning in &warnings {
        line(format_args!("{}: {warning}", file.display()))?;
    }
    line(format_args!("{} rules, {} warnings", policy.len(), warnings.len()))?;
    Ok(warnings.is_empty())
}

fn test(file: &Path, table: &Path) -> Result<bool, Failure> {
    let policy = policy(file)?;
    let cases = Cases::parse(&text(table)?)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", table.display())))?;
    if cases.cases.is_empty() {
        let empty = format_args!("{}: there are no cases in it", table.display());
        return Err(Failure::bad_input(empty));
    }
    let mut differ = 0;
    for case in &cases.cases {
        let decision = case.ask(|principal, action| policy.decide(principal, action));
        if decision.is_allowed() != case.allowed {
            differ += 1;
            line(format_args!("{}: line {}: {decision}", table.display(), case.line))?;
        }
    }
    line(format_args!("{} cases, {differ} differ", cases.cases.len()))?;
    Ok(differ == 0)
}

fn explain(args: &Explain) -> Result<bool, Failure> {
    let policy = policy(&args.file)?;
    let object = match (&args.object, args.verb) {
        (None, Verb::Connect) => "",
        (Some(object), verb) if verb != Verb::Connect => object,
        (Some(_), _) => {
            return Err(Failure::bad_input("connect has nothing behind it; give --client-id"));
        }
        (None, _) => return Err(Failure::bad_input("give the key or the topic as well")),
    };
    let action = match args.verb {
        Verb::Connect => Action::Connect,
        Verb::Publish => Action::Publish(object),
        Verb::Subscribe => Action::Subscribe(object),
        Verb::Get | Verb::Scan | Verb::Keynotify => Action::Read(object.as_bytes()),
        Verb::Set | Verb::Del | Verb::Vdel => Action::Write(object.as_bytes()),
    };
    let attributes: Vec<(&str, &str)> =
        args.attribute.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let principal = Principal {
        client_id: &args.client_id,
        user_name: args.user.as_deref(),
        attributes: &attributes,
    };
    let decision = policy.decide(&principal, &action);
    line(decision)?;
    Ok(decision.is_allowed())
}
