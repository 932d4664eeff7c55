//! The broker, its clients, and the naive broker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_broker::{Admission, Broker, Config, ConnectionId, Event, Limits, LocalId};
use statestore_mqtt::packet::{Packet, Publish};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};

use super::naive::{Naive, Sent};
use super::wire::{PacketReader, Received};
use super::{NAMES, QOS, naive, packet_id, pick};

/// More parts than the output of a connection has.
pub(super) const PIECES_MAX: usize = 1_000;

pub(super) type Properties<'a> = &'a [Property<'a>];

/// Length of the head of a payload, which contains the number of the message.
const HEAD: usize = 8;

/// Multiplier that makes it unlikely that random bytes contain the number of a message.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fields of a CONNECT.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectFields {
    pub(super) name: &'static str,
    pub(super) clean_start: bool,
    pub(super) expiry: Duration,
    pub(super) receive_maximum: usize,
    pub(super) packet_bytes: usize,
    pub(super) alias_max: u16,
}

/// A connection.
pub(super) struct Slot {
    pub(super) id: ConnectionId,
    pub(super) peer: Option<IpAddr>,
    pub(super) reader: PacketReader,
    pub(super) fields: Option<ConnectFields>,
    /// The client whose session the connection has.
    pub(super) name: Option<&'static str>,
    /// True if the client sends arbitrary bytes.
    pub(super) is_unchecked: bool,
    /// The arbitrary bytes so far.
    written: Vec<u8>,
    /// Packets that the client has to acknowledge.
    pub(super) to_do: VecDeque<Received>,
    /// Packet identifiers of requests without an acknowledgement.
    pub(super) requests: VecDeque<(u16, u64)>,
}

impl Slot {
    pub(super) fn new(id: ConnectionId, peer: Option<IpAddr>) -> Self {
        Self {
            id,
            peer,
            reader: PacketReader::new(),
            fields: None,
            name: None,
            is_unchecked: false,
            written: Vec::new(),
            to_do: VecDeque::new(),
            requests: VecDeque::new(),
        }
    }

    /// Returns whether the client has packets to acknowledge and its input is accepted.
    pub(super) fn has_to_do(&self) -> bool {
        !self.to_do.is_empty() && self.name.is_some() && !self.is_unchecked
    }
}

/// An event of one client that the host expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForHost {
    Message {
        number: u64,
        must: bool,
        expires: Option<Duration>,
    },
    /// A disconnect. It is reported once, even if the client disconnects again before the report.
    Gone {
        is_reported: bool,
    },
}

