//! CONNECT and authentication.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::sync::Arc;
use core::time::Duration;

use super::Broker;
use crate::config::Admission;
use crate::event::Event;
use crate::ids::{ConnectionId, SessionId};
use crate::incidents::{IncidentKind, IncidentRef};
use crate::session::Session;
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{ConnAck, Connect, Notice, Packet};
use statestore_mqtt::property::{Properties, Property};

/// Reason String for a client id that is invalid, reserved, or not permitted by the login.
const CLIENT_ID_NOT_PERMITTED: &str = "the client id is invalid or the login does not permit it";

/// Reason String for a client id that is in use.
const OTHER_USER: &str = "another user has a session with this client id";

/// Properties of a CONNECT, with the defaults of MQTT.
pub(super) struct ConnectOptions<'a> {
    pub(super) session_expiry: u32,
    pub(super) receive_maximum: u16,
    packet_bytes: Option<u32>,
    pub(super) topic_aliases: u16,
    /// Authentication method.
    pub(super) method: Option<&'a str>,
    /// Authentication data.
    data: &'a [u8],
}

impl<'a> ConnectOptions<'a> {
    pub(super) fn from_properties(properties: Properties<'a>) -> Self {
        let mut options = Self {
            session_expiry: 0,
            receive_maximum: u16::MAX,
            packet_bytes: None,
            topic_aliases: 0,
            method: None,
            data: &[],
        };
        for property in &properties {
            match property {
                Property::SessionExpiry(seconds) => options.session_expiry = seconds,
                Property::ReceiveMaximum(messages) => options.receive_maximum = messages,
                Property::MaximumPacketSize(bytes) => options.packet_bytes = Some(bytes),
                Property::TopicAliasMaximum(aliases) => options.topic_aliases = aliases,
                Property::AuthenticationMethod(method) => options.method = Some(method),
                Property::AuthenticationData(data) => options.data = data,
                _ => {}
            }
        }
        options
    }

    pub(super) fn packet_bytes(&self) -> usize {
        let bytes = self.packet_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        bytes.unwrap_or(usize::MAX)
    }
}

/// Returns the Server Reference for a CONNACK or DISCONNECT with *use another server*.
pub(super) fn server_reference(reason: Reason, server: Option<&str>) -> Option<Property<'_>> {
    server
        .filter(|server| reason == Reason::USE_ANOTHER_SERVER && !server.is_empty())
        .map(Property::ServerReference)
}

impl Broker {
    /// Returns a client id that no session has. Any client may choose one with this prefix, so some
    /// may be in use.
    fn assign_client_id(&mut self) -> Arc<str> {
        loop {
            let number = self.next_number();
            let client_id: Arc<str> = format!("{}{number}", self.config.assigned_prefix).into();
            let is_used = self.sessions.find(&client_id).is_some();
            if !is_used && self.inbox.user(&client_id).is_none() {
                return client_id;
            }
        }
    }

    /// Handles the CONNECT of a connection.
    pub(super) fn handle_connect(
        &mut self,
        now: Duration,
        id: ConnectionId,
        bytes: &[u8],
        connect: &Connect<'_>,
    ) {
        let assigned = connect.client_id.is_empty().then(|| self.assign_client_id());
        let Some(connection) = self.connections.get_mut(id) else { return };
        // Set before the first response, since a rejection must fit too.
        let options = ConnectOptions::from_properties(connect.properties);
        connection.window.packet_bytes = options.packet_bytes();
        let offered =
            self.config.authentication_method.as_deref().filter(|_| self.config.requires_login);
        if options.method.is_some() && options.method != offered {
            let client_id = assigned.as_deref().unwrap_or(connect.client_id);
            let reason = Reason::BAD_AUTHENTICATION_METHOD;
            return self.reject_and_report(now, id, IncidentKind::Connect, client_id, reason);
        }
        if !self.config.requires_login {
            return self.accept(now, id, connect, assigned, Admission::default());
        }
        connection.account.add(&mut self.memory, bytes.len());
        let client_id = assigned.as_deref().unwrap_or(connect.client_id).to_owned();
        self.connections.begin_login(id, bytes.to_vec(), assigned);
        self.events.push_back(Event::Login {
            connection: id,
            client_id,
            user_name: connect.user_name.map(ToOwned::to_owned),
            password: connect.password.map(<[u8]>::to_vec),
            authentication_data: options.method.map(|_| options.data.to_vec()),
        });
    }

    /// Decides an [`Event::Login`]: accepts the client, or rejects it with a reason. Has no effect
    /// if the connection is closed by now. Returns whether the client is connected now.
    pub fn handle_login(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        outcome: Result<Admission, Reason>,
    ) -> bool {
        self.stats.refused_logins += u64::from(outcome.is_err());
        let Some((bytes, assigned)) = self.connections.end_login(connection) else { return false };
        if let Some(pending) = self.connections.get_mut(connection) {
            pending.account.remove(&mut self.memory, bytes.len());
        }
        match (outcome, Packet::decode(&bytes)) {
            (Ok(admission), Ok(Packet::Connect(connect))) => {
                self.accept(now, connection, &connect, assigned, admission);
            }
            (Err(reason), _) => self.reject(now, connection, reason),
            // Unreachable: these bytes were decoded as a CONNECT before.
            (Ok(_), _) => self.reject(now, connection, Reason::UNSPECIFIED_ERROR),
        }
        self.resume_input(now, connection);
        self.settle(now);
        self.connections.get(connection).is_some_and(|connection| connection.session().is_some())
    }

