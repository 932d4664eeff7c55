//! A PUBLISH between the broker and a client.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_mqtt::packet::Publish as Packet;
use statestore_mqtt::property::Property;
use statestore_proto::time::Instant;
use statestore_proto::transport::{Correlation, Delivery, Incoming, Publish, Qos};
use statestore_tokio::adapter::{machine_qos, packet_qos};

/// A PUBLISH packet whose properties are text.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Client id of the sender, verified by the broker.
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
    /// Delivery token, if the receiver acknowledges messages itself.
    pub delivery: Option<Delivery>,
    /// Time of arrival at the receiver, which may take the message later.
    pub arrived: Option<Instant>,
}

/// Omits the payload, which may contain a value, and the values of user properties.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.user_properties.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Message")
            .field("sender", &self.sender)
            .field("topic", &self.topic)
            .field("payload", &format_args!("<{} bytes>", self.payload.len()))
            .field("user_properties", &names)
            .finish_non_exhaustive()
    }
}

impl Message {
    /// Converts a PUBLISH of a machine.
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

    /// Converts a message of the broker, `now` being the broker's time. A message without a sender
    /// is from the `host`; returns `None` without a host.
    #[must_use]
    pub fn from_broker(
        message: &statestore_broker::Message,
        now: Duration,
        host: Option<&Arc<str>>,
    ) -> Option<Self> {
        let mut converted = Self {
            sender: Arc::clone(message.sender().or(host)?),
            topic: message.topic().into(),
            payload: message.payload(),
            qos: machine_qos(message.qos()),
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
                Property::ResponseTopic(topic) => converted.response_topic = Some(topic.into()),
                Property::CorrelationData(data) => {
                    converted.correlation_data = Some(Correlation::new(data));
                }
                Property::ContentType(text) => {
                    converted.content_type = Some(text.to_owned().into())
                }
                Property::User(name, value) => {
                    converted.user_properties.push((name.to_owned().into(), value.to_owned()));
                }
                _ => {}
            }
        }
        Some(converted)
    }

    /// Returns the PUBLISH packet, for the broker.
    #[must_use]
    pub fn packet(&self) -> Packet<'_, Vec<Property<'_>>> {
        let known = [
            self.message_expiry.map(Property::MessageExpiry),
            self.content_type.as_deref().map(Property::ContentType),
            self.response_topic.as_deref().map(Property::ResponseTopic),
            self.correlation_data.as_ref().map(|data| Property::CorrelationData(data.as_bytes())),
        ];
        let user = self.user_properties.iter().map(|(name, value)| Property::User(name, value));
        Packet {
            dup: false,
            qos: packet_qos(self.qos),
            retain: false,
            topic: &self.topic,
            id: None,
            properties: known.into_iter().flatten().chain(user).collect(),
            payload: &self.payload,
        }
    }

    /// Returns the message in the form that a machine receives.
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
