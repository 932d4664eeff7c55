//! Conversion of broker messages to protocol messages. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::transport::Incoming;
use statestore_tokio::AsIncoming;
use statestore_tokio::adapter::{machine_qos, read_properties};

/// A message delivered by the broker.
#[derive(Clone)]
pub struct Message {
    message: Arc<statestore_broker::Message>,
    payload: Bytes,
    /// Remaining seconds of its expiry interval when it was delivered.
    expiry: Option<u32>,
    /// Maximum packet size of the sender in bytes.
    packet_bytes_max: Option<usize>,
}

impl Message {
    pub(crate) fn new(
        now: Duration,
        message: Arc<statestore_broker::Message>,
        packet_bytes_max: Option<usize>,
    ) -> Self {
        let (payload, expiry) = (message.payload(), message.expiry(now));
        Self { message, payload, expiry, packet_bytes_max }
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
