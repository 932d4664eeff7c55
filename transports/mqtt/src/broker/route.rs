//! From a publisher to those who subscribe.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::inbound::{WORK_BYTES, WORK_MAX};
use super::inbox::Item;
use super::incidents::{IncidentKind, Note};
use super::message::Message;
use super::session::{Queued, Route};
use super::tree::{Choice, Match, Search};
use super::{Broker, SessionId};
use crate::qos::Qos;
use crate::reason::Reason;

/// What a will counts for, whoever subscribes to it.
const WILL_WORK: usize = 256;

/// Part of all memory that wills may take before they are published by whoever comes.
const WILLS_PART: usize = 16;

impl Broker {
    /// Retains a message if it wants that, and passes it on to everybody who subscribes.
    pub(super) fn route(&mut self, now: Duration, message: &Arc<Message>) -> Reason {
        // What is handed on at once is held here meanwhile, so that it counts once.
        self.memory.hold(message);
        let reason = self.retain_and_forward(now, message);
        self.memory.release(message);
        reason
    }

    fn retain_and_forward(&mut self, now: Duration, message: &Arc<Message>) -> Reason {
        let max = self.config.limits.retained;
        if message.retain() && !self.retained.set(&mut self.memory, message, max) {
            let reason = Reason::QUOTA_EXCEEDED;
            let client_id = message.sender().map(|sender| &**sender);
            let note = Note::new(IncidentKind::Retained, Some(reason));
            self.incidents.push(Note { client_id, topic: Some(message.topic()), ..note });
            return reason;
        }
        let mut matches = core::mem::take(&mut self.matches);
        matches.clear();
        let (sessions, host) = (&self.sessions, self.host);
        let who = |id| match sessions.get(&id) {
            Some(_) if Some(id) == host => Choice::Now,
            Some(session) if !session.rules.may_receive(&session.client_id, message.topic()) => {
                Choice::Never
            }
            Some(session) if session.is_connected() => Choice::Now,
            // What needs no acknowledgement is not kept for a client that is away.
            Some(_) if message.qos() == Qos::AtMostOnce => Choice::Never,
            Some(_) => Choice::Later,
            None => Choice::Never,
        };
        let mut search = Search { who: &who, found: &mut matches, work: 0 };
        self.tree.find(message.topic(), &mut search);
        self.work += search.work + message.size() / WORK_BYTES;
        matches.sort_unstable_by_key(|one| one.session);
        let mut is_received = false;
        for own in matches.chunk_by(|one, other| one.session == other.session) {
            is_received |= self.forward(now, message, own);
        }
        matches.clear();
        // Room for a few stays; one message to very many is rare.
        matches.shrink_to(1_024);
        self.matches = matches;
        if is_received { Reason::SUCCESS } else { Reason::NO_MATCHING_SUBSCRIBERS }
    }

    /// Passes a message on to one session, for all of its subscriptions that match. Whether it is for that session at all.
    fn forward(&mut self, now: Duration, message: &Arc<Message>, matches: &[Match]) -> bool {
        let Some(first) = matches.first() else { return false };
        let id = first.session;
        if Some(id) == self.host {
            self.forward_to_host(message);
            return true;
        }
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let client_id = &session.client_id;
        if !session.rules.may_receive(client_id, message.topic()) {
            return false;
        }
        let is_own = message.sender().is_some_and(|sender| sender == client_id);
        let wanted = || matches.iter().filter(|one| !(is_own && one.subscribed.no_local));
        let Some(qos) = wanted().map(|one| one.subscribed.qos).max() else { return false };
        let qos = qos.min(message.qos());
        let has_room = session.bytes() < self.config.limits.share / 2;
        // What needs no acknowledgement is not kept for a client that is away.
        if qos == Qos::AtMostOnce && (!session.is_connected() || !has_room) {
            if session.is_connected() {
                self.stats.dropped += 1;
                let (kind, topic) = (IncidentKind::Dropped, message.topic());
                self.incidents.push(Note::about(kind, &session.client_id, topic, None));
            }
            return true;
        }
        let subscription_ids: Vec<u32> = wanted().filter_map(|one| one.subscribed.id).collect();
        let queued = Queued {
            message: Arc::clone(message),
            qos,
            retain: message.retain() && wanted().any(|one| one.subscribed.retain_as_published),
            subscription_ids: subscription_ids.into_boxed_slice(),
            must_arrive: false,
        };
        session.push(&mut self.memory, queued);
        // What is looked up here is looked up for each of very many.
        let (route, is_beyond) = (session.route, session.bytes() > self.config.limits.share);
        self.wake_route(route);
        if is_beyond {
            self.check_share(now, id);
        }
        true
    }

