//! The machine, its clients, and the naive broker beside it.

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
use super::wire::{Ear, Heard};
use super::{NAMES, QOS, naive, packet_id, pick};

pub(super) type Properties<'a> = &'a [Property<'a>];

/// Bytes with which a payload says which message it is.
pub(super) const HEAD: usize = 8;

/// Nobody makes the number of a message up by chance.
const SEAL: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fields of a CONNECT.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hello {
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
    pub(super) ear: Ear,
    pub(super) hello: Option<Hello>,
    /// Whose session it has.
    pub(super) name: Option<&'static str>,
    /// True if its client writes whatever it likes.
    pub(super) is_wild: bool,
    /// What it has written so.
    written: Vec<u8>,
    /// What it is to answer.
    pub(super) to_do: VecDeque<Heard>,
    /// Packet ids of requests that were not acknowledged.
    pub(super) asked: VecDeque<(u16, u64)>,
}

impl Slot {
    pub(super) fn new(id: ConnectionId, peer: Option<IpAddr>) -> Self {
        Self {
            id,
            peer,
            ear: Ear::new(),
            hello: None,
            name: None,
            is_wild: false,
            written: Vec::new(),
            to_do: VecDeque::new(),
            asked: VecDeque::new(),
        }
    }

    /// Returns whether it has something to answer, and is listened to.
    pub(super) fn has_to_do(&self) -> bool {
        !self.to_do.is_empty() && self.name.is_some() && !self.is_wild
    }
}

/// Something that the host is to hear from one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForHost {
    Message {
        number: u64,
        must: bool,
        expires: Option<Duration>,
    },
    /// Once, if it goes again before the host has heard it.
    Gone {
        is_heard: bool,
    },
}

