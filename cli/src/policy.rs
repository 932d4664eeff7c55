//! Checks, tests and explains policies, and loads the policy of `serve`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use statestore_policy::{Action, Cases, Policy, Principal};
use statestore_server::{ClientIds, ConnectRejection, UsersFile, check_connect, fixed_rule};

use crate::escape::printable;
use crate::failure::Failure;
use crate::output;

/// Maximum number of bytes to read from a file. It exceeds the limit of a policy.
const READ_MAX: u64 = 2 << 20;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyVerb {
    /// Reads a policy and prints warnings about probable mistakes; exit code 1 if there are any
    Check {
        /// The policy, JSON or YAML
        file: PathBuf,
    },
    /// Compares a policy with a table of operations that are allowed or not; exit code 1 if one differs
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
    /// Prints whether a client may do something, and the rule that decides or comes closest; exit code 1 if not
    Explain(Explain),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The policy, JSON or YAML
    file: PathBuf,
    /// The operation
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
    /// The password file of `serve`, for CONNECT: a client id belongs to the longest user name that it begins with
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
    /// `serve` has --service-account-keys, for CONNECT: client ids like those of service accounts belong to no other user
    #[arg(long)]
    service_accounts: bool,
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

pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Reads slightly more of a file than the maximum length of a policy.
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

/// Prints a line, which may contain arbitrary names from a file.
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
    if args.verb != Verb::Connect {
        let refusal = fixed_rule(&args.client_id, &action);
        if let Some(reason) = refusal {
            line(format_args!("but `serve` refuses it under every policy: {reason}"))?;
        }
        return Ok(decision.is_allowed() && refusal.is_none());
    }
    let rejection = connect_rejection(args, &policy, &principal)?;
    if rejection == Some(ConnectRejection::InvalidClientId) {
        line("but `serve` rejects client ids that contain /")?;
    }
    if let (Some(ConnectRejection::ForeignClientId), Some(user)) = (rejection, &args.user) {
        let ids = ClientIds::new(user);
        let (name, prefix) = (ids.name(), ids.prefix());
        line(format_args!(
            "but `serve` wants a client id that is {name}, or begins with {prefix}, and that \
             belongs to no other user, or one that `clientIds` of a Connect names"
        ))?;
    }
    Ok(rejection.is_none())
}

/// Returns why a broker with this policy, these users and these service accounts would reject a
/// CONNECT.
fn connect_rejection(
    args: &Explain,
    policy: &Policy,
    principal: &Principal<'_>,
) -> Result<Option<ConnectRejection>, Failure> {
    let file = args.password_file.as_ref().map(UsersFile::load);
    let file = file.transpose().map_err(Failure::bad_input)?;
    let users = file.map(|file| file.users().current());
    // For an empty client id, the broker assigns one that belongs to the client.
    let has_client_id = || {
        principal.client_id.is_empty()
            || principal.user_name.is_none_or(|user| {
                let names = users.iter().flat_map(|users| users.names());
                ClientIds::new(user).contains(principal.client_id, names, args.service_accounts)
            })
    };
    Ok(check_connect(principal.client_id, Some(&policy.rights(principal)), has_client_id).err())
}

#[cfg(test)]
mod tests;
