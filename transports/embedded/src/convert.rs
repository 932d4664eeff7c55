//! Messages of the broker from and to those of the protocol. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_mqtt::broker;
use statestore_mqtt::packet::{Publish as Packet, Subscription, SubscriptionOptions};
use statestore_mqtt::property::{Encode, Property, id};
use statestore_mqtt::wire::{Sink, put_text};
use statestore_mqtt::{Qos, Unwritable};
use statestore_proto::mqtt::{self, Correlation, Incoming, Publish};
use statestore_tokio::AsIncoming;

/// At QoS 1, as all of this protocol is.
pub(crate) fn subscription(filter: &str) -> Subscription<'_> {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    Subscription { filter, options }
}

/// A PUBLISH as the broker takes it.
pub(crate) fn packet(publish: &Publish) -> Packet<'_, Properties<'_>> {
    Packet {
        dup: false,
        qos: Qos::AtLeastOnce,
        retain: false,
        topic: &publish.topic,
        id: None,
        properties: Properties(publish),
        payload: &publish.payload,
    }
}

/// The properties of what a machine publishes.
pub(crate) struct Properties<'a>(&'a Publish);

impl Encode for Properties<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let Publish { response_topic, correlation_data, .. } = self.0;
        let correlation_data = correlation_data.as_ref().map(Correlation::as_bytes);
        let known = [
            self.0.message_expiry.map(Property::MessageExpiry),
            self.0.content_type.map(Property::ContentType),
            response_topic.as_deref().map(Property::ResponseTopic),
            correlation_data.map(Property::CorrelationData),
        ];
        known.put(sink)?;
        self.0.user_properties().try_for_each(|(name, value)| {
            sink.put(&[id::USER]);
            put_text(sink, &name)?;
            put_text(sink, &value)
        })
    }
}

/// A message that the broker delivered.
#[derive(Clone)]
pub struct Message {
    message: Arc<broker::Message>,
    payload: Bytes,
    /// Seconds of its expiry interval that were left when it was taken.
    expiry: Option<u32>,
    /// Bytes of the largest packet that its sender takes.
    packet_bytes_max: Option<usize>,
}

impl Message {
    pub(crate) fn new(
        now: Duration,
        message: Arc<broker::Message>,
        packet_bytes_max: Option<usize>,
    ) -> Self {
        let (payload, expiry) = (message.payload(), message.expiry(now));
        Self { message, payload, expiry, packet_bytes_max }
    }

    /// The client id of the sender, for which the broker vouches; `None` when no client sent it.
    #[must_use]
    pub fn sender(&self) -> Option<&str> {
        self.message.sender().map(|sender| &**sender)
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let mut incoming = Incoming::new(self.message.topic(), &self.payload);
        incoming.qos = match self.message.qos() {
            Qos::AtMostOnce => mqtt::Qos::AtMostOnce,
            Qos::AtLeastOnce => mqtt::Qos::AtLeastOnce,
            Qos::ExactlyOnce => mqtt::Qos::ExactlyOnce,
        };
        incoming.message_expiry = self.expiry;
        incoming.verified_sender = self.sender();
        incoming.packet_bytes_max = self.packet_bytes_max;
        for property in &self.message.properties() {
            match property {
                Property::ResponseTopic(topic) => incoming.response_topic = Some(topic),
                Property::CorrelationData(data) => incoming.correlation_data = Some(data),
                Property::User(name, value) => incoming.user_property(name, value),
                _ => {}
            }
        }
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