    /// Handles an AUTH of a client that reauthenticates (MQTT 5, section 4.12.1). Nothing more is
    /// read from the client until the embedder has decided.
    pub(super) fn handle_auth(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session_id: SessionId,
        notice: &Notice<Properties<'_>>,
    ) {
        let ConnectOptions { method, data, .. } =
            ConnectOptions::from_properties(notice.properties);
        let client_id = self.sessions.get(session_id).map(|session| Arc::clone(&session.client_id));
        let connection = self.connections.get_mut(id).filter(|connection| connection.authenticates);
        let is_valid = notice.reason == Reason::RE_AUTHENTICATE
            && method == self.config.authentication_method.as_deref();
        let (Some(connection), Some(client_id), true) = (connection, client_id, is_valid) else {
            return self.disconnect_for_violation(now, id, Some(Reason::PROTOCOL_ERROR), None);
        };
        connection.pending_auth_bytes = Some(data.len());
        connection.account.add(&mut self.memory, data.len());
        self.events.push_back(Event::Reauthenticate {
            connection: id,
            client_id: (*client_id).to_owned(),
            authentication_data: data.to_vec(),
        });
    }

    /// Decides an [`Event::Reauthenticate`]: accepts the client, or refuses it with `None`.
    ///
    /// The client is disconnected with *not authorized* if it is refused, if the user is a
    /// different one, or if its access control list is
    /// [no longer in force](crate::Acl::is_current). Has no effect if the connection is closed
    /// or did not reauthenticate. Returns whether the client stays connected.
    pub fn handle_reauthentication(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        outcome: Option<Admission>,
    ) -> bool {
        self.stats.refused_logins += u64::from(outcome.is_none());
        let Some(pending) = self.connections.get_mut(connection) else { return false };
        let Some(bytes) = pending.pending_auth_bytes.take() else { return false };
        pending.account.remove(&mut self.memory, bytes);
        let Some(session_id) = pending.session() else { return false };
        let session = self.sessions.get_mut(session_id);
        let is_same = |(session, admission): &(&mut Session, Admission)| {
            session.user == admission.user && session.acl.is_current(&session.client_id)
        };
        let accepted = session.zip(outcome).filter(is_same);
        let is_accepted = accepted.is_some();
        match accepted {
            Some((session, Admission { acl, expires_at, .. })) => {
                if let Some(acl) = acl {
                    session.acl = acl;
                }
                let method = self.config.authentication_method.as_deref();
                let method = method.map(Property::AuthenticationMethod);
                let (reason, properties) = (Reason::SUCCESS, method.as_slice());
                pending.send_packet(&mut self.memory, &Packet::Auth(Notice { reason, properties }));
                self.set_expiry(connection, expires_at);
                self.wake(connection);
                self.resume_input(now, connection);
            }
            None => self.end_connection(now, connection, Some(Reason::NOT_AUTHORIZED)),
        }
        self.settle(now);
        is_accepted
    }

    /// Sends a CONNACK with an error and ends the connection.
    pub(super) fn reject(&mut self, now: Duration, id: ConnectionId, reason: Reason) {
        let is_invalid_id = reason == Reason::CLIENT_IDENTIFIER_NOT_VALID;
        self.reject_with(now, id, reason, is_invalid_id.then_some(CLIENT_ID_NOT_PERMITTED));
    }

    /// Like [`reject`](Self::reject), with a Reason String. The properties are omitted if they do
    /// not fit the client's Maximum Packet Size.
    fn reject_with(
        &mut self,
        now: Duration,
        id: ConnectionId,
        reason: Reason,
        text: Option<&'static str>,
    ) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let reference = server_reference(reason, self.redirect.as_deref());
        let property = reference.or_else(|| text.map(Property::ReasonString));
        let mut send = |properties: &[Property<'_>]| {
            let connack = ConnAck { session_present: false, reason, properties };
            connection.send_packet(&mut self.memory, &Packet::ConnAck(connack))
        };
        let _ = send(property.as_slice()) || send(&[]);
        self.end_connection(now, id, None);
    }

    /// Rejects a connection and records an incident.
    pub(super) fn reject_and_report(
        &mut self,
        now: Duration,
        id: ConnectionId,
        kind: IncidentKind,
        client_id: &str,
        reason: Reason,
    ) {
        let peer = self.connections.get(id).and_then(|connection| connection.peer);
        let incident = IncidentRef::new(kind, Some(reason));
        self.incidents.push(IncidentRef {
            client_id: Some(client_id),
            connection: Some(id),
            peer,
            ..incident
        });
        match kind {
            IncidentKind::OtherUser => self.reject_with(now, id, reason, Some(OTHER_USER)),
            _ => self.reject(now, id, reason),
        }
    }
}