    fn forward_to_host(&mut self, message: &Arc<Message>) {
        let Some(sender) = message.sender() else { return };
        let user = self.user(sender);
        let item = Item::Message(Arc::clone(message));
        self.inbox.push(&mut self.memory, sender, user, item);
        self.wake_host();
        self.hold_up(&Arc::clone(sender));
    }

    fn user(&self, client_id: &str) -> Option<Arc<str>> {
        let session = self.by_client.get(client_id).and_then(|id| self.sessions.get(id));
        session.and_then(|session| session.user.clone())
    }

    /// Reads nothing more from a client that has too much waiting for the host.
    fn hold_up(&mut self, sender: &str) {
        if self.inbox.bytes(sender) < self.config.limits.waiting {
            return;
        }
        let Some(session) = self.by_client.get(sender).copied() else { return };
        let route = self.sessions.get(&session).map(|session| session.route);
        let Some(Route::Connection(id)) = route else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_held_up = true;
            self.has_read(session);
        }
    }

    /// Goes on with a client of which the host has taken something.
    pub(super) fn let_go(&mut self, sender: &str) {
        let session = self.by_client.get(sender).copied();
        let route = session.and_then(|id| self.sessions.get(&id)).map(|session| session.route);
        if self.inbox.bytes(sender) >= self.config.limits.waiting {
            return;
        }
        match route {
            Some(Route::Connection(id)) => {
                if self.connections.get(&id).is_some_and(|connection| connection.is_held_up) {
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.is_held_up = false;
                    }
                    self.wake(id);
                }
            }
            Some(Route::Local(id)) => self.wake_local(id),
            Some(Route::Away) | None => {}
        }
    }

    /// Tells the host that a client has gone.
    pub(super) fn tell_host(&mut self, client_id: &Arc<str>) {
        let own = self.host.and_then(|host| self.sessions.get(&host));
        if own.is_some_and(|own| own.client_id != *client_id) {
            let user = self.user(client_id);
            self.inbox.push(&mut self.memory, client_id, user, Item::Gone);
            self.wake_host();
        }
    }

    /// Publishes what a client has left for the case that it goes without a word.
    pub(super) fn publish_will(&mut self, now: Duration, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let will_at = session.will_at;
        if let Some(will) = session.take_will(&mut self.memory) {
            if let Some(at) = will_at {
                self.timers.remove(&(at, super::Timer::Will(id)));
            }
            // Others may lose their sessions to it, and these have wills too; so it has to wait for its turn.
            let will = Arc::new(will.message.published(now));
            self.memory.hold(&will);
            self.will_bytes += will.size();
            self.wills.push_back(will);
        }
    }

    /// Sees to what a call has led to: memory to be given back, and wills to be published. Where wills wait already, those of this
    /// call wait behind them, so that nobody pays for those of others.
    pub(super) fn settle(&mut self, now: Duration) {
        self.relieve(now);
        // Nor may they take the memory of others while they wait.
        let are_many = self.will_bytes > self.config.limits.memory / WILLS_PART;
        if !self.do_wills_wait || are_many {
            self.publish_wills(now);
        }
    }

    /// Publishes wills, as many as a turn has room for.
    pub(super) fn publish_wills(&mut self, now: Duration) {
        while self.work <= WORK_MAX {
            let Some(will) = self.wills.pop_front() else { break };
            self.will_bytes -= will.size();
            self.work += WILL_WORK;
            self.route(now, &will);
            self.memory.release(&will);
            self.relieve(now);
        }
        self.do_wills_wait = !self.wills.is_empty();
    }

    /// Says that there may be something to do for a session.
    pub(super) fn wake_session(&mut self, id: SessionId) {
        if let Some(route) = self.sessions.get(&id).map(|session| session.route) {
            self.wake_route(route);
        }
    }

    fn wake_route(&mut self, route: Route) {
        match route {
            Route::Connection(connection) => self.wake(connection),
            Route::Local(id) => self.wake_local(id),
            Route::Away => {}
        }
    }
}
