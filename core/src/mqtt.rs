//! MQTT 5 reduced to what this protocol reads and writes: the packets that pass between a machine and its transport.
//!
//! A transport turns each PUBLISH it receives into an [`Incoming`] and offers every user property by name and value; it
//! need not know which matter. What a machine wants on the wire comes out as a [`Transmit`].
//!
//! # From one end to the other
//!
//! A broker passes on what a [`Publish`] says, so a [`Publish`] of a client becomes an [`Incoming`] of a store, and the
//! other way round, like this. It is also how to join the two without a broker, in a test.
//!
//! ```
//! use statestore_proto::client::{Client, ClientConfig, Request};
//! use statestore_proto::mqtt::{Correlation, Incoming, Publish, ReasonCode, Transmit};
//! use statestore_proto::store::{Principal, Store, StoreConfig};
//! use statestore_proto::time::Now;
//!
//! /// Shows a PUBLISH to whoever receives it.
//! fn deliver(publish: &Publish, to: impl FnOnce(&Incoming<'_>)) {
//!     let mut incoming = Incoming::new(&publish.topic, &publish.payload);
//!     incoming.response_topic = publish.response_topic.as_deref();
//!     incoming.correlation_data = publish.correlation_data.as_ref().map(Correlation::as_bytes);
//!     incoming.message_expiry = publish.message_expiry;
//!     // The values are text on the wire, which an `Incoming` borrows from a received packet.
//!     let texts: Vec<_> = publish.user_properties().map(|(name, value)| (name, value.to_string())).collect();
//!     texts.iter().for_each(|(name, value)| incoming.user_property(name, value));
//!     to(&incoming);
//! }
//!
//! let now = Now::default();
//! let mut client = Client::new(ClientConfig::new("thermostat-7", *b"8 random")?);
//! let mut store = Store::new(StoreConfig::new(0));
//! client.handle_connected(now, false);
//! client.submit(now, Request::set("boiler", "21"))?;
//! while let Some(transmit) = client.poll_transmit() {
//!     match transmit {
//!         Transmit::Subscribe { token, .. } => client.handle_subscribed(now, token, ReasonCode::GRANTED_QOS_1),
//!         Transmit::Publish(request) => deliver(&request, |incoming| {
//!             store.handle_publish(now, Principal::of(incoming), incoming);
//!         }),
//!         _ => {}
//!     }
//! }
//! assert_eq!(store.get(now, b"boiler").unwrap().value, b"21");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::time::Duration;

use bytes::Bytes;

use crate::debug;
use crate::hlc::{FencingToken, Hlc};
use crate::message::Incarnation;
use crate::message::property::{self, PropertyValue, RequestProperties};
use crate::time::{Instant, whole_millis};
use crate::topic::TopicError;

/// Quality of service of a PUBLISH. Everything a machine of this crate sends is [`AtLeastOnce`](Self::AtLeastOnce).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// 0
    AtMostOnce,
    /// 1
    #[default]
    AtLeastOnce,
    /// 2
    ExactlyOnce,
}

/// A received PUBLISH, borrowed from whatever holds it.
///
/// ```
/// use bytes::Bytes;
/// use statestore_proto::mqtt::Incoming;
///
/// let payload = Bytes::from_static(b"+OK\r\n");
/// let mut reply = Incoming::new("clients/c/response", &payload);
/// reply.correlation_data = Some(b"0123456789abcdef");
/// reply.user_property("__stat", "200");
/// reply.user_property("__ts", "1696374425000:1:StateStore");
/// reply.user_property("somebody", "else's");
/// ```
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Payload; a machine that keeps a part of it for long copies that part.
    pub payload: &'a Bytes,
    /// Quality of service it arrived with.
    pub qos: Qos,
    /// Whether the broker had retained it.
    pub retain: bool,
    /// Response topic.
    pub response_topic: Option<&'a str>,
    /// Correlation data; absent and empty differ.
    pub correlation_data: Option<&'a [u8]>,
    /// Message expiry interval in seconds, as it was on arrival.
    pub message_expiry: Option<u32>,
    /// When it arrived, if it had to wait since: what is past its expiry by then is dropped.
    pub arrived: Option<Instant>,
    /// The client id of the sender, where the broker vouches for it; ordinary brokers do not.
    pub verified_sender: Option<&'a str>,
    /// Bytes of the largest packet that its sender takes, where the transport knows: an answer to a GET or SCAN that is
    /// larger would never arrive.
    pub packet_bytes_max: Option<usize>,
    /// Handed back in [`Transmit::Acknowledge`] when the message may be acknowledged.
    pub delivery: Option<Delivery>,
    pub(crate) properties: Properties<'a>,
}

