//! Messages to send.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;

use bytes::Bytes;

use super::{Correlation, Incoming, PublishToken};
use crate::debug::{Value, show};
use crate::hlc::{FencingToken, Hlc, Timestamp};
use crate::message::Incarnation;
use crate::message::property::{self, PropertyValue, RequestProperties};

/// A PUBLISH to send. Two of them are equal if the same bytes are sent for them; the number that
/// [`answers`](Publish::answers) returns is not sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Publish {
    /// Topic name.
    pub topic: Arc<str>,
    /// Payload.
    pub payload: Bytes,
    /// Response topic.
    pub response_topic: Option<Arc<str>>,
    /// Correlation data.
    pub correlation_data: Option<Correlation>,
    /// Content type.
    pub content_type: Option<&'static str>,
    /// Message expiry interval in seconds.
    pub message_expiry: Option<u32>,
    /// Token to report the PUBACK with; `None` if the machine does not need the PUBACK.
    pub token: Option<PublishToken>,
    pub(crate) purpose: Purpose,
    pub(crate) timestamp: Option<Hlc>,
    pub(crate) answers: Answers,
}

/// The source of the user properties of a [`Publish`], apart from its timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Request { source: Arc<str>, fencing_token: Option<FencingToken>, persist: bool },
    Reply { incarnation: Option<Incarnation>, reason: Option<Arc<str>> },
    Notification { client_id: Arc<str>, incarnation: Option<Incarnation> },
}

/// The number of the message that a response answers, which does not count in comparisons.
#[derive(Clone, Copy)]
pub(crate) struct Answers(pub(crate) Option<NonZeroU64>);

impl PartialEq for Answers {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Answers {}

impl Publish {
    /// User properties to send, in order.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'static str, PropertyValue<'_>)> {
        let timestamp = self.timestamp.as_ref().map(Hlc::borrowed);
        let timestamp_property =
            timestamp.map(|hlc| (property::TIMESTAMP, PropertyValue::Hlc(hlc)));
        let text = |name, value| (name, PropertyValue::Text(value));
        let incarnation_property = |incarnation: &Option<Incarnation>| {
            incarnation.map(|value| (property::INCARNATION, PropertyValue::Incarnation(value)))
        };
        let properties = match &self.purpose {
            Purpose::Request { source, fencing_token, persist } => RequestProperties {
                source_id: source,
                timestamp: timestamp.map(Timestamp::new),
                fencing_token: fencing_token.as_ref().map(FencingToken::borrowed),
                persist: *persist,
            }
            .to_array(),
            Purpose::Reply { incarnation, reason, .. } => [
                timestamp_property,
                Some(text(property::STATUS, property::STATUS_VALUE)),
                incarnation_property(incarnation),
                reason.as_deref().map(|reason| text(property::REASON, reason)),
                None,
                None,
            ],
            Purpose::Notification { incarnation, .. } => {
                [timestamp_property, incarnation_property(incarnation), None, None, None, None]
            }
        };
        properties.into_iter().flatten()
    }

    /// Removes the text why a request was refused.
    pub(crate) fn remove_reason(&mut self) {
        if let Purpose::Reply { reason, .. } = &mut self.purpose {
            *reason = None;
        }
    }

    /// Upper bound of the packet's length in bytes.
    pub(crate) fn packet_len_max(&self) -> usize {
        // Type and remaining length, topic length, packet id, and length of the properties.
        const HEAD: usize = 1 + 4 + 2 + 2 + 4;
        const EXPIRY: usize = 1 + 4;
        // A property has a type byte and a length; a user property has two lengths.
        let property = |len: Option<usize>| len.map_or(0, |len| 1 + 2 + len);
        let user_property =
            |(name, value): (&str, PropertyValue<'_>)| 1 + 2 + name.len() + 2 + value.encoded_len();
        HEAD + self.topic.len()
            + EXPIRY
            + property(self.content_type.map(str::len))
            + property(self.response_topic.as_ref().map(|topic| topic.len()))
            + property(self.correlation_data.as_ref().map(|data| data.as_bytes().len()))
            + self.user_properties().map(user_property).sum::<usize>()
            + self.payload.len()
    }

    /// Passes the packet to `to` as its receiver sees it after a broker has forwarded it, for tests
    /// and for transports without a network.
    ///
    /// ```
    /// use statestore_proto::client::{Client, ClientConfig, Request};
    /// use statestore_proto::machine::{Input, Machine as _};
    /// use statestore_proto::store::{Store, StoreConfig};
    /// use statestore_proto::time::Now;
    /// use statestore_proto::transport::{ReasonCode, Transmit};
    ///
    /// let now = Now::default();
    /// let mut client = Client::new(ClientConfig::new("thermostat-7", *b"8 random"))?;
    /// client.submit(now, Request::set("boiler", "21"))?;
    /// client.handle(now, Input::Connected { session_present: false });
    /// let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else { panic!() };
    /// client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    /// let Some(Transmit::Publish(request)) = client.poll_transmit() else { panic!() };
    ///
    /// let mut store = Store::new(StoreConfig::new(0));
    /// request.with_incoming(|incoming| {
    ///     store.handle_publish(now, incoming);
    /// });
    /// assert_eq!(store.get(now, b"boiler").unwrap().value, b"21");
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    pub fn with_incoming<R>(&self, to: impl FnOnce(&Incoming<'_>) -> R) -> R {
        // An `Incoming` borrows the text of each value.
        let properties = self.user_properties();
        let texts: Vec<_> = properties.map(|(name, value)| (name, value.to_string())).collect();
        let mut incoming = Incoming::new(&self.topic, &self.payload);
        incoming.response_topic = self.response_topic.as_deref();
        incoming.correlation_data = self.correlation_data.as_ref().map(Correlation::as_bytes);
        incoming.message_expiry = self.message_expiry;
        texts.iter().for_each(|(name, value)| incoming.user_property(name, value));
        to(&incoming)
    }

    /// Number of the message that a store's reply belongs to, for measuring latency: the first
    /// message handed to the store has number 1. The number is not sent, and `==` ignores it.
    #[must_use]
    pub const fn answers(&self) -> Option<u64> {
        match self.answers.0 {
            Some(number) => Some(number.get()),
            None => None,
        }
    }

    /// Client id of the recipient of a notification: an embedded broker can deliver to it directly.
    #[must_use]
    pub const fn recipient(&self) -> Option<&Arc<str>> {
        match &self.purpose {
            Purpose::Notification { client_id, .. } => Some(client_id),
            Purpose::Request { .. } | Purpose::Reply { .. } => None,
        }
    }
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, payload, response_topic, correlation_data, message_expiry, .. } = self;
        let Self { token, timestamp, purpose, .. } = self;
        show!(f, Publish {
            topic, payload = Value(payload), response_topic, correlation_data, message_expiry,
            token, timestamp, purpose
        })
    }
}
