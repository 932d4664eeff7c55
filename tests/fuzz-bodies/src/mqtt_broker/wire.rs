//! What one connection is sent: packets of MQTT 5 that a client may be sent, when it may.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use bytes::BytesMut;
use statestore_mqtt::packet::{Header, Packet};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};

/// A packet, as far as the oracle asks about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
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
    /// Bytes of the packet, with its topic.
    pub(super) len: usize,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Ear {
    unread: BytesMut,
    /// Bytes of the largest packet that may come.
    pub(super) packet_bytes: usize,
    /// The greatest topic alias that may come.
    pub(super) alias_max: u16,
    aliases: BTreeMap<u16, String>,
    is_greeted: bool,
    is_over: bool,
}

/// What the broker says to older versions, in a packet of theirs.
const OLD: [u8; 4] = [0x20, 0x02, 0x00, 0x01];

impl Ear {
    pub(super) fn new() -> Self {
        Self {
            unread: BytesMut::new(),
            packet_bytes: usize::MAX,
            alias_max: 0,
            aliases: BTreeMap::new(),
            is_greeted: false,
            is_over: false,
        }
    }

    /// Takes bytes, and gives the packets that are whole.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Vec<Heard> {
        self.unread.extend_from_slice(bytes);
        let mut heard = Vec::new();
        while let Some(header) = Header::read(&self.unread, usize::MAX).expect("a packet begins") {
            assert!(header.len <= self.packet_bytes, "{header:?} is larger than the client takes");
            assert!(!self.is_over, "{header:?} behind the last packet");
            if self.unread.len() < header.len {
                break;
            }
            let packet = self.unread.split_to(header.len);
            if !self.is_greeted && *packet == OLD {
                self.is_over = true;
                continue;
            }
            let packet = Packet::decode(&packet).expect("a packet");
            heard.push(self.packet(&packet, header.len));
        }
        heard
    }

    /// Nothing is left of a packet that will not come.
    pub(super) fn end(&self) {
        assert!(self.unread.is_empty(), "half a packet before the end");
    }

    fn packet(&mut self, packet: &Packet<'_>, len: usize) -> Heard {
        let is_first = matches!(packet, Packet::ConnAck(_));
        assert_eq!(is_first, !self.is_greeted, "CONNACK first, and once: {packet:?}");
        self.is_greeted = true;
        match packet {
            Packet::ConnAck(told) => {
                self.is_over = told.reason.is_error();
                assert!(!(told.session_present && self.is_over), "{told:?}");
                Heard::ConnAck(told.session_present, told.reason)
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
                Heard::Publish(Publish {
                    topic,
                    payload: publish.payload.into(),
                    qos: publish.qos,
                    dup: publish.dup,
                    retain: publish.retain,
                    id: publish.id.map_or(0, NonZeroU16::get),
                    subscription_ids,
                    expiry,
                    len,
                })
            }
            Packet::PubAck(ack) => Heard::PubAck(ack.id.get(), ack.reason),
            Packet::PubRec(ack) => Heard::PubRec(ack.id.get(), ack.reason),
            Packet::PubRel(ack) => Heard::PubRel(ack.id.get(), ack.reason),
            Packet::PubComp(ack) => Heard::PubComp(ack.id.get()),
            Packet::SubAck(acks) => Heard::SubAck(acks.reasons.into()),
            Packet::UnsubAck(acks) => Heard::UnsubAck(acks.reasons.into()),
            Packet::PingResp => Heard::PingResp,
            Packet::Disconnect(notice) => {
                self.is_over = true;
                Heard::Disconnect(notice.reason)
            }
            other => panic!("no client is sent {other:?}"),
        }
    }

    /// What a topic or its alias says.
    fn topic(&mut self, topic: &str, alias: Option<u16>) -> String {
        let Some(alias) = alias else {
            assert!(!topic.is_empty(), "a message without a topic");
            return topic.into();
        };
        assert!((1..=self.alias_max).contains(&alias), "alias {alias} of {}", self.alias_max);
        if topic.is_empty() {
            return self.aliases.get(&alias).expect("an alias that was said").clone();
        }
        self.aliases.insert(alias, topic.into());
        topic.into()
    }
}