/// The user properties that mean something here.
#[derive(Clone, Copy, Default)]
pub(crate) struct Properties<'a> {
    pub(crate) timestamp: Option<&'a str>,
    pub(crate) fencing_token: Option<&'a str>,
    pub(crate) source: Option<&'a str>,
    pub(crate) persist: bool,
    pub(crate) has_protocol_version: bool,
    pub(crate) incarnation: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

impl<'a> Incoming<'a> {
    /// A PUBLISH at QoS 1 with nothing but a topic and a payload.
    #[must_use]
    pub fn new(topic: &'a str, payload: &'a Bytes) -> Self {
        Self {
            topic,
            payload,
            qos: Qos::AtLeastOnce,
            retain: false,
            response_topic: None,
            correlation_data: None,
            message_expiry: None,
            arrived: None,
            verified_sender: None,
            packet_bytes_max: None,
            delivery: None,
            properties: Properties::default(),
        }
    }

    /// Offers one user property. Of a name given twice the first counts; unknown names are ignored.
    pub fn user_property(&mut self, name: &str, value: &'a str) {
        let known = &mut self.properties;
        match name {
            property::TIMESTAMP => known.timestamp = known.timestamp.or(Some(value)),
            property::FENCING_TOKEN => known.fencing_token = known.fencing_token.or(Some(value)),
            property::SOURCE_ID => known.source = known.source.or(Some(value)),
            property::PERSIST => known.persist |= value == property::PERSIST_VALUE,
            property::PROTOCOL_VERSION => known.has_protocol_version = true,
            property::INCARNATION => known.incarnation = known.incarnation.or(Some(value)),
            property::REASON => known.reason = known.reason.or(Some(value)),
            _ => {}
        }
    }

    /// Whether it waited, since it arrived, for longer than its message expiry interval.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        let allowed = self.message_expiry.map(|seconds| Duration::from_secs(seconds.into()));
        let waited = self.waited(now);
        !waited.is_zero() && allowed.is_some_and(|allowed| waited >= allowed)
    }

    /// What is left of its message expiry interval in seconds, rounded up to one or more: how long its answer is of use.
    /// `None` when it has no such interval.
    ///
    /// ```
    /// use statestore_proto::mqtt::Incoming;
    /// use statestore_proto::time::Instant;
    /// # let payload = bytes::Bytes::new();
    /// let mut request = Incoming::new("topic", &payload);
    /// (request.message_expiry, request.arrived) = (Some(10), Some(Instant::from_millis(0)));
    /// assert_eq!(request.expiry_left(Instant::from_millis(2_500)), Some(8));
    /// ```
    #[must_use]
    pub fn expiry_left(&self, now: Instant) -> Option<u32> {
        let allowed = Duration::from_secs(self.message_expiry?.into());
        let left = whole_millis(allowed.saturating_sub(self.waited(now))).div_ceil(1_000);
        Some(u32::try_from(left.max(1)).unwrap_or(u32::MAX))
    }

    fn waited(&self, now: Instant) -> Duration {
        self.arrived.map_or(Duration::ZERO, |arrived| now.duration_since(arrived))
    }

    /// Which incarnation of its store a reply or notification says that it comes from.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.properties.incarnation.and_then(Incarnation::parse)
    }

    /// Why a reply says that its request was refused, if it does: text of the peer, for people.
    #[must_use]
    pub const fn reason(&self) -> Option<&'a str> {
        self.properties.reason
    }

    /// The `__ts` that the sender gives, as it is written: an [`Hlc`] if it is well-formed.
    #[must_use]
    pub const fn timestamp(&self) -> Option<&'a str> {
        self.properties.timestamp
    }

    /// The client id that the sender claims in `__srcId`. Any publisher can set it.
    #[must_use]
    pub const fn claimed_source(&self) -> Option<&'a str> {
        self.properties.source
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("topic", &self.topic)
            .field("payload", &debug::Value(self.payload))
            .field("qos", &self.qos)
            .field("response_topic", &self.response_topic)
            .field("correlation_data", &self.correlation_data.map(debug::Key))
            .field("message_expiry", &self.message_expiry)
            .field("timestamp", &self.properties.timestamp)
            .field("fencing_token", &self.properties.fencing_token)
            .finish_non_exhaustive()
    }
}