pub(super) struct Run {
    pub(super) broker: Broker,
    pub(super) limits: Limits,
    pub(super) is_small: bool,
    /// Set after arbitrary input, which may have any effect.
    pub(super) is_tainted: bool,
    pub(super) now: Duration,
    pub(super) slots: [Option<Slot>; 8],
    pub(super) locals: [Option<(LocalId, &'static str)>; 2],
    pub(super) host: Option<LocalId>,
    pub(super) has_host: bool,
    pub(super) for_host: BTreeMap<&'static str, VecDeque<ForHost>>,
    pub(super) logins: Vec<(ConnectionId, String)>,
    /// Connections with output.
    pub(super) ready: BTreeSet<ConnectionId>,
    pub(super) naive: Naive,
    /// Clients whose connection may have been taken over by arbitrary input.
    pub(super) unknown: BTreeSet<&'static str>,
    /// The number of the last message.
    pub(super) last: u64,
}

impl Run {
    pub(super) fn new(config: Config, is_small: bool, now: Duration) -> Self {
        let limits = config.limits.clone();
        Self {
            broker: Broker::new(config),
            limits,
            is_small,
            is_tainted: false,
            now,
            slots: [const { None }; 8],
            locals: [None; 2],
            host: None,
            has_host: false,
            for_host: BTreeMap::new(),
            logins: Vec::new(),
            ready: BTreeSet::new(),
            naive: Naive::default(),
            unknown: BTreeSet::new(),
            last: 0,
        }
    }

    /// Length of a payload. Where memory allows it, a few are so long that the broker returns their
    /// packet in parts.
    pub(super) fn payload_len(&self, len: u8) -> usize {
        HEAD + usize::from(len) * if len >= 250 && !self.is_small { 300 } else { 2 }
    }

    pub(super) fn payload(&self, sent: &Sent, len: u8) -> Vec<u8> {
        let head = sent.number.wrapping_mul(MULTIPLIER).to_be_bytes();
        [&head[..], &vec![b'x'; self.payload_len(len) - HEAD]].concat()
    }

    /// The number of the message with this payload.
    pub(super) fn number(&self, payload: &[u8]) -> Option<u64> {
        let head = u64::from_be_bytes(*payload.first_chunk()?);
        // The list is short, so searching it needs no inverse.
        (1..=self.last).find(|number| number.wrapping_mul(MULTIPLIER) == head)
    }

    pub(super) fn is_unchecked(&mut self, name: &'static str) -> bool {
        self.naive.session(name).is_unchecked
    }

    /// Stops checking this session and the messages of its client to the host.
    pub(super) fn stop_checking(&mut self, name: &'static str) {
        self.naive.session(name).is_unchecked = true;
        self.unknown.insert(name);
    }

    /// The client of a connection, if it sent no arbitrary bytes and its input is accepted.
    pub(super) fn ready_client(&mut self, at: usize) -> Option<&'static str> {
        if !self.slots[at].as_ref()?.requests.is_empty() {
            // Some of its requests may still be queued.
            self.read(at, 1);
        }
        let slot = self.slots[at].as_ref()?;
        let name = slot.name.filter(|_| !slot.is_unchecked && slot.requests.is_empty())?;
        self.broker.wants_input(slot.id).then_some(name)
    }

    /// Writes a packet, optionally in pieces. Returns whether the broker accepts input of the
    /// connection.
    pub(super) fn write(
        &mut self,
        at: usize,
        packet: &Packet<'_, Properties<'_>>,
        piece: usize,
    ) -> bool {
        let Some(slot) = &self.slots[at] else { return false };
        if slot.is_unchecked || !self.broker.wants_input(slot.id) {
            return false;
        }
        let mut bytes = BytesMut::new();
        packet.encode(&mut bytes).expect("a packet");
        let piece = if piece == 0 { usize::MAX } else { piece };
        for piece in bytes.chunks(piece) {
            self.broker.handle_bytes(self.now, slot.id, piece);
        }
        true
    }

    /// Writes a packet and reads all output.
    pub(super) fn write_and_read(
        &mut self,
        at: usize,
        packet: &Packet<'_, Properties<'_>>,
    ) -> Option<Vec<Received>> {
        let piece = usize::try_from(self.last % 4).unwrap_or_default() * 3;
        // The answer is behind the messages that wait, which may take several parts.
        self.write(at, packet, piece).then(|| self.read(at, PIECES_MAX))
    }

    pub(super) fn connect(
        &mut self,
        at: usize,
        packet: &Packet<'_, Properties<'_>>,
        fields: ConnectFields,
    ) {
        let Some(slot) = &mut self.slots[at] else { return };
        if slot.is_unchecked || !slot.requests.is_empty() || !self.broker.wants_input(slot.id) {
            return;
        }
        let is_first = slot.fields.is_none();
        if is_first {
            slot.fields = Some(fields);
            slot.reader.packet_bytes = fields.packet_bytes;
            slot.reader.alias_max = fields.alias_max;
        }
        self.write(at, packet, 0);
        self.take_events();
        if is_first {
            self.read_connack(at);
        }
    }

    pub(super) fn take_events(&mut self) {
        while let Some(Event::Login { connection, client_id, .. }) = self.broker.poll_event() {
            let known = self.slots.iter().flatten().find(|slot| slot.id == connection);
            if let Some(fields) =
                known.filter(|slot| !slot.is_unchecked).and_then(|slot| slot.fields)
            {
                assert_eq!(client_id, fields.name);
            }
            self.logins.push((connection, client_id));
        }
    }

    pub(super) fn login(&mut self, which: u8, answer: u8) {
        if self.logins.is_empty() {
            return;
        }
        let (connection, _) = self.logins.remove(usize::from(which) % self.logins.len());
        let answer = if answer.is_multiple_of(8) {
            Err(Reason::BAD_USER_NAME_OR_PASSWORD)
        } else {
            Ok(Admission::default())
        };
        self.broker.handle_login(self.now, connection, answer);
        let of = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.id == connection);
        let Some(at) = self.slots.iter().position(of) else { return };
        match &self.slots[at] {
            Some(Slot { is_unchecked: false, .. }) => self.read_connack(at),
            Some(Slot { fields: Some(fields), .. }) => {
                let name = fields.name;
                self.sync();
                self.stop_checking(name);
            }
            _ => {}
        }
    }

