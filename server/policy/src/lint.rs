//! Likely mistakes in a document.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use statestore_mqtt::topic;
use statestore_proto::glob::Pattern;
use statestore_proto::topic::REQUEST;

use crate::action::Principal;
use crate::rule::{ANY, Grant, Keys, Policy, Principals, Resource, Rule};
use crate::template::{Inside, Template};

/// A likely mistake in a valid document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line, from 1.
    pub line: usize,
    /// The mistake and its fix.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// The kinds of names that the rules refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Whether there are rules for user names.
    pub user_names: bool,
    /// Whether there are rules for client ids.
    pub client_ids: bool,
    /// Whether there are rules for attributes.
    pub attributes: bool,
}

impl Policy {
    /// Returns the kinds of names that the rules refer to. A rule for a kind of name that no client
    /// has never applies.
    #[must_use]
    pub fn names(&self) -> Names {
        let any =
            |has: fn(&Principals) -> bool| self.rules.iter().any(|rule| has(&rule.principals));
        Names {
            user_names: any(|all| !all.user_names.is_empty()),
            client_ids: any(|all| !all.client_ids.is_empty()),
            attributes: any(|all| !all.attributes.is_empty()),
        }
    }

    /// Returns likely mistakes, in the order of the lines. Resources are compared with each other
    /// if there are at most a thousand.
    ///
    /// ```
    /// use statestore_policy::Policy;
    ///
    /// let policy = Policy::parse("rules: [{principals: {usernames: [ann]}, stateStoreResources: [{method: Write, keys: ['*']}]}]")?;
    /// let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    /// assert!(warnings[0].contains("no client may connect"), "{warnings:?}");
    /// # Ok::<(), statestore_policy::PolicyError>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        self.whole(&mut warnings);
        let is_comparable = self.is_comparable();
        for (at, rule) in self.rules.iter().enumerate() {
            self.one(at, rule, is_comparable, &mut warnings);
        }
        warnings.sort_by_key(|warning| warning.line);
        warnings
    }

    fn has(&self, is_meant: impl Fn(&Grant) -> bool) -> bool {
        self.rules.iter().flat_map(|rule| &rule.resources).any(|one| is_meant(&one.grant))
    }

    /// Warns about rights that no rule grants.
    fn whole(&self, warnings: &mut Vec<Warning>) {
        let mut warn = |text: &str| warnings.push(Warning { line: 1, text: text.into() });
        if self.rules.is_empty() {
            return warn("the policy has no rules, so every action is refused");
        }
        if !self.has(|grant| matches!(grant, Grant::Connect(_))) {
            warn("no client may connect; add `method: Connect` to brokerResources");
        }
        let asks = |grant: &Grant| match grant {
            Grant::Publish(topics) => topics
                .iter()
                .filter_map(Template::as_text)
                .any(|filter| topic::matches(filter, REQUEST)),
            _ => false,
        };
        if !self.has(|grant| matches!(grant, Grant::Keys { .. })) {
            return;
        }
        if !self.has(asks) {
            warn(&format!(
                "keys are allowed, but no client may send requests; allow publishing to {REQUEST}"
            ));
        }
        let is_subscribed = |topic: &str| {
            self.has(|grant| match grant {
                Grant::Subscribe(topics) => {
                    let filters = topics.iter().filter_map(|one| one.fill(&SAMPLE, Inside::Topic));
                    filters.into_iter().any(|filter| topic::matches(&filter, topic))
                }
                _ => false,
            })
        };
        if !is_subscribed(SAMPLE_ANSWER) {
            warn(
                "keys are allowed, but no client may receive responses; allow subscribing to \
                 clients/{principal.clientId}/#",
            );
        } else if !is_subscribed(SAMPLE_NOTIFICATION) {
            warn(
                "no client may watch a key or wait for a lock; allow subscribing to \
                 clients/statestore/+/+/+/command/notify/+",
            );
        }
    }

    fn one(&self, at: usize, rule: &Rule, is_comparable: bool, warnings: &mut Vec<Warning>) {
        let mut warn = |line, text: String| warnings.push(Warning { line, text });
        if rule.principals.is_nobody() {
            warn(rule.line, "the principals are empty, so this rule applies to no client".into());
        }
        if rule.resources.is_empty() {
            warn(rule.line, "the rule has no resources, so it allows nothing".into());
        }
        if !rule.principals.client_ids.is_empty() {
            warn(
                rule.line,
                "the rule names client ids; these are unverified unless they are bound to users"
                    .into(),
            );
        }
        for (index, resource) in rule.resources.iter().enumerate() {
            if let Some(text) = resource.grant.everything() {
                warn(resource.line, format!("{text} matches everything"));
            }
            if let (Grant::Keys { write, fence, keys, .. }, true) = (&resource.grant, is_comparable)
            {
                let is_elsewhere = |has| self.is_elsewhere(&rule.principals, keys, has);
                if *write && !is_elsewhere(|(read, _)| read) {
                    warn(
                        resource.line,
                        "Write without Read: SET with NX or NEX, and VDEL, reveal whether a key \
                         exists, \
                         so this also allows reading; if that is intended, use ReadWrite"
                            .into(),
                    );
                }
                if *fence && !is_elsewhere(|(_, write)| write) {
                    warn(
                        resource.line,
                        "Fence without Write: it does not allow writes; also allow Write or \
                         ReadWrite"
                            .into(),
                    );
                }
            }
            let needless = is_comparable.then(|| self.makes_needless(at, index, rule, resource));
            if let Some(other) = needless.flatten() {
                warn(resource.line, format!("allows nothing that line {other} does not allow"));
            }
        }
    }

    /// Returns whether there are few enough resources to compare each with all others.
    fn is_comparable(&self) -> bool {
        self.rules.iter().map(|rule| rule.resources.len()).sum::<usize>() <= RESOURCES_MAX
    }

    /// Returns whether one resource allows these principals to read, or write, all of these keys.
    fn is_elsewhere(
        &self,
        principals: &Principals,
        keys: &Keys,
        has: fn((bool, bool)) -> bool,
    ) -> bool {
        let rules = self.rules.iter().filter(|rule| rule.principals.include(principals));
        rules.flat_map(|rule| &rule.resources).any(|one| match &one.grant {
            Grant::Keys { read, write, keys: others, .. } => {
                has((*read, *write)) && others.include(keys)
            }
            _ => false,
        })
    }

    /// Returns the line of a resource that allows everything that this one does. Of two equal
    /// resources, that is the first.
    fn makes_needless(
        &self,
        at: usize,
        index: usize,
        rule: &Rule,
        resource: &Resource,
    ) -> Option<usize> {
        if rule.principals.is_nobody() {
            return None;
        }
        let rules = self.rules.iter().enumerate();
        let all = rules.flat_map(|(other_at, other)| {
            let resources = other.resources.iter().enumerate();
            resources.map(move |(place, resource)| ((other_at, place), other, resource))
        });
        let mut including = all.filter(|(place, other, one)| {
            if *place == (at, index) {
                return false;
            }
            let includes =
                other.principals.include(&rule.principals) && one.grant.includes(&resource.grant);
            let is_mutual =
                rule.principals.include(&other.principals) && resource.grant.includes(&one.grant);
            includes && !(is_mutual && *place > (at, index))
        });
        including.next().map(|(_, _, one)| one.line)
    }
}

