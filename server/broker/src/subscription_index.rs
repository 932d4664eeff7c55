//! Subscriptions: a table of the filters without wildcards, and a tree of filter levels for the
//! others.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::str::Split;

use crate::ids::SessionId;
use crate::names::{self, KeyedHash, NameMap};
use statestore_mqtt::Qos;
use statestore_mqtt::topic::Filter;

/// Maximum bytes of a level of a filter with wildcards, without its text: a node and its place in
/// the table of its parent, which has unused capacity.
const NODE_BYTES: usize = 640;

/// Maximum bytes of a subscription without its filter, and without the nodes of its levels: the
/// entry of the session, and the entry or the group of the subscribers.
const SUBSCRIPTION_BYTES: usize = 1_152;

/// Options of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionEntry {
    pub(crate) qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) id: Option<u32>,
}

/// A session with one of its matching subscriptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) session: SessionId,
    pub(crate) subscription: SubscriptionEntry,
}

type Subscribers = BTreeMap<SessionId, SubscriptionEntry>;

/// The subscribers of a shared subscription.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Sorted by session.
    members: Vec<Match>,
    /// Index of the next member to receive a message.
    next: usize,
}

impl Group {
    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.members.binary_search_by_key(&session, |member| member.session)
    }

    /// Chooses the next member that is available now, or else the next member that becomes
    /// available later.
    fn choose(&mut self, search: &mut Search<'_>) -> Option<Match> {
        let len = self.members.len();
        let mut later = None;
        for at in (0..len).map(|step| (self.next + step) % len) {
            search.work += 1;
            let Some(member) = self.members.get(at) else { continue };
            match (search.availability)(member.session) {
                Availability::Now => {
                    self.next = at + 1;
                    return Some(*member);
                }
                Availability::Later => later = later.or(Some(at)),
                Availability::Never => {}
            }
        }
        let at = later?;
        self.next = at + 1;
        self.members.get(at).copied()
    }
}

/// Ability of a member of a shared subscription to receive a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    Now,
    /// When the client reconnects.
    Later,
    Never,
}

/// A search for the subscribers of a topic.
pub(crate) struct Search<'a> {
    /// Returns the availability of a member of a shared subscription.
    pub(crate) availability: &'a dyn Fn(SessionId) -> Availability,
    /// All subscribers, once per matching filter, and one member of each shared subscription.
    pub(crate) found: &'a mut Vec<Match>,
    /// Work units: visited nodes, subscriptions and members. See [`Budget`](crate::budget::Budget).
    pub(crate) work: usize,
}

#[derive(Debug)]
struct Node {
    // Boxed, since a table has unused space for further entries.
    children: NameMap<Box<str>, Box<Self>>,
    /// The level `+`.
    any_child: Option<Box<Self>>,
    /// Subscribers whose filter ends at this level.
    subscribers: SubscriberSet,
    /// Subscribers whose filter ends with `#` below this level.
    all_below: SubscriberSet,
}

#[derive(Debug, Default)]
struct SubscriberSet {
    direct: Subscribers,
    shared: BTreeMap<Box<str>, Group>,
}

impl SubscriberSet {
    fn is_empty(&self) -> bool {
        self.direct.is_empty() && self.shared.is_empty()
    }

