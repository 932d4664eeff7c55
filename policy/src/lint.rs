//! What a document says that was hardly meant.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use statestore_mqtt::topic;
use statestore_proto::glob::Pattern;
use statestore_proto::topic::REQUEST;

use crate::ask::Principal;
use crate::rule::{ANY, Grant, Keys, Policy, Principals, Resource, Rule};
use crate::template::{Inside, Template};

/// Something that was hardly meant. It is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line, from 1.
    pub line: usize,
    /// What, and what to do about it.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Which names the rules go by.
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
    /// Which names the rules go by: rules for names that nobody has are for nobody.
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

    /// What was hardly meant, in the order of the lines. Resources are compared with each other up to a thousand of them.
    ///
    /// ```
    /// use statestore_policy::Policy;
    ///
    /// let policy = Policy::parse("rules: [{principals: {usernames: [ann]}, stateStoreResources: [{method: Write, keys: ['*']}]}]")?;
    /// let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    /// assert!(warnings[0].contains("nobody may connect"), "{warnings:?}");
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

    /// What is missing in the whole of it.
    fn whole(&self, warnings: &mut Vec<Warning>) {
        let mut warn = |text: &str| warnings.push(Warning { line: 1, text: text.into() });
        if self.rules.is_empty() {
            return warn("there are no rules, so nobody may do anything");
        }
        if !self.has(|grant| matches!(grant, Grant::Connect(_))) {
            warn("nobody may connect; add `method: Connect` to brokerResources");
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
                "keys are allowed, but nobody may ask for them; allow somebody to publish to {REQUEST}"
            ));
        }
        let hears = |topic: &str| {
            self.has(|grant| match grant {
                Grant::Subscribe(topics) => {
                    let filters = topics.iter().filter_map(|one| one.fill(&SAMPLE, Inside::Topic));
                    filters.into_iter().any(|filter| topic::matches(&filter, topic))
                }
                _ => false,
            })
        };
        if !hears(SAMPLE_ANSWER) {
            warn(
                "keys are allowed, but nobody may hear the answers; allow somebody to subscribe to \
                 clients/{principal.clientId}/#",
            );
        } else if !hears(SAMPLE_NOTIFICATION) {
            warn(
                "nobody may watch a key or wait for a lock; allow somebody to subscribe to \
                 clients/statestore/+/+/+/command/notify/+",
            );
        }
    }

    fn one(&self, at: usize, rule: &Rule, is_comparable: bool, warnings: &mut Vec<Warning>) {
        let mut warn = |line, text: String| warnings.push(Warning { line, text });
        if rule.principals.is_nobody() {
            warn(rule.line, "the principals are empty, so this rule is for nobody".into());
        }
        if rule.resources.is_empty() {
            warn(rule.line, "the rule has no resources, so it allows nothing".into());
        }
        if !rule.principals.client_ids.is_empty() {
            warn(
                rule.line,
                "the rule names client ids; they are what a client says, unless they are bound to users"
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
                        "Write without Read: SET with NX or NEX, and VDEL, tell what is there, so this is \
                         a way to read; if that is meant, allow ReadWrite"
                            .into(),
                    );
                }
                if *fence && !is_elsewhere(|(_, write)| write) {
                    warn(
                        resource.line,
                        "Fence without Write: it lets nobody write; allow Write or ReadWrite as well"
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

    /// Whether each resource can be compared with all the others in a time that nobody notices.
    fn is_comparable(&self) -> bool {
        self.rules.iter().map(|rule| rule.resources.len()).sum::<usize>() <= RESOURCES_MAX
    }

    /// Whether these principals may read, or write, all of these keys by one resource.
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

    /// The line of a resource that allows all that this one does. Of two that say the same it is the first.
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
    /// Whether whoever is named there is named here.
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

/// Somebody whose names are in no document.
const SAMPLE: Principal<'static> =
    Principal { client_id: "\u{e000}", user_name: Some("\u{e001}"), attributes: &[] };

/// Where deployed clients hear an answer, and a notification.
const SAMPLE_ANSWER: &str = "clients/\u{e000}/services/statestore/response";
const SAMPLE_NOTIFICATION: &str =
    "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/EE8080/command/notify/78";

/// Whether a pattern matches whatever another does: for sure if it has nothing special but stars, and these match what is
/// special in the other.
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

/// Resources of a document that are compared with each other.
const RESOURCES_MAX: usize = 1_000;

/// Pairs of keys that are compared for one warning.
const COMPARED_MAX: usize = 10_000;

/// Patterns that every key in UTF-8 matches.
const ALL_KEYS: &[&str] = &["*", "**"];

/// Filters that every topic matches which does not begin with `$`.
const ALL_TOPICS: &[&str] = &["#", "+/#"];

fn has_one_of(own: &[Template], texts: &[&str]) -> bool {
    own.iter().any(|one| one.as_text().is_some_and(|text| texts.contains(&text)))
}

/// Whether each of the others is one of these.
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
        // Whoever has so many has them from a program.
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
    /// Whether it allows all that another does, as far as can be told from the texts.
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

    /// What of it matches everything, if that is more than it need be.
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
