//! The rules of a document.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use statestore_mqtt::topic;
use statestore_proto::glob::{Pattern, Progress};

use crate::action::{Action, Principal};
use crate::template::{Inside, Template};

/// A section of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `brokerResources`.
    Broker,
    /// `stateStoreResources`.
    StateStore,
}

impl core::fmt::Display for Section {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Broker => "brokerResources",
            Self::StateStore => "stateStoreResources",
        })
    }
}

/// A parsed document. Actions that it does not allow are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    /// Whether the document restricts which keys may be fenced. Otherwise every key that may be
    /// written may be fenced.
    pub(crate) has_fences: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) line: usize,
    pub(crate) principals: Principals,
    /// The resources of the broker, then those of the state store.
    pub(crate) resources: Vec<Resource>,
}

/// The principals to which a rule applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Principals {
    pub(crate) user_names: Vec<Box<str>>,
    pub(crate) client_ids: Vec<Box<str>>,
    /// Lists of names and values, sorted by name.
    pub(crate) attributes: Vec<Vec<(Box<str>, Box<str>)>>,
}

/// Matches every non-empty name.
pub(crate) const ANY: &str = "*";

impl Principals {
    pub(crate) fn has(&self, principal: &Principal<'_>) -> bool {
        let is_one_of = |names: &[Box<str>], name: Option<&str>| {
            let name = name.filter(|name| !name.is_empty());
            name.is_some_and(|name| names.iter().any(|own| **own == *name || **own == *ANY))
        };
        is_one_of(&self.user_names, principal.user_name)
            || is_one_of(&self.client_ids, Some(principal.client_id))
            || self.attributes.iter().any(|pairs| {
                pairs.iter().all(|(name, value)| principal.attribute(name) == Some(value))
            })
    }

    pub(crate) fn is_nobody(&self) -> bool {
        self.user_names.is_empty() && self.client_ids.is_empty() && self.attributes.is_empty()
    }
}

/// A resource that a rule allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) line: usize,
    pub(crate) section: Section,
    /// Index in its section, from 0.
    pub(crate) at: usize,
    pub(crate) grant: Grant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Client ids that match one of these patterns; any client id if the list is empty.
    Connect(Vec<Template>),
    Publish(Vec<Template>),
    Subscribe(Vec<Template>),
    Keys {
        read: bool,
        write: bool,
        fence: bool,
        keys: Keys,
    },
}

/// Keys, in one of the three key types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Patterns(Vec<Template>),
    Texts(Vec<Template>),
    Bytes(Vec<Box<[u8]>>),
}

/// Maximum number of bytes of patterns and keys that are compared for one decision. If it is
/// reached, the action is refused.
pub(crate) const WORK_MAX: usize = 2 << 20;

/// A matcher for topics, keys or client ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matcher {
    /// Everything.
    All,
    Glob(Box<str>),
    Exact(Box<[u8]>),
    Filter(Box<str>),
}

impl Matcher {
    /// Subtracts the work it does from `work`. When that is used up, nothing matches.
    pub(crate) fn matches(
        &self,
        action: &Action<'_>,
        principal: &Principal<'_>,
        work: &mut usize,
    ) -> bool {
        let object = match action {
            Action::Connect => principal.client_id.as_bytes(),
            Action::Publish(text) | Action::Subscribe(text) => text.as_bytes(),
            Action::Read(key) | Action::Write(key) | Action::Fence(key) => key,
        };
        *work = work.saturating_sub(1 + object.len() / 16);
        if *work == 0 {
            return false;
        }
        match (self, action) {
            (Self::All, _) => true,
            (Self::Exact(own), _) => **own == *object,
            // The pattern was validated when the document was parsed; an invalid pattern would
            // match nothing.
            (Self::Glob(own), _) => {
                *work = work.saturating_sub(own.len());
                let matched = Pattern::new(own.as_bytes())
                    .map(|own| own.matches_within(object, Progress::default(), work));
                matched == Ok(ControlFlow::Break(true))
            }
            (Self::Filter(own), Action::Publish(name)) => topic::matches(own, name),
            (Self::Filter(own), Action::Subscribe(filter)) => topic::covers(own, filter),
            (Self::Filter(_), _) => false,
        }
    }
}

impl Grant {
    /// Returns whether the grant applies to actions of this kind.
    pub(crate) fn is_about(&self, action: &Action<'_>) -> bool {
        match (self, action) {
            (Self::Connect(_), Action::Connect)
            | (Self::Publish(_), Action::Publish(_))
            | (Self::Subscribe(_), Action::Subscribe(_)) => true,
            (Self::Keys { read, .. }, Action::Read(_)) => *read,
            (Self::Keys { write, .. }, Action::Write(_)) => *write,
            (Self::Keys { fence, .. }, Action::Fence(_)) => *fence,
            _ => false,
        }
    }

    /// Returns whether the grant and the action are both for keys.
    pub(crate) const fn is_of_keys(&self, action: &Action<'_>) -> bool {
        matches!(
            (self, action),
            (Self::Keys { .. }, Action::Read(_) | Action::Write(_) | Action::Fence(_))
        )
    }

    /// Returns the matchers for one principal. A placeholder for a value that the principal lacks
    /// makes no matcher.
    pub(crate) fn matchers(&self, principal: &Principal<'_>) -> Vec<Matcher> {
        let filled = |templates: &[Template], inside, matcher: fn(Box<str>) -> Matcher| {
            let filled = templates.iter().filter_map(|one| one.fill(principal, inside));
            filled.map(matcher).collect()
        };
        match self {
            Self::Connect(ids) if ids.is_empty() => [Matcher::All].into(),
            Self::Connect(ids) => filled(ids, Inside::Pattern, Matcher::Glob),
            Self::Publish(topics) | Self::Subscribe(topics) => {
                filled(topics, Inside::Topic, Matcher::Filter)
            }
            Self::Keys { keys: Keys::Patterns(keys), .. } => {
                filled(keys, Inside::Pattern, Matcher::Glob)
            }
            Self::Keys { keys: Keys::Texts(keys), .. } => {
                filled(keys, Inside::Text, |key| Matcher::Exact(key.into_boxed_bytes()))
            }
            Self::Keys { keys: Keys::Bytes(keys), .. } => {
                keys.iter().cloned().map(Matcher::Exact).collect()
            }
        }
    }
}
