//! Output of one connection: packets of MQTT 5 that are legal for a client at that time.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::packet::{Header, Packet};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Kind, Qos, Reason};

/// The fields of a packet that the oracle checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    ConnAck(bool, Reason),
    Publish(Publish),
    PubAck(u16, Reason),
    PubRec(u16, Reason),
    PubRel(u16, Reason),
    PubComp(u16),
    SubAck(Vec<u8>),
    UnsubAck(Vec<u8>),
    PingResp,
    Disconnect(Reason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Publish {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) qos: Qos,
    pub(super) dup: bool,
    pub(super) retain: bool,
    pub(super) id: u16,
    pub(super) subscription_ids: Vec<u32>,
    pub(super) expiry: Option<u32>,
    /// Size of the packet, with its topic.
    pub(super) len: usize,
    /// Time at which the broker returned the first part of the packet.
    pub(super) begun_at: Duration,
}

/// The receiving end of a connection.
#[derive(Debug)]
pub(super) struct PacketReader {
    unread: BytesMut,
    /// Time at which the first bytes of `unread` arrived.
    begun_at: Duration,
    /// Maximum size of a packet.
    pub(super) packet_bytes: usize,
    /// Greatest topic alias.
    pub(super) alias_max: u16,
    aliases: BTreeMap<u16, String>,
    has_connack: bool,
    is_over: bool,
}

/// CONNACK of the broker for older versions of MQTT.
const CONNACK_V3: [u8; 4] = [0x20, 0x02, 0x00, 0x01];

impl PacketReader {
    pub(super) fn new() -> Self {
        Self {
            unread: BytesMut::new(),
            begun_at: Duration::ZERO,
            packet_bytes: usize::MAX,
            alias_max: 0,
            aliases: BTreeMap::new(),
            has_connack: false,
            is_over: false,
        }
    }

    /// Appends bytes, and returns the complete packets.
    pub(super) fn read(&mut self, now: Duration, bytes: &[u8]) -> Vec<Received> {
        if self.unread.is_empty() {
            self.begun_at = now;
        }
        self.unread.extend_from_slice(bytes);
        let mut received = Vec::new();
        while let Some(header) = Header::read(&self.unread, usize::MAX).expect("a packet begins") {
            assert!(header.len <= self.packet_bytes, "{header:?} exceeds the Maximum Packet Size");
            assert!(!self.is_over, "{header:?} after the last packet");
            if self.unread.len() < header.len {
                break;
            }
            let packet = self.unread.split_to(header.len);
            if !self.has_connack && *packet == CONNACK_V3 {
                self.is_over = true;
                continue;
            }
            let packet = Packet::decode(&packet).expect("a packet");
            received.push(self.packet(&packet, header.len));
            self.begun_at = now;
        }
        received
    }

    /// Returns whether the last packet is an incomplete PUBLISH at QoS 1 or 2.
    pub(super) fn is_within_delivery(&self) -> bool {
        const QOS: u8 = 0b0110;
        self.unread.first().is_some_and(|first| first & QOS != 0)
    }

    /// Checks that the output does not end inside of a packet, except between two parts of a long
    /// PUBLISH.
    pub(super) fn end(&self) {
        const PART: usize = 32 << 10;
        let header = Header::read(&self.unread, usize::MAX).expect("a packet begins");
        let is_part =
            header.is_some_and(|header| header.kind == Kind::Publish && header.len > PART);
        assert!(
            self.unread.is_empty() || is_part && self.unread.len().is_multiple_of(PART),
            "output ends inside of a packet"
        );
    }

    fn packet(&mut self, packet: &Packet<'_>, len: usize) -> Received {
        let is_first = matches!(packet, Packet::ConnAck(_));
        assert_eq!(is_first, !self.has_connack, "CONNACK first, and once: {packet:?}");
        self.has_connack = true;
        match packet {
            Packet::ConnAck(connack) => {
                self.is_over = connack.reason.is_error();
                assert!(!(connack.session_present && self.is_over), "{connack:?}");
                Received::ConnAck(connack.session_present, connack.reason)
            }
            Packet::Publish(publish) => {
                let mut alias = None;
                let mut subscription_ids = Vec::new();
                let mut expiry = None;
                for property in &publish.properties {
                    match property {
                        Property::SubscriptionId(id) => subscription_ids.push(id),
                        Property::MessageExpiry(seconds) => expiry = Some(seconds),
                        Property::TopicAlias(number) => alias = Some(number),
                        _ => {}
                    }
                }
                subscription_ids.sort_unstable();
                let topic = self.topic(publish.topic, alias);
                let len = if publish.topic.is_empty() { len + topic.len() } else { len };
                Received::Publish(Publish {
                    topic,
                    payload: publish.payload.into(),
                    qos: publish.qos,
                    dup: publish.dup,
                    retain: publish.retain,
                    id: publish.id.map_or(0, NonZeroU16::get),
                    subscription_ids,
                    expiry,
                    len,
                    begun_at: self.begun_at,
                })
            }
            Packet::PubAck(ack) => Received::PubAck(ack.id.get(), ack.reason),
            Packet::PubRec(ack) => Received::PubRec(ack.id.get(), ack.reason),
            Packet::PubRel(ack) => Received::PubRel(ack.id.get(), ack.reason),
            Packet::PubComp(ack) => Received::PubComp(ack.id.get()),
            Packet::SubAck(acks) => Received::SubAck(acks.reasons.into()),
            Packet::UnsubAck(acks) => Received::UnsubAck(acks.reasons.into()),
            Packet::PingResp => Received::PingResp,
            Packet::Disconnect(notice) => {
                self.is_over = true;
                Received::Disconnect(notice.reason)
            }
            other => panic!("{other:?} is not a packet for a client"),
        }
    }

    /// Resolves a topic or its alias.
    fn topic(&mut self, topic: &str, alias: Option<u16>) -> String {
        let Some(alias) = alias else {
            assert!(!topic.is_empty(), "a message without a topic");
            return topic.into();
        };
        assert!((1..=self.alias_max).contains(&alias), "alias {alias} of {}", self.alias_max);
        if topic.is_empty() {
            return self.aliases.get(&alias).expect("a known alias").clone();
        }
        self.aliases.insert(alias, topic.into());
        topic.into()
    }
}
