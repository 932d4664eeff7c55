//! A PUBLISH at rest in the broker.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use statestore_proto::mqtt::{Correlation, Delivery, Incoming, Publish};
use statestore_proto::time::Instant;

/// A PUBLISH as it travels: its properties are text by now.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The client id that published it; the broker knows.
    pub sender: Arc<str>,
    /// Topic name.
    pub topic: Arc<str>,
    /// Payload.
    pub payload: Bytes,
    /// Response topic.
    pub response_topic: Option<Arc<str>>,
    /// Correlation data.
    pub correlation_data: Option<Correlation>,
    /// Message expiry interval in seconds.
    pub message_expiry: Option<u32>,
    /// User properties in order.
    pub user_properties: Vec<(&'static str, String)>,
    /// To be acknowledged with, on a connection that acknowledges itself.
    pub delivery: Option<Delivery>,
    /// When it reached its receiver, which may be busy and take it later.
    pub arrived: Option<Instant>,
}

/// Without its payload, which may hold a value.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("sender", &self.sender)
            .field("topic", &self.topic)
            .field("payload", &format_args!("<{} bytes>", self.payload.len()))
            .field("user_properties", &self.user_properties)
            .finish_non_exhaustive()
    }
}

impl Message {
    pub(crate) fn new(sender: Arc<str>, publish: Publish) -> Self {
        let user_properties =
            publish.user_properties().map(|(name, value)| (name, value.to_string())).collect();
        Self {
            sender,
            user_properties,
            topic: publish.topic,
            payload: publish.payload,
            response_topic: publish.response_topic,
            correlation_data: publish.correlation_data,
            message_expiry: publish.message_expiry,
            delivery: None,
            arrived: None,
        }
    }

    /// The message as a machine takes it.
    #[must_use]
    pub fn as_incoming(&self) -> Incoming<'_> {
        let mut incoming = Incoming::new(&self.topic, &self.payload);
        incoming.response_topic = self.response_topic.as_deref();
        incoming.correlation_data = self.correlation_data.as_ref().map(Correlation::as_bytes);
        incoming.message_expiry = self.message_expiry;
        incoming.verified_sender = Some(&self.sender);
        incoming.delivery = self.delivery;
        incoming.arrived = self.arrived;
        for (name, value) in &self.user_properties {
            incoming.user_property(name, value);
        }
        incoming
    }
}
