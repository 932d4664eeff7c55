//! A PUBLISH as it is written, and its size.

use core::num::NonZeroU16;

use bytes::Bytes;

use super::aliases::Outgoing;
use super::error::SendError;
use super::output::Output;
use super::server::Server;
use crate::alias::Alias;
use crate::error::Unwritable;
use crate::kind::Kind;
use crate::property::id;
use crate::qos::Qos;
use crate::wire::{Sink as _, VARINT_MAX, put_binary, put_varint, varint_len};

/// One PUBLISH as it is written.
pub(super) struct Wire<'a> {
    pub(super) dup: bool,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) topic: &'a str,
    pub(super) id: Option<NonZeroU16>,
    pub(super) properties: &'a [u8],
    pub(super) payload: &'a Bytes,
}

impl Wire<'_> {
    fn body_len(&self, alias: Alias) -> usize {
        let topic = if matches!(alias, Alias::Known(_)) { 0 } else { self.topic.len() };
        let properties = self.properties.len() + alias.property_bytes();
        let id = if self.qos == Qos::AtMostOnce { 0 } else { 2 };
        2 + topic + id + varint_len(properties) + properties + self.payload.len()
    }

    /// Size of the packet in bytes.
    pub(super) fn len(&self, alias: Alias) -> usize {
        let body = self.body_len(alias);
        1 + varint_len(body) + body
    }

    /// Writes the packet. Its topic gets a topic alias, unless the packet would exceed the server's
    /// limit with it.
    pub(super) fn write(
        &self,
        output: &mut Output,
        aliases: &mut Outgoing,
        server: &Server,
    ) -> Result<(), Unwritable> {
        let mut alias = aliases.choose(self.topic);
        if self.len(alias) > server.packet_limit() {
            alias = Alias::None;
        }
        if let Alias::New(number) = alias {
            aliases.set(self.topic, number);
        }
        self.put(output, alias)
    }

    fn put(&self, output: &mut Output, alias: Alias) -> Result<(), Unwritable> {
        let flags = u8::from(self.dup) << 3 | (self.qos as u8) << 1 | u8::from(self.retain);
        output.put(&[Kind::Publish.first() | flags]);
        put_varint(output, self.body_len(alias))?;
        let topic = if matches!(alias, Alias::Known(_)) { "" } else { self.topic };
        put_binary(output, topic.as_bytes())?;
        if let Some(id) = self.id {
            output.put(&id.get().to_be_bytes());
        }
        put_varint(output, self.properties.len() + alias.property_bytes())?;
        output.put(self.properties);
        if let Some(number) = alias.number() {
            output.put(&[id::TOPIC_ALIAS]);
            output.put(&number.to_be_bytes());
        }
        output.put_payload(self.payload);
        Ok(())
    }
}

/// The size limit of MQTT itself, in bytes.
pub(super) fn packet_max() -> usize {
    usize::try_from(VARINT_MAX).unwrap_or(usize::MAX).saturating_add(5)
}

pub(super) fn check_server(server: &Server, wire: &Wire<'_>) -> Result<(), SendError> {
    if wire.qos > server.maximum_qos {
        return Err(SendError::QosUnsupported { maximum: server.maximum_qos });
    }
    if wire.retain && !server.retain_available {
        return Err(SendError::RetainUnsupported);
    }
    let (size, limit) = (wire.len(Alias::None), server.packet_limit());
    if size > limit { Err(SendError::TooLarge { size, limit }) } else { Ok(()) }
}
