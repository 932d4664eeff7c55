//! Acceptance of a client: authorization, takeover of its session, and CONNACK.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::Broker;
use super::connect::ConnectOptions;
use crate::aliases::Aliases;
use crate::config::{Acl, Admission, Limits};
use crate::connection::State;
use crate::ids::{ConnectionId, SessionId};
use crate::incidents::{IncidentKind, IncidentRef};
use crate::message::{Message, Sender};
use crate::outgoing::Window;
use crate::owner::Owner;
use crate::session::{Route, Session, Will};
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{self, ConnAck, Connect, Packet, Publish};
use statestore_mqtt::property::Property;
use statestore_mqtt::topic::Filter;

/// Time after a disconnect in which an empty session keeps its client id from other users. Responses
/// to the last requests of its client may still come, and the host names clients by their ids.
const RESERVED_FOR: Duration = Duration::from_secs(30);

/// A client whose login was accepted.
struct Candidate<'a> {
    connect: &'a Connect<'a>,
    options: ConnectOptions<'a>,
    client_id: Arc<str>,
    /// Set if the broker assigned the client id.
    is_assigned: bool,
    user: Option<Arc<str>>,
    owner: Arc<Owner>,
    acl: Arc<dyn Acl>,
}

/// Reason why a client is rejected.
struct Rejection {
    reason: Reason,
    /// Incident to record, if it is one and is not recorded yet.
    incident: Option<IncidentKind>,
}

impl Rejection {
    const fn silent(reason: Reason) -> Self {
        Self { reason, incident: None }
    }

    const fn reported(incident: IncidentKind, reason: Reason) -> Self {
        Self { reason, incident: Some(incident) }
    }
}

impl Broker {
    /// Accepts a client whose login was accepted, or rejects it for another reason.
    pub(super) fn accept(
        &mut self,
        now: Duration,
        id: ConnectionId,
        connect: &Connect<'_>,
        assigned: Option<Arc<str>>,
        admission: Admission,
    ) {
        let is_assigned = assigned.is_some();
        let client_id = assigned.unwrap_or_else(|| connect.client_id.into());
        let peer = self.connections.get(id).and_then(|connection| connection.peer);
        let client = Candidate {
            connect,
            options: ConnectOptions::from_properties(connect.properties),
            is_assigned,
            owner: self.owners.find(admission.user.as_deref(), peer, &client_id),
            client_id,
            user: admission.user,
            acl: admission.acl.unwrap_or_else(|| Arc::clone(&self.config.acl)),
        };
        let authorized = self.authorize(now, &client);
        let authorized = authorized.and_then(|will| {
            self.check_connection_limits(now, id, &client)?;
            Ok(will)
        });
        let opened = authorized.and_then(|will| Ok((will, self.take_over(now, &client)?)));
        let (will, (session, session_present)) = match opened {
            Ok(opened) => opened,
            Err(Rejection { reason, incident: None }) => return self.reject(now, id, reason),
            Err(Rejection { reason, incident: Some(kind) }) => {
                return self.reject_and_report(now, id, kind, &client.client_id, reason);
            }
        };
        let session_expiry = Duration::from_secs(client.options.session_expiry.into())
            .min(self.config.limits.session_expiry);
        let deadline = self.open_connection(now, id, session, &client);
        let fits = self.send_connack(id, &client, session_present, session_expiry);
        self.bind_session(id, session, client, session_expiry, will);
        if !fits {
            // The CONNACK does not fit the client's Maximum Packet Size.
            let reason = Some(Reason::PACKET_TOO_LARGE);
            self.report_incident(id, IncidentKind::Connect, reason, None);
            return self.end_connection(now, id, None);
        }
        self.set_deadline(id, deadline);
        self.set_expiry(id, admission.expires_at);
        self.sessions.schedule_replay(session);
        self.wake(id);
    }

    /// Checks whether a client may connect and take over its previous session. Returns its will.
    fn authorize(
        &mut self,
        now: Duration,
        client: &Candidate<'_>,
    ) -> Result<Option<Will>, Rejection> {
        let refused = |reason| Rejection::reported(IncidentKind::Connect, reason);
        let Candidate { connect, client_id, user, acl, .. } = client;
        if self.sessions.is_host_client(client_id) {
            return Err(refused(Reason::CLIENT_IDENTIFIER_NOT_VALID));
        }
        if self.redirect.is_some() {
            return Err(Rejection::silent(Reason::USE_ANOTHER_SERVER));
        }
        acl.may_connect(client_id).map_err(refused)?;
        let will = connect.will.as_ref();
        let will = will.map(|will| self.build_will(now, &**acl, client, will));
        let will = will.transpose().map_err(Rejection::silent)?;
        // With Clean Start, a client ends the empty session of a disconnected client of another user.
        let is_evictable =
            |before: &Session| connect.clean_start && before.is_empty_for(now, RESERVED_FOR);
        let before = self.sessions.by_client(client_id).filter(|before| before.user != *user);
        if before.is_some_and(|before| !is_evictable(before)) {
            let reason = Reason::CLIENT_IDENTIFIER_NOT_VALID;
            return Err(Rejection::reported(IncidentKind::OtherUser, reason));
        }
        // Requests that another user sent with this client id are still waiting. They must not be
        // attributed to this client.
        if self.inbox.user(client_id).is_some_and(|waiting| waiting != user.as_ref()) {
            return Err(refused(Reason::SERVER_BUSY));
        }
        Ok(will)
    }

