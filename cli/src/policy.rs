//! Checks, tests and explains policies, and loads the policy of `serve`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use statestore_policy::{Action, Cases, Policy, Principal};
use statestore_proto::topic::{REQUEST, ResponseTopic};
use statestore_server::{ClientIds, ConnectRejection, UsersFile, check_connect, fixed_rule};

use crate::escape::printable;
use crate::failure::Failure;
use crate::output;

/// Maximum number of bytes to read from a file. It exceeds the limit of a policy.
const READ_MAX: u64 = 2 << 20;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyVerb {
    /// Parse a policy and print warnings about probable mistakes
    #[command(after_long_help = "The exit code is 1 if there are warnings.")]
    Check {
        /// Policy, JSON or YAML
        file: PathBuf,
    },
    /// Compare a policy with a table of expected decisions
    #[command(after_long_help = "\
The table has one case per line:
  allow  id=lamp user=ann group=sensors  SET      readings/ann/lux
  deny   id=lamp user=ann                GET      readings/bob/lux
  allow  id=lamp                         CONNECT

Each line contains, in this order:
  1. `allow` or `deny`, the expected decision
  2. the client: `id` (client id), `user` (user name), and any attributes
  3. the operation: CONNECT, PUBLISH, SUBSCRIBE, GET, SCAN, KEYNOTIFY, SET, DEL, VDEL, or FENCE
     (SET, DEL or VDEL with a fencing token)
  4. the topic or the key, up to the end of the line; not for CONNECT

With a key, SCAN means that a listing includes this key. A # begins a comment.

The exit code is 1 if a decision differs.")]
    Test {
        /// Policy, JSON or YAML
        file: PathBuf,
        /// Table of cases
        cases: PathBuf,
    },
    /// Print whether a client may perform an operation, and the rule that decides
    #[command(after_long_help = "\
If no rule allows the operation, prints the rule that comes closest. Then prints what `serve` checks
in addition: topics of other clients, and for CONNECT the client id. With --client-id, an operation
on a key also requires CONNECT, PUBLISH to the request topic and SUBSCRIBE to the response topic.

The exit code is 1 if the operation is refused.")]
    Explain(Explain),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Policy, JSON or YAML
    file: PathBuf,
    /// Operation, for example get, set or publish
    ///
    /// One of: connect, publish, subscribe, get, scan, keynotify, set, del, vdel, or fence (SET,
    /// DEL or VDEL with a fencing token).
    #[arg(value_enum, ignore_case = true, hide_possible_values = true)]
    verb: Verb,
    /// Key, topic or topic filter; not for CONNECT
    ///
    /// With a key, SCAN means that a listing includes this key.
    object: Option<String>,
    /// Client id
    #[arg(long, default_value = "", value_name = "ID", hide_default_value = true)]
    client_id: String,
    /// User name
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Attribute of the client; repeatable
    #[arg(long, value_parser = attribute, value_name = "NAME=VALUE")]
    attribute: Vec<(String, String)>,
    /// For CONNECT: password file of `serve`
    ///
    /// A client id belongs to the user with the longest name that it begins with.
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
    /// For CONNECT: `serve` runs with --service-account-keys
    ///
    /// Client ids in the form of service accounts then belong to no other user.
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
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
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
        return Err(Failure::bad_input(format_args!(
            "{table}: the table is empty; write one case per line"
        )));
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
            return Err(Failure::bad_input("connect: it takes no key or topic; give --client-id"));
        }
        (None, _) => {
            return Err(Failure::bad_input(
                "the key or topic is missing: give it after the operation",
            ));
        }
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
            "if a rule has the method Fence, a write with a fencing token requires Write and Fence",
        )?;
    }
    let is_anonymous =
        args.client_id.is_empty() && args.user.is_none() && args.attribute.is_empty();
    if is_anonymous && !decision.is_allowed() {
        line("this is for a client without a name: give --client-id, --user or --attribute")?;
    }
    if args.verb != Verb::Connect {
        let refusal = fixed_rule(&args.client_id, &action);
        if let Some(reason) = refusal {
            line(format_args!("but `serve` refuses it with every policy: {reason}"))?;
        }
        let is_allowed = decision.is_allowed() && refusal.is_none();
        return Ok(is_allowed && (!is_request(args.verb) || can_request(&policy, &principal)?));
    }
    let rejection = connect_rejection(args, &policy, &principal)?;
    if rejection == Some(ConnectRejection::InvalidClientId) {
        line("but `serve` rejects client ids that contain /")?;
    }
    if let (Some(ConnectRejection::ForeignClientId), Some(user)) = (rejection, &args.user) {
        let ids = ClientIds::new(user);
        let (name, prefix) = (ids.name(), ids.prefix());
        line(format_args!(
            "but `serve` requires another client id: {name}; one that begins with {prefix} and \
             belongs to no other user; or one that `clientIds` of a Connect contains"
        ))?;
    }
    Ok(rejection.is_none())
}

/// Returns whether an operation is a request to the store.
const fn is_request(verb: Verb) -> bool {
    !matches!(verb, Verb::Connect | Verb::Publish | Verb::Subscribe)
}

/// Checks the permissions that every request requires, and prints the first one that is missing.
/// Without a client id, they are unknown and count as present.
fn can_request(policy: &Policy, principal: &Principal<'_>) -> Result<bool, Failure> {
    let Ok(topic) = ResponseTopic::new(principal.client_id) else { return Ok(true) };
    let topic = topic.to_string();
    for (name, action) in [
        ("CONNECT".to_owned(), Action::Connect),
        (format!("PUBLISH {REQUEST}"), Action::Publish(REQUEST)),
        (format!("SUBSCRIBE {topic}"), Action::Subscribe(&topic)),
    ] {
        let decision = policy.decide(principal, &action);
        if !decision.is_allowed() {
            line(format_args!("but a request also requires {name}: {decision}"))?;
            return Ok(false);
        }
    }
    Ok(true)
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
