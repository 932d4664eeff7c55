//! What the kit needs of an MQTT client.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;

/// A future of a trait that can be a `dyn` one.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Lost>> + Send + 'a>>;

/// A broker with a store behind it: whoever opens connections to it.
///
/// An implementation for brokers on a network comes with the feature `client`. Another one takes a hundred lines over any
/// MQTT 5 client that shows every property of a PUBLISH and adds none.
pub trait Place: Send + Sync {
    /// Connects with a clean session.
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>>;
}

/// One MQTT 5 connection. What is received is acknowledged at once, and kept until it is asked for.
pub trait Connection: Send {
    /// Subscribes at QoS 1 and waits for the SUBACK; its reason code.
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8>;

    /// Publishes and waits until the broker has the message; its reason code, 0 for a message at QoS 0.
    fn publish<'a>(&'a mut self, message: &'a Message) -> Pending<'a, u8>;

    /// The next message. May be dropped at any await without losing anything.
    fn next(&mut self) -> Pending<'_, Message>;

    /// Says goodbye and waits until the broker has taken notice.
    fn disconnect(self: Box<Self>) -> Pending<'static, ()>;
}

/// Why a connection is of no use any more, or was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub String);

impl Lost {
    /// For this reason.
    #[must_use]
    pub fn because(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lost {}

/// A PUBLISH, with everything of it that this protocol speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Topic name.
    pub topic: String,
    /// Payload.
    pub payload: Bytes,
    /// Quality of service: 0, 1 or 2.
    pub qos: u8,
    /// True if it is, or was, retained.
    pub retain: bool,
    /// Response topic.
    pub response_topic: Option<String>,
    /// Correlation data; absent and empty differ.
    pub correlation_data: Option<Bytes>,
    /// Content type.
    pub content_type: Option<String>,
    /// Message expiry interval in seconds.
    pub message_expiry: Option<u32>,
    /// User properties in their order.
    pub user_properties: Vec<(String, String)>,
}

impl Message {
    /// About as many bytes as it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        let properties = self.user_properties.iter();
        let properties: usize = properties.map(|(name, value)| name.len() + value.len() + 48).sum();
        let topics = self.topic.len() + self.response_topic.as_ref().map_or(0, String::len);
        let data = self.correlation_data.as_ref().map_or(0, Bytes::len);
        size_of::<Self>() + topics + data + self.payload.len() + properties
    }

    /// The value of the first user property of that name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        let mut all = self.user_properties.iter();
        all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}
