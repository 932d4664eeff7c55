//! A received message.

use core::fmt;
use core::num::NonZeroU16;

use bytes::{Buf as _, Bytes};

use crate::hidden::Hidden;
use crate::packet::Publish;
use crate::property::{IdSet, Properties};
use crate::qos::Qos;

/// A received message. It shares the memory of the received packet.
#[derive(Clone, PartialEq)]
pub struct Message {
    packet: Bytes,
    topic: Topic,
    /// Range of the properties in the packet.
    properties: (usize, usize),
    ids: IdSet,
    payload: usize,
    qos: Qos,
    retain: bool,
    dup: bool,
    id: Option<NonZeroU16>,
    pub(super) delivery: Option<Delivery>,
}

#[derive(Clone, PartialEq)]
pub(super) enum Topic {
    /// Range of the topic name in the packet.
    Packet(usize, usize),
    /// The topic name of a topic alias.
    Alias(Bytes),
}

/// A message that is to be acknowledged, for [`acknowledge`](super::Session::acknowledge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub(super) id: NonZeroU16,
    pub(super) qos: Qos,
    /// Number of the delivery; no two deliveries of a session have the same.
    pub(super) number: u64,
}

impl Message {
    /// `publish` was read from `packet`; `alias` is the topic name if the packet lacks it.
    pub(super) fn new(packet: &Bytes, publish: &Publish<'_>, alias: Option<Bytes>) -> Self {
        let range = |part: &[u8]| {
            // `part` lies in `packet`, so the difference of the addresses is its offset.
            let start = (part.as_ptr() as usize).saturating_sub(packet.as_ptr() as usize);
            (start, start + part.len())
        };
        let topic = match alias {
            Some(topic) => Topic::Alias(topic),
            None => {
                let (start, end) = range(publish.topic.as_bytes());
                Topic::Packet(start, end)
            }
        };
        Self {
            packet: packet.clone(),
            topic,
            properties: range(publish.properties.as_bytes()),
            ids: publish.properties.ids(),
            payload: packet.len() - publish.payload.len(),
            qos: publish.qos,
            retain: publish.retain,
            dup: publish.dup,
            id: publish.id,
            delivery: None,
        }
    }

    /// Copies the packet out of the buffer in which it was received, so that the message does not
    /// keep the whole buffer in memory.
    pub fn detach(&mut self) {
        self.packet = Bytes::copy_from_slice(&self.packet);
    }

    /// Bytes of the received packet.
    #[must_use]
    pub const fn packet_len(&self) -> usize {
        self.packet.len()
    }

    /// Topic name. A topic alias is replaced by its topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        let bytes = match &self.topic {
            Topic::Packet(start, end) => self.packet.get(*start..*end).unwrap_or_default(),
            Topic::Alias(topic) => topic,
        };
        // It was checked when the packet was read.
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.packet.get(self.payload..).unwrap_or_default()
    }

    /// Payload, shared. It keeps the received packet in memory.
    #[must_use]
    pub fn payload_bytes(&self) -> Bytes {
        self.packet.slice(self.payload.min(self.packet.len())..)
    }

    /// Payload, without a copy. It keeps the received packet in memory.
    #[must_use]
    pub fn into_payload(mut self) -> Bytes {
        self.packet.advance(self.payload.min(self.packet.len()));
        self.packet
    }

    /// Properties, in order.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        let (start, end) = self.properties;
        Properties::from_validated(self.packet.get(start..end).unwrap_or_default(), self.ids)
    }

    /// QoS.
    #[must_use]
    pub const fn qos(&self) -> Qos {
        self.qos
    }

    /// Retain flag: the server had retained the message, or the publisher asked for it if the
    /// subscription has *retain as published*.
    #[must_use]
    pub const fn retain(&self) -> bool {
        self.retain
    }

    /// DUP flag: the server may have sent the message before.
    #[must_use]
    pub const fn dup(&self) -> bool {
        self.dup
    }

    /// Packet identifier, at QoS 1 and 2.
    #[must_use]
    pub const fn packet_id(&self) -> Option<NonZeroU16> {
        self.id
    }

    /// The delivery to acknowledge, at QoS 1 and 2. With automatic acknowledgement the message is
    /// acknowledged already.
    #[must_use]
    pub const fn delivery(&self) -> Option<Delivery> {
        self.delivery
    }

    pub(super) const fn len(&self) -> usize {
        self.packet.len()
    }
}

/// Payload and properties are omitted.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic())
            .field("payload", &Hidden(self.payload()))
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("dup", &self.dup)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