impl Principals {
    /// Returns whether `self` names every principal that `others` names.
    fn include(&self, others: &Self) -> bool {
        let all = |own: &[_], theirs: &[alloc::boxed::Box<str>]| {
            theirs.iter().all(|name| own.contains(name) || own.iter().any(|name| **name == *ANY))
        };
        all(&self.user_names, &others.user_names)
            && all(&self.client_ids, &others.client_ids)
            && others.attributes.iter().all(|theirs| {
                self.attributes.iter().any(|own| own.iter().all(|pair| theirs.contains(pair)))
            })
    }
}

/// A principal with names that occur in no document.
const SAMPLE: Principal<'static> =
    Principal { client_id: "\u{e000}", user_name: Some("\u{e001}"), attributes: &[] };

/// The topics on which deployed clients receive responses and notifications.
const SAMPLE_ANSWER: &str = "clients/\u{e000}/services/statestore/response";
const SAMPLE_NOTIFICATION: &str =
    "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/EE8080/command/notify/78";

/// Returns whether a pattern certainly matches everything that the other pattern matches. It does
/// if its only wildcard is `*` and these stars match the wildcards of the other pattern.
fn covers(own: &Template, other: &Template) -> bool {
    let filled = |one: &Template| one.fill(&SAMPLE, Inside::Pattern);
    own == other
        || match (filled(own), filled(other)) {
            (Some(own), Some(other)) => {
                !own.contains(['?', '['])
                    && Pattern::new(own.as_bytes()).is_ok_and(|own| own.matches(other.as_bytes()))
            }
            _ => false,
        }
}

