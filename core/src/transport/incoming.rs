//! Received messages.

use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use super::{Delivery, Qos};
use crate::debug::{Key, Value, show};
use crate::message::Incarnation;
use crate::message::property;
use crate::time::{Instant, whole_millis};

/// What the sender of a message may do with keys.
pub trait Rights: Send + Sync {
    /// Returns whether it has this access to this key. The result must not change.
    fn allow_key(&self, access: Access, key: &[u8]) -> bool;
}

/// The kind of access of a request to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// GET, KEYNOTIFY, and SCAN for each key that it lists.
    Read,
    /// SET, DEL and VDEL.
    Write,
    /// SET, DEL and VDEL with a fencing token (`__ft`), checked after [`Write`](Self::Write). A SET
    /// with a token excludes clients without one, or with a lower one, until the key is deleted.
    Fence,
}

/// A received PUBLISH, borrowed from the transport.
///
/// ```
/// use bytes::Bytes;
/// use statestore_proto::transport::Incoming;
///
/// let payload = Bytes::from_static(b"+OK\r\n");
/// let mut reply = Incoming::new("clients/c/response", &payload);
/// reply.correlation_data = Some(b"0123456789abcdef");
/// reply.user_property("__stat", "200");
/// reply.user_property("__ts", "1696374425000:1:StateStore");
/// reply.user_property("unknown", "ignored");
/// assert_eq!(reply.properties.timestamp, Some("1696374425000:1:StateStore"));
/// assert_eq!((reply.properties.fencing_token, reply.properties.persist), (None, false));
/// ```
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Payload. A machine that stores a part of it for long copies that part.
    pub payload: &'a Bytes,
    /// Quality of service it arrived with.
    pub qos: Qos,
    /// Retain flag.
    pub retain: bool,
    /// Response topic.
    pub response_topic: Option<&'a str>,
    /// Correlation data; absent and empty differ.
    pub correlation_data: Option<&'a [u8]>,
    /// Message expiry interval in seconds, as received.
    pub message_expiry: Option<u32>,
    /// Time of arrival, if the transport has queued the message since. A message that has expired
    /// in the queue is dropped.
    pub arrived: Option<Instant>,
    /// Client id of the sender, if the broker has verified it; ordinary brokers do not.
    pub verified_sender: Option<&'a str>,
    /// Owner for whom the keys, bytes and registrations of a verified sender count, such as its
    /// user. By default, they count for its client id.
    pub owner: Option<&'a str>,
    /// Rights of a verified sender, if the broker knows them. An authorizer finds them in the
    /// [principal](crate::store::Principal::rights).
    pub rights: Option<&'a dyn Rights>,
    /// Bytes of the largest packet that reaches the sender, if the transport knows it: a larger
    /// response to a GET or SCAN could not be delivered. It is the Maximum Packet Size of the
    /// sender in a broker with a store, and that of the broker if the store is its client.
    pub packet_bytes_max: Option<usize>,
    /// Returned in [`Transmit::Acknowledge`](super::Transmit::Acknowledge) when the message may be
    /// acknowledged.
    pub delivery: Option<Delivery>,
    /// The user properties that matter; [`user_property`](Self::user_property) sets them.
    pub properties: Properties<'a>,
}

/// The user properties of an [`Incoming`] that the protocol defines, unparsed.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Properties<'a> {
    /// `__ts`: a well-formed one is a [`Timestamp`](crate::hlc::Timestamp).
    pub timestamp: Option<&'a str>,
    /// `__ft`: a well-formed one is a [`FencingToken`](crate::hlc::FencingToken).
    pub fencing_token: Option<&'a str>,
    /// `__srcId`: the unverified client id of the sender. Any publisher can set it.
    pub source: Option<&'a str>,
    /// True if the sender asks the store to persist the key of a SET.
    pub persist: bool,
    /// True if there is `__protVer`, which selects the deployed
    /// [dialect](crate::message::Dialect::of_request).
    pub has_protocol_version: bool,
    /// `statestore-incarnation`, see [`Incoming::incarnation`].
    pub incarnation: Option<&'a str>,
    /// `statestore-reason`: unverified text for people.
    pub reason: Option<&'a str>,
    /// `__chunk`, whatever its value.
    pub chunk: Option<&'a str>,
}

impl<'a> Incoming<'a> {
    /// A PUBLISH at QoS 1 with only a topic and a payload.
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
            owner: None,
            rights: None,
            packet_bytes_max: None,
            delivery: None,
            properties: Properties::default(),
        }
    }

    /// Adds a user property. The first value of a repeated name counts; unknown names are ignored.
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
            property::CHUNK => known.chunk = known.chunk.or(Some(value)),
            _ => {}
        }
    }

    /// The known user properties that were [added](Self::user_property), as name and value. The
    /// value of `__protVer` is not stored; it is returned as
    /// [`PROTOCOL_VERSION_VALUE`](property::PROTOCOL_VERSION_VALUE).
    pub fn user_properties(&self) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        let known = self.properties;
        let persist = known.persist.then_some(property::PERSIST_VALUE);
        let version = known.has_protocol_version.then_some(property::PROTOCOL_VERSION_VALUE);
        let properties = [
            (property::TIMESTAMP, known.timestamp),
            (property::FENCING_TOKEN, known.fencing_token),
            (property::SOURCE_ID, known.source),
            (property::PERSIST, persist),
            (property::PROTOCOL_VERSION, version),
            (property::INCARNATION, known.incarnation),
            (property::REASON, known.reason),
            (property::CHUNK, known.chunk),
        ];
        properties.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns whether the message was queued for at least its message expiry interval.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        let queued = self.queued_for(now);
        let expiry = self.expiry();
        !queued.is_zero() && expiry.is_some_and(|expiry| queued >= expiry)
    }

    /// Remaining message expiry interval in seconds, rounded up to at least 1; `None` if the
    /// message lacks such an interval. A response is pointless after that time.
    pub(crate) fn expiry_left(&self, now: Instant) -> Option<u32> {
        let left = self.expiry()?.saturating_sub(self.queued_for(now));
        let seconds = whole_millis(left).div_ceil(1_000).max(1);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    fn expiry(&self) -> Option<Duration> {
        self.message_expiry.map(|seconds| Duration::from_secs(seconds.into()))
    }

    fn queued_for(&self, now: Instant) -> Duration {
        self.arrived.map_or(Duration::ZERO, |arrived| now.duration_since(arrived))
    }

    /// Incarnation of the store that sent this reply or notification, if given and well-formed.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.properties.incarnation.and_then(Incarnation::parse)
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, payload, qos, response_topic, correlation_data, message_expiry, .. } =
            self;
        let Properties { timestamp, fencing_token, .. } = &self.properties;
        show!(f, Incoming {
            topic, payload = Value(payload), qos, response_topic,
            correlation_data = correlation_data.map(Key), message_expiry, timestamp, fencing_token
        })
    }
}