pub(super) struct Run {
    pub(super) broker: Broker,
    pub(super) limits: Limits,
    pub(super) is_small: bool,
    /// Set after arbitrary input, which can have any effect.
    pub(super) is_tainted: bool,
    pub(super) now: Duration,
    pub(super) slots: [Option<Slot>; 8],
    pub(super) locals: [Option<(LocalId, &'static str)>; 2],
    pub(super) host: Option<LocalId>,
    pub(super) has_host: bool,
    pub(super) for_host: BTreeMap<&'static str, VecDeque<ForHost>>,
    pub(super) logins: Vec<(ConnectionId, String)>,
    /// Connections that are to be polled.
    pub(super) ready: BTreeSet<ConnectionId>,
    pub(super) naive: Naive,
    /// Clients whose connection anybody may have had.
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

    pub(super) fn payload(&self, sent: &Sent, len: u8) -> Vec<u8> {
        let head = sent.number.wrapping_mul(SEAL).to_be_bytes();
        [&head[..], &vec![b'x'; usize::from(len) * 2]].concat()
    }

    /// The message that this is a payload of.
    pub(super) fn number(&self, payload: &[u8]) -> Option<u64> {
        let head = u64::from_be_bytes(*payload.first_chunk()?);
        // Few are looked at, and this needs no inverse.
        (1..=self.last).find(|number| number.wrapping_mul(SEAL) == head)
    }

    pub(super) fn is_wild(&mut self, name: &'static str) -> bool {
        self.naive.session(name).is_wild
    }

    /// Nothing is known of this session from now on, and of what its client asks of the host.
    pub(super) fn give_up(&mut self, name: &'static str) {
        self.naive.session(name).is_wild = true;
        self.unknown.insert(name);
    }

    /// The client of a connection that does nothing wrong and is listened to.
    pub(super) fn neat(&mut self, at: usize) -> Option<&'static str> {
        if !self.slots[at].as_ref()?.asked.is_empty() {
            // Some of what it asked may wait to be looked at.
            self.read(at, 1);
        }
        let slot = self.slots[at].as_ref()?;
        let name = slot.name.filter(|_| !slot.is_wild && slot.asked.is_empty())?;
        self.broker.wants_input(slot.id).then_some(name)
    }

    /// Writes a packet, in pieces if it is to be; whether the connection is listened to.
    pub(super) fn write(
        &mut self,
        at: usize,
        packet: &Packet<'_, Properties<'_>>,
        piece: usize,
    ) -> bool {
        let Some(slot) = &self.slots[at] else { return false };
        if slot.is_wild || !self.broker.wants_input(slot.id) {
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

    /// Writes a packet and reads what comes at once.
    pub(super) fn ask(
        &mut self,
        at: usize,
        packet: &Packet<'_, Properties<'_>>,
    ) -> Option<Vec<Heard>> {
        let piece = usize::try_from(self.last % 4).unwrap_or_default() * 3;
        self.write(at, packet, piece).then(|| self.read(at, 1))
    }

    pub(super) fn connect(&mut self, at: usize, packet: &Packet<'_, Properties<'_>>, hello: Hello) {
        let Some(slot) = &mut self.slots[at] else { return };
        if slot.is_wild || !slot.asked.is_empty() || !self.broker.wants_input(slot.id) {
            return;
        }
        let is_first = slot.hello.is_none();
        if is_first {
            slot.hello = Some(hello);
            slot.ear.packet_bytes = hello.packet_bytes;
            slot.ear.alias_max = hello.alias_max;
        }
        self.write(at, packet, 0);
        self.take_events();
        if is_first {
            self.greet(at);
        }
    }

    pub(super) fn take_events(&mut self) {
        while let Some(Event::Login { connection, client_id, .. }) = self.broker.poll_event() {
            let known = self.slots.iter().flatten().find(|slot| slot.id == connection);
            if let Some(hello) = known.filter(|slot| !slot.is_wild).and_then(|slot| slot.hello) {
                assert_eq!(client_id, hello.name);
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
            Some(Slot { is_wild: false, .. }) => self.greet(at),
            Some(Slot { hello: Some(hello), .. }) => {
                let name = hello.name;
                self.sync();
                self.give_up(name);
            }
            _ => {}
        }
    }

    /// Hears whether a CONNECT was accepted, if that is decided.
    fn greet(&mut self, at: usize) {
        let Some(slot) = &self.slots[at] else { return };
        let Some(hello) = slot.hello else { return };
        if self.logins.iter().any(|(id, _)| *id == slot.id) {
            return;
        }
        // Whoever has this client id has lost its connection by now.
        self.sync();
        let Some(slot) = &mut self.slots[at] else { return };
        slot.name = Some(hello.name);
        let heard = self.read(at, 1);
        let told = heard.iter().find_map(|heard| match heard {
            Heard::ConnAck(present, Reason::SUCCESS) => Some(*present),
            _ => None,
        });
        if told.is_none() {
            let Some(slot) = &mut self.slots[at] else { return };
            assert!(self.broker.is_closing(slot.id), "no CONNACK");
            slot.name = None;
            if heard.is_empty() {
                // It takes no CONNACK.
                self.give_up(hello.name);
            }
        }
    }

    /// A CONNACK that says yes.
    pub(super) fn connected(&mut self, at: usize, session_present: bool) {
        let Some(hello) = self.slots[at].as_ref().and_then(|slot| slot.hello) else { return };
        self.opened(hello.name, session_present, hello.clean_start);
        let expiry = hello.expiry.min(self.limits.session_expiry);
        let session = self.naive.session(hello.name);
        session.expiry = expiry;
        session.narrow(hello.packet_bytes);
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

    /// A session goes on, or begins.
    pub(super) fn opened(&mut self, name: &'static str, is_present: bool, clean_start: bool) {
        let evicted = self.broker.stats().evicted;
        let now = self.now;
        let session = self.naive.session(name);
        let is_known = !session.is_wild;
        match session.ends_at {
            _ if !is_known => {}
            _ if clean_start => assert!(!is_present, "{name} wanted a new session"),
            None => assert!(!is_present, "{name} had no session"),
            Some(at) if at <= now && now < Duration::MAX => {
                assert!(!is_present, "the session of {name} ended at {at:?}");
            }
            Some(at) => {
                let may_be_gone = session.evicted < evicted || at <= now;
                assert!(
                    is_present || may_be_gone,
                    "the session of {name} was to last until {at:?}"
                );
            }
        }
        if !is_present {
            session.renew();
        }
        session.is_connected = true;
        session.ends_at = None;
        session.evicted = evicted;
    }

    /// Notes which connections and attachments are over.
    pub(super) fn sync(&mut self) {
        let evicted = self.broker.stats().evicted;
        for slot in self.slots.iter_mut().flatten() {
            if self.broker.is_closing(slot.id)
                && let Some(name) = slot.name.take()
            {
                slot.to_do.clear();
                let session = self.naive.session(name);
                let was_evicted = session.evicted < evicted;
                session.leave(self.now);
                left(
                    self.has_host,
                    self.for_host.entry(name).or_default(),
                    &slot.asked,
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
                session.leave(self.now);
                left(
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
        let is_known = !session.is_wild;
        let is_again = sent.qos == Qos::ExactlyOnce && session.received.contains(&id);
        let is_beyond = sent.qos == Qos::ExactlyOnce
            && session.received.len() >= usize::from(self.limits.receive_maximum);
        // Whether it was taken is to be known at once where it may not be.
        let needs_answer = sent.retain && self.is_small && sent.qos > Qos::AtMostOnce;
        let is_taken = !is_again && !is_beyond;
        let mut is_sure = is_taken && is_known;
        let slot = self.slots[at].as_ref().expect("somebody publishes");
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
            is_received = self.published(sent, is_sure);
        } else if is_taken {
            self.naive.forget_retained(sent.topic);
            if naive::is_for_host(sent.topic) {
                // Nobody can tell which message it is without a payload.
                self.published(sent, false);
            }
        }
        if !needs_answer && !self.last.is_multiple_of(4) {
            return;
        }
        let heard = self.read(at, 1);
        let answer = heard.into_iter().rev().find_map(|heard| match heard {
            Heard::PubAck(of, reason) | Heard::PubRec(of, reason) if of == id => Some(reason),
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
        let is_wild = self.naive.sessions.values().any(|session| session.is_wild);
        if is_certain
            && !is_wild
            && !is_again
            && let Some(reason) = answer
        {
            assert_eq!(reason == Reason::SUCCESS, is_received, "{sent:?} {reason:?}");
        }
    }

    /// A message of the model's was published.
    pub(super) fn published(&mut self, sent: &Sent, sure: bool) -> bool {
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
        let Some(name) = self.neat(at) else { return };
        let slot = self.slots[at].as_ref().expect("somebody asks");
        let (connection, mut bytes, mut asked) = (slot.id, BytesMut::new(), Vec::new());
        for step in 0..count % 16 {
            let sent = self.message(Some(name), "h", 1, len, 0);
            let payload = self.payload(&sent, len);
            // These ids are not used otherwise.
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
            self.published(&sent, false);
            asked.push((id.get(), sent.number));
        }
        self.broker.handle_bytes(self.now, connection, &bytes);
        if let Some(slot) = &mut self.slots[at] {
            slot.asked.extend(asked);
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        if let Some(slot) = self.slots[at].take() {
            self.broker.handle_closed(self.now, slot.id);
            self.logins.retain(|(id, _)| *id != slot.id);
            if let Some(name) = slot.name {
                let was_evicted = self.naive.session(name).evicted < self.broker.stats().evicted;
                self.naive.session(name).leave(self.now);
                left(
                    self.has_host,
                    self.for_host.entry(name).or_default(),
                    &slot.asked,
                    was_evicted,
                );
            }
        }
    }

    /// Anything at all comes from a client, but nothing that names another.
    pub(super) fn raw(&mut self, at: usize, bytes: &[u8]) {
        let Some(slot) = &mut self.slots[at] else { return };
        let written = [&slot.written[..], bytes].concat();
        if bytes.is_empty() || written.windows(2).any(|pair| pair == b"n.") {
            return;
        }
        slot.written = written;
        slot.is_wild = true;
        slot.ear.packet_bytes = usize::MAX;
        slot.ear.alias_max = u16::MAX;
        self.is_tainted = true;
        let (id, name) = (slot.id, slot.name);
        if let Some(name) = name {
            self.give_up(name);
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

/// A client of whom the host hears has gone; what it asked last may not have been looked at.
pub(super) fn left(
    has_host: bool,
    queue: &mut VecDeque<ForHost>,
    asked: &VecDeque<(u16, u64)>,
    was_evicted: bool,
) {
    for item in queue.iter_mut() {
        if let ForHost::Message { number, must, .. } = item
            && (was_evicted || asked.iter().any(|(_, other)| other == number))
        {
            *must = false;
        }
    }
    if has_host && queue.back() != Some(&ForHost::Gone { is_heard: false }) {
        queue.push_back(ForHost::Gone { is_heard: false });
    }
}

/// Returns whether the host is to have the message of this number.
pub(super) fn set_must(queue: &mut VecDeque<ForHost>, of: u64, is_taken: bool) {
    for item in queue.iter_mut() {
        if let ForHost::Message { number, must, .. } = item
            && *number == of
        {
            *must = is_taken;
        }
    }
}
