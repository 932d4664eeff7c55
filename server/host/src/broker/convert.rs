//! Conversion of broker messages to protocol messages. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_broker::SenderDetails;
use statestore_proto::transport::Incoming;
use statestore_tokio::AsIncoming;
use statestore_tokio::adapter::{machine_qos, read_properties};

use crate::access::fixed_rules::rights;

/// A message delivered by the broker.
#[derive(Clone)]
pub struct Message {
    message: Arc<statestore_broker::Message>,
    payload: Bytes,
    /// Remaining seconds of its expiry interval when it was delivered.
    expiry: Option<u32>,
    /// Rights of the sender.
    details: Option<SenderDetails>,
    /// Maximum packet size of the sender in bytes.
    packet_bytes_max: Option<usize>,
}

impl Message {
    pub(crate) fn new(
        now: Duration,
        message: Arc<statestore_broker::Message>,
        details: Option<SenderDetails>,
        packet_bytes_max: Option<usize>,
    ) -> Self {
        let (payload, expiry) = (message.payload(), message.expiry(now));
        Self { message, payload, expiry, details, packet_bytes_max }
    }

    /// Returns the verified client id of the sender, or `None` if no client sent the message.
    #[must_use]
    pub fn sender(&self) -> Option<&str> {
        self.message.sender().map(|sender| &**sender)
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let mut incoming = Incoming::new(self.message.topic(), &self.payload);
        read_properties(&mut incoming, &self.message.properties());
        incoming.qos = machine_qos(self.message.qos());
        // Less than the property, because the message has waited in the broker.
        incoming.message_expiry = self.expiry;
        incoming.verified_sender = self.sender();
        incoming.owner = self.message.owner();
        incoming.rights = self.details.as_deref().and_then(rights);
        incoming.packet_bytes_max = self.packet_bytes_max;
        Some(incoming)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_incoming(), f)
    }
}

#[cfg(test)]
mod tests;
