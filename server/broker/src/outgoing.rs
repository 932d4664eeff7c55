//! PUBLISH packets to clients.
//!
//! A long packet is written in parts. Until it is complete, the connection shares the message with
//! all others, so that many clients that do not read a long message use little memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::NonZeroU16;
use core::time::Duration;

use bytes::BytesMut;

use crate::aliases::Aliases;
use crate::memory::{Memory, MemoryAccount};
use crate::message::{ForwardedProperties, Message};
use statestore_mqtt::packet::{Packet, Publish};
use statestore_mqtt::wire::Sink;
use statestore_mqtt::{Alias, Qos};

/// Maximum bytes of a packet that is written at once. A longer packet is written in parts of this
/// many bytes; the last one may be shorter. Output of this many bytes gets no more packets.
pub(crate) const PART_BYTES: usize = 32 << 10;

/// A message that waits to be sent or acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) message: Arc<Message>,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) subscription_ids: Box<[u32]>,
}

impl QueuedMessage {
    pub(crate) fn overhead(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.subscription_ids)
    }

    fn packet(&self, fields: Fields) -> Packet<'_, ForwardedProperties<'_>> {
        let Fields { id, dup, alias, now } = fields;
        let message = &*self.message;
        Packet::Publish(Publish {
            dup,
            qos: self.qos,
            retain: self.retain,
            topic: if matches!(alias, Alias::Known(_)) { "" } else { message.topic() },
            id,
            properties: ForwardedProperties {
                message,
                now,
                subscription_ids: &self.subscription_ids,
                alias: alias.number(),
            },
            payload: message.payload_bytes(),
        })
    }
}

/// Fields of a PUBLISH that differ each time its message is sent.
#[derive(Clone, Copy, Debug)]
struct Fields {
    id: Option<NonZeroU16>,
    dup: bool,
    alias: Alias,
    /// Time for which the remaining message expiry interval is calculated.
    now: Duration,
}

/// Limits of a client for messages to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Unacknowledged messages.
    pub(crate) in_flight: usize,
    /// Bytes of the largest packet.
    pub(crate) packet_bytes: usize,
}

/// Output of a connection, with its limits and topic aliases.
pub(crate) struct PacketSink<'a> {
    pub(crate) window: Window,
    /// Topic aliases that the broker set. Their memory is in the account.
    pub(crate) outbound_aliases: &'a mut Aliases,
    /// A packet that is only partly written. Its memory is in the account.
    pub(crate) partial: &'a mut Option<PartialPacket>,
    pub(crate) account: &'a mut MemoryAccount,
    pub(crate) out: &'a mut BytesMut,
}

impl PacketSink<'_> {
    /// Writes a PUBLISH, or its first part. Returns false if it exceeds the client's Maximum Packet
    /// Size.
    pub(crate) fn send(
        &mut self,
        now: Duration,
        memory: &mut Memory,
        queued: &QueuedMessage,
        id: Option<NonZeroU16>,
        dup: bool,
    ) -> bool {
        let topic = queued.message.shared_topic();
        let alias = self.outbound_aliases.choose(topic);
        if self.write(memory, queued, Fields { id, dup, alias, now }) {
            if let Alias::New(number) = alias {
                self.outbound_aliases.set(memory, self.account, topic, number);
            }
            return true;
        }
        // It may fit without a new alias, which adds a property.
        let alias_is_new = matches!(alias, Alias::New(_));
        alias_is_new && self.write(memory, queued, Fields { id, dup, alias: Alias::None, now })
    }

    fn write(&mut self, memory: &mut Memory, queued: &QueuedMessage, fields: Fields) -> bool {
        let packet = queued.packet(fields);
        let len = packet.encoded_len().ok().filter(|len| *len <= self.window.packet_bytes);
        let Some(len) = len else { return false };
        if len <= PART_BYTES {
            return packet.encode(self.out).is_ok();
        }
        let mut partial = PartialPacket { queued: queued.clone(), fields, len, written: 0 };
        partial.write_part(self.out);
        self.account.hold(memory, &queued.message, partial.overhead());
        *self.partial = Some(partial);
        true
    }
}

/// A PUBLISH that is only partly written.
#[derive(Debug)]
pub(crate) struct PartialPacket {
    queued: QueuedMessage,
    fields: Fields,
    /// Bytes of the whole packet.
    len: usize,
    /// Bytes that were written.
    written: usize,
}

impl PartialPacket {
    /// Writes the next part. Returns whether the packet is complete.
    pub(crate) fn write_part(&mut self, out: &mut BytesMut) -> bool {
        let before = out.len();
        let mut part = Part { skipped: self.written, space: PART_BYTES, out };
        // The packet was encoded before, so this succeeds.
        let is_encoded = self.queued.packet(self.fields).encode(&mut part).is_ok();
        self.written += out.len() - before;
        !is_encoded || self.written >= self.len
    }

    pub(crate) const fn message(&self) -> &Arc<Message> {
        &self.queued.message
    }

    pub(crate) fn overhead(&self) -> usize {
        self.queued.overhead()
    }
}

/// A sink that writes one part of a packet.
struct Part<'a> {
    /// Bytes to discard, since earlier parts contain them.
    skipped: usize,
    /// Bytes to write. Further bytes are discarded.
    space: usize,
    out: &'a mut BytesMut,
}

impl Sink for Part<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let skipped = bytes.len().min(self.skipped);
        self.skipped -= skipped;
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let bytes = bytes.get(..self.space).unwrap_or(bytes);
        self.space -= bytes.len();
        self.out.extend_from_slice(bytes);
    }
}