    /// Reads the CONNACK, if the login is decided.
    fn read_connack(&mut self, at: usize) {
        let Some(slot) = &self.slots[at] else { return };
        let Some(fields) = slot.fields else { return };
        if self.logins.iter().any(|(id, _)| *id == slot.id) {
            return;
        }
        // A previous connection with this client id is closed by now.
        self.sync();
        let Some(slot) = &mut self.slots[at] else { return };
        slot.name = Some(fields.name);
        let received = self.read(at, 1);
        let session_present = received.iter().find_map(|received| match received {
            Received::ConnAck(present, Reason::SUCCESS) => Some(*present),
            _ => None,
        });
        if session_present.is_none() {
            let Some(slot) = &mut self.slots[at] else { return };
            assert!(self.broker.is_closing(slot.id), "no CONNACK");
            slot.name = None;
            if received.is_empty() {
                // The CONNACK is too large for the client.
                self.stop_checking(fields.name);
            }
        }
    }

    /// Handles a CONNACK that accepts the connection.
    pub(super) fn handle_connack(&mut self, at: usize, session_present: bool) {
        let Some(fields) = self.slots[at].as_ref().and_then(|slot| slot.fields) else { return };
        self.open_session(fields.name, session_present, fields.clean_start);
        let expiry = fields.expiry.min(self.limits.session_expiry);
        let session = self.naive.session(fields.name);
        session.expiry = expiry;
        session.limit_packets(fields.packet_bytes);
        self.check_connections();
    }

    /// Checks the limits of accepted connections.
    fn check_connections(&self) {
        let accepted = || self.slots.iter().flatten().filter(|slot| slot.name.is_some());
        assert!(accepted().count() <= self.limits.connections);
        for peer in accepted().filter_map(|slot| slot.peer).filter(|peer| !peer.is_loopback()) {
            let from_there = accepted().filter(|slot| slot.peer == Some(peer)).count();
            assert!(from_there <= self.limits.connections_per_address, "{peer}: {from_there}");
        }
    }

    /// Checks whether a session was resumed, and begins a new one otherwise.
    pub(super) fn open_session(&mut self, name: &'static str, is_present: bool, clean_start: bool) {
        let evicted = self.broker.stats().evicted;
        let now = self.now;
        let session = self.naive.session(name);
        let is_known = !session.is_unchecked;
        match session.ends_at {
            _ if !is_known => {}
            _ if clean_start => assert!(!is_present, "{name} requested a new session"),
            None => assert!(!is_present, "{name} had no session"),
            Some(at) if at <= now && now < Duration::MAX => {
                assert!(!is_present, "the session of {name} ended at {at:?}");
            }
            Some(at) => {
                let may_be_gone = session.evicted < evicted || at <= now;
                assert!(is_present || may_be_gone, "the session of {name} must last until {at:?}");
            }
        }
        if !is_present {
            session.renew();
        }
        session.is_connected = true;
        session.ends_at = None;
        session.evicted = evicted;
    }

