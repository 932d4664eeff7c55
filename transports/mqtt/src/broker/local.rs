//! The host, and other clients in the same process.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::time::Duration;

use super::connection::Connection;
use super::inbox::Item;
use super::message::Message;
use super::session::{Queued, Route, Session};
use super::{Broker, ConnectionId, SessionId, Wake};
use crate::packet::{Publish, Subscription};
use crate::property::Encode;
use crate::reason::Reason;

/// A client with more than this part of its share unread gets no answers until it reads: the host is not shown what it
/// asks.
const UNREAD_PART: usize = 4;

/// One attachment of a client in this process, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(u64);

/// What there is for a client in this process.
#[derive(Clone, Debug)]
pub enum LocalEvent {
    /// A message.
    Message(Arc<Message>),
    /// For the host: a client has gone, behind everything that it has sent.
    Gone(Arc<str>),
    /// The attachment was ended.
    Detached(Reason),
}

/// Nothing more is taken from this client until the host has taken some of what it sent; [`Wake::Local`] says when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("as much waits for the host as one client may have waiting")
    }
}

impl core::error::Error for Busy {}

impl Broker {
    /// Attaches a client in this process, with a new session. Whoever has this client id is disconnected.
    ///
    /// # Errors
    /// The reason, when the rules do not allow it, it is the host's, or there are too many sessions.
    pub fn attach(&mut self, now: Duration, client_id: &str) -> Result<LocalId, Reason> {
        let own = self.host.and_then(|host| self.sessions.get(&host));
        if own.is_some_and(|own| *own.client_id == *client_id) {
            return Err(Reason::CLIENT_IDENTIFIER_NOT_VALID);
        }
        self.config.rules.may_connect(client_id)?;
        let is_known = self.by_client.contains_key(client_id);
        if !is_known && !self.has_room_for_session(now) {
            return Err(Reason::QUOTA_EXCEEDED);
        }
        let (session, _) = self.open(now, &client_id.into(), true);
        let id = self.attach_to(session);
        // It may be this one that there is no room for, and then it hears of it.
        self.settle(now);
        Ok(id)
    }

    /// Attaches the host. There is one: whoever was is detached, and what waited for it waits for the new one.
    pub fn attach_host(&mut self, now: Duration, client_id: &str) -> LocalId {
        let client_id: Arc<str> = client_id.into();
        let session = match self.host {
            Some(host) => {
                self.detached(host, Some(Reason::SESSION_TAKEN_OVER));
                host
            }
            None => self.open(now, &client_id, true).0,
        };
        self.host = Some(session);
        if !self.inbox.is_empty() {
            self.wake_host();
        }
        let id = self.attach_to(session);
        self.settle(now);
        id
    }

    fn attach_to(&mut self, session: SessionId) -> LocalId {
        let id = LocalId(self.number());
        self.locals.insert(id, Ok(session));
        if let Some(kept) = self.sessions.get_mut(&session) {
            kept.route = Route::Local(id);
        }
        id
    }

    /// Ends an attachment; its session goes with it, but for that of the host. Also after it was ended already, so that
    /// nothing is remembered of it.
    pub fn detach(&mut self, now: Duration, id: LocalId) {
        let Some(Ok(session)) = self.locals.remove(&id) else { return };
        if let Some(kept) = self.sessions.get_mut(&session) {
            kept.route = Route::Away;
        }
        if Some(session) != self.host {
            self.leave(now, session);
            self.settle(now);
        }
    }

    /// Notes why an attachment is over.
    pub(super) fn detached(&mut self, session: SessionId, reason: Option<Reason>) {
        let Some(kept) = self.sessions.get_mut(&session) else { return };
        if let Route::Local(id) = kept.route {
            kept.route = Route::Away;
            let reason = reason.unwrap_or(Reason::UNSPECIFIED_ERROR);
            self.locals.insert(id, Err(reason));
            self.wake_local(id);
        }
    }

    fn local(&self, id: LocalId) -> Result<SessionId, Reason> {
        self.locals.get(&id).copied().unwrap_or(Err(Reason::UNSPECIFIED_ERROR))
    }

    /// Subscribes at once, and gives what a SUBACK would say.
    pub fn subscribe_local(&mut self, id: LocalId, subscription: &Subscription<'_>) -> Reason {
        let session = match self.local(id) {
            Ok(session) => session,
            Err(reason) => return reason,
        };
        let reason = self.subscribe(session, subscription, None);
        self.wants_replay(session);
        reason
    }

    /// Publishes at once, and gives what a PUBACK would say. The host may publish anywhere; for the others the rules count.
    ///
    /// # Errors
    /// [`Busy`]; nothing was published then.
    pub fn publish_local<P: Encode>(
        &mut self,
        now: Duration,
        id: LocalId,
        publish: &Publish<'_, P>,
    ) -> Result<Reason, Busy> {
        let session = match self.local(id) {
            Ok(session) => session,
            Err(reason) => return Ok(reason),
        };
        let Some(kept) = self.sessions.get(&session) else { return Ok(Reason::UNSPECIFIED_ERROR) };
        self.stats.published += 1;
        if Some(session) == self.host {
            let reason = match Message::new(now, None, publish.topic, publish) {
                Ok(message) => self.route(now, &Arc::new(message)),
                Err(_) => Reason::IMPLEMENTATION_SPECIFIC_ERROR,
            };
            self.settle(now);
            return Ok(reason);
        }
        if self.inbox.bytes(&kept.client_id) >= self.config.limits.waiting {
            return Err(Busy);
        }
        let reason = self.publish(now, session, publish.topic, publish);
        self.settle(now);
        Ok(reason)
    }

