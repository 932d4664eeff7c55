//! From a CONNECT to a session.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::aliases::Aliases;
use super::config::{Admission, Rules};
use super::connection::State;
use super::incidents::{IncidentKind, Note};
use super::message::Message;
use super::session::{Route, Session, Will, Window};
use super::{Broker, ConnectionId, Event, Refused, SessionId};
use crate::packet::{self, ConnAck, Connect, Notice, Packet, Publish};
use crate::property::{Properties, Property};
use crate::reason::Reason;

/// What a CONNECT says in its properties, and what counts where it says nothing.
struct Wishes<'a> {
    session_expiry: u32,
    receive_maximum: u16,
    packet_bytes: Option<u32>,
    topic_aliases: u16,
    method: Option<&'a str>,
    data: &'a [u8],
}

impl<'a> Wishes<'a> {
    fn of(properties: Properties<'a>) -> Self {
        let mut wishes = Self {
            session_expiry: 0,
            receive_maximum: u16::MAX,
            packet_bytes: None,
            topic_aliases: 0,
            method: None,
            data: &[],
        };
        for property in &properties {
            match property {
                Property::SessionExpiry(seconds) => wishes.session_expiry = seconds,
                Property::ReceiveMaximum(messages) => wishes.receive_maximum = messages,
                Property::MaximumPacketSize(bytes) => wishes.packet_bytes = Some(bytes),
                Property::TopicAliasMaximum(aliases) => wishes.topic_aliases = aliases,
                Property::AuthenticationMethod(method) => wishes.method = Some(method),
                Property::AuthenticationData(data) => wishes.data = data,
                _ => {}
            }
        }
        wishes
    }

    fn packet_bytes(&self) -> usize {
        let bytes = self.packet_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        bytes.unwrap_or(usize::MAX)
    }
}

/// What a client is told beside a reason to go to another server.
pub(super) fn elsewhere(reason: Reason, server: Option<&str>) -> Option<Property<'_>> {
    server
        .filter(|server| reason == Reason::USE_ANOTHER_SERVER && !server.is_empty())
        .map(Property::ServerReference)
}

impl Broker {
    /// The first packet of a connection.
    pub(super) fn handle_connect(
        &mut self,
        now: Duration,
        id: ConnectionId,
        bytes: &[u8],
        connect: &Connect<'_>,
    ) {
        let assigned: Option<Arc<str>> = connect.client_id.is_empty().then(|| {
            let number = self.number();
            format!("{}{number}", self.config.assigned_prefix).into()
        });
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // For every answer, also one that refuses it.
        let wishes = Wishes::of(connect.properties);
        connection.window.packet_bytes = wishes.packet_bytes();
        if let Some(refused) = connection.refused {
            let client_id = assigned.as_deref().unwrap_or(connect.client_id);
            let (kind, reason) = match refused {
                Refused::Connections => (IncidentKind::Connections, Reason::SERVER_BUSY),
                Refused::Address => (IncidentKind::Address, Reason::QUOTA_EXCEEDED),
            };
            return self.reject(now, id, kind, client_id, reason);
        }
        let offered = self.config.authentication_method.as_deref().filter(|_| self.config.asks_who);
        if wishes.method.is_some() && wishes.method != offered {
            let client_id = assigned.as_deref().unwrap_or(connect.client_id);
            let reason = Reason::BAD_AUTHENTICATION_METHOD;
            return self.reject(now, id, IncidentKind::Connect, client_id, reason);
        }
        if !self.config.asks_who {
            return self.accept(now, id, connect, assigned, Admission::default());
        }
        connection.held.add(&mut self.memory, bytes.len());
        let client_id = assigned.as_deref().unwrap_or(connect.client_id).to_owned();
        connection.state = State::Asking(bytes.to_vec(), assigned);
        self.events.push_back(Event::Login {
            connection: id,
            client_id,
            user_name: connect.user_name.map(ToOwned::to_owned),
            password: connect.password.map(<[u8]>::to_vec),
            authentication_data: wishes.method.map(|_| wishes.data.to_vec()),
        });
    }

