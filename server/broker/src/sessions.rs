//! All sessions, their client ids and their subscriptions.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::budget::Budget;
use crate::ids::SessionId;
use crate::memory::Memory;
use crate::message::Message;
use crate::names::{self, KeyedHash, NameMap};
use crate::owner::Owner;
use crate::session::{EvictionPlace, Route, Session};
use crate::shares::Shares;
use crate::subscription_index::{
    Availability, Match, Search, SubscriptionEntry, SubscriptionIndex,
};
use crate::table::Table;
use statestore_mqtt::Qos;
use statestore_mqtt::topic::Filter;

/// Queued messages of a session at which its replay of retained messages pauses. It bounds the
/// queue, since a filter may match all retained messages.
pub(crate) const REPLAYED_MAX: usize = 32;

/// Capacity for subscribers that remains allocated. A message with more subscribers is rare.
const MATCHES_CAPACITY: usize = 1_024;

pub(crate) struct Sessions {
    sessions: Table<SessionId, Session>,
    by_client: NameMap<Arc<str>, SessionId>,
    /// Subscriptions of all sessions, by filter.
    subscriptions: SubscriptionIndex,
    /// Session of the host.
    host: Option<SessionId>,
    /// Sessions with retained messages left to replay.
    replaying: VecDeque<SessionId>,
    /// Sessions of disconnected clients by owner, in the order in which they are evicted. The
    /// weight of an owner is the number of all its sessions.
    detached: Shares<Arc<str>, (EvictionPlace, SessionId)>,
    /// Subscribers of a message. The field reuses the allocation.
    matches: Vec<Match>,
}

impl Sessions {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self {
            sessions: Table::default(),
            by_client: hash.new_map(),
            subscriptions: SubscriptionIndex::new(hash),
            host: None,
            replaying: VecDeque::new(),
            detached: Shares::default(),
            matches: Vec::new(),
        }
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Number of sessions without that of the host.
    pub(crate) fn client_count(&self) -> usize {
        self.sessions.len() - usize::from(self.host.is_some())
    }

    /// Iterates over all sessions except that of the host.
    pub(crate) fn iter_clients(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().filter(|(id, _)| !self.is_host(*id))
    }

    /// Returns the id of the session with a client id.
    pub(crate) fn find(&self, client_id: &str) -> Option<SessionId> {
        self.by_client.get(client_id).copied()
    }

    /// Returns the session with a client id.
    pub(crate) fn by_client(&self, client_id: &str) -> Option<&Session> {
        self.by_client.get(client_id).and_then(|id| self.sessions.get(*id))
    }

    /// Returns the user of the session with a client id.
    pub(crate) fn user(&self, client_id: &str) -> Option<Arc<str>> {
        self.by_client(client_id)?.user.clone()
    }

    pub(crate) const fn host(&self) -> Option<SessionId> {
        self.host
    }

    pub(crate) const fn set_host(&mut self, id: SessionId) {
        self.host = Some(id);
    }

    pub(crate) fn is_host(&self, id: SessionId) -> bool {
        self.host == Some(id)
    }

    pub(crate) fn host_session(&self) -> Option<&Session> {
        self.host.and_then(|host| self.sessions.get(host))
    }

    /// Returns whether a client id belongs to the host.
    pub(crate) fn is_host_client(&self, client_id: &str) -> bool {
        self.host_session().is_some_and(|host| *host.client_id == *client_id)
    }

    /// Adds a session. The number must be greater than that of each session before.
    pub(crate) fn insert(&mut self, number: u64, session: Session) -> SessionId {
        let client_id = Arc::clone(&session.client_id);
        self.detached.increase(session.owner().name(), 1);
        let id = self.sessions.insert(number, session);
        self.by_client.insert(client_id, id);
        id
    }

    /// Removes a session with its subscriptions, and frees its memory.
    pub(crate) fn remove(&mut self, memory: &mut Memory, budget: &mut Budget, id: SessionId) {
        let Some(mut session) = self.sessions.remove(id) else { return };
        if let Some(place) = session.eviction_place {
            self.detached.remove(session.owner().name(), (place, id));
        }
        self.detached.decrease(session.owner().name(), 1);
        if self.is_host(id) {
            self.host = None;
        }
        session.clear(memory);
        for filter in &session.subscriptions {
            budget.spend_filter(filter);
            if let Some(filter) = Filter::parse(filter) {
                self.subscriptions.remove(&filter, id);
            }
        }
        names::remove(&mut self.by_client, &session.client_id);
    }