/// What a transport needs to acknowledge a message later: packet id and connection, or whatever it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery(pub u64);

/// Names a SUBSCRIBE of a machine, so that its SUBACK can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscribeToken(pub(crate) u64);

/// Names a PUBLISH of a machine, so that its PUBACK can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublishToken(pub(crate) u64);

/// An MQTT 5 reason code, as a SUBACK or PUBACK carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReasonCode(pub u8);

impl ReasonCode {
    /// Success, or granted QoS 0.
    pub const SUCCESS: Self = Self(0x00);
    /// Granted QoS 1.
    pub const GRANTED_QOS_1: Self = Self(0x01);
    /// The message was accepted and nobody subscribes to its topic.
    pub const NO_MATCHING_SUBSCRIBERS: Self = Self(0x10);
    /// Refused by the broker's access control.
    pub const NOT_AUTHORIZED: Self = Self(0x87);
    /// Larger than the receiver takes.
    pub const PACKET_TOO_LARGE: Self = Self(0x95);
    /// More than a limit of the receiver allows for now.
    pub const QUOTA_EXCEEDED: Self = Self(0x97);

    /// Whether the packet was refused.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0x00 => "success",
            0x01 | 0x02 => "granted",
            0x10 => "no matching subscribers",
            0x80 => "unspecified error",
            0x83 => "implementation specific error",
            0x87 => "not authorized",
            0x8f => "topic filter invalid",
            0x90 => "topic name invalid",
            0x95 => "packet too large",
            0x97 => "quota exceeded",
            0x99 => "payload format invalid",
            _ => return write!(f, "reason 0x{:02x}", self.0),
        };
        write!(f, "{text} (0x{:02x})", self.0)
    }
}

/// What a machine wants done by its transport, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Subscribe to one filter at QoS 1 and report the SUBACK with this token.
    Subscribe {
        /// The topic filter.
        filter: Arc<str>,
        /// To be reported with the result.
        token: SubscribeToken,
    },
    /// Publish at QoS 1, not retained.
    Publish(Publish),
    /// Acknowledge a received message. Everything that answers it was handed out before.
    Acknowledge(Delivery),
    /// Disconnect this client. A transport that has no power to do so counts it and goes on.
    Disconnect {
        /// The offender's MQTT client id.
        client_id: Arc<str>,
        /// The response topic of the request that it has sent, for a log.
        response_topic: Arc<str>,
        /// What forbids that.
        offence: TopicError,
    },
}

/// A PUBLISH to be sent.
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
    /// To be reported with the PUBACK, when the machine wants to hear of it.
    pub token: Option<PublishToken>,
    pub(crate) purpose: Purpose,
    pub(crate) timestamp: Option<Hlc>,
}

/// What decides the user properties of a [`Publish`] beside its timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Request { source: Arc<str>, fencing_token: Option<FencingToken>, persist: bool },
    Reply { incarnation: Option<Incarnation>, reason: Option<Arc<str>>, answers: Unsent },
    Notification { client_id: Arc<str>, incarnation: Option<Incarnation> },
}

/// A number that is not sent, so that it tells no two packets apart.
#[derive(Clone, Copy)]
pub(crate) struct Unsent(pub(crate) u64);