    /// The answer to [`Event::Login`]: what is known of a client that may connect, and the reason if it may not. For a
    /// connection that is gone by now it changes nothing. Gives whether the client is connected now.
    pub fn handle_login(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        answer: Result<Admission, Reason>,
    ) -> bool {
        self.stats.refused_logins += u64::from(answer.is_err());
        let Some(asking) = self.connections.get_mut(&connection) else { return false };
        if !matches!(asking.state, State::Asking(..)) {
            return false;
        }
        let State::Asking(bytes, assigned) = core::mem::replace(&mut asking.state, State::New)
        else {
            return false;
        };
        asking.held.remove(&mut self.memory, bytes.len());
        match (answer, Packet::decode(&bytes)) {
            (Ok(admission), Ok(Packet::Connect(connect))) => {
                self.accept(now, connection, &connect, assigned, admission);
            }
            (Err(reason), _) => self.refuse(now, connection, reason),
            // It was one when it came.
            (Ok(_), _) => self.refuse(now, connection, Reason::UNSPECIFIED_ERROR),
        }
        self.go_on(now, connection);
        self.settle(now);
        self.connections.get(&connection).is_some_and(|one| one.session().is_some())
    }

    /// An AUTH: the client proves anew who it is (section 4.12.1). Nothing more is read from it until that is answered.
    pub(super) fn handle_auth(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        notice: &Notice<Properties<'_>>,
    ) {
        let Wishes { method, data, .. } = Wishes::of(notice.properties);
        let client_id = self.sessions.get(&session).map(|kept| Arc::clone(&kept.client_id));
        let connection = self.connections.get_mut(&id).filter(|one| one.authenticates);
        let is_meant = notice.reason == Reason::RE_AUTHENTICATE
            && method == self.config.authentication_method.as_deref();
        let (Some(connection), Some(client_id), true) = (connection, client_id, is_meant) else {
            return self.offend(now, id, Some(Reason::PROTOCOL_ERROR), None);
        };
        connection.asked = Some(data.len());
        connection.held.add(&mut self.memory, data.len());
        self.events.push_back(Event::Reauthenticate {
            connection: id,
            client_id: (*client_id).to_owned(),
            authentication_data: data.to_vec(),
        });
    }

    /// The answer to [`Event::Reauthenticate`]: what is known of a client that has proved who it is, which has to be the same
    /// user. Where it is another one, or `None`, or its [rules hold no more](Rules::still_hold), it is disconnected with *not
    /// authorized*. For a connection that is gone, or has not asked, it changes nothing. Gives whether it stays connected.
    pub fn handle_reauthentication(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        answer: Option<Admission>,
    ) -> bool {
        self.stats.refused_logins += u64::from(answer.is_none());
        let Some(asking) = self.connections.get_mut(&connection) else { return false };
        let (Some(bytes), Some(session)) = (asking.asked.take(), asking.session()) else {
            return false;
        };
        asking.held.remove(&mut self.memory, bytes);
        let kept = self.sessions.get_mut(&session);
        let is_same = |(kept, admission): &(&mut Session, Admission)| {
            kept.user == admission.user && kept.rules.still_hold(&kept.client_id)
        };
        let accepted = kept.zip(answer).filter(is_same);
        let is_accepted = accepted.is_some();
        match accepted {
            Some((kept, Admission { rules, expires_at, .. })) => {
                if let Some(rules) = rules {
                    kept.rules = rules;
                }
                let method = self.config.authentication_method.as_deref();
                let method = method.map(Property::AuthenticationMethod);
                let (reason, properties) = (Reason::SUCCESS, method.as_slice());
                asking.answer(&mut self.memory, &Packet::Auth(Notice { reason, properties }));
                self.set_expiry(connection, expires_at);
                self.wake(connection);
                self.go_on(now, connection);
            }
            None => self.end_connection(now, connection, Some(Reason::NOT_AUTHORIZED)),
        }
        self.settle(now);
        is_accepted
    }