    /// Checks the limits of connections. At the limit of all connections, disconnects a client of
    /// the owner with the most, if the new client belongs to another one.
    fn check_connection_limits(
        &mut self,
        now: Duration,
        id: ConnectionId,
        client: &Candidate<'_>,
    ) -> Result<(), Rejection> {
        let replaced = match self.sessions.by_client(&client.client_id).map(|it| it.route) {
            Some(Route::Connection(replaced)) => Some(replaced),
            _ => None,
        };
        match self.connections.check_limits(id, replaced, &self.config.limits) {
            Err((IncidentKind::Connections, _)) if self.displace_connection(now, &client.owner) => {
                Ok(())
            }
            Err((incident, reason)) => Err(Rejection::reported(incident, reason)),
            Ok(()) => Ok(()),
        }
    }

    /// Ends the previous connection of a client and returns its session or a new one, and whether
    /// the session existed before.
    fn take_over(
        &mut self,
        now: Duration,
        client: &Candidate<'_>,
    ) -> Result<(SessionId, bool), Rejection> {
        let before = self.sessions.by_client(&client.client_id);
        // A session that was created under an outdated access control list is not resumed, nor one
        // with a subscription that this login may not make.
        let is_over = before.is_some_and(|before| {
            let may = |text: &str| {
                let may = |it: Filter<'_>| client.acl.may_subscribe(&client.client_id, it.filter);
                Filter::parse(text).is_some_and(|filter| may(filter).is_ok())
            };
            !before.acl.is_current(&client.client_id)
                || !before.subscriptions.iter().all(|text| may(text))
        });
        if before.is_none() && !self.ensure_session_capacity(now, &client.owner) {
            return Err(Rejection::reported(IncidentKind::Sessions, Reason::QUOTA_EXCEEDED));
        }
        // Another client may have used the assigned client id since then.
        let clean_start = client.connect.clean_start || is_over || client.is_assigned;
        Ok(self.open_session(now, &client.client_id, &client.owner, clean_start))
    }

    /// Binds a session to a connection.
    fn bind_session(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        client: Candidate<'_>,
        expiry: Duration,
        will: Option<Will>,
    ) {
        self.stop_timers(session_id);
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        session.route = Route::Connection(id);
        session.user = client.user;
        session.acl = client.acl;
        session.expiry = expiry;
        session.set_will(&mut self.memory, will);
        self.sessions.set_owner(&mut self.memory, session_id, client.owner);
    }

    /// Opens a connection for a session, with the limits of the client. Returns the time at which
    /// its keep-alive expires.
    fn open_connection(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        client: &Candidate<'_>,
    ) -> Option<Duration> {
        let (options, limits) = (&client.options, &self.config.limits);
        self.connections.accept(id, client.owner.name());
        let connection = self.connections.get_mut(id)?;
        connection.state = State::Open(session);
        connection.authenticates = options.method.is_some();
        connection.last_received_at = now;
        connection.outbound_aliases =
            Aliases::new(options.topic_aliases.min(limits.outbound_topic_aliases));
        connection.window = Window {
            in_flight: options.receive_maximum.min(limits.in_flight).into(),
            packet_bytes: options.packet_bytes(),
        };
        // MQTT requires one and a half times the keep-alive (section 3.1.2.10).
        let keep_alive = Duration::from_secs(client.connect.keep_alive.into());
        connection.keep_alive_timeout = (!keep_alive.is_zero()).then(|| keep_alive * 3 / 2);
        connection.keep_alive_deadline()
    }

    /// Sends a CONNACK with success. Returns whether it fits the client's Maximum Packet Size.
    fn send_connack(
        &mut self,
        id: ConnectionId,
        client: &Candidate<'_>,
        session_present: bool,
        session_expiry: Duration,
    ) -> bool {
        let assigned = client.is_assigned.then_some(&*client.client_id);
        let (limits, options) = (&self.config.limits, &client.options);
        let properties = connack_properties(limits, options, session_expiry, assigned);
        let (reason, properties) = (Reason::SUCCESS, &properties[..]);
        let connack = ConnAck { session_present, reason, properties };
        let connection = self.connections.get_mut(id);
        connection.is_some_and(|connection| {
            connection.send_packet(&mut self.memory, &Packet::ConnAck(connack))
        })
    }

