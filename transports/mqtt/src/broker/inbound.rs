//! What comes from a client.

use alloc::sync::Arc;
use core::num::NonZeroU16;
use core::time::Duration;

use super::config::Rules;
use super::connection::{Connection, State};
use super::incidents::{IncidentKind, Note};
use super::message::Message;
use super::{Broker, ConnectionId, SessionId};
use crate::error::Malformed;
use crate::kind::Kind;
use crate::packet::{Ack, Header, Notice, Packet, Publish};
use crate::property::{Encode, Properties, Property, id};
use crate::qos::Qos;
use crate::reason::Reason;

/// Nodes, subscriptions and members that the messages of one piece may take to be looked at before others have their turn.
pub(super) const WORK_MAX: usize = 4_096;

/// Bytes of a message that take as long.
pub(super) const WORK_BYTES: usize = 64;

/// Subscriptions whose end takes no time worth a word.
const SUBSCRIPTIONS_FEW: usize = 16;

/// What a packet counts for, whatever it says.
const PACKET_WORK: usize = 32;

impl Broker {
    /// Whether a connection was stopped for having had its turn: [`poll_output`](Self::poll_output) goes on with it, after others
    /// had theirs.
    #[must_use]
    pub fn rests(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.rests)
    }

    /// Whether the end of a connection, too, should wait for its turn as [what it sends](super::Limits::probation) does: there is a will
    /// to be published then, or many subscriptions end.
    #[must_use]
    pub fn rests_before_end(&self, now: Duration, id: ConnectionId) -> bool {
        let connection = self.connections.get(&id).filter(|one| now < one.trusted_at);
        let session = connection.and_then(Connection::session);
        session
            .and_then(|id| self.sessions.get(&id))
            .is_some_and(|one| one.will.is_some() || one.subscriptions.len() > SUBSCRIPTIONS_FEW)
    }

    /// Whether more is to be read from a connection. While it is not, what it sends stays in the network.
    #[must_use]
    pub fn wants_input(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(Connection::wants_input)
    }

    /// Accepts bytes that were read from a connection: as many as there were, in pieces of any size.
    pub fn handle_bytes(&mut self, now: Duration, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_closing() {
            return;
        }
        connection.heard = now;
        self.incidents.now = now;
        if now < connection.trusted_at && connection.session().is_some() {
            self.keep_input(id, bytes);
            self.rest(id);
        } else if connection.input.is_empty() && connection.wants_input() {
            let used = self.handle_packets(now, id, bytes);
            self.keep_input(id, bytes.get(used..).unwrap_or_default());
        } else {
            self.keep_input(id, bytes);
            self.go_on(now, id);
        }
        self.settle(now);
    }

    /// Lets others go first.
    fn rest(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.wants_input() {
            connection.rests = true;
            self.wake(id);
        }
    }

    /// Lets others go first with what takes longer than a turn, and with what comes next.
    pub(super) fn rest_for_long(&mut self, now: Duration, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.trusted_at = now.saturating_add(self.config.limits.probation);
        connection.rests = true;
        self.wake(id);
    }

    /// Goes on with what was read before.
    pub(super) fn go_on(&mut self, now: Duration, id: ConnectionId) {
        if !self.go_on_with_filters(now, id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_whole = connection.input.len() >= connection.needed.max(2);
        if connection.is_closing() || !is_whole || !connection.wants_input() {
            return;
        }
        let mut input = connection.take_input(&mut self.memory);
        let used = self.handle_packets(now, id, &input);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_closing() {
            return;
        }
        // What was used is given back with the rest, since a part of a buffer keeps the whole.
        if used > 0 {
            input = input.get(used..).unwrap_or_default().into();
        }
        connection.set_input(&mut self.memory, input);
    }

    /// Keeps what is no whole packet yet, or cannot be looked at now.
    fn keep_input(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if bytes.is_empty() || connection.is_closing() {
            return;
        }
        let mut input = connection.take_input(&mut self.memory);
        input.extend_from_slice(bytes);
        connection.set_input(&mut self.memory, input);
    }

    /// Handles the whole packets that these bytes begin with, and gives their length.
    fn handle_packets(&mut self, now: Duration, id: ConnectionId, bytes: &[u8]) -> usize {
        let mut used = 0;
        self.work = 0;
        let is_new = self.connections.get(&id).is_some_and(|one| one.session().is_none());
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return bytes.len() };
            if !connection.wants_input() {
                return used;
            }
            if self.work > WORK_MAX {
                self.rest_for_long(now, id);
                return used;
            }
            // Who comes with more than a CONNECT does not wait for an answer.
            if is_new && (1..bytes.len()).contains(&used) && now < connection.trusted_at {
                self.rest(id);
                return used;
            }
            let limits = &self.config.limits;
            let max = match connection.state {
                State::New => limits.connect_bytes,
                _ => limits.packet_bytes,
            };
            let rest = bytes.get(used..).unwrap_or_default();
            let packet = match Header::read(rest, max) {
                Ok(None) => {
                    connection.needed = 0;
                    return used;
                }
                // Nobody who begins with something else waits for more.
                Ok(Some(header))
                    if matches!(connection.state, State::New) && header.kind != Kind::Connect =>
                {
                    self.offend(now, id, None, None);
                    return bytes.len();
                }
                Ok(Some(header)) => {
                    connection.needed = header.len;
                    match rest.get(..header.len) {
                        None => return used,
                        Some(packet) => packet,
                    }
                }
                Err(error) => {
                    self.malformed(now, id, rest, error);
                    return bytes.len();
                }
            };
            used += packet.len();
            connection.needed = 0;
            self.work += PACKET_WORK;
            match Packet::decode(packet) {
                Ok(decoded) => self.handle_packet(now, id, packet, &decoded),
                Err(error) => self.malformed(now, id, packet, error),
            }
        }
    }

    /// What came is no packet.
    fn malformed(&mut self, now: Duration, id: ConnectionId, bytes: &[u8], error: Malformed) {
        let is_new = self.connections.get(&id).is_some_and(|one| matches!(one.state, State::New));
        if !is_new {
            // A second CONNECT is that, of whatever version, and no DISCONNECT says more.
            let reason = match error {
                Malformed::Version(_) => Reason::PROTOCOL_ERROR,
                error => error.reason(),
            };
            return self.offend(now, id, Some(reason), Some(error));
        }
        match Kind::of(bytes.first().copied().unwrap_or_default()) {
            // Of older versions all understand this, and it is the same in 3.1 and 3.1.1.
            Ok(Kind::Connect) if matches!(error, Malformed::Version(0..=4)) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    let connack = [0x20, 0x02, 0x00, 0x01];
                    connection.held.add(&mut self.memory, connack.len());
                    connection.output.extend_from_slice(&connack);
                }
                self.stats.offenders += 1;
                self.note(id, IncidentKind::Connect, Some(error.reason()), Some(error));
                self.end_connection(now, id, None);
            }
            Ok(Kind::Connect) => {
                self.stats.offenders += 1;
                self.note(id, IncidentKind::Connect, Some(error.reason()), Some(error));
                self.refuse(now, id, error.reason());
            }
            _ => self.offend(now, id, None, Some(error)),
        }
    }

    /// Ends a connection because of what came from it.
    pub(super) fn offend(
        &mut self,
        now: Duration,
        id: ConnectionId,
        reason: Option<Reason>,
        error: Option<Malformed>,
    ) {
        self.stats.offenders += 1;
        let is_new = self.connections.get(&id).is_some_and(|one| matches!(one.state, State::New));
        let kind = if is_new { IncidentKind::NoConnect } else { IncidentKind::Offence };
        self.note(id, kind, reason, error);
        self.end_connection(now, id, reason);
    }

    fn handle_packet(
        &mut self,
        now: Duration,
        id: ConnectionId,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        let session = match self.connections.get(&id).map(|connection| &connection.state) {
            Some(State::Open(session)) => *session,
            Some(State::New) => match packet {
                Packet::Connect(connect) => return self.handle_connect(now, id, bytes, connect),
                _ => return self.offend(now, id, None, None),
            },
            _ => return,
        };
        match packet {
            Packet::Publish(publish) => self.handle_publish(now, id, session, publish),
            Packet::PubAck(ack) => {
                self.finish(id, session, ack.id, |stage| stage == Some(Qos::AtLeastOnce));
            }
            Packet::PubRec(ack) if ack.reason.is_error() => {
                self.finish(id, session, ack.id, |stage| stage == Some(Qos::ExactlyOnce));
            }
            Packet::PubRec(ack) => {
                let Some(kept) = self.sessions.get_mut(&session) else { return };
                let reason = match kept.release(&mut self.memory, ack.id) {
                    true => Reason::SUCCESS,
                    false => Reason::PACKET_IDENTIFIER_NOT_FOUND,
                };
                self.has_read(session);
                self.answer(id, &Packet::PubRel(Ack { id: ack.id, reason, properties: () }));
            }
            Packet::PubRel(ack) => {
                let Some(kept) = self.sessions.get_mut(&session) else { return };
                let reason = match kept.forget(&mut self.memory, ack.id) {
                    true => Reason::SUCCESS,
                    false => Reason::PACKET_IDENTIFIER_NOT_FOUND,
                };
                self.answer(id, &Packet::PubComp(Ack { id: ack.id, reason, properties: () }));
            }
            Packet::PubComp(ack) => self.finish(id, session, ack.id, |stage| stage.is_none()),
            Packet::Subscribe(subscribe) => self.handle_subscribe(now, id, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                self.handle_unsubscribe(now, id, session, unsubscribe)
            }
            Packet::PingReq => self.answer(id, &Packet::<()>::PingResp),
            Packet::Disconnect(notice) => self.handle_disconnect(now, id, session, notice),
            Packet::Auth(notice) => self.handle_auth(now, id, session, notice),
            // None of these has a place here.
            Packet::Connect(_)
            | Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp => self.offend(now, id, Some(Reason::PROTOCOL_ERROR), None),
        }
    }

    pub(super) fn answer(&mut self, id: ConnectionId, packet: &Packet<'_, ()>) {
        let connection = self.connections.get_mut(&id);
        // A message may have been the end of its own sender: nothing comes behind a DISCONNECT.
        if let Some(connection) = connection.filter(|connection| !connection.is_closing()) {
            connection.answer(&mut self.memory, packet);
            self.wake(id);
        }
    }

    /// Room for another message on its way.
    fn finish(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        id: NonZeroU16,
        is_final: impl Fn(Option<Qos>) -> bool,
    ) {
        let Some(kept) = self.sessions.get_mut(&session) else { return };
        if kept.finish(&mut self.memory, id, is_final) {
            self.has_read(session);
            self.wake(connection);
        }
    }

    fn handle_publish(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
    ) {
        self.stats.published += 1;
        // These are for the broker to say.
        if publish.properties.has(id::SUBSCRIPTION) {
            return self.offend(now, id, Some(Reason::PROTOCOL_ERROR), None);
        }
        let alias = match publish.properties.first(id::TOPIC_ALIAS) {
            Some(Property::TopicAlias(number)) => Some(number),
            _ => None,
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let known: Arc<str>;
        let topic = match alias {
            None => publish.topic,
            Some(alias) if alias > self.config.limits.topic_aliases => {
                return self.offend(now, id, Some(Reason::TOPIC_ALIAS_INVALID), None);
            }
            Some(alias) if publish.topic.is_empty() => match connection.aliases.get(&alias) {
                Some(topic) => {
                    known = Arc::clone(topic);
                    &*known
                }
                None => return self.offend(now, id, Some(Reason::PROTOCOL_ERROR), None),
            },
            Some(alias) => {
                connection.set_alias(&mut self.memory, alias, publish.topic);
                publish.topic
            }
        };
        let Some(kept) = self.sessions.get_mut(&session) else { return };
        if let Some(packet_id) = publish.id.filter(|_| publish.qos == Qos::ExactlyOnce) {
            if kept.received.contains(&packet_id) {
                let ack = Ack { id: packet_id, reason: Reason::SUCCESS, properties: () };
                return self.answer(id, &Packet::PubRec(ack));
            }
            if kept.received.len() >= usize::from(self.config.limits.receive_maximum.max(1)) {
                return self.offend(now, id, Some(Reason::RECEIVE_MAXIMUM_EXCEEDED), None);
            }
        }
        let reason = match kept.is_within_rate(now, self.config.limits.messages_per_second) {
            true => self.publish(now, session, topic, publish),
            false => {
                let (kind, reason) = (IncidentKind::Rate, Reason::QUOTA_EXCEEDED);
                let note = Note::about(kind, &kept.client_id, topic, Some(reason));
                self.incidents.push(Note { connection: Some(id), ..note });
                reason
            }
        };
        let Some(packet_id) = publish.id else { return };
        let ack = Ack { id: packet_id, reason, properties: () };
        if publish.qos == Qos::AtLeastOnce {
            return self.answer(id, &Packet::PubAck(ack));
        }
        if let Some(kept) = self.sessions.get_mut(&session).filter(|_| !reason.is_error()) {
            kept.receive(&mut self.memory, packet_id);
        }
        self.answer(id, &Packet::PubRec(ack));
    }

    /// Publishes for a client, by the rules.
    pub(super) fn publish<P: Encode>(
        &mut self,
        now: Duration,
        session: SessionId,
        topic: &str,
        publish: &Publish<'_, P>,
    ) -> Reason {
        let Some(kept) = self.sessions.get(&session) else { return Reason::UNSPECIFIED_ERROR };
        let sender = Arc::clone(&kept.client_id);
        let Ok(message) = Message::new(now, Some(sender), topic, publish) else {
            return Reason::IMPLEMENTATION_SPECIFIC_ERROR;
        };
        let (rules, client_id) = (Arc::clone(&kept.rules), Arc::clone(&kept.client_id));
        let properties = message.properties();
        match self.may_publish(IncidentKind::Publish, &*rules, &client_id, topic, properties) {
            Ok(()) => self.route(now, &Arc::new(message)),
            Err(reason) => reason,
        }
    }

    /// Whether the rules allow a message, which is noted if they do not.
    pub(super) fn may_publish(
        &mut self,
        kind: IncidentKind,
        rules: &dyn Rules,
        client_id: &str,
        topic: &str,
        properties: Properties<'_>,
    ) -> Result<(), Reason> {
        let response_topic = match properties.first(id::RESPONSE_TOPIC) {
            Some(Property::ResponseTopic(topic)) => Some(topic),
            _ => None,
        };
        let result = if topic.split('/').count() > self.config.limits.levels {
            Err(Reason::TOPIC_NAME_INVALID)
        } else {
            let allowed = rules.may_publish(client_id, topic, response_topic);
            allowed.inspect_err(|_| self.stats.denied += 1)
        };
        result.inspect_err(|reason| {
            let note = Note::about(kind, client_id, topic, Some(*reason));
            self.incidents.push(Note { response_topic, ..note });
        })
    }

    fn handle_disconnect(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        notice: &Notice<Properties<'_>>,
    ) {
        let Some(kept) = self.sessions.get_mut(&session) else { return };
        for property in &notice.properties {
            match property {
                // A session that was to end with its connection does.
                Property::SessionExpiry(seconds) if kept.expiry.is_zero() && seconds > 0 => {
                    return self.offend(now, id, Some(Reason::PROTOCOL_ERROR), None);
                }
                Property::SessionExpiry(seconds) => {
                    let seconds = Duration::from_secs(seconds.into());
                    kept.expiry = seconds.min(self.config.limits.session_expiry);
                }
                Property::ServerReference(_) => {
                    return self.offend(now, id, Some(Reason::PROTOCOL_ERROR), None);
                }
                _ => {}
            }
        }
        if notice.reason == Reason::SUCCESS {
            kept.take_will(&mut self.memory);
        }
        self.end_connection(now, id, None);
    }
}