    fn insert(&mut self, share: Option<&str>, new: Match) -> bool {
        let Some(share) = share else {
            return self.direct.insert(new.session, new.subscription).is_none();
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
        let Some(share) = share else { return self.direct.remove(&session).is_some() };
        let Some(group) = self.shared.get_mut(share) else { return false };
        let found = group.find(session);
        if let Ok(at) = found {
            group.members.remove(at);
            // The capacity of a group counts for its members, so it must not outlive them.
            if group.members.len() < group.members.capacity() / 4 {
                group.members.shrink_to(2 * group.members.len());
            }
        }
        if group.members.is_empty() {
            self.shared.remove(share);
        }
        found.is_ok()
    }

    fn collect(&mut self, search: &mut Search<'_>) {
        let direct = self.direct.iter();
        search.work += self.direct.len() + self.shared.len();
        search
            .found
            .extend(direct.map(|(&session, &subscription)| Match { session, subscription }));
        for group in self.shared.values_mut() {
            let chosen = group.choose(search);
            search.found.extend(chosen);
        }
    }
}

/// All subscriptions.
#[derive(Debug)]
pub(crate) struct SubscriptionIndex {
    /// Subscribers by filters without wildcards. Most filters are of this kind, since each client
    /// subscribes to its response topic.
    exact: NameMap<Box<str>, SubscriberSet>,
    /// Subscribers by filters with wildcards. The depth of recursion is limited by
    /// [`Limits::levels`](crate::Limits::levels).
    wildcards: Node,
}

fn has_wildcard(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

impl SubscriptionIndex {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { exact: hash.new_map(), wildcards: Node::new(hash) }
    }

    /// Returns the maximum bytes of a subscription to this filter. Two copies of its text are
    /// counted: one here, one in the session.
    pub(crate) fn cost(filter: &str) -> usize {
        let nodes = if has_wildcard(filter) { filter.split('/').count() } else { 0 };
        2 * filter.len() + nodes * NODE_BYTES + SUBSCRIPTION_BYTES
    }

    /// Adds or replaces a subscription. Returns whether it is new.
    pub(crate) fn insert(&mut self, filter: &Filter<'_>, new: Match) -> bool {
        if has_wildcard(filter.filter) {
            return self.wildcards.insert(filter, new);
        }
        match self.exact.get_mut(filter.filter) {
            Some(subscribers) => subscribers.insert(filter.share, new),
            None => self.exact.entry(filter.filter.into()).or_default().insert(filter.share, new),
        }
    }

    /// Removes a subscription. Returns whether it existed.
    pub(crate) fn remove(&mut self, filter: &Filter<'_>, session: SessionId) -> bool {
        if has_wildcard(filter.filter) {
            return self.wildcards.remove(filter.filter.split('/'), filter.share, session);
        }
        let Some(subscribers) = self.exact.get_mut(filter.filter) else { return false };
        let removed = subscribers.remove(filter.share, session);
        if subscribers.is_empty() {
            names::remove(&mut self.exact, filter.filter);
        }
        removed
    }

    /// Finds all subscribers of a topic.
    pub(crate) fn find(&mut self, topic: &str, search: &mut Search<'_>) {
        if let Some(subscribers) = self.exact.get_mut(topic) {
            search.work += 1;
            subscribers.collect(search);
        }
        self.wildcards.find(topic.split('/'), topic.starts_with('$'), search);
    }
}

impl Node {
    fn new(hash: KeyedHash) -> Self {
        Self {
            children: hash.new_map(),
            any_child: None,
            subscribers: SubscriberSet::default(),
            all_below: SubscriberSet::default(),
        }
    }

    /// Adds or replaces a subscription. Returns whether it is new.
    fn insert(&mut self, filter: &Filter<'_>, new: Match) -> bool {
        let hash = *self.children.hasher();
        let mut node = self;
        for level in filter.filter.split('/') {
            node = match level {
                "#" => return node.all_below.insert(filter.share, new),
                "+" => node.any_child.get_or_insert_with(|| Box::new(Self::new(hash))),
                _ if node.children.contains_key(level) => {
                    let Some(next) = node.children.get_mut(level) else { return false };
                    next
                }
                _ => {
                    let child = node.children.entry(level.into());
                    child.or_insert_with(|| Box::new(Self::new(hash)))
                }
            };
        }
        node.subscribers.insert(filter.share, new)
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty()
            && self.any_child.is_none()
            && self.subscribers.is_empty()
            && self.all_below.is_empty()
    }

    fn remove(
        &mut self,
        mut levels: Split<'_, char>,
        share: Option<&str>,
        session: SessionId,
    ) -> bool {
        match levels.next() {
            None => self.subscribers.remove(share, session),
            Some("#") => self.all_below.remove(share, session),
            Some("+") => {
                let Some(child) = &mut self.any_child else { return false };
                let removed = child.remove(levels, share, session);
                if child.is_empty() {
                    self.any_child = None;
                }
                removed
            }
            Some(level) => {
                let Some(next) = self.children.get_mut(level) else { return false };
                let removed = next.remove(levels, share, session);
                if next.is_empty() {
                    names::remove(&mut self.children, level);
                }
                removed
            }
        }
    }

    /// Finds the subscribers of a topic below this level. `is_special` is set at the first level of
    /// a topic that begins with `$`, which wildcards do not match [MQTT-4.7.2-1].
    fn find(&mut self, mut levels: Split<'_, char>, is_special: bool, search: &mut Search<'_>) {
        search.work += 1;
        if !is_special {
            self.all_below.collect(search);
        }
        let Some(level) = levels.next() else { return self.subscribers.collect(search) };
        if let Some(child) = self.any_child.as_deref_mut().filter(|_| !is_special) {
            child.find(levels.clone(), false, search);
        }
        if let Some(next) = self.children.get_mut(level) {
            next.find(levels, false, search);
        }
    }
}
