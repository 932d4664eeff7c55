//! Trying a policy before it counts, and the file of one that does.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use statestore_embedded::SharedPolicy;
use statestore_policy::{Action, Cases, Policy, Principal};

use crate::escape::printable;
use crate::failure::Failure;
use crate::output::{self, say};

/// Bytes of a file, more than a policy may have.
const READ_MAX: u64 = 2 << 20;

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
SUBSCRIBE, GET, SCAN, KEYNOTIFY, SET, DEL, VDEL, or FENCE for one of these three with a fencing token, and the topic or the
key to the end of the line; SCAN with a key asks whether it is listed. # begins a comment.")]
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
    /// The key, the topic or the topic filter; none for CONNECT. SCAN with a key asks whether it is listed
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
    /// SET, DEL or VDEL with a fencing token
    Fence,
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

/// What clients have by which a policy may name them, beside client ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Principals {
    pub(crate) user_names: bool,
    pub(crate) attributes: bool,
}

/// A policy that is in force, and the file that has it.
pub(crate) struct PolicyFile {
    path: PathBuf,
    policy: SharedPolicy,
    principals: Principals,
}

impl PolicyFile {
    /// Reads it for clients that have these.
    pub(crate) fn read(path: &Path, principals: Principals) -> Result<Self, Failure> {
        let read = policy(path)
            .map_err(|failure| Failure::bad_input(format_args!("--policy {failure}")))?;
        warn(path, &read, principals);
        Ok(Self { path: path.to_owned(), policy: read.into(), principals })
    }

    pub(crate) const fn shared(&self) -> &SharedPolicy {
        &self.policy
    }

    /// Reads the file again. One that is of no use changes nothing.
    pub(crate) async fn reload(&self) {
        // Clients do not wait for that.
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || policy(&path)).await;
        match read.unwrap_or_else(|error| Err(Failure::system(error))) {
            Ok(read) => {
                let rules = counted(read.len(), "rule");
                say(format_args!("{}: read again: {rules}", self.path.display()));
                warn(&self.path, &read, self.principals);
                self.policy.replace(read);
            }
            Err(failure) => say(format_args!("{failure}; nothing has changed")),
        }
    }
}

/// Says how many doubts there are about a policy.
fn warn(path: &Path, policy: &Policy, principals: Principals) {
    let path = path.display();
    let count = policy.warnings().len();
    if count > 0 {
        let count = counted(count, "warning");
        say(format_args!("{path}: {count}; statestore policy check {path} prints them"));
    }
    let names = policy.names();
    if names.user_names && !principals.user_names {
        say(format_args!(
            "{path}: rules for user names are for nobody here; clients have them by --password-file, \
             --certificate-user or --service-account-keys"
        ));
    }
    if names.attributes && !principals.attributes {
        say(format_args!(
            "{path}: rules for attributes are for nobody here; clients have them by \
             --certificate-attributes or --service-account-keys"
        ));
    }
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Reads a file as far as a policy may be long, and a little more.
pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(READ_MAX).read_to_string(&mut text));
    read.map_err(|error| Failure::bad_input(format_args!("{}: {error}", file.display())))?;
    Ok(text)
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
    let (rules, warned) = (counted(policy.len(), "rule"), counted(warnings.len(), "warning"));
    line(format_args!("{rules}, {warned}"))?;
    Ok(warnings.is_empty())
}

fn test(file: &Path, table: &Path) -> Result<bool, Failure> {
    let policy = policy(file)?;
    let cases = Cases::parse(&text(table)?)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", table.display())))?;
    if cases.cases.is_empty() {
        let table = table.display();
        return Err(Failure::bad_input(format_args!("{table}: there are no cases in it")));
    }
    let mut differ = 0;
    for case in &cases.cases {
        let decision = case.ask(|principal, action| policy.decide(principal, action));
        if decision.is_allowed() != case.allowed {
            differ += 1;
            let (table, at, file) = (table.display(), case.line, file.display());
            let expected = if case.allowed { "allow" } else { "deny" };
            line(format_args!(
                "{table}: line {at}: {expected} was expected; by {file} it is {decision}"
            ))?;
        }
    }
    line(format_args!("{}, {differ} differ", counted(cases.cases.len(), "case")))?;
    Ok(differ == 0)
}

/// What a user's client ids begin with, if they are not just that without its last character. A service account has its
/// namespace and name, with colons between them in the user, and an underscore behind.
pub(crate) fn client_prefix(user: &str) -> String {
    match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("{}_", account.replace(':', ".")),
        None => format!("{user}-"),
    }
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
        Verb::Fence => Action::Fence(object.as_bytes()),
    };
    if let Some(problem) = action.problem() {
        return Err(Failure::bad_input(format_args!("{}: {problem}", printable(object))));
    }
    let attributes: Vec<(&str, &str)> =
        args.attribute.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let principal = Principal {
        client_id: &args.client_id,
        user_name: args.user.as_deref(),
        attributes: &attributes,
    };
    let decision = policy.decide(&principal, &action);
    line(decision)?;
    if args.verb == Verb::Fence && !decision.is_allowed() {
        line(
            "where a rule of the document has the method Fence, a write with a token takes Write and Fence",
        )?;
    }
    if let (Verb::Connect, Some(user), true) = (args.verb, &args.user, decision.is_allowed()) {
        let prefix = client_prefix(user);
        let name = prefix.get(..prefix.len() - 1).unwrap_or_default();
        let is_own = args.client_id == name || args.client_id.starts_with(&prefix);
        if !is_own && !policy.rights(&principal).names_client_id() {
            line(format_args!(
                "but `serve` wants a client id that is {name}, or begins with {prefix}, or that \
                 `clientIds` of a Connect names"
            ))?;
        }
    }
    Ok(decision.is_allowed())
}