    /// Sets who a session counts for: its client may connect from another address.
    pub(crate) fn set_owner(&mut self, memory: &mut Memory, id: SessionId, owner: Arc<Owner>) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if let Some(place) = session.eviction_place.take() {
            self.detached.remove(session.owner().name(), (place, id));
        }
        self.detached.decrease(session.owner().name(), 1);
        self.detached.increase(owner.name(), 1);
        session.set_owner(memory, owner);
        self.update_eviction_place(id);
    }

    /// Updates the place of a session in the order of eviction, after a change of its client's
    /// connection, its will or its messages.
    pub(crate) fn update_eviction_place(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let now = session.eviction_place_now();
        let before = core::mem::replace(&mut session.eviction_place, now);
        if before == now {
            return;
        }
        let owner = session.owner().name();
        if let Some(before) = before {
            self.detached.remove(owner, (before, id));
        }
        if let Some(now) = now {
            self.detached.insert(owner, (now, id));
        }
    }

    /// Returns the session of a disconnected client that is evicted for a session of this owner: of
    /// the owner with the most sessions, if it has more, or else of this owner. An empty session
    /// comes first, then the one that has been disconnected for longest.
    pub(crate) fn next_evicted(&self, owner: &Arc<str>) -> Option<SessionId> {
        let most =
            self.detached.first().filter(|(sessions, _)| *sessions > self.detached.weight(owner));
        let next = most.map(|(_, next)| next).or_else(|| self.detached.first_of(owner));
        next.map(|(_, id)| id)
    }

    /// Adds or replaces the subscription of a session. `text` is the filter with its share name.
    /// Returns the session, and whether the subscription is new.
    pub(crate) fn subscribe(
        &mut self,
        memory: &mut Memory,
        id: SessionId,
        text: &str,
        filter: &Filter<'_>,
        subscription: SubscriptionEntry,
    ) -> Option<(&mut Session, bool)> {
        let session = self.sessions.get_mut(id)?;
        let is_new = self.subscriptions.insert(filter, Match { session: id, subscription });
        session.subscribe(memory, text);
        Some((session, is_new))
    }

    /// Removes the subscription of a session. Returns whether it existed, or `None` without the
    /// session.
    pub(crate) fn unsubscribe(
        &mut self,
        memory: &mut Memory,
        id: SessionId,
        text: &str,
        filter: &Filter<'_>,
    ) -> Option<bool> {
        self.sessions.get_mut(id)?.unsubscribe(memory, text);
        Some(self.subscriptions.remove(filter, id))
    }

    /// Returns all matching subscriptions for a message, sorted by session. The caller returns the
    /// list with [`reuse`](Self::reuse).
    pub(crate) fn find_subscribers(
        &mut self,
        budget: &mut Budget,
        message: &Message,
    ) -> Vec<Match> {
        let mut matches = core::mem::take(&mut self.matches);
        let (sessions, host) = (&self.sessions, self.host);
        let availability = |id| match sessions.get(id) {
            Some(_) if Some(id) == host => Availability::Now,
            Some(session) if !session.acl.may_receive(&session.client_id, message.topic()) => {
                Availability::Never
            }
            Some(session) if session.is_connected() => Availability::Now,
            // A message at QoS 0 is not queued for a disconnected client.
            Some(_) if message.qos() == Qos::AtMostOnce => Availability::Never,
            Some(_) => Availability::Later,
            None => Availability::Never,
        };
        let mut search = Search { availability: &availability, found: &mut matches, work: 0 };
        self.subscriptions.find(message.topic(), &mut search);
        budget.spend(search.work);
        budget.spend_bytes(message.size());
        matches.sort_unstable_by_key(|found| found.session);
        matches
    }

    /// Reuses the allocation of a list of subscribers.
    pub(crate) fn reuse(&mut self, mut matches: Vec<Match>) {
        matches.clear();
        matches.shrink_to(MATCHES_CAPACITY);
        self.matches = matches;
    }

    /// Queues a session with pending replays for its turn, if its queue has capacity.
    pub(crate) fn schedule_replay(&mut self, id: SessionId) {
        let wants = |session: &&mut Session| {
            !session.is_replaying
                && !session.replays.is_empty()
                && session.is_connected()
                && session.queued_len() < REPLAYED_MAX
        };
        if let Some(session) = self.sessions.get_mut(id).filter(wants) {
            session.is_replaying = true;
            self.replaying.push_back(id);
        }
    }

    /// Returns whether a session waits for its turn to replay retained messages.
    pub(crate) fn has_replays(&self) -> bool {
        !self.replaying.is_empty()
    }

    /// Returns the next session whose replay continues.
    pub(crate) fn next_replay(&mut self) -> Option<SessionId> {
        let id = self.replaying.pop_front()?;
        if let Some(session) = self.sessions.get_mut(id) {
            session.is_replaying = false;
        }
        Some(id)
    }

    /// Returns the route to the client of a session.
    pub(crate) fn route(&self, id: SessionId) -> Option<Route> {
        self.sessions.get(id).map(|session| session.route)
    }
}