    /// Returns whether another session is possible. At the limit, it evicts the session of a
    /// disconnected client.
    ///
    /// It evicts a session of the owner with the most sessions, so a user who connects with many
    /// client ids evicts its own sessions, and none of a user that has fewer. Among these it prefers
    /// an empty one, then the one that has been disconnected for longest.
    pub(super) fn ensure_session_capacity(&mut self, now: Duration, newcomer: &Arc<Owner>) -> bool {
        // The session of the host does not count.
        if self.sessions.client_count() < self.config.limits.sessions {
            return true;
        }
        let Some(id) = self.sessions.next_evicted(newcomer.name()) else { return false };
        if let Some(session) = self.sessions.get(id) {
            let incident = IncidentRef::new(IncidentKind::SessionEvicted, None);
            self.incidents.push(IncidentRef { client_id: Some(&session.client_id), ..incident });
        }
        self.stats.evicted += 1;
        self.end_session(now, id, None);
        true
    }

    /// Returns the disconnected session of a client, and whether it existed before. Ends its
    /// previous connection.
    pub(super) fn open_session(
        &mut self,
        now: Duration,
        client_id: &Arc<str>,
        owner: &Arc<Owner>,
        clean_start: bool,
    ) -> (SessionId, bool) {
        if let Some(before) = self.sessions.find(client_id) {
            match self.sessions.get(before).map(|before| before.route) {
                Some(Route::Connection(connection)) => {
                    let reason = Some(Reason::SESSION_TAKEN_OVER);
                    self.report_incident(connection, IncidentKind::TakenOver, reason, None);
                    self.end_connection(now, connection, reason);
                }
                Some(Route::Local(_)) => {
                    self.end_session(now, before, Some(Reason::SESSION_TAKEN_OVER));
                }
                Some(Route::Detached) | None => {}
            }
            if clean_start {
                self.end_session(now, before, None);
            }
        }
        if let Some(before) = self.sessions.find(client_id) {
            return (before, true);
        }
        let number = self.next_number();
        let acl = Arc::clone(&self.config.acl);
        let owner = Arc::clone(owner);
        let session = Session::new(Arc::clone(client_id), owner, acl, &mut self.memory);
        (self.sessions.insert(number, session), false)
    }

    fn build_will(
        &mut self,
        now: Duration,
        acl: &dyn Acl,
        client: &Candidate<'_>,
        will: &packet::Will<'_>,
    ) -> Result<Will, Reason> {
        let client_id = &client.client_id;
        self.may_publish(IncidentKind::Will, acl, client_id, will.topic, will.properties)?;
        let mut delay = Duration::ZERO;
        // All properties except the delay belong to the message.
        let message_properties = will.properties.iter().filter(|property| match property {
            Property::WillDelay(seconds) => {
                delay = Duration::from_secs((*seconds).into());
                false
            }
            _ => true,
        });
        let message_properties: Vec<Property<'_>> = message_properties.collect();
        let publish = Publish {
            dup: false,
            qos: will.qos,
            retain: will.retain,
            topic: will.topic,
            id: None,
            properties: &message_properties[..],
            payload: will.payload,
        };
        let owner = Arc::clone(&client.owner);
        let sender = Sender { client_id: Arc::clone(client_id), owner };
        let message = Message::new(now, Some(sender), will.topic, &publish);
        let message = message.map_err(|_| Reason::MALFORMED_PACKET)?;
        Ok(Will { message: Arc::new(message), delay })
    }
}

/// The properties of a CONNACK with success: what differs from the CONNECT, and the limits.
fn connack_properties<'a>(
    limits: &Limits,
    options: &ConnectOptions<'a>,
    session_expiry: Duration,
    assigned_client_id: Option<&'a str>,
) -> Vec<Property<'a>> {
    let mut properties = Vec::new();
    let expiry = u32::try_from(session_expiry.as_secs()).unwrap_or(u32::MAX);
    if expiry != options.session_expiry {
        properties.push(Property::SessionExpiry(expiry));
    }
    properties.push(Property::ReceiveMaximum(limits.receive_maximum.max(1)));
    let packet_bytes = u32::try_from(limits.packet_bytes).unwrap_or(u32::MAX);
    properties.push(Property::MaximumPacketSize(packet_bytes));
    properties.extend(assigned_client_id.map(Property::AssignedClientId));
    if limits.topic_aliases > 0 {
        properties.push(Property::TopicAliasMaximum(limits.topic_aliases));
    }
    properties.extend(options.method.map(Property::AuthenticationMethod));
    properties
}