impl PartialEq for Unsent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Unsent {}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl Publish {
    /// The user properties to send, in order.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'static str, PropertyValue<'_>)> {
        let timestamp = self.timestamp.as_ref().map(Hlc::as_deref);
        let (request, status, incarnation, reason) = match &self.purpose {
            Purpose::Request { source, fencing_token, persist } => {
                let token = fencing_token.as_ref().map(|token| token.hlc().as_deref());
                let request = RequestProperties {
                    source_id: source,
                    timestamp,
                    fencing_token: token,
                    persist: *persist,
                };
                (Some(request), None, None, None)
            }
            Purpose::Reply { incarnation, reason, .. } => {
                (None, Some(property::STATUS_VALUE), *incarnation, reason.as_deref())
            }
            Purpose::Notification { incarnation, .. } => (None, None, *incarnation, None),
        };
        let answer = [
            timestamp
                .filter(|_| request.is_none())
                .map(|hlc| (property::TIMESTAMP, PropertyValue::Hlc(hlc))),
            status.map(|text| (property::STATUS, PropertyValue::Text(text))),
            incarnation.map(|said| (property::INCARNATION, PropertyValue::Incarnation(said))),
            reason.map(|text| (property::REASON, PropertyValue::Text(text))),
        ];
        let request = request.map(RequestProperties::into_iter);
        request.into_iter().flatten().chain(answer.into_iter().flatten())
    }

    /// Bytes that no packet with it is longer than.
    pub(crate) fn packet_len_max(&self) -> usize {
        // Fixed header, packet id, and the length of the properties; then a byte and two lengths for each of them.
        const HEAD: usize = 1 + 4 + 2 + 4;
        const EXPIRY: usize = 5;
        let text = |text: Option<usize>| text.map_or(0, |len| 3 + len);
        let correlation_data = self.correlation_data.as_ref().map(|data| data.as_bytes().len());
        let user = self.user_properties().map(|(name, value)| {
            let mut len = TextLen(0);
            let _ = write!(len, "{value}");
            5 + name.len() + len.0
        });
        HEAD + EXPIRY
            + 2
            + self.topic.len()
            + text(self.content_type.map(str::len))
            + text(self.response_topic.as_ref().map(|topic| topic.len()))
            + text(correlation_data)
            + user.sum::<usize>()
            + self.payload.len()
    }

    /// Which message a reply of a store answers, counted among all that were handed to it: the first has the number 1. For
    /// whoever measures how long answers take; it is not sent, and not compared.
    #[must_use]
    pub const fn answers(&self) -> Option<u64> {
        match &self.purpose {
            Purpose::Reply { answers, .. } => Some(answers.0),
            Purpose::Request { .. } | Purpose::Notification { .. } => None,
        }
    }

    /// The client that a notification is for: a broker that hosts the store can deliver to it directly.
    #[must_use]
    pub const fn recipient(&self) -> Option<&Arc<str>> {
        match &self.purpose {
            Purpose::Notification { client_id, .. } => Some(client_id),
            Purpose::Request { .. } | Purpose::Reply { .. } => None,
        }
    }
}

/// Counts what is written to it.
struct TextLen(usize);

impl fmt::Write for TextLen {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("topic", &self.topic)
            .field("payload", &debug::Value(&self.payload))
            .field("response_topic", &self.response_topic)
            .field("correlation_data", &self.correlation_data)
            .field("message_expiry", &self.message_expiry)
            .field("token", &self.token)
            .field("timestamp", &self.timestamp)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

/// Correlation data: opaque bytes, up to 16 of them (what every deployed client sends) in place.
#[derive(Clone)]
pub struct Correlation(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; Correlation::INLINE_MAX] },
    Shared(Arc<[u8]>),
}

impl Correlation {
    /// Bytes that are stored in place.
    pub const INLINE_MAX: usize = 16;

    /// Copies `data`.
    #[must_use]
    pub fn new(data: &[u8]) -> Self {
        let mut bytes = [0; Self::INLINE_MAX];
        match (bytes.get_mut(..data.len()), u8::try_from(data.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(data);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Shared(data.into())),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Shared(data) => data,
        }
    }
}

impl PartialEq for Correlation {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Correlation {}

impl fmt::Debug for Correlation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&debug::Key(self.as_bytes()), f)
    }
}
