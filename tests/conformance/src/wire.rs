//! The interface to an MQTT client.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;

/// A boxed future, for traits that are used as `dyn`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Lost>> + Send + 'a>>;

/// A broker with a store, to which the suite can connect.
///
/// The feature `client` contains an implementation for brokers on a network. An implementation over
/// another MQTT 5 client takes about a hundred lines. The client must expose every property of a
/// PUBLISH and must not add any.
pub trait Connector: Send + Sync {
    /// Connects with a clean session.
    fn connect<'a>(&'a self, client_id: &'a str) -> Pending<'a, Box<dyn Connection>>;
}

/// One MQTT 5 connection. It acknowledges each message immediately, and buffers it until `next`.
pub trait Connection: Send {
    /// Subscribes at QoS 1, waits for the SUBACK and returns its reason code.
    fn subscribe<'a>(&'a mut self, filter: &'a str) -> Pending<'a, u8>;

    /// Publishes, waits for the acknowledgement and returns its reason code; 0 for a message at QoS
    /// 0.
    fn publish<'a>(&'a mut self, message: &'a Message) -> Pending<'a, u8>;

    /// Waits for the next message. The future may be dropped at any await without losing a message.
    fn next(&mut self) -> Pending<'_, Message>;

    /// Sends DISCONNECT and waits until the broker has closed the connection.
    fn disconnect(self: Box<Self>) -> Pending<'static, ()>;
}

/// The reason why a connection was lost or could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub String);

impl Lost {
    /// Builds an error with this reason.
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

/// A PUBLISH with all properties that the protocol uses.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Topic name.
    pub topic: String,
    /// Payload.
    pub payload: Bytes,
    /// Quality of service: 0, 1 or 2.
    pub qos: u8,
    /// True if the message is, or was, retained.
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

/// Omits the payload and the values of user properties.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.user_properties.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload", &format_args!("<{} bytes>", self.payload.len()))
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("response_topic", &self.response_topic)
            .field("content_type", &self.content_type)
            .field("message_expiry", &self.message_expiry)
            .field("user_properties", &names)
            .finish_non_exhaustive()
    }
}

impl Message {
    /// Approximate size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let properties = self.user_properties.iter();
        let properties: usize = properties.map(|(name, value)| name.len() + value.len() + 48).sum();
        let topics = self.topic.len() + self.response_topic.as_ref().map_or(0, String::len);
        let data = self.correlation_data.as_ref().map_or(0, Bytes::len);
        size_of::<Self>() + topics + data + self.payload.len() + properties
    }

    /// The value of the first user property with this name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        let mut all = self.user_properties.iter();
        all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}
