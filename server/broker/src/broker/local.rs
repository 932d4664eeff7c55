//! The host, and other clients in the same process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::Broker;
use crate::config::SenderDetails;
use crate::connections::Connections;
use crate::ids::{ConnectionId, LocalId, SessionId};
use crate::inbox::Item;
use crate::message::{Message, SharedPayload};
use crate::outgoing::QueuedMessage;
use crate::session::{Route, Session};
use statestore_mqtt::packet::{Publish, Subscription};
use statestore_mqtt::property::Encode;
use statestore_mqtt::{Reason, Unwritable};

/// Divisor of a client's memory limit. While its unread messages exceed this part, the host does
/// not receive its requests.
const UNREAD_PART: usize = 4;

/// Minimum bytes of a payload that messages of the host share. Shorter payloads are copied, which
/// costs little.
const SHARED_BYTES_MIN: usize = 1 << 10;

/// An event for a client in this process.
#[derive(Clone, Debug)]
pub enum LocalEvent {
    /// A message. For the host, with what the access control list of the sender [knew about
    /// it](crate::Acl::details).
    Message(Arc<Message>, Option<SenderDetails>),
    /// For the host: this client has disconnected. It follows all messages of the client.
    Gone(Arc<str>),
    /// The attachment was ended.
    Detached(Reason),
}

/// The limit of [`Limits::host_queue_bytes`](crate::Limits::host_queue_bytes) is reached for this
/// client. After the host has processed some of its messages, the broker emits
/// [`Wake::Local`](crate::Wake::Local).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the host queue of this client is full")
    }
}

impl core::error::Error for Busy {}

impl Broker {
    /// Attaches a client in this process, with a new session. A client with the same client id is
    /// disconnected.
    ///
    /// # Errors
    /// The reason if the access control list of the [`Config`](crate::Config) denies it, the client
    /// id belongs to the host, or the limit of sessions is reached.
    pub fn attach(&mut self, now: Duration, client_id: &str) -> Result<LocalId, Reason> {
        if self.sessions.is_host_client(client_id) {
            return Err(Reason::CLIENT_IDENTIFIER_NOT_VALID);
        }
        self.config.acl.may_connect(client_id)?;
        // Requests that a user sent with this client id are still waiting. They must not be
        // attributed to this client.
        if self.inbox.user(client_id).is_some_and(|user| user.is_some()) {
            return Err(Reason::SERVER_BUSY);
        }
        let is_known = self.sessions.find(client_id).is_some();
        let owner = self.owners.find(None, None, client_id);
        if !is_known && !self.ensure_session_capacity(now, &owner) {
            return Err(Reason::QUOTA_EXCEEDED);
        }
        let (session, _) = self.open_session(now, &client_id.into(), &owner, true);
        let id = self.attach_to(session);
        // May evict the new session; the client then polls `LocalEvent::Detached`.
        self.settle(now);
        Ok(id)
    }

    /// Attaches the host. The broker has one host: a previous one is detached, and the new host
    /// receives the messages that were queued for it. Its session, with the first `client_id`,
    /// stays the same.
    pub fn attach_host(&mut self, now: Duration, client_id: &str) -> LocalId {
        let client_id: Arc<str> = client_id.into();
        let session = match self.sessions.host() {
            Some(host) => {
                self.end_attachment(host, Some(Reason::SESSION_TAKEN_OVER));
                host
            }
            None => {
                let owner = self.owners.find(None, None, &client_id);
                self.open_session(now, &client_id, &owner, true).0
            }
        };
        self.sessions.set_host(session);
        let id = self.attach_to(session);
        if !self.inbox.is_empty() {
            self.wake_host();
        }
        self.settle(now);
        id
    }

