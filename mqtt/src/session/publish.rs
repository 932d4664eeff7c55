//! Publishes of the caller: waiting, in flight, and sent again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use bytes::Bytes;

use super::error::SendError;
use super::event::{Event, Lost};
use super::publish_packet::{Wire, check_server, packet_max};
use super::{Phase, Session};
use crate::alias::Alias;
use crate::error::Malformed;
use crate::hidden::Hidden;
use crate::kind::Kind;
use crate::property::{Encode, Place, id};
use crate::qos::Qos;
use crate::reason::Reason;
use crate::topic;

/// A message to publish.
#[derive(Clone)]
pub struct Publish<'a, P = ()> {
    /// Topic name.
    pub topic: &'a str,
    /// Payload. It is not copied, unless it is shorter than a few hundred bytes.
    pub payload: Bytes,
    /// QoS.
    pub qos: Qos,
    /// Retain flag.
    pub retain: bool,
    /// Properties: anything that [`Encode`]s. The session sets topic aliases itself.
    pub properties: P,
    /// A number of the caller, returned in the event that ends the publish at QoS 1 and 2.
    pub token: u64,
}

/// The payload is omitted.
impl<P> core::fmt::Debug for Publish<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Publish")
            .field("topic", &self.topic)
            .field("payload", &Hidden(&self.payload))
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// A publish at QoS 1 or 2 that is not acknowledged.
pub(super) struct Retained {
    /// The topic name, and behind it the properties.
    head: Box<[u8]>,
    topic: usize,
    payload: Bytes,
    pub(super) qos: Qos,
    retain: bool,
    pub(super) token: u64,
}

impl Retained {
    /// Bytes that count for the limit of publishes.
    pub(super) const fn size(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// The packet, with this packet identifier.
    pub(super) fn wire(&self, id: NonZeroU16, dup: bool) -> Wire<'_> {
        let (topic, properties) = self.head.split_at_checked(self.topic).unwrap_or_default();
        Wire {
            dup,
            qos: self.qos,
            retain: self.retain,
            // It was copied from a text.
            topic: core::str::from_utf8(topic).unwrap_or_default(),
            id: Some(id),
            properties,
            payload: &self.payload,
        }
    }
}

/// The request that uses a packet identifier.
pub(super) enum Use {
    Publish {
        publish: Retained,
        order: u64,
        /// Set if it was sent on this connection.
        is_sent: bool,
    },
    /// PUBREL was sent.
    Release {
        /// `None` if the publish has ended for the caller.
        token: Option<u64>,
        /// Reason code of the PUBREC.
        reason: Reason,
        order: u64,
        /// Set if PUBREL was sent on several connections.
        is_again: bool,
    },
    Subscribe {
        token: u64,
        filters: usize,
    },
    Unsubscribe {
        token: u64,
        filters: usize,
    },
}

/// Publishes at QoS 1 and 2 without an outcome.
#[derive(Default)]
pub(super) struct Publishes {
    /// Not sent yet.
    waiting: VecDeque<Retained>,
    /// Sent on a former connection and not yet on this one, in order.
    pub(super) resend: VecDeque<NonZeroU16>,
    /// Packet identifiers that count for the server's Receive Maximum.
    pub(super) in_flight: usize,
    pub(super) count: usize,
    pub(super) bytes: usize,
    last_order: u64,
}

impl Publishes {
    pub(super) const fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.resend.is_empty()
    }
}

