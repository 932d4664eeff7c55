//! Packets from clients.

use core::num::NonZeroU16;
use core::time::Duration;

use super::Broker;
use crate::connection::{Connection, FramingError, State};
use crate::ids::{ConnectionId, SessionId};
use crate::incidents::IncidentKind;
use crate::session::Acknowledged;
use statestore_mqtt::Kind;
use statestore_mqtt::Malformed;
use statestore_mqtt::Qos;
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Ack, Notice, Packet};
use statestore_mqtt::property::{Properties, Property};

/// Maximum number of subscriptions with which a session ends without waiting for a turn.
const UNDEFERRED_SUBSCRIPTIONS_MAX: usize = 16;

/// Minimum work units of a packet.
const PACKET_WORK: usize = 32;

impl Broker {
    /// Returns whether a connection used up its turn. [`poll_output`](Self::poll_output) continues
    /// with it; the driver should call that function after other connections had their turns.
    #[must_use]
    pub fn has_yielded(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.has_yielded)
    }

    /// Returns whether the driver should delay the end of a connection until its turn, as the
    /// broker delays its [packets](crate::Limits::slow_start). True for a throttled client
    /// with a will or with more than 16 subscriptions.
    #[must_use]
    pub fn should_defer_close(&self, now: Duration, id: ConnectionId) -> bool {
        let connection =
            self.connections.get(id).filter(|connection| now < connection.throttled_until);
        let session = connection.and_then(Connection::session);
        session.and_then(|id| self.sessions.get(id)).is_some_and(|session| {
            session.will.is_some() || session.subscriptions.len() > UNDEFERRED_SUBSCRIPTIONS_MAX
        })
    }

    /// Returns whether the driver should read from a connection. While it is false, back-pressure
    /// leaves the data in the network.
    #[must_use]
    pub fn wants_input(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(Connection::wants_input)
    }

    /// Processes bytes that were read from a connection. They may be split at any position.
    ///
    /// Returns whether the bytes completed a packet and the connection is not
    /// [throttled](crate::Limits::slow_start). Otherwise the driver should let other connections
    /// have their turns before it reads from this one again, however long it was idle: a client
    /// that sends parts of packets causes as much work as one that sends packets.
    pub fn handle_bytes(&mut self, now: Duration, id: ConnectionId, bytes: &[u8]) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.is_closing() {
            return false;
        }
        connection.last_received_at = now;
        self.incidents.now = now;
        let has_packet = if now < connection.throttled_until && connection.session().is_some() {
            self.buffer_input(id, bytes);
            self.yield_turn(id);
            false
        } else if connection.input.is_empty() && connection.wants_input() {
            let used = self.handle_packets(now, id, bytes);
            self.buffer_input(id, bytes.get(used..).unwrap_or_default());
            used > 0
        } else {
            self.buffer_input(id, bytes);
            self.resume_input(now, id)
        };
        self.settle(now);
        let connection = self.connections.get(id);
        has_packet && connection.is_some_and(|connection| now >= connection.throttled_until)
    }

    /// Suspends the input of a connection until its next turn.
    fn yield_turn(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.wants_input() {
            connection.has_yielded = true;
            self.wake(id);
        }
    }

    /// Ends the turn of a connection that exceeded it, and throttles its further packets.
    pub(super) fn yield_and_throttle(&mut self, now: Duration, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.throttled_until = now.saturating_add(self.config.limits.slow_start);
        connection.has_yielded = true;
        self.wake(id);
    }

    /// Processes buffered input. Returns whether it processed a packet.
    pub(super) fn resume_input(&mut self, now: Duration, id: ConnectionId) -> bool {
        if !self.resume_filters(now, id) {
            return true;
        }
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let is_whole = connection.input.len() >= connection.needed.max(2);
        if connection.is_closing() || !is_whole || !connection.wants_input() {
            return false;
        }
        let mut input = connection.take_input(&mut self.memory);
        let used = self.handle_packets(now, id, &input);
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.is_closing() {
            return used > 0;
        }
        // Copies the rest, since a slice would retain the whole buffer.
        if used > 0 {
            input = input.get(used..).unwrap_or_default().into();
        }
        connection.set_input(&mut self.memory, input);
        used > 0
    }

    /// Buffers an incomplete packet, or packets that cannot be processed now.
    fn buffer_input(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if bytes.is_empty() || connection.is_closing() {
            return;
        }
        let mut input = connection.take_input(&mut self.memory);
        input.extend_from_slice(bytes);
        connection.set_input(&mut self.memory, input);
    }

    /// Processes the complete packets at the start of these bytes. Returns their length.
    fn handle_packets(&mut self, now: Duration, id: ConnectionId, bytes: &[u8]) -> usize {
        let mut used = 0;
        self.budget.restart();
        let is_new =
            self.connections.get(id).is_some_and(|connection| connection.session().is_none());
        loop {
            let Some(connection) = self.connections.get_mut(id) else { return bytes.len() };
            if !connection.wants_input() {
                return used;
            }
            if self.budget.is_exceeded() {
                self.yield_and_throttle(now, id);
                return used;
            }
            // A client that sends more than a CONNECT at once does not wait for the CONNACK.
            if is_new && (1..bytes.len()).contains(&used) && now < connection.throttled_until {
                self.yield_turn(id);
                return used;
            }
            let rest = bytes.get(used..).unwrap_or_default();
            let packet = match connection.split_packet(&self.config.limits, rest) {
                Ok(Some(packet)) => packet,
                Ok(None) => return used,
                // A connection that does not start with a CONNECT is closed at once.
                Err(FramingError::NotConnect) => {
                    self.disconnect_for_violation(now, id, None, None);
                    return bytes.len();
                }
                Err(FramingError::Malformed(error)) => {
                    self.handle_malformed(now, id, rest, error);
                    return bytes.len();
                }
            };
            used += packet.len();
            self.budget.spend(PACKET_WORK);
            match Packet::decode(packet) {
                Ok(decoded) => self.handle_packet(now, id, packet, &decoded),
                Err(error) => self.handle_malformed(now, id, packet, error),
            }
        }
    }

    /// Handles bytes that are not a valid packet.
    fn handle_malformed(
        &mut self,
        now: Duration,
        id: ConnectionId,
        bytes: &[u8],
        error: Malformed,
    ) {
        let is_new = self
            .connections
            .get(id)
            .is_some_and(|connection| matches!(connection.state, State::New));
        if !is_new {
            // A second CONNECT is a protocol error, whatever its version.
            let reason = match error {
                Malformed::Version(_) => Reason::PROTOCOL_ERROR,
                error => error.reason(),
            };
            return self.disconnect_for_violation(now, id, Some(reason), Some(error));
        }
        match Kind::of(bytes.first().copied().unwrap_or_default()) {
            // A CONNACK that clients of MQTT 3.1 and 3.1.1 understand.
            Ok(Kind::Connect) if matches!(error, Malformed::Version(0..=4)) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    let connack = [0x20, 0x02, 0x00, 0x01];
                    connection.account.add(&mut self.memory, connack.len());
                    connection.output.extend_from_slice(&connack);
                }
                self.stats.violations += 1;
                self.report_incident(id, IncidentKind::Connect, Some(error.reason()), Some(error));
                self.end_connection(now, id, None);
            }
            Ok(Kind::Connect) => {
                self.stats.violations += 1;
                self.report_incident(id, IncidentKind::Connect, Some(error.reason()), Some(error));
                self.reject(now, id, error.reason());
            }
            _ => self.disconnect_for_violation(now, id, None, Some(error)),
        }
    }

    /// Ends a connection because of a protocol violation.
    pub(super) fn disconnect_for_violation(
        &mut self,
        now: Duration,
        id: ConnectionId,
        reason: Option<Reason>,
        error: Option<Malformed>,
    ) {
        self.stats.violations += 1;
        let is_new = self
            .connections
            .get(id)
            .is_some_and(|connection| matches!(connection.state, State::New));
        let kind = if is_new { IncidentKind::NoConnect } else { IncidentKind::ProtocolViolation };
        self.report_incident(id, kind, reason, error);
        self.end_connection(now, id, reason);
    }

    fn handle_packet(
        &mut self,
        now: Duration,
        id: ConnectionId,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        let session = match self.connections.get(id).map(|connection| &connection.state) {
            Some(State::Open(session)) => *session,
            Some(State::New) => match packet {
                Packet::Connect(connect) => return self.handle_connect(now, id, bytes, connect),
                _ => return self.disconnect_for_violation(now, id, None, None),
            },
            _ => return,
        };
        match packet {
            Packet::Publish(publish) => self.handle_publish(now, id, session, publish),
            Packet::PubAck(ack) => {
                self.complete_delivery(now, id, session, ack.id, |stage| match stage {
                    Some(Qos::AtLeastOnce) => Acknowledged::Expected,
                    _ => Acknowledged::WrongKind,
                });
            }
            Packet::PubRec(ack) if ack.reason.is_error() => {
                self.complete_delivery(now, id, session, ack.id, |stage| match stage {
                    Some(Qos::ExactlyOnce) => Acknowledged::Expected,
                    // A response to the message as it was resent.
                    None => Acknowledged::Stale,
                    Some(_) => Acknowledged::WrongKind,
                });
            }
            Packet::PubRec(ack) => self.handle_pubrec(now, id, session, ack.id),
            Packet::PubRel(ack) => self.handle_pubrel(id, session, ack.id),
            Packet::PubComp(ack) => {
                let is_unknown = ack.reason == Reason::PACKET_IDENTIFIER_NOT_FOUND;
                self.complete_delivery(now, id, session, ack.id, |stage| match stage {
                    None => Acknowledged::Expected,
                    // A response to the PUBREL for a PUBREC of an earlier session.
                    Some(_) if is_unknown => Acknowledged::Stale,
                    Some(_) => Acknowledged::WrongKind,
                });
            }
            Packet::Subscribe(subscribe) => self.handle_subscribe(now, id, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                self.handle_unsubscribe(now, id, session, unsubscribe)
            }
            Packet::PingReq => self.send_packet(id, &Packet::<()>::PingResp),
            Packet::Disconnect(notice) => self.handle_disconnect(now, id, session, notice),
            Packet::Auth(notice) => self.handle_auth(now, id, session, notice),
            // A client must not send these packets.
            Packet::Connect(_)
            | Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp => {
                self.disconnect_for_violation(now, id, Some(Reason::PROTOCOL_ERROR), None)
            }
        }
    }

    /// Handles a PUBREC without an error.
    fn handle_pubrec(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        session_id: SessionId,
        id: NonZeroU16,
    ) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        let reason = match session.mark_released(&mut self.memory, id) {
            Acknowledged::Expected => Reason::SUCCESS,
            Acknowledged::Stale => Reason::PACKET_IDENTIFIER_NOT_FOUND,
            Acknowledged::WrongKind => {
                let reason = Some(Reason::PROTOCOL_ERROR);
                return self.disconnect_for_violation(now, connection, reason, None);
            }
        };
        self.unpark_if_read(session_id);
        self.send_packet(connection, &Packet::PubRel(Ack { id, reason, properties: () }));
    }

    fn handle_pubrel(&mut self, connection: ConnectionId, session_id: SessionId, id: NonZeroU16) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        let reason = match session.remove_received(&mut self.memory, id) {
            true => Reason::SUCCESS,
            false => Reason::PACKET_IDENTIFIER_NOT_FOUND,
        };
        self.send_packet(connection, &Packet::PubComp(Ack { id, reason, properties: () }));
    }

    pub(super) fn send_packet(&mut self, id: ConnectionId, packet: &Packet<'_, ()>) {
        let connection = self.connections.get_mut(id);
        // Routing a message may have ended the connection of its sender. No packet follows a
        // DISCONNECT.
        if let Some(connection) = connection.filter(|connection| !connection.is_closing()) {
            connection.send_packet(&mut self.memory, packet);
            self.wake(id);
        }
    }

    /// Handles the last acknowledgement of a message, which may let another message be sent.
    fn complete_delivery(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        session_id: SessionId,
        id: NonZeroU16,
        relate: impl Fn(Option<Qos>) -> Acknowledged,
    ) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        match session.complete_delivery(&mut self.memory, id, relate) {
            Acknowledged::Expected => {
                self.unpark_if_read(session_id);
                self.wake(connection);
            }
            Acknowledged::Stale => {}
            Acknowledged::WrongKind => {
                let reason = Some(Reason::PROTOCOL_ERROR);
                self.disconnect_for_violation(now, connection, reason, None);
            }
        }
    }

    fn handle_disconnect(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session_id: SessionId,
        notice: &Notice<Properties<'_>>,
    ) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        for property in &notice.properties {
            match property {
                // MQTT forbids an expiry interval here if CONNECT had none or zero.
                Property::SessionExpiry(seconds) if session.expiry.is_zero() && seconds > 0 => {
                    return self.disconnect_for_violation(
                        now,
                        id,
                        Some(Reason::PROTOCOL_ERROR),
                        None,
                    );
                }
                Property::SessionExpiry(seconds) => {
                    let seconds = Duration::from_secs(seconds.into());
                    session.expiry = seconds.min(self.config.limits.session_expiry);
                }
                Property::ServerReference(_) => {
                    return self.disconnect_for_violation(
                        now,
                        id,
                        Some(Reason::PROTOCOL_ERROR),
                        None,
                    );
                }
                _ => {}
            }
        }
        if notice.reason == Reason::SUCCESS {
            session.take_will(&mut self.memory);
        }
        self.end_connection(now, id, None);
    }
}