    /// Updates the model for connections and attachments that have ended.
    pub(super) fn sync(&mut self) {
        let evicted = self.broker.stats().evicted;
        for slot in self.slots.iter_mut().flatten() {
            if self.broker.is_closing(slot.id)
                && let Some(name) = slot.name.take()
            {
                slot.to_do.clear();
                let session = self.naive.session(name);
                let was_evicted = session.evicted < evicted;
                session.leave(self.now, slot.reader.is_within_delivery());
                end_client(
                    self.has_host,
                    self.for_host.entry(name).or_default(),
                    &slot.requests,
                    was_evicted,
                );
            }
        }
        for local in &mut self.locals {
            if let Some((id, name)) = *local
                && !self.broker.is_attached(id)
            {
                self.broker.detach(self.now, id);
                *local = None;
                let session = self.naive.session(name);
                let was_evicted = session.evicted < evicted;
                session.expiry = Duration::ZERO;
                session.leave(self.now, false);
                end_client(
                    self.has_host,
                    self.for_host.entry(name).or_default(),
                    &VecDeque::new(),
                    was_evicted,
                );
            }
        }
        for (_, name) in self.locals.iter().flatten() {
            assert!(self.broker.is_connected(name), "{name} is attached");
        }
        let connections = self.slots.iter().flatten().filter_map(|slot| slot.name);
        for name in connections.chain(self.locals.iter().flatten().map(|(_, name)| *name)) {
            self.naive.session(name).evicted = evicted;
        }
    }

    pub(super) fn publish_as(
        &mut self,
        at: usize,
        name: &'static str,
        packet: &Publish<'_, Properties<'_>>,
        sent: &Sent,
        clears: bool,
    ) {
        let session = self.naive.session(name);
        let id = packet.id.map_or(0, NonZeroU16::get);
        let is_known = !session.is_unchecked;
        let is_again = sent.qos == Qos::ExactlyOnce && session.received.contains(&id);
        let is_beyond = sent.qos == Qos::ExactlyOnce
            && session.received.len() >= usize::from(self.limits.receive_maximum);
        // With small limits, the message may be refused, so the acknowledgement is needed
        // immediately.
        let needs_answer = sent.retain && self.is_small && sent.qos > Qos::AtMostOnce;
        let is_taken = !is_again && !is_beyond;
        let mut is_sure = is_taken && is_known;
        let slot = self.slots[at].as_ref().expect("a connection");
        let connection = slot.id;
        if !self.write(at, &Packet::Publish(*packet), usize::from(id % 3) * 5) {
            return;
        }
        is_sure &= !self.broker.is_closing(connection);
        if is_taken && sent.qos == Qos::ExactlyOnce {
            self.naive.session(name).received.insert(id);
        }
        if sent.retain && self.is_small {
            is_sure &= needs_answer;
        }
        let mut is_received = false;
        if is_taken && !clears {
            is_received = self.model_publish(sent, is_sure);
        } else if is_taken {
            self.naive.forget_retained(sent.topic);
            if naive::is_for_host(sent.topic) {
                // Without a payload, the message cannot be identified.
                self.model_publish(sent, false);
            }
        }
        if !needs_answer && !self.last.is_multiple_of(4) {
            return;
        }
        let received = self.read(at, 1);
        let answer = received.into_iter().rev().find_map(|received| match received {
            Received::PubAck(of, reason) | Received::PubRec(of, reason) if of == id => Some(reason),
            _ => None,
        });
        let is_error = answer.is_some_and(Reason::is_error);
        assert!(!is_error || self.is_small, "{answer:?}");
        if is_error && is_taken {
            self.naive.session(name).received.remove(&id);
        }
        if is_error || needs_answer && answer.is_none() {
            self.naive.retract(sent.number, is_error);
            set_must(self.for_host.entry(name).or_default(), sent.number, false);
        }
        let is_certain = is_sure && !self.is_tainted && !self.is_small && !clears;
        let is_unchecked = self.naive.sessions.values().any(|session| session.is_unchecked);
        if is_certain
            && !is_unchecked
            && !is_again
            && let Some(reason) = answer
        {
            assert_eq!(reason == Reason::SUCCESS, is_received, "{sent:?} {reason:?}");
        }
    }

    /// Adds a published message to the model.
    pub(super) fn model_publish(&mut self, sent: &Sent, sure: bool) -> bool {
        if !naive::is_for_host(sent.topic) {
            return self.naive.publish(sent, sure, !self.is_small);
        }
        if sent.retain {
            self.naive.once_retained.insert(sent.number, sent.topic);
        }
        let Some(sender) = sent.sender.filter(|_| self.has_host) else { return false };
        let (number, expires) = (sent.number, sent.expires);
        let queue = self.for_host.entry(sender).or_default();
        queue.push_back(ForHost::Message { number, must: sure, expires });
        true
    }

