//! Expectations of a policy: a table of principals, actions and expected decisions.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::action::{Action, Principal};

/// A table of cases, one case per line:
///
/// ```text
/// # comment
/// allow  id=lamp user=ann group=sensors  SET      readings/ann/lux
/// deny   id=lamp user=ann                GET      readings/bob/lux
/// allow  id=lamp                         CONNECT
/// ```
///
/// The fields of a line are, in this order:
///
/// - `allow` or `deny`;
/// - the principal as `name=value` pairs without blanks: `id` is the client id, `user` the user
///   name, and any other name is an attribute;
/// - a verb: `CONNECT`, `PUBLISH`, `SUBSCRIBE`, `GET`, `SCAN`, `KEYNOTIFY`, `SET`, `DEL`, `VDEL`,
///   or `FENCE` for one of the last three with a fencing token;
/// - the topic, topic filter or key, up to the end of the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cases {
    /// The cases, in the order of their lines.
    pub cases: Vec<Case>,
}

/// A case: one line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Line, from 1.
    pub line: usize,
    /// Whether the action is expected to be allowed.
    pub allowed: bool,
    client_id: Box<str>,
    user_name: Option<Box<str>>,
    attributes: Vec<(Box<str>, Box<str>)>,
    verb: Verb,
    object: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Connect,
    Publish,
    Subscribe,
    Read,
    Write,
    Fence,
}

/// An error in a table, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct CaseError {
    /// Line, from 1.
    pub line: usize,
    /// Description of the error and its fix.
    pub problem: String,
}

const VERBS: [(&str, Verb); 10] = [
    ("CONNECT", Verb::Connect),
    ("PUBLISH", Verb::Publish),
    ("SUBSCRIBE", Verb::Subscribe),
    ("GET", Verb::Read),
    ("SCAN", Verb::Read),
    ("KEYNOTIFY", Verb::Read),
    ("SET", Verb::Write),
    ("DEL", Verb::Write),
    ("VDEL", Verb::Write),
    ("FENCE", Verb::Fence),
];

impl Cases {
    /// Parses a table.
    ///
    /// # Errors
    /// [`CaseError`] for the first invalid line.
    pub fn parse(text: &str) -> Result<Self, CaseError> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let cases = lines.map(|(at, line)| {
            Case::parse(at, line).map_err(|problem| CaseError { line: at, problem })
        });
        Ok(Self { cases: cases.collect::<Result<_, _>>()? })
    }
}

/// Splits the first word off a text.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

impl Case {
    fn parse(line: usize, text: &str) -> Result<Self, String> {
        let (expected, mut rest) = word(text);
        let allowed = match expected {
            "allow" => true,
            "deny" => false,
            _ => return Err("begins with another word than allow or deny".into()),
        };
        let (mut client_id, mut user_name, mut attributes) = (None, None, Vec::new());
        let verb = loop {
            let (next, behind) = word(rest);
            rest = behind;
            let Some((name, value)) = next.split_once('=') else { break next };
            let is_first = match name {
                "id" => client_id.replace(value).is_none(),
                "user" => user_name.replace(value).is_none(),
                _ => {
                    let is_first = attributes.iter().all(|(own, _): &(Box<str>, _)| **own != *name);
                    attributes.push((name.into(), value.into()));
                    is_first
                }
            };
            if !is_first {
                return Err(format!("contains `{name}` twice"));
            }
        };
        let known = VERBS.iter().find(|(word, _)| word.eq_ignore_ascii_case(verb));
        let verb = known.map(|(_, verb)| *verb).ok_or_else(|| {
            let words: Vec<&str> = VERBS.iter().map(|(word, _)| *word).collect();
            format!("contains an unknown operation; expected one of {}", words.join(", "))
        })?;
        if rest.is_empty() != (verb == Verb::Connect) {
            return Err(match verb {
                Verb::Connect => "CONNECT takes no argument; give the client id as `id`".into(),
                _ => "lacks a key or topic at its end".into(),
            });
        }
        Ok(Self {
            line,
            allowed,
            client_id: client_id.unwrap_or_default().into(),
            user_name: user_name.map(Into::into),
            attributes,
            verb,
            object: rest.into(),
        })
    }

    /// Calls a function with the principal and the action of this case, for example
    /// [`Policy::decide`](crate::Policy::decide).
    pub fn ask<T>(&self, ask: impl FnOnce(&Principal<'_>, &Action<'_>) -> T) -> T {
        let attributes: Vec<(&str, &str)> =
            self.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let principal = Principal {
            client_id: &self.client_id,
            user_name: self.user_name.as_deref(),
            attributes: &attributes,
        };
        let action = match self.verb {
            Verb::Connect => Action::Connect,
            Verb::Publish => Action::Publish(&self.object),
            Verb::Subscribe => Action::Subscribe(&self.object),
            Verb::Read => Action::Read(self.object.as_bytes()),
            Verb::Write => Action::Write(self.object.as_bytes()),
            Verb::Fence => Action::Fence(self.object.as_bytes()),
        };
        ask(&principal, &action)
    }
}