/// Maximum number of resources in a document that are compared with each other.
const RESOURCES_MAX: usize = 1_000;

/// Maximum number of pairs of keys that are compared for one warning.
const COMPARED_MAX: usize = 10_000;

/// Patterns that match every key here. Deployed brokers may treat bytes that are not UTF-8
/// differently, so no key of the type `Binary` is reported as redundant.
const ALL_KEYS: &[&str] = &["*", "**"];

/// Filters that match every topic that does not begin with `$`.
const ALL_TOPICS: &[&str] = &["#", "+/#"];

fn has_one_of(own: &[Template], texts: &[&str]) -> bool {
    own.iter().any(|one| one.as_text().is_some_and(|text| texts.contains(&text)))
}

/// Returns whether `own` contains all of `others`.
fn has_all<T: PartialEq>(own: &[T], others: &[T]) -> bool {
    others.iter().all(|other| own.contains(other))
}

impl Keys {
    fn len(&self) -> usize {
        match self {
            Self::Patterns(keys) | Self::Texts(keys) => keys.len(),
            Self::Bytes(keys) => keys.len(),
        }
    }

    fn include(&self, others: &Self) -> bool {
        // A document with so many keys was generated by a program.
        if self.len().saturating_mul(others.len()) > COMPARED_MAX {
            return false;
        }
        match (self, others) {
            (Self::Patterns(own), Self::Patterns(others)) => {
                has_one_of(own, ALL_KEYS)
                    || others.iter().all(|other| own.iter().any(|own| covers(own, other)))
            }
            (Self::Patterns(own), Self::Texts(others)) => {
                let is_text = |one: &Template| {
                    !one.as_text().is_none_or(|text| text.contains(['*', '?', '[']))
                };
                others.iter().all(|other| {
                    has_one_of(own, ALL_KEYS)
                        || is_text(other) && own.iter().any(|own| covers(own, other))
                })
            }
            (Self::Texts(own), Self::Texts(others)) => has_all(own, others),
            (Self::Bytes(own), Self::Bytes(others)) => has_all(own, others),
            _ => false,
        }
    }
}

impl Grant {
    /// Returns whether this grant certainly allows everything that another does, judging by the
    /// texts alone.
    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Connect(own), Self::Connect(others)) => {
                own.is_empty()
                    || !others.is_empty() && (has_one_of(own, ALL_KEYS) || has_all(own, others))
            }
            (Self::Publish(own), Self::Publish(others))
            | (Self::Subscribe(own), Self::Subscribe(others)) => has_all(own, others),
            (
                Self::Keys { read, write, fence, keys },
                Self::Keys { read: reads, write: writes, fence: fences, keys: others },
            ) => {
                (*read || !reads)
                    && (*write || !writes)
                    && (*fence || !fences)
                    && keys.include(others)
            }
            _ => false,
        }
    }

    /// Returns the part of the grant that matches everything although it could be narrower.
    fn everything(&self) -> Option<&'static str> {
        match self {
            Self::Connect(_) => None,
            Self::Publish(topics) | Self::Subscribe(topics) => {
                has_one_of(topics, ALL_TOPICS).then_some("a topic filter")
            }
            Self::Keys { keys: Keys::Patterns(keys), .. } => {
                has_one_of(keys, ALL_KEYS).then_some("a pattern of keys")
            }
            Self::Keys { .. } => None,
        }
    }
}