    /// A CONNACK that says no.
    pub(super) fn refuse(&mut self, now: Duration, id: ConnectionId, reason: Reason) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let elsewhere = elsewhere(reason, self.elsewhere.as_deref());
        let properties = elsewhere.as_slice();
        let connack = ConnAck { session_present: false, reason, properties };
        connection.answer(&mut self.memory, &Packet::ConnAck(connack));
        self.end_connection(now, id, None);
    }

    /// The same, which is told.
    fn reject(
        &mut self,
        now: Duration,
        id: ConnectionId,
        kind: IncidentKind,
        client_id: &str,
        reason: Reason,
    ) {
        let peer = self.connections.get(&id).and_then(|connection| connection.peer);
        let note = Note::new(kind, Some(reason));
        self.incidents.push(Note {
            client_id: Some(client_id),
            connection: Some(id),
            peer,
            ..note
        });
        self.refuse(now, id, reason);
    }

    fn accept(
        &mut self,
        now: Duration,
        id: ConnectionId,
        connect: &Connect<'_>,
        assigned: Option<Arc<str>>,
        admission: Admission,
    ) {
        let wishes = Wishes::of(connect.properties);
        let is_assigned = assigned.is_some();
        let client_id = assigned.unwrap_or_else(|| connect.client_id.into());
        let rules = admission.rules.unwrap_or_else(|| Arc::clone(&self.config.rules));
        let is_host = |host: &SessionId| {
            self.sessions.get(host).is_some_and(|host| host.client_id == client_id)
        };
        let refused = IncidentKind::Connect;
        if self.host.as_ref().is_some_and(is_host) {
            let reason = Reason::CLIENT_IDENTIFIER_NOT_VALID;
            return self.reject(now, id, refused, &client_id, reason);
        }
        if self.elsewhere.is_some() {
            return self.refuse(now, id, Reason::USE_ANOTHER_SERVER);
        }
        if let Err(reason) = rules.may_connect(&client_id) {
            return self.reject(now, id, refused, &client_id, reason);
        }
        let will = match connect.will.as_ref().map(|will| self.will(now, &*rules, &client_id, will))
        {
            None => None,
            Some(Ok(will)) => Some(will),
            Some(Err(reason)) => return self.refuse(now, id, reason),
        };
        let taken_over = self.by_client.get(&client_id).and_then(|id| self.sessions.get(id));
        if taken_over.is_some_and(|before| before.user != admission.user) {
            let reason = Reason::CLIENT_IDENTIFIER_NOT_VALID;
            return self.reject(now, id, refused, &client_id, reason);
        }
        // What another has asked under this client id must not be taken for this one's.
        if self.inbox.user(&client_id).is_some_and(|user| user != admission.user.as_ref()) {
            return self.reject(now, id, refused, &client_id, Reason::SERVER_BUSY);
        }
        // What it has subscribed to by other rules than it has now is no basis to go on from.
        let is_over = taken_over.is_some_and(|before| !before.rules.still_hold(&client_id));
        if taken_over.is_none() && !self.has_room_for_session(now) {
            let (kind, reason) = (IncidentKind::Sessions, Reason::QUOTA_EXCEEDED);
            return self.reject(now, id, kind, &client_id, reason);
        }
        let clean_start = connect.clean_start || is_over;
        let (session, session_present) = self.open(now, &client_id, clean_start);
        self.stop_timers(session);
        let limits = &self.config.limits;
        let expiry = Duration::from_secs(wishes.session_expiry.into()).min(limits.session_expiry);
        let Some(kept) = self.sessions.get_mut(&session) else { return };
        kept.route = Route::Connection(id);
        kept.user = admission.user;
        kept.rules = rules;
        kept.expiry = expiry;
        kept.set_will(&mut self.memory, will);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = State::Open(session);
        connection.authenticates = wishes.method.is_some();
        connection.heard = now;
        connection.given = Aliases::new(wishes.topic_aliases.min(limits.topic_aliases_given));
        connection.window = Window {
            in_flight: wishes.receive_maximum.min(limits.in_flight).into(),
            packet_bytes: wishes.packet_bytes(),
        };
        // One and a half times, as the standard wants.
        let keep_alive = Duration::from_secs(connect.keep_alive.into());
        connection.silence_max = (!keep_alive.is_zero()).then(|| keep_alive * 3 / 2);
        let deadline = connection.silent_at();
        let mut properties: Vec<Property<'_>> = Vec::new();
        let expiry = u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX);
        if expiry != wishes.session_expiry {
            properties.push(Property::SessionExpiry(expiry));
        }
        properties.push(Property::ReceiveMaximum(limits.receive_maximum.max(1)));
        let packet_bytes = u32::try_from(limits.packet_bytes).unwrap_or(u32::MAX);
        properties.push(Property::MaximumPacketSize(packet_bytes));
        if is_assigned {
            properties.push(Property::AssignedClientId(&client_id));
        }
        if limits.topic_aliases > 0 {
            properties.push(Property::TopicAliasMaximum(limits.topic_aliases));
        }
        properties.extend(wishes.method.map(Property::AuthenticationMethod));
        let (reason, properties) = (Reason::SUCCESS, &properties[..]);
        let connack = ConnAck { session_present, reason, properties };
        if !connection.answer(&mut self.memory, &Packet::ConnAck(connack)) {
            // It takes nothing of what it must know.
            let reason = Some(Reason::PACKET_TOO_LARGE);
            self.note(id, IncidentKind::Connect, reason, None);
            return self.end_connection(now, id, None);
        }
        self.set_deadline(id, deadline);
        self.set_expiry(id, admission.expires_at);
        self.wants_replay(session);
        self.wake(id);
    }

    /// Whether there may be another session. In its place one ends whose client is away: one that has nothing to lose if
    /// there is one, so that who comes and goes under many names throws out itself, and of these the one that has been away
    /// for longest.
    pub(super) fn has_room_for_session(&mut self, now: Duration) -> bool {
        // The host is nobody's client.
        let clients = self.sessions.len() - usize::from(self.host.is_some());
        if clients < self.config.limits.sessions {
            return true;
        }
        let away = self.sessions.iter().filter(|(_, one)| one.route == Route::Away);
        let away = away.filter(|(id, _)| Some(**id) != self.host);
        let order = |(id, one): (&SessionId, &Session)| (!one.is_empty(), one.left_at(), *id);
        let Some((.., id)) = away.map(order).min() else { return false };
        if let Some(session) = self.sessions.get(&id) {
            let note = Note::new(IncidentKind::GaveWay, None);
            self.incidents.push(Note { client_id: Some(&session.client_id), ..note });
        }
        self.stats.evicted += 1;
        self.end_session(now, id, None);
        true
    }

    /// The session of a client, which is connected no more; and whether there was one.
    pub(super) fn open(
        &mut self,
        now: Duration,
        client_id: &Arc<str>,
        clean_start: bool,
    ) -> (SessionId, bool) {
        if let Some(before) = self.by_client.get(client_id).copied() {
            match self.sessions.get(&before).map(|before| before.route) {
                Some(Route::Connection(connection)) => {
                    let reason = Some(Reason::SESSION_TAKEN_OVER);
                    self.note(connection, IncidentKind::TakenOver, reason, None);
                    self.end_connection(now, connection, reason);
                }
                Some(Route::Local(_)) => {
                    self.end_session(now, before, Some(Reason::SESSION_TAKEN_OVER));
                }
                Some(Route::Away) | None => {}
            }
            if clean_start {
                self.end_session(now, before, None);
            }
        }
        if let Some(before) = self.by_client.get(client_id).copied() {
            return (before, true);
        }
        let id = SessionId(self.number());
        let rules = Arc::clone(&self.config.rules);
        let session = Session::new(Arc::clone(client_id), rules, &mut self.memory);
        self.sessions.insert(id, session);
        self.by_client.insert(Arc::clone(client_id), id);
        (id, false)
    }

    fn will(
        &mut self,
        now: Duration,
        rules: &dyn Rules,
        client_id: &Arc<str>,
        will: &packet::Will<'_>,
    ) -> Result<Will, Reason> {
        self.may_publish(IncidentKind::Will, rules, client_id, will.topic, will.properties)?;
        let mut delay = Duration::ZERO;
        // Everything but the delay is the message's.
        let kept = will.properties.iter().filter(|property| match property {
            Property::WillDelay(seconds) => {
                delay = Duration::from_secs((*seconds).into());
                false
            }
            _ => true,
        });
        let kept: Vec<Property<'_>> = kept.collect();
        let publish = Publish {
            dup: false,
            qos: will.qos,
            retain: will.retain,
            topic: will.topic,
            id: None,
            properties: &kept[..],
            payload: will.payload,
        };
        let message = Message::new(now, Some(Arc::clone(client_id)), will.topic, &publish);
        let message = message.map_err(|_| Reason::MALFORMED_PACKET)?;
        Ok(Will { message: Arc::new(message), delay })
    }
}
