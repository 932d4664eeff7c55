//! The part of a policy that applies to one principal.

use alloc::boxed::Box;
use alloc::vec::Vec;

use statestore_proto::store::Access;

use crate::action::{Action, Principal};
use crate::rule::{Grant, Matcher, Policy, WORK_MAX};

/// The rights of one principal: its part of a policy, with all placeholders filled in.
///
/// Decides like [`Policy::decide`], but faster and without the reason, for use with every message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    client_id: Box<str>,
    connect: Vec<Matcher>,
    publish: Vec<Matcher>,
    subscribe: Vec<Matcher>,
    read: Vec<Matcher>,
    write: Vec<Matcher>,
    /// `None` if every key that may be written may also be fenced.
    fence: Option<Vec<Matcher>>,
}

impl Policy {
    /// Returns the rights of a principal.
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
    /// Returns whether an action is allowed. An action that takes more than some milliseconds to
    /// decide is refused.
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

    /// Returns whether the client id matches a pattern of client ids. False if it may connect only
    /// because any client id may.
    #[must_use]
    pub fn names_client_id(&self) -> bool {
        let principal = Principal { client_id: &self.client_id, ..Principal::default() };
        let patterns = self.connect.iter().filter(|one| **one != Matcher::All);
        let mut work = WORK_MAX;
        patterns.into_iter().any(|one| one.matches(&Action::Connect, &principal, &mut work))
    }
}

impl statestore_proto::transport::Rights for Rights {
    fn allow_key(&self, access: Access, key: &[u8]) -> bool {
        Action::of_key(access, key).is_some_and(|action| self.allow(&action))
    }
}
