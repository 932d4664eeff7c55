//! What is left of a policy for one principal.

use alloc::boxed::Box;
use alloc::vec::Vec;

use statestore_proto::store::Access;

use crate::ask::{Action, Principal};
use crate::rule::{Grant, Matcher, Policy, WORK_MAX};

/// What one principal may do: its part of a policy, with what it has in the place of the words for it.
///
/// For whoever asks about every message; [`Policy::decide`] says the same, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    client_id: Box<str>,
    connect: Vec<Matcher>,
    publish: Vec<Matcher>,
    subscribe: Vec<Matcher>,
    read: Vec<Matcher>,
    write: Vec<Matcher>,
    /// `None` where what may be written may be fenced.
    fence: Option<Vec<Matcher>>,
}

impl Policy {
    /// What a principal may do.
    #[must_use]
    pub fn rights(&self, principal: &Principal<'_>) -> Rights {
        let mut rights = Rights {
            client_id: principal.client_id.into(),
            connect: Vec::new(),
            publish: Vec::new(),
            subscribe: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            fence: self.has_fences.then(Vec::new),
        };
        let rules = self.rules.iter().filter(|rule| rule.principals.has(principal));
        for resource in rules.flat_map(|rule| &rule.resources) {
            let matchers = resource.grant.matchers(principal);
            match resource.grant {
                Grant::Connect(_) => rights.connect.extend(matchers),
                Grant::Publish(_) => rights.publish.extend(matchers),
                Grant::Subscribe(_) => rights.subscribe.extend(matchers),
                Grant::Keys { fence: true, .. } => {
                    rights.fence.get_or_insert_default().extend(matchers)
                }
                Grant::Keys { read, write, .. } => {
                    if read && write {
                        rights.read.extend(matchers.iter().cloned());
                        rights.write.extend(matchers);
                    } else if read {
                        rights.read.extend(matchers);
                    } else if write {
                        rights.write.extend(matchers);
                    }
                }
            }
        }
        rights
    }
}

impl Rights {
    /// Whether something is allowed. What takes more than some milliseconds to find out is not.
    #[must_use]
    pub fn allow(&self, action: &Action<'_>) -> bool {
        let matchers = match action {
            Action::Connect => &self.connect,
            Action::Publish(_) => &self.publish,
            Action::Subscribe(_) => &self.subscribe,
            Action::Read(_) => &self.read,
            Action::Write(_) => &self.write,
            Action::Fence(key) => match &self.fence {
                Some(fence) if self.allow(&Action::Write(key)) => fence,
                Some(_) => return false,
                None => &self.write,
            },
        };
        let principal = Principal { client_id: &self.client_id, ..Principal::default() };
        let mut work = WORK_MAX;
        matchers.iter().any(|one| one.matches(action, &principal, &mut work))
    }

    /// Whether the client id matches a pattern of client ids; not if it may connect because any may.
    #[must_use]
    pub fn names_client_id(&self) -> bool {
        let principal = Principal { client_id: &self.client_id, ..Principal::default() };
        let patterns = self.connect.iter().filter(|one| **one != Matcher::All);
        let mut work = WORK_MAX;
        patterns.into_iter().any(|one| one.matches(&Action::Connect, &principal, &mut work))
    }

    /// Whether a store may do this with a key for the principal.
    #[must_use]
    pub fn allow_key(&self, access: Access, key: &[u8]) -> bool {
        Action::of_key(access, key).is_some_and(|action| self.allow(&action))
    }
}