    /// Delivers to one client and nobody else, whether or not it subscribes, once, behind what it was sent before. One that it
    /// cannot be delivered to is disconnected, so that it knows that it has missed something.
    ///
    /// Gives [`Reason::NO_MATCHING_SUBSCRIBERS`] when that client is not there.
    pub fn deliver<P: Encode>(
        &mut self,
        now: Duration,
        client_id: &str,
        publish: &Publish<'_, P>,
    ) -> Reason {
        let gone = Reason::NO_MATCHING_SUBSCRIBERS;
        let Some(id) = self.by_client.get(client_id).copied() else { return gone };
        let Some(session) = self.sessions.get_mut(&id).filter(|one| one.is_connected()) else {
            return gone;
        };
        let Ok(message) = Message::new(now, None, publish.topic, publish) else {
            return Reason::IMPLEMENTATION_SPECIFIC_ERROR;
        };
        let queued = Queued {
            qos: publish.qos,
            message: Arc::new(message),
            retain: false,
            subscription_ids: [].into(),
            must_arrive: true,
        };
        session.push(&mut self.memory, queued);
        self.wake_session(id);
        self.check_share(now, id);
        self.settle(now);
        if self.sessions.get(&id).is_some_and(Session::is_connected) {
            Reason::SUCCESS
        } else {
            gone
        }
    }

    /// The next thing for a client in this process, or for the host.
    #[must_use]
    pub fn poll_local(&mut self, now: Duration, id: LocalId) -> Option<LocalEvent> {
        let session = match self.local(id) {
            Ok(session) => session,
            Err(reason) => return Some(LocalEvent::Detached(reason)),
        };
        if Some(session) != self.host {
            let kept = self.sessions.get_mut(&session)?;
            let next = loop {
                let next = kept.pop(&mut self.memory);
                let is_late = next.as_ref().is_some_and(|next| next.message.has_expired(now));
                if !is_late {
                    break next;
                }
                self.stats.dropped += 1;
            };
            self.wants_replay(session);
            self.has_read(session);
            return next.map(|next| LocalEvent::Message(next.message));
        }
        loop {
            let most = self.config.limits.share / UNREAD_PART;
            let is_ready = |sender: &str| {
                let session = self.by_client.get(sender).and_then(|id| self.sessions.get(id));
                session.is_none_or(|one| may_ask(one, &self.connections, most))
            };
            let (sender, item) = self.inbox.pop(&mut self.memory, is_ready)?;
            self.let_go(&sender);
            match item {
                Item::Gone => return Some(LocalEvent::Gone(sender)),
                Item::Message(message) if !message.has_expired(now) => {
                    return Some(LocalEvent::Message(message));
                }
                Item::Message(_) => self.stats.dropped += 1,
            }
        }
    }

    /// Whether a client is connected or attached, or the host has something of it still to take: otherwise nobody need
    /// remember it for the host, which is told of those who have gone, but not when too many of them wait to be told.
    #[must_use]
    pub fn concerns_host(&self, client_id: &str) -> bool {
        self.is_connected(client_id) || self.inbox.user(client_id).is_some()
    }

    /// Whether an attachment goes on; [`poll_local`](Self::poll_local) says why not.
    #[must_use]
    pub fn is_attached(&self, id: LocalId) -> bool {
        self.local(id).is_ok()
    }

    /// Whether a client in this process may [publish](Self::publish_local).
    #[must_use]
    pub fn wants_local(&self, id: LocalId) -> bool {
        let session = self.local(id).ok().and_then(|session| self.sessions.get(&session));
        session.is_none_or(|kept| self.inbox.bytes(&kept.client_id) < self.config.limits.waiting)
    }

    /// Lets the host go on with what a client has asked for, once that has read enough of its answers.
    pub(super) fn has_read(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if !may_ask(session, &self.connections, self.config.limits.share / UNREAD_PART) {
            return;
        }
        let client_id = Arc::clone(&session.client_id);
        if self.inbox.unpark(&client_id) {
            self.wake_host();
        }
    }

    pub(super) fn wake_host(&mut self) {
        if let Some(Route::Local(id)) =
            self.host.and_then(|host| self.sessions.get(&host)).map(|host| host.route)
        {
            self.wake_local(id);
        }
    }

    /// Says that there is something to do for a client in this process.
    pub(super) fn wake_local(&mut self, id: LocalId) {
        if self.woken.insert(id) {
            self.wakes.push_back(Wake::Local(id));
        }
    }
}

/// Whether the host is shown what a client asks for: not while it does not read its answers. Who is held up cannot
/// acknowledge them; that one goes on when it has been given all that it may be, or it would be stuck for ever.
fn may_ask(
    session: &Session,
    connections: &BTreeMap<ConnectionId, Connection>,
    unread_max: usize,
) -> bool {
    if session.unread() <= unread_max {
        return true;
    }
    match session.route {
        Route::Away => true,
        Route::Local(_) => false,
        Route::Connection(id) => {
            connections.get(&id).is_none_or(|one| one.is_held_up && !session.may_send(one.window))
        }
    }
}
