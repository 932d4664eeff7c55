//! Routing of messages from a publisher to subscribers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::Broker;
use crate::config::{Acl, SenderDetails};
use crate::ids::SessionId;
use crate::inbox::Item;
use crate::incidents::{IncidentKind, IncidentRef};
use crate::message::Message;
use crate::outgoing::QueuedMessage;
use crate::session::Route;
use crate::subscription_index::Match;
use statestore_mqtt::Qos;
use statestore_mqtt::Reason;

impl Broker {
    /// Stores the message if its RETAIN flag is set, and forwards it to all subscribers.
    ///
    /// The host receives only messages with a `sender`. It receives no wills: it would execute a
    /// request of a client that is gone, perhaps because its rights have ended.
    pub(super) fn route(
        &mut self,
        now: Duration,
        message: &Arc<Message>,
        sender: Option<&dyn Acl>,
    ) -> Reason {
        // Holds a reference during forwarding, so that the message counts once.
        self.memory.hold(message);
        let reason = self.retain_and_forward(now, message, sender);
        self.memory.release(message);
        reason
    }

    fn retain_and_forward(
        &mut self,
        now: Duration,
        message: &Arc<Message>,
        sender: Option<&dyn Acl>,
    ) -> Reason {
        let max = self.config.limits.retained_memory;
        let evicted = match message.retain() {
            true => self.retained.set(&mut self.memory, message, max),
            false => Some(0),
        };
        if let Some(evicted @ 1..) = evicted {
            self.stats.dropped += u64::try_from(evicted).unwrap_or(u64::MAX);
            self.incidents.push(IncidentRef::new(IncidentKind::RetainedEvicted, None));
        }
        if evicted.is_none() {
            let reason = Reason::QUOTA_EXCEEDED;
            let client_id = message.sender().map(|sender| &**sender);
            let incident = IncidentRef::new(IncidentKind::Retained, Some(reason));
            self.incidents.push(IncidentRef {
                client_id,
                topic: Some(message.topic()),
                ..incident
            });
            return reason;
        }
        let matches = self.sessions.find_subscribers(&mut self.budget, message);
        let mut is_received = false;
        for session_matches in matches.chunk_by(|found, other| found.session == other.session) {
            let Some(first) = session_matches.first() else { continue };
            if self.sessions.is_host(first.session) {
                if let Some(sender) = sender {
                    self.forward_to_host(message, sender.details());
                }
                is_received = true;
            } else {
                is_received |= self.forward(now, message, first.session, session_matches);
            }
        }
        self.sessions.reuse(matches);
        if is_received { Reason::SUCCESS } else { Reason::NO_MATCHING_SUBSCRIBERS }
    }

    /// Forwards a message to one session, for all its matching subscriptions. Returns whether the
    /// session is entitled to it.
    fn forward(
        &mut self,
        now: Duration,
        message: &Arc<Message>,
        id: SessionId,
        matches: &[Match],
    ) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let client_id = &session.client_id;
        if !session.acl.may_receive(client_id, message.topic()) {
            return false;
        }
        let is_own = message.sender().is_some_and(|sender| sender == client_id);
        let wanted = || matches.iter().filter(|found| !(is_own && found.subscription.no_local));
        let Some(qos) = wanted().map(|found| found.subscription.qos).max() else { return false };
        let qos = qos.min(message.qos());
        let has_capacity = session.bytes() < self.config.limits.session_memory / 2;
        // A message at QoS 0 is not queued for a disconnected client.
        if qos == Qos::AtMostOnce && (!session.is_connected() || !has_capacity) {
            if session.is_connected() {
                self.stats.dropped += 1;
                let (kind, topic) = (IncidentKind::Dropped, message.topic());
                self.incidents.push(IncidentRef::about(kind, &session.client_id, topic, None));
            }
            return true;
        }
        let subscription_ids: Vec<u32> =
            wanted().filter_map(|found| found.subscription.id).collect();
        let queued = QueuedMessage {
            message: Arc::clone(message),
            qos,
            retain: message.retain()
                && wanted().any(|found| found.subscription.retain_as_published),
            subscription_ids: subscription_ids.into_boxed_slice(),
        };
        session.push(&mut self.memory, queued);
        // Reuses the session, because this runs for each of very many subscribers.
        let (route, exceeds_limit) =
            (session.route, session.bytes() > self.config.limits.session_memory);
        self.wake_route(route);
        if exceeds_limit {
            self.check_session_memory(now, id);
        }
        true
    }

    fn forward_to_host(&mut self, message: &Arc<Message>, details: Option<SenderDetails>) {
        let Some(sender) = message.sender() else { return };
        let session = self.sessions.by_client(sender);
        let user = session.and_then(|session| session.user.clone());
        let route = session.map(|session| session.route);
        let item = Item::Message(Arc::clone(message), details);
        let is_only = self.inbox.push(&mut self.memory, sender, user, item);
        if let (true, Some(Route::Connection(id))) = (is_only, route) {
            self.set_awaits_host(id);
        }
        self.wake_host();
        self.pause_if_host_queue_full(&Arc::clone(sender));
    }

    /// Pauses reading from a client if the host's queue for it is full.
    fn pause_if_host_queue_full(&mut self, sender: &str) {
        if self.inbox.bytes(sender) < self.config.limits.host_queue_bytes {
            return;
        }
        let Some(session) = self.sessions.find(sender) else { return };
        let route = self.sessions.route(session);
        let Some(Route::Connection(id)) = route else { return };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.is_paused = true;
            // A paused client cannot acknowledge, so its requests may have to be processed now.
            self.unpark_if_read(session);
        }
    }

    /// Resumes reading from a client if the host's queue for it has capacity again.
    pub(super) fn resume_if_host_queue_drained(&mut self, sender: &str) {
        if self.inbox.bytes(sender) >= self.config.limits.host_queue_bytes {
            return;
        }
        let session = self.sessions.by_client(sender);
        match session.map(|session| session.route) {
            Some(Route::Connection(id)) => {
                let connection = self.connections.get_mut(id);
                if let Some(connection) = connection.filter(|connection| connection.is_paused) {
                    connection.is_paused = false;
                    self.wake(id);
                }
            }
            Some(Route::Local(id)) => self.wakes.push_local(id),
            Some(Route::Detached) | None => {}
        }
    }

    /// Queues the notice for the host that a client has disconnected.
    pub(super) fn notify_host_of_departure(&mut self, client_id: &Arc<str>) {
        if self.sessions.host_session().is_some_and(|host| host.client_id != *client_id) {
            let user = self.sessions.user(client_id);
            self.inbox.push(&mut self.memory, client_id, user, Item::Gone);
            self.wake_host();
        }
    }
}
