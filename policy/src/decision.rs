//! What is allowed, and why.

use core::fmt;

use crate::ask::{Action, Principal};
use crate::rule::{Policy, Section, WORK_MAX};

/// A place in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rule, from 0.
    pub rule: usize,
    /// Its section, and the resource there, from 0; `None` where it has none that matters.
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

/// What is missing where a rule came near, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// It is for somebody else.
    Principal,
    /// It is about other actions.
    Method,
    /// It is about other keys, topics or client ids.
    Object,
    /// It has the key, but for another method: reading and not writing, for instance.
    OtherMethod,
}

/// Whether something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// By this.
    Allowed(Place),
    /// Nothing allows it. This came nearest, if anything did, and what it lacks.
    Refused(Option<(Place, Lacks)>),
}

impl Decision {
    /// Whether it is allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(place) => write!(f, "allowed by {place}"),
            Self::Refused(None) => f.write_str("refused; no rule comes near"),
            Self::Refused(Some((place, lacks))) => {
                let of = match (lacks, place.resource) {
                    (Lacks::Principal, _) => "allows it for others",
                    (Lacks::Method, _) => "is for this principal and allows other things",
                    (Lacks::Object, Some((Section::StateStore, _))) => "allows it for other keys",
                    (Lacks::Object, _) => "allows it for other topics or client ids",
                    (Lacks::OtherMethod, _) => "has this key for another method",
                };
                write!(f, "refused; {place} {of}")
            }
        }
    }
}

impl Policy {
    /// Whether a principal may do something, and by which rule; or which came nearest.
    ///
    /// Takes time in proportion to the document. Some million bytes of patterns and keys are looked at for what may be
    /// allowed, and as many for what came near; what is not found by then is refused.
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
        // Each kind of matchers has its own in the rights of a principal; here it is for what counts.
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
