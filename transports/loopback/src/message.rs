//! A PUBLISH at rest in the broker.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_mqtt::packet::Publish as Packet;
use statestore_mqtt::property::{Encode, Property};
use statestore_mqtt::wire::Sink;
use statestore_mqtt::{Unwritable, broker};
use statestore_proto::mqtt::{Correlation, Delivery, Incoming, Publish, Qos};
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
    /// Quality of service.
    pub qos: Qos,
    /// Response topic.
    pub response_topic: Option<Arc<str>>,
    /// Correlation data.
    pub correlation_data: Option<Correlation>,
    /// Content type.
    pub content_type: Option<Cow<'static, str>>,
    /// Message expiry interval in seconds.
    pub message_expiry: Option<u32>,
    /// User properties in order.
    pub user_properties: Vec<(Cow<'static, str>, String)>,
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
    /// What a machine publishes, as its broker has it.
    #[must_use]
    pub fn new(sender: Arc<str>, publish: Publish) -> Self {
        let properties = publish.user_properties();
        let user_properties =
            properties.map(|(name, value)| (name.into(), value.to_string())).collect();
        Self {
            sender,
            user_properties,
            topic: publish.topic,
            payload: publish.payload,
            response_topic: publish.response_topic,
            correlation_data: publish.correlation_data,
            qos: Qos::AtLeastOnce,
            content_type: publish.content_type.map(Cow::Borrowed),
            message_expiry: publish.message_expiry,
            delivery: None,
            arrived: None,
        }
    }

    /// As the broker delivers it; `None` where nobody sent it. What has no sender is the host's.
    pub(crate) fn of(
        message: &broker::Message,
        now: Duration,
        host: Option<&Arc<str>>,
    ) -> Option<Self> {
        let mut of = Self {
            sender: Arc::clone(message.sender().or(host)?),
            topic: message.topic().into(),
            payload: message.payload(),
            qos: match message.qos() {
                statestore_mqtt::Qos::AtMostOnce => Qos::AtMostOnce,
                statestore_mqtt::Qos::AtLeastOnce => Qos::AtLeastOnce,
                statestore_mqtt::Qos::ExactlyOnce => Qos::ExactlyOnce,
            },
            response_topic: None,
            correlation_data: None,
            content_type: None,
            message_expiry: message.expiry(now),
            user_properties: Vec::new(),
            delivery: None,
            arrived: None,
        };
        for property in &message.properties() {
            match property {
                Property::ResponseTopic(topic) => of.response_topic = Some(topic.into()),
                Property::CorrelationData(data) => {
                    of.correlation_data = Some(Correlation::new(data));
                }
                Property::ContentType(text) => of.content_type = Some(text.to_owned().into()),
                Property::User(name, value) => {
                    of.user_properties.push((name.to_owned().into(), value.to_owned()));
                }
                _ => {}
            }
        }
        Some(of)
    }

    /// As the broker takes it.
    pub(crate) fn packet(&self) -> Packet<'_, Properties<'_>> {
        Packet {
            dup: false,
            qos: match self.qos {
                Qos::AtMostOnce => statestore_mqtt::Qos::AtMostOnce,
                Qos::AtLeastOnce => statestore_mqtt::Qos::AtLeastOnce,
                Qos::ExactlyOnce => statestore_mqtt::Qos::ExactlyOnce,
            },
            retain: false,
            topic: &self.topic,
            id: None,
            properties: Properties(self),
            payload: &self.payload,
        }
    }

    /// The message as a machine takes it.
    #[must_use]
    pub fn as_incoming(&self) -> Incoming<'_> {
        let mut incoming = Incoming::new(&self.topic, &self.payload);
        incoming.qos = self.qos;
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

/// The properties of a message.
pub(crate) struct Properties<'a>(&'a Message);

impl Encode for Properties<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let known = [
            self.0.message_expiry.map(Property::MessageExpiry),
            self.0.content_type.as_deref().map(Property::ContentType),
            self.0.response_topic.as_deref().map(Property::ResponseTopic),
            self.0.correlation_data.as_ref().map(|data| Property::CorrelationData(data.as_bytes())),
        ];
        known.put(sink)?;
        self.0
            .user_properties
            .iter()
            .try_for_each(|(name, value)| Property::User(name, value).put(sink))
    }
}
