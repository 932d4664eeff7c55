//! A naive server: it checks every packet of the session and tracks which packets it may send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;

use bytes::BytesMut;
use statestore_mqtt::packet::{Ack, Acks, ConnAck, Header, Packet, Publish};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Kind, Qos, Reason};

use statestore_models::machines::Args;

/// The Receive Maximum that the session grants.
pub(super) const RECEIVE_MAXIMUM: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    /// CONNECT has not arrived.
    Open,
    /// CONNECT arrived, with Clean Start.
    Connecting(bool),
    Accepted,
    /// One side has ended the connection.
    Over,
}

/// A publish of the session without a final acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    token: u64,
    qos: Qos,
    /// True if PUBREC was sent.
    is_recorded: bool,
    /// True if PUBREL arrived on this connection.
    is_released: bool,
    /// True if the publish arrived on this connection.
    is_here: bool,
}

/// A message to the session without a final acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    id: u16,
    qos: Qos,
    number: u64,
    /// True if PUBREC arrived.
    is_recorded: bool,
    /// True if PUBREL was sent on this connection.
    is_released: bool,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    receive_maximum: usize,
    qos: Qos,
    retain: bool,
    packet_size: usize,
    aliases: u16,
}

#[derive(Debug)]
pub(super) struct Peer {
    unread: BytesMut,
    phase: Phase,
    limits: Limits,
    aliases: BTreeMap<u16, String>,
    incoming: BTreeMap<u16, Incoming>,
    /// SUBSCRIBE and UNSUBSCRIBE packets: kind and number of filters.
    requests: BTreeMap<u16, (Kind, usize)>,
    outgoing: Vec<Outgoing>,
    /// Identifiers of PUBREL packets for publishes that did not arrive.
    stray: BTreeSet<u16>,
    /// Identifiers whose PUBACK or PUBREC is expected, in order.
    expected: VecDeque<u16>,
    has_session: bool,
    /// True if the session ends with the connection.
    is_short: bool,
    /// True if the server sent arbitrary bytes.
    pub(super) is_unchecked: bool,
    last_number: u64,
    last_token: u64,
    /// The reasons with which publishes ended.
    pub(super) reasons: BTreeMap<u64, Reason>,
}

const REASONS: [Reason; 4] =
    [Reason::SUCCESS, Reason::SUCCESS, Reason::NO_MATCHING_SUBSCRIBERS, Reason::QUOTA_EXCEEDED];

fn ack(id: u16, reason: Reason) -> Ack<&'static [Property<'static>]> {
    Ack { id: NonZeroU16::new(id).expect("not zero"), reason, properties: &[] }
}

fn encode(packet: &Packet<'_, &[Property<'_>]>, bytes: &mut BytesMut) {
    packet.encode(bytes).expect("a packet");
}

impl Peer {
    pub(super) fn new() -> Self {
        let limits = Limits {
            receive_maximum: usize::from(u16::MAX),
            qos: Qos::ExactlyOnce,
            retain: true,
            packet_size: usize::MAX,
            aliases: 0,
        };
        Self {
            unread: BytesMut::new(),
            phase: Phase::Closed,
            limits,
            aliases: BTreeMap::new(),
            incoming: BTreeMap::new(),
            requests: BTreeMap::new(),
            outgoing: Vec::new(),
            stray: BTreeSet::new(),
            expected: VecDeque::new(),
            has_session: false,
            is_short: false,
            is_unchecked: false,
            last_number: 0,
            last_token: 0,
            reasons: BTreeMap::new(),
        }
    }

