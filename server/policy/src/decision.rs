//! Decisions and their reasons.

use core::fmt;

use crate::action::{Action, Principal};
use crate::rule::{Policy, Section, WORK_MAX};

/// A position in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the rule, from 0.
    pub rule: usize,
    /// Section and index of the resource in it, from 0; `None` if no resource is relevant.
    pub resource: Option<(Section, usize)>,
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (rule {}", self.line, self.rule + 1)?;
        match self.resource {
            Some((section, at)) => write!(f, ", resource {} of {section})", at + 1),
            None => f.write_str(")"),
        }
    }
}

/// The reason why the nearest rule does not allow an action, from the farthest to the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// The rule names other principals.
    Principal,
    /// The rule allows this principal other methods only.
    Method,
    /// The rule allows the method for other keys, topics or client ids.
    Object,
    /// The rule allows another method for this key, for example Read but not Write.
    OtherMethod,
}

/// The result of [`Policy::decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed by the rule at this place.
    Allowed(Place),
    /// No rule allows the action. Contains the nearest rule, if any, and the reason why it does not
    /// match.
    Refused(Option<(Place, Lacks)>),
}

impl Decision {
    /// Returns whether the action is allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(place) => write!(f, "allowed by {place}"),
            Self::Refused(None) => {
                f.write_str("refused; no rule applies to this client or to this operation")
            }
            Self::Refused(Some((place, lacks))) => {
                let of = match (lacks, place.resource) {
                    (Lacks::Principal, _) => "allows it for other clients",
                    (Lacks::Method, _) => "applies to this client, but allows other operations",
                    (Lacks::Object, Some((Section::StateStore, _))) => "allows it for other keys",
                    (Lacks::Object, _) => "allows it for other topics or client ids",
                    (Lacks::OtherMethod, _) => "has this key with another method",
                };
                write!(f, "refused; {place} {of}")
            }
        }
    }
}

impl Policy {
    /// Decides whether a principal may perform an action. The decision names the rule that allows
    /// it, or the nearest rule.
    ///
    /// Takes time in proportion to the document. At most 2 MiB of patterns
    /// and keys are compared to find a rule that allows the action, and as many to find the nearest
    /// rule. An action that was not found to be allowed within that limit is refused.
    #[must_use]
    pub fn decide(&self, principal: &Principal<'_>, action: &Action<'_>) -> Decision {
        if let Action::Fence(key) = action {
            let write = self.decide(principal, &Action::Write(key));
            if !self.has_fences || !write.is_allowed() {
                return write;
            }
        }
        let mut nearest: Option<(Place, Lacks)> = None;
        let mut near = |place: Place, lacks: Lacks| {
            if nearest.is_none_or(|(_, before)| lacks > before) {
                nearest = Some((place, lacks));
            }
        };
        // Resources that cannot allow the action, but may be the nearest, have a separate limit.
        // Otherwise the decision could differ from that of `Rights`.
        let (mut work, mut aside) = (WORK_MAX, WORK_MAX);
        for (at, rule) in self.rules.iter().enumerate() {
            let is_for = rule.principals.has(principal);
            if is_for {
                near(Place { rule: at, resource: None, line: rule.line }, Lacks::Method);
            }
            for resource in &rule.resources {
                let place = Place {
                    rule: at,
                    resource: Some((resource.section, resource.at)),
                    line: resource.line,
                };
                let grant = &resource.grant;
                let matchers = grant.matchers(principal);
                let counts = is_for && grant.is_about(action);
                let work = if counts { &mut work } else { &mut aside };
                let has = matchers.iter().any(|one| one.matches(action, principal, work));
                match (is_for, grant.is_about(action), has) {
                    (true, true, true) => return Decision::Allowed(place),
                    (true, true, false) => near(place, Lacks::Object),
                    (true, false, true) if grant.is_of_keys(action) => {
                        near(place, Lacks::OtherMethod);
                    }
                    (false, true, true) => near(place, Lacks::Principal),
                    _ => {}
                }
            }
        }
        Decision::Refused(nearest)
    }
}