impl Session {
    /// Publishes a message.
    ///
    /// At QoS 0 the packet is written to the output at once and no event follows. At QoS 1 and 2
    /// the session retains the message until it is acknowledged, and
    /// [`Published`](Event::Published) or [`Lost`](Event::Lost) follows. Such a message may be
    /// published without a connection; it waits for one.
    ///
    /// Messages at QoS 1 and 2 are sent in order. One at QoS 0 overtakes those that wait.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then.
    pub fn publish<P: Encode>(&mut self, publish: Publish<'_, P>) -> Result<(), SendError> {
        let Publish { topic, payload, qos, retain, properties, token } = publish;
        if !topic::is_name(topic) || topic.contains('\0') {
            return Err(SendError::InvalidTopic);
        }
        let seen = self.encode_properties(&properties, Place::Packet(Kind::Publish))?;
        for id in [id::TOPIC_ALIAS, id::SUBSCRIPTION] {
            if seen & crate::property::bit(id) != 0 {
                return Err(SendError::InvalidProperties(Malformed::Misplaced(id)));
            }
        }
        let wire = Wire {
            dup: false,
            qos,
            retain,
            topic,
            id: None,
            properties: &self.scratch,
            payload: &payload,
        };
        let (size, limit) = (wire.len(Alias::None), packet_max());
        if topic.len() > usize::from(u16::MAX) || size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        if let Some(server) = self.server.as_ref() {
            check_server(server, &wire)?;
        }
        if qos == Qos::AtMostOnce {
            return self.publish_at_most_once(topic, retain, &payload);
        }
        let size = topic.len() + self.scratch.len() + payload.len();
        if size > self.options.publish_bytes {
            return Err(SendError::TooLarge { size, limit: self.options.publish_bytes });
        }
        let publishes = &mut self.publishes;
        if publishes.count >= self.options.publishes
            || publishes.bytes > self.options.publish_bytes - size
        {
            return Err(SendError::Full);
        }
        let mut head = Vec::with_capacity(topic.len() + self.scratch.len());
        head.extend_from_slice(topic.as_bytes());
        head.extend_from_slice(&self.scratch);
        let (head, topic) = (head.into_boxed_slice(), topic.len());
        publishes.count += 1;
        publishes.bytes += size;
        publishes.waiting.push_back(Retained { head, topic, payload, qos, retain, token });
        self.fill();
        Ok(())
    }

    fn publish_at_most_once(
        &mut self,
        topic: &str,
        retain: bool,
        payload: &Bytes,
    ) -> Result<(), SendError> {
        let Some(server) = self.server.as_ref().filter(|_| self.phase == Phase::Connected) else {
            return Err(SendError::NotConnected);
        };
        if self.output.len() >= self.options.output_bytes {
            return Err(SendError::Full);
        }
        let (qos, properties) = (Qos::AtMostOnce, &*self.scratch);
        let wire = Wire { dup: false, qos, retain, topic, id: None, properties, payload };
        let maximum = server.topic_alias_maximum.min(self.options.topic_aliases);
        let aliases = &mut self.outgoing_aliases;
        wire.write(&mut self.output, aliases, maximum, server).map_err(SendError::Unwritable)
    }

    /// Sends publishes that wait, while there is a window and space in the output.
    pub(super) fn fill(&mut self) {
        if self.phase != Phase::Connected || !self.publishes.has_waiting() {
            return;
        }
        while self.publishes.in_flight < self.window()
            && self.output.len() < self.options.output_bytes
            && self.events.len() < self.options.events.max(1)
        {
            if let Some(id) = self.publishes.resend.pop_front() {
                self.send_again(id);
            } else if let Some(publish) = self.publishes.waiting.pop_front() {
                if !self.send_new(publish) {
                    break;
                }
            } else {
                break;
            }
        }
    }

    /// Publishes that may be in flight.
    pub(super) fn window(&self) -> usize {
        let server = self.server.as_ref().map_or(0, |server| server.receive_maximum);
        server.min(self.options.in_flight).into()
    }

    /// Returns whether a packet identifier was free.
    fn send_new(&mut self, publish: Retained) -> bool {
        let size = publish.size();
        let Some(server) = self.server.as_ref() else { return false };
        if let Err(error) = check_server(server, &publish.wire(NonZeroU16::MIN, false)) {
            self.publishes.bytes -= size;
            self.lose(Some(publish.token), Lost::Unsendable(error));
            return true;
        }
        let order = self.publishes.next_order();
        if self.ids.len() >= usize::from(u16::MAX) {
            self.publishes.waiting.push_front(publish);
            return false;
        }
        if let Some(id) = self.ids.insert(Use::Publish { publish, order, is_sent: true }) {
            self.publishes.in_flight += 1;
            self.put_publish(id, false);
        }
        true
    }

    /// Writes the publish that a packet identifier is in use for.
    pub(super) fn put_publish(&mut self, id: NonZeroU16, dup: bool) {
        let Some(server) = self.server.as_ref() else { return };
        let Some(Use::Publish { publish, .. }) = self.ids.get(id) else { return };
        let wire = publish.wire(id, dup);
        let maximum = server.topic_alias_maximum.min(self.options.topic_aliases);
        let aliases = &mut self.outgoing_aliases;
        let written = wire.write(&mut self.output, aliases, maximum, server);
        debug_assert!(written.is_ok(), "the size was checked when the publish was accepted");
    }

    /// A publish ends without an acknowledgement.
    pub(super) fn lose(&mut self, token: Option<u64>, cause: Lost) {
        if let Some(token) = token {
            self.publishes.count -= 1;
            self.events.push(Event::Lost { token, cause });
        }
    }
}