    pub(super) fn open(&mut self) {
        self.close();
        self.phase = Phase::Open;
    }

    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.unread.clear();
        self.aliases.clear();
        self.requests.clear();
        self.expected.clear();
        self.stray.clear();
        for incoming in self.incoming.values_mut() {
            incoming.is_here = false;
            incoming.is_released = false;
        }
        for outgoing in &mut self.outgoing {
            outgoing.is_released = false;
        }
        if self.is_short {
            self.end_session();
        }
    }

    /// The server sent arbitrary bytes, so nothing is checked until the next connection.
    pub(super) fn stop_checking(&mut self) {
        self.is_unchecked = true;
    }

    fn end_session(&mut self) {
        self.has_session = false;
        self.incoming.clear();
        self.outgoing.clear();
    }

    /// Reads bytes that the session wrote.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while let Some(header) = Header::read(&self.unread, usize::MAX).expect("a header") {
            if self.unread.len() < header.len {
                return;
            }
            let packet = self.unread.split_to(header.len);
            let decoded = Packet::decode(&packet).expect("the session writes packets");
            self.check(&decoded, packet.len());
        }
    }

    fn check(&mut self, packet: &Packet<'_>, size: usize) {
        match (packet, self.phase) {
            (Packet::Connect(connect), Phase::Open) => {
                self.phase = Phase::Connecting(connect.clean_start);
                let expiry = connect.properties.find(|property| match property {
                    Property::SessionExpiry(seconds) => Some(seconds),
                    _ => None,
                });
                self.is_short = expiry.is_none();
                return;
            }
            // Each side may still be unaware that the other has ended the connection.
            (Packet::Disconnect(_), _) if self.phase != Phase::Open => {
                self.phase = Phase::Over;
                return;
            }
            (_, Phase::Over) => return,
            _ if self.is_unchecked => return,
            (_, Phase::Accepted) => {}
            (packet, phase) => panic!("{packet:?} while {phase:?}"),
        }
        assert!(size <= self.limits.packet_size, "{size} bytes: {packet:?}");
        match packet {
            Packet::Publish(publish) => self.check_publish(publish),
            Packet::PubRel(ack) => {
                let id = ack.id.get();
                let Some(incoming) = self.incoming.get_mut(&id) else {
                    // The session gave up a publish without knowing whether it arrived.
                    assert!(!self.requests.contains_key(&id) && self.stray.insert(id));
                    return;
                };
                assert!(incoming.qos == Qos::ExactlyOnce, "PUBREL for a publish at QoS 1");
                incoming.is_released = true;
                incoming.is_recorded = true;
            }
            Packet::PubAck(ack) | Packet::PubRec(ack) => {
                let id = ack.id.get();
                assert_eq!(self.expected.pop_front(), Some(id), "in order of arrival");
                let at = self.outgoing.iter().position(|one| one.id == id).expect("a message");
                let is_exact = matches!(packet, Packet::PubRec(_));
                assert_eq!(self.outgoing[at].qos == Qos::ExactlyOnce, is_exact);
                if !is_exact || ack.reason.is_error() {
                    self.outgoing.remove(at);
                } else {
                    self.outgoing[at].is_recorded = true;
                }
            }
            Packet::PubComp(ack) => {
                let is_done = |one: &Outgoing| one.id == ack.id.get() && one.is_released;
                let at = self.outgoing.iter().position(is_done).expect("a released message");
                self.outgoing.remove(at);
                // If a PUBCOMP was lost, the session no longer knows the identifier.
                let reasons = [Reason::SUCCESS, Reason::PACKET_IDENTIFIER_NOT_FOUND];
                assert!(reasons.contains(&ack.reason));
            }
            Packet::Subscribe(subscribe) => {
                let count = subscribe.subscriptions.count();
                self.request(subscribe.id.get(), Kind::Subscribe, count);
            }
            Packet::Unsubscribe(unsubscribe) => {
                self.request(unsubscribe.id.get(), Kind::Unsubscribe, unsubscribe.filters.count());
            }
            Packet::PingReq => {}
            other => panic!("a client must not send {other:?}"),
        }
    }

    fn request(&mut self, id: u16, kind: Kind, filters: usize) {
        assert!(!self.incoming.contains_key(&id), "{id} is in use");
        assert!(self.requests.insert(id, (kind, filters)).is_none(), "{id} is in use");
    }

    fn check_publish(&mut self, publish: &Publish<'_>) {
        assert!(publish.qos <= self.limits.qos && (self.limits.retain || !publish.retain));
        let alias = publish.properties.find(|property| match property {
            Property::TopicAlias(alias) => Some(alias),
            _ => None,
        });
        if let Some(alias) = alias {
            assert!(alias <= self.limits.aliases, "alias {alias}");
            if publish.topic.is_empty() {
                assert!(self.aliases.contains_key(&alias), "alias {alias} is not set");
            } else {
                self.aliases.insert(alias, publish.topic.into());
            }
        }
        let token = publish.payload.first_chunk().copied().map(u64::from_be_bytes);
        let token = token.expect("the token is in the payload");
        let Some(id) = publish.id.map(NonZeroU16::get) else { return };
        assert!(!self.requests.contains_key(&id) && !self.stray.contains(&id), "{id} is in use");
        match self.incoming.get_mut(&id) {
            Some(incoming) => {
                assert!(publish.dup && !incoming.is_here, "{id} is in use");
                assert_eq!(
                    (incoming.token, incoming.qos),
                    (token, publish.qos),
                    "an equal duplicate"
                );
                incoming.is_here = true;
                // The PUBREC did not arrive.
                incoming.is_recorded = false;
            }
            None => {
                assert!(token > self.last_token || publish.dup, "in the order of the calls");
                self.last_token = self.last_token.max(token);
                let qos = publish.qos;
                let incoming =
                    Incoming { token, qos, is_recorded: false, is_released: false, is_here: true };
                self.incoming.insert(id, incoming);
            }
        }
        let in_flight = self.incoming.values().filter(|one| one.is_here || one.is_released).count();
        assert!(in_flight <= self.limits.receive_maximum, "{in_flight} in flight");
    }

    /// Sends a CONNACK, and redelivers unacknowledged messages.
    pub(super) fn connack(&mut self, args: Args, bytes: &mut BytesMut) {
        let Phase::Connecting(clean_start) = self.phase else { return };
        if clean_start || self.is_unchecked || args[0].is_multiple_of(4) {
            self.end_session();
            self.is_unchecked = false;
        }
        let session_present = self.has_session;
        self.has_session = true;
        self.phase = Phase::Accepted;
        let receive_maximum = u16::from(args[1] % 4) + 1;
        let aliases = u16::from(args[2] % 3);
        let packet_size = if args[3].is_multiple_of(4) { 60 } else { 600 };
        let qos = if args[4].is_multiple_of(8) { Qos::AtLeastOnce } else { Qos::ExactlyOnce };
        self.limits = Limits {
            receive_maximum: receive_maximum.into(),
            qos,
            retain: !args[4].is_multiple_of(3),
            packet_size: usize::try_from(packet_size).expect("small"),
            aliases,
        };
        let mut properties = vec![
            Property::ReceiveMaximum(receive_maximum),
            Property::TopicAliasMaximum(aliases),
            Property::MaximumPacketSize(packet_size),
            Property::RetainAvailable(self.limits.retain),
        ];
        if qos == Qos::AtLeastOnce {
            properties.push(Property::MaximumQos(qos));
        }
        let reason = Reason::SUCCESS;
        let connack = ConnAck { session_present, reason, properties: &properties[..] };
        encode(&Packet::ConnAck(connack), bytes);
        for at in 0..self.outgoing.len() {
            let one = self.outgoing[at];
            if one.is_recorded {
                self.outgoing[at].is_released = true;
                encode(&Packet::PubRel(ack(one.id, Reason::SUCCESS)), bytes);
            } else {
                self.expected.push_back(one.id);
                encode_message(one, true, bytes);
            }
        }
    }

    /// Acknowledges one packet.
    pub(super) fn acknowledge(&mut self, args: Args, bytes: &mut BytesMut) {
        if self.phase != Phase::Accepted || self.is_unchecked {
            return;
        }
        let reason = REASONS[usize::from(args[1]) % REASONS.len()];
        if let Some(id) = self.stray.pop_first() {
            let packet = Packet::PubComp(ack(id, Reason::PACKET_IDENTIFIER_NOT_FOUND));
            return encode(&packet, bytes);
        }
        let here = self.incoming.iter_mut().filter(|(_, one)| one.is_here || one.is_released);
        let mut here: Vec<_> = here.collect();
        if here.is_empty() || args[0].is_multiple_of(4) {
            let Some((id, (kind, filters))) = self.requests.pop_first() else { return };
            let id = NonZeroU16::new(id).expect("not zero");
            let reasons = &vec![0; filters];
            let acks = Acks { id, properties: &[][..], reasons };
            let is_subscribe = kind == Kind::Subscribe;
            let packet = if is_subscribe { Packet::SubAck(acks) } else { Packet::UnsubAck(acks) };
            return encode(&packet, bytes);
        }
        let at = usize::from(args[2]) % here.len();
        let (id, incoming) = &mut here[at];
        let id = **id;
        let token = incoming.token;
        match incoming.qos {
            Qos::ExactlyOnce if incoming.is_released => {
                let packet = Packet::PubComp(ack(id, Reason::SUCCESS));
                encode(&packet, bytes);
                self.incoming.remove(&id);
            }
            Qos::ExactlyOnce if incoming.is_recorded => {}
            Qos::ExactlyOnce => {
                incoming.is_recorded = true;
                encode(&Packet::PubRec(ack(id, reason)), bytes);
                self.reasons.insert(token, reason);
                if reason.is_error() {
                    self.incoming.remove(&id);
                }
            }
            Qos::AtMostOnce | Qos::AtLeastOnce => {
                encode(&Packet::PubAck(ack(id, reason)), bytes);
                self.reasons.insert(token, reason);
                self.incoming.remove(&id);
            }
        }
    }

    /// Sends a message, if the session's Receive Maximum allows it.
    pub(super) fn message(&mut self, args: Args, bytes: &mut BytesMut) {
        if self.phase != Phase::Accepted || self.is_unchecked {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        let qos = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][usize::from(args[0]) % 3];
        let used: BTreeSet<_> = self.outgoing.iter().map(|one| one.id).collect();
        let id = (1..=u16::MAX).find(|id| !used.contains(id)).expect("a free identifier");
        let message = Outgoing { id, qos, number, is_recorded: false, is_released: false };
        if qos != Qos::AtMostOnce {
            if self.outgoing.len() >= RECEIVE_MAXIMUM {
                return;
            }
            self.outgoing.push(message);
            self.expected.push_back(id);
        }
        encode_message(message, false, bytes);
    }

    pub(super) fn release(&mut self, bytes: &mut BytesMut) {
        if self.phase != Phase::Accepted || self.is_unchecked {
            return;
        }
        let due = |one: &&mut Outgoing| one.is_recorded && !one.is_released;
        if let Some(message) = self.outgoing.iter_mut().find(due) {
            message.is_released = true;
            encode(&Packet::PubRel(ack(message.id, Reason::SUCCESS)), bytes);
        }
    }

    pub(super) fn pong(&self, bytes: &mut BytesMut) {
        if self.phase == Phase::Accepted {
            encode(&Packet::PingResp, bytes);
        }
    }
}

fn encode_message(message: Outgoing, dup: bool, bytes: &mut BytesMut) {
    let publish = Publish {
        dup: dup && message.qos != Qos::AtMostOnce,
        qos: message.qos,
        retain: false,
        topic: "topic",
        id: NonZeroU16::new(message.id).filter(|_| message.qos != Qos::AtMostOnce),
        properties: &[Property::User("a", "b")][..],
        payload: &message.number.to_be_bytes(),
    };
    encode(&Packet::Publish(publish), bytes);
}