    pub(super) fn burst(&mut self, at: usize, [_, count, len, ..]: [u8; 5]) {
        let Some(name) = self.ready_client(at) else { return };
        let slot = self.slots[at].as_ref().expect("a connection");
        let (connection, mut bytes, mut requests) = (slot.id, BytesMut::new(), Vec::new());
        for step in 0..count % 16 {
            let sent = self.message(Some(name), "h", 1, len, 0);
            let payload = self.payload(&sent, len);
            // No other operation uses these identifiers.
            let id = packet_id(step).saturating_add(100 + u16::from(step / 8) * 8);
            let packet = Publish {
                dup: false,
                qos: Qos::AtLeastOnce,
                retain: false,
                topic: "h",
                id: Some(id),
                properties: (),
                payload: &payload,
            };
            Packet::Publish(packet).encode(&mut bytes).expect("a packet");
            self.model_publish(&sent, false);
            requests.push((id.get(), sent.number));
        }
        self.broker.handle_bytes(self.now, connection, &bytes);
        if let Some(slot) = &mut self.slots[at] {
            slot.requests.extend(requests);
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        if let Some(slot) = self.slots[at].take() {
            self.broker.handle_closed(self.now, slot.id);
            self.logins.retain(|(id, _)| *id != slot.id);
            if let Some(name) = slot.name {
                let was_evicted = self.naive.session(name).evicted < self.broker.stats().evicted;
                self.naive.session(name).leave(self.now, slot.reader.is_within_delivery());
                end_client(
                    self.has_host,
                    self.for_host.entry(name).or_default(),
                    &slot.requests,
                    was_evicted,
                );
            }
        }
    }

    /// Sends arbitrary bytes that contain no client id.
    pub(super) fn raw(&mut self, at: usize, bytes: &[u8]) {
        let Some(slot) = &mut self.slots[at] else { return };
        let written = [&slot.written[..], bytes].concat();
        if bytes.is_empty() || written.windows(2).any(|pair| pair == b"n.") {
            return;
        }
        slot.written = written;
        slot.is_unchecked = true;
        slot.reader.packet_bytes = usize::MAX;
        slot.reader.alias_max = u16::MAX;
        self.is_tainted = true;
        let (id, name) = (slot.id, slot.name);
        if let Some(name) = name {
            self.stop_checking(name);
        }
        self.broker.handle_bytes(self.now, id, bytes);
        self.take_events();
    }

    pub(super) fn disconnect(&mut self, name: &'static str) {
        let is_connected = self.broker.is_connected(name);
        assert_eq!(
            self.broker.disconnect(self.now, name, Reason::ADMINISTRATIVE_ACTION),
            is_connected
        );
    }

    pub(super) fn name(at: u8) -> &'static str {
        pick(&NAMES, at)
    }

    pub(super) fn qos(at: u8) -> Qos {
        pick(&QOS, at)
    }
}

/// Handles the end of a client that the host knows. Its last requests may not have been processed.
pub(super) fn end_client(
    has_host: bool,
    queue: &mut VecDeque<ForHost>,
    requests: &VecDeque<(u16, u64)>,
    was_evicted: bool,
) {
    for item in queue.iter_mut() {
        if let ForHost::Message { number, must, .. } = item
            && (was_evicted || requests.iter().any(|(_, other)| other == number))
        {
            *must = false;
        }
    }
    if has_host && queue.back() != Some(&ForHost::Gone { is_reported: false }) {
        queue.push_back(ForHost::Gone { is_reported: false });
    }
}

/// Sets whether the host must receive the message with this number.
pub(super) fn set_must(queue: &mut VecDeque<ForHost>, of: u64, is_taken: bool) {
    for item in queue.iter_mut() {
        if let ForHost::Message { number, must, .. } = item
            && *number == of
        {
            *must = is_taken;
        }
    }
}