    fn attach_to(&mut self, session_id: SessionId) -> LocalId {
        let id = LocalId(self.next_number());
        self.attachments.insert(id, session_id);
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.route = Route::Local(id);
        }
        id
    }

    /// Ends an attachment. Its session ends too, unless it is the host's. Call it also for an
    /// attachment that the broker has ended, to free its memory.
    pub fn detach(&mut self, now: Duration, id: LocalId) {
        let Some(session_id) = self.attachments.remove(id) else { return };
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.route = Route::Detached;
        }
        if self.sessions.is_host(session_id) {
            self.release_all();
        } else {
            self.detach_session(now, session_id);
            self.settle(now);
        }
    }

    /// Subscribes, and returns the reason code of a SUBACK.
    pub fn subscribe_local(&mut self, id: LocalId, subscription: &Subscription<'_>) -> Reason {
        let session = match self.attachments.session(id) {
            Ok(session) => session,
            Err(reason) => return reason,
        };
        let reason = self.subscribe(session, subscription, None);
        self.sessions.schedule_replay(session);
        reason
    }

    /// Publishes, and returns the reason code of a PUBACK. The host may publish to every topic;
    /// other clients are subject to the access control list of the [`Config`](crate::Config).
    ///
    /// # Errors
    /// [`Busy`] if the host's queue for this client is full. The message was not published.
    pub fn publish_local<P: Encode>(
        &mut self,
        now: Duration,
        id: LocalId,
        publish: &Publish<'_, P>,
    ) -> Result<Reason, Busy> {
        let session_id = match self.attachments.session(id) {
            Ok(session_id) => session_id,
            Err(reason) => return Ok(reason),
        };
        let Some(session) = self.sessions.get(session_id) else {
            return Ok(Reason::UNSPECIFIED_ERROR);
        };
        self.stats.published += 1;
        if self.sessions.is_host(session_id) {
            let reason = match self.message_of_host(now, publish) {
                Ok(message) => self.route(now, &Arc::new(message), None),
                Err(_) => Reason::IMPLEMENTATION_SPECIFIC_ERROR,
            };
            self.settle(now);
            return Ok(reason);
        }
        if self.inbox.bytes(&session.client_id) >= self.config.limits.host_queue_bytes {
            return Err(Busy);
        }
        let reason = self.publish(now, session_id, publish.topic, publish);
        self.settle(now);
        Ok(reason)
    }

    /// Delivers a message to one client, whether or not it has subscribed, after the messages that
    /// are already queued for it. Like every message, it is dropped if it expires or exceeds the
    /// client's Maximum Packet Size.
    ///
    /// Returns [`Reason::NO_MATCHING_SUBSCRIBERS`] if the client is not connected.
    pub fn deliver<P: Encode>(
        &mut self,
        now: Duration,
        client_id: &str,
        publish: &Publish<'_, P>,
    ) -> Reason {
        let gone = Reason::NO_MATCHING_SUBSCRIBERS;
        let Some(id) = self.sessions.find(client_id) else { return gone };
        if !self.sessions.get(id).is_some_and(Session::is_connected) {
            return gone;
        }
        let Ok(message) = self.message_of_host(now, publish) else {
            return Reason::IMPLEMENTATION_SPECIFIC_ERROR;
        };
        let queued = QueuedMessage {
            qos: publish.qos,
            message: Arc::new(message),
            retain: false,
            subscription_ids: [].into(),
        };
        let Some(session) = self.sessions.get_mut(id) else { return gone };
        session.push(&mut self.memory, queued);
        self.sessions.update_eviction_place(id);
        self.wake_session(id);
        self.check_session_memory(now, id);
        self.settle(now);
        if self.sessions.get(id).is_some_and(Session::is_connected) {
            Reason::SUCCESS
        } else {
            gone
        }
    }

    /// Copies a PUBLISH of the host, except for a long payload that equals the last one: the messages
    /// share it. The notifications of one change follow each other and differ only in their topics.
    /// Their copies of a long value could exceed the memory limit of the broker.
    fn message_of_host<P: Encode>(
        &mut self,
        now: Duration,
        publish: &Publish<'_, P>,
    ) -> Result<Message, Unwritable> {
        if publish.payload.len() < SHARED_BYTES_MIN {
            return Message::of_host(now, publish, None);
        }
        let last = self.last_payload.upgrade();
        let payload = last.filter(|last| last.bytes() == publish.payload).unwrap_or_else(|| {
            let payload = Arc::new(SharedPayload::new(publish.payload));
            self.last_payload = Arc::downgrade(&payload);
            payload
        });
        Message::of_host(now, publish, Some(payload))
    }

    /// Returns the next event for a client in this process or for the host.
    #[must_use]
    pub fn poll_local(&mut self, now: Duration, id: LocalId) -> Option<LocalEvent> {
        let session_id = match self.attachments.session(id) {
            Ok(session_id) => session_id,
            Err(reason) => return Some(LocalEvent::Detached(reason)),
        };
        if !self.sessions.is_host(session_id) {
            let session = self.sessions.get_mut(session_id)?;
            let next = loop {
                let next = session.pop(&mut self.memory);
                let is_expired = next.as_ref().is_some_and(|next| next.message.has_expired(now));
                if !is_expired {
                    break next;
                }
                self.stats.dropped += 1;
            };
            self.sessions.schedule_replay(session_id);
            self.unpark_if_read(session_id);
            return next.map(|next| LocalEvent::Message(next.message, None));
        }
        self.poll_host(now)
    }

    /// Returns the next event for the host.
    fn poll_host(&mut self, now: Duration) -> Option<LocalEvent> {
        self.host_is_paused = false;
        self.release_served();
        loop {
            let unread_max = self.config.limits.session_memory / UNREAD_PART;
            let is_ready = |sender: &str| {
                let session = self.sessions.by_client(sender);
                session.is_none_or(|session| can_be_served(session, &self.connections, unread_max))
            };
            let mut parked = Vec::new();
            let next = self.inbox.pop(&mut self.memory, &mut parked, is_ready);
            for sender in parked {
                let id = self.connection_of(&sender);
                self.release(id);
            }
            let (sender, item) = next?;
            let connection = self.connection_of(&sender);
            let is_paused = |id| self.connections.get(id).is_some_and(|it| it.is_paused);
            if connection.is_none_or(is_paused) {
                self.resume_if_host_queue_drained(&sender);
            }
            match item {
                Item::Gone => return Some(LocalEvent::Gone(sender)),
                Item::Message(message, details) if !message.has_expired(now) => {
                    self.served = connection;
                    return Some(LocalEvent::Message(message, details));
                }
                Item::Message(..) => {
                    self.stats.dropped += 1;
                    self.release(connection);
                }
            }
        }
    }

    /// Returns whether the driver should delay [`poll_output`](Self::poll_output) for a connection
    /// until its next wake: the host has not yet processed the only message of the client. Then the
    /// acknowledgement and the host's response leave in one write. The delay is optional.
    ///
    /// The wake follows when the host has processed the message and polls for its next event, when
    /// it is [paused](Self::pause_host), and when it is detached.
    ///
    /// ```
    /// use bytes::BytesMut;
    /// use statestore_broker::{Broker, ConnectionId, Output};
    /// # use core::time::Duration;
    ///
    /// fn poll(broker: &mut Broker, now: Duration, id: ConnectionId, to: &mut BytesMut) -> Output {
    ///     match broker.awaits_host(id) {
    ///         true => Output::Idle,
    ///         false => broker.poll_output(now, id, to),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn awaits_host(&self, id: ConnectionId) -> bool {
        self.awaiting_host.contains(&id) && !self.is_closing(id)
    }

    /// Reports that the host takes no messages now, because it is busy with earlier ones. No
    /// connection [awaits](Self::awaits_host) it until it [polls](Self::poll_local) again.
    ///
    /// ```
    /// use statestore_broker::{Broker, Config};
    /// # use core::time::Duration;
    ///
    /// let mut broker = Broker::new(Config::default());
    /// let host = broker.attach_host(Duration::ZERO, "store");
    /// // A journal writes the records of the host, which cannot store more of them.
    /// broker.pause_host();
    /// // The records are durable.
    /// assert!(broker.poll_local(Duration::ZERO, host).is_none());
    /// ```
    pub fn pause_host(&mut self) {
        if !core::mem::replace(&mut self.host_is_paused, true) {
            self.release_all();
        }
    }

    fn release_served(&mut self) {
        let served = self.served.take();
        self.release(served);
    }

    /// Marks a connection whose only message waits for the host, if a host is attached and polls.
    pub(super) fn set_awaits_host(&mut self, id: ConnectionId) {
        let host = self.sessions.host_session();
        let is_polled = host.is_some_and(Session::is_connected) && !self.host_is_paused;
        if is_polled {
            self.awaiting_host.insert(id);
        }
    }

    /// Wakes a connection if it awaits the host.
    fn release(&mut self, id: Option<ConnectionId>) {
        if let Some(id) = id.filter(|id| self.awaiting_host.remove(id)) {
            self.wake(id);
        }
    }

    /// Wakes all connections that await the host, because it is detached or paused.
    pub(super) fn release_all(&mut self) {
        self.served = None;
        for id in core::mem::take(&mut self.awaiting_host) {
            self.wake(id);
        }
    }

    fn connection_of(&self, client_id: &str) -> Option<ConnectionId> {
        match self.sessions.by_client(client_id)?.route {
            Route::Connection(id) => Some(id),
            Route::Local(_) | Route::Detached => None,
        }
    }

    /// Returns whether an attachment exists. If not, [`poll_local`](Self::poll_local) returns the
    /// reason.
    #[must_use]
    pub fn is_attached(&self, id: LocalId) -> bool {
        self.attachments.session(id).is_ok()
    }

    /// Returns whether a client in this process may [publish](Self::publish_local) without
    /// [`Busy`].
    #[must_use]
    pub fn can_publish_local(&self, id: LocalId) -> bool {
        let session = self.attachments.session(id).ok().and_then(|id| self.sessions.get(id));
        session.is_none_or(|session| {
            self.inbox.bytes(&session.client_id) < self.config.limits.host_queue_bytes
        })
    }

    /// Unparks the requests of a client that has read enough of its responses.
    pub(super) fn unpark_if_read(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let unread_max = self.config.limits.session_memory / UNREAD_PART;
        if !can_be_served(session, &self.connections, unread_max) {
            return;
        }
        let client_id = Arc::clone(&session.client_id);
        if self.inbox.unpark(&client_id) {
            self.wake_host();
        }
    }
}

/// Returns whether the host may receive a client's requests. It may not while the client does not
/// read its responses.
///
/// A paused client cannot acknowledge messages. Once it was sent all that its window allows, its
/// requests are processed; otherwise it would be blocked forever.
fn can_be_served(session: &Session, connections: &Connections, unread_max: usize) -> bool {
    if session.unread() <= unread_max {
        return true;
    }
    match session.route {
        Route::Detached => true,
        Route::Local(_) => false,
        Route::Connection(id) => connections
            .get(id)
            .is_none_or(|connection| connection.is_paused && !session.can_send(connection.window)),
    }
}
