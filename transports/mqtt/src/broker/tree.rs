//! Who subscribes to what: a tree of levels.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::str::Split;

use super::SessionId;
use crate::qos::Qos;
use crate::topic::Filter;

/// Bytes that one level of a filter takes in the tree at most, beside its text: a node, and the table that it stands in.
const NODE_BYTES: usize = 640;

/// Bytes that a subscription takes beside the levels of its filter.
const END_BYTES: usize = 640;

/// How somebody subscribes to one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subscribed {
    pub(super) qos: Qos,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    pub(super) id: Option<u32>,
}

/// One who gets a message, by one of its subscriptions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    pub(super) session: SessionId,
    pub(super) subscribed: Subscribed,
}

type Subscribers = BTreeMap<SessionId, Subscribed>;

/// Those that share a filter under one name.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// By their sessions.
    members: Vec<Match>,
    /// Who is next.
    turn: usize,
}

impl Group {
    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.members.binary_search_by_key(&session, |member| member.session)
    }

    /// The member whose turn it is, of those that are there; and else of those that will be.
    fn choose(&mut self, search: &mut Search<'_>) -> Option<Match> {
        let len = self.members.len();
        let mut later = None;
        for at in (0..len).map(|step| (self.turn + step) % len) {
            search.work += 1;
            let Some(member) = self.members.get(at) else { continue };
            match (search.who)(member.session) {
                Choice::Now => {
                    self.turn = at + 1;
                    return Some(*member);
                }
                Choice::Later => later = later.or(Some(at)),
                Choice::Never => {}
            }
        }
        let at = later?;
        self.turn = at + 1;
        self.members.get(at).copied()
    }
}

/// Whether one of those that share a filter can have a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Now,
    /// When its client is back.
    Later,
    Never,
}

/// A search for those who subscribe to a topic.
pub(super) struct Search<'a> {
    /// Who of those that share a filter can have the message.
    pub(super) who: &'a dyn Fn(SessionId) -> Choice,
    /// Everybody who subscribes, each as often as its filters match; of each share one.
    pub(super) found: &'a mut Vec<Match>,
    /// Nodes, subscriptions and members that were looked at.
    pub(super) work: usize,
}

#[derive(Debug, Default)]
struct Node {
    // Each in a box of its own: a table has room for eleven, and most have one.
    levels: BTreeMap<Box<str>, Box<Self>>,
    any: Option<Box<Self>>,
    /// Those whose filter ends here.
    here: Ends,
    /// Those whose filter goes on with `#`.
    below: Ends,
}

#[derive(Debug, Default)]
struct Ends {
    each: Subscribers,
    shared: BTreeMap<Box<str>, Group>,
}

impl Ends {
    fn is_empty(&self) -> bool {
        self.each.is_empty() && self.shared.is_empty()
    }

    fn insert(&mut self, share: Option<&str>, new: Match) -> bool {
        let Some(share) = share else {
            return self.each.insert(new.session, new.subscribed).is_none();
        };
        let group = match self.shared.get_mut(share) {
            Some(group) => group,
            None => self.shared.entry(share.into()).or_default(),
        };
        match group.find(new.session) {
            Ok(at) => {
                if let Some(member) = group.members.get_mut(at) {
                    *member = new;
                }
                false
            }
            Err(at) => {
                group.members.insert(at, new);
                true
            }
        }
    }

    fn remove(&mut self, share: Option<&str>, session: SessionId) -> bool {
        let Some(share) = share else { return self.each.remove(&session).is_some() };
        let Some(group) = self.shared.get_mut(share) else { return false };
        let found = group.find(session);
        if let Ok(at) = found {
            group.members.remove(at);
        }
        if group.members.is_empty() {
            self.shared.remove(share);
        }
        found.is_ok()
    }

    fn collect(&mut self, search: &mut Search<'_>) {
        let each = self.each.iter();
        search.work += self.each.len() + self.shared.len();
        search.found.extend(each.map(|(&session, &subscribed)| Match { session, subscribed }));
        for group in self.shared.values_mut() {
            let chosen = group.choose(search);
            search.found.extend(chosen);
        }
    }
}

/// All subscriptions. A filter has no more levels than the broker allows, and that is how deep calls nest.
#[derive(Debug, Default)]
pub(super) struct Tree(Node);

impl Tree {
    /// Bytes that a subscription to this filter takes at most.
    pub(super) fn cost(filter: &str) -> usize {
        2 * filter.len() + filter.split('/').count() * NODE_BYTES + END_BYTES
    }

    /// Adds a subscription, or changes it; whether there was none.
    pub(super) fn insert(&mut self, filter: &Filter<'_>, new: Match) -> bool {
        let mut node = &mut self.0;
        for level in filter.filter.split('/') {
            node = match level {
                "#" => return node.below.insert(filter.share, new),
                "+" => node.any.get_or_insert_default(),
                _ if node.levels.contains_key(level) => {
                    let Some(next) = node.levels.get_mut(level) else { return false };
                    next
                }
                _ => node.levels.entry(level.into()).or_default(),
            };
        }
        node.here.insert(filter.share, new)
    }

    /// Ends a subscription; whether there was one.
    pub(super) fn remove(&mut self, filter: &Filter<'_>, session: SessionId) -> bool {
        self.0.remove(filter.filter.split('/'), filter.share, session)
    }

    /// Finds everybody who subscribes to a topic.
    pub(super) fn find(&mut self, topic: &str, search: &mut Search<'_>) {
        self.0.find(topic.split('/'), topic.starts_with('$'), search);
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        self.levels.is_empty()
            && self.any.is_none()
            && self.here.is_empty()
            && self.below.is_empty()
    }

    fn remove(
        &mut self,
        mut levels: Split<'_, char>,
        share: Option<&str>,
        session: SessionId,
    ) -> bool {
        match levels.next() {
            None => self.here.remove(share, session),
            Some("#") => self.below.remove(share, session),
            Some("+") => {
                let Some(any) = &mut self.any else { return false };
                let removed = any.remove(levels, share, session);
                if any.is_empty() {
                    self.any = None;
                }
                removed
            }
            Some(level) => {
                let Some(next) = self.levels.get_mut(level) else { return false };
                let removed = next.remove(levels, share, session);
                if next.is_empty() {
                    self.levels.remove(level);
                }
                removed
            }
        }
    }

    fn find(&mut self, mut levels: Split<'_, char>, is_special: bool, search: &mut Search<'_>) {
        search.work += 1;
        if !is_special {
            self.below.collect(search);
        }
        let Some(level) = levels.next() else { return self.here.collect(search) };
        if let Some(any) = self.any.as_deref_mut().filter(|_| !is_special) {
            any.find(levels.clone(), false, search);
        }
        if let Some(next) = self.levels.get_mut(level) {
            next.find(levels, false, search);
        }
    }
}
