//! Properties of packets.

pub mod id;
#[cfg(feature = "alloc")]
mod pieces;
mod value;

#[cfg(feature = "alloc")]
pub use pieces::{Piece, Pieces};

use core::fmt;

use crate::error::{Malformed, Unwritable};
use crate::hidden::Hidden;
use crate::kind::Kind;
use crate::property::value::ValueType;
use crate::qos::Qos;
use crate::wire::{Reader, Sink, put_binary, put_varint};

/// One property.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Property<'a> {
    /// Payload Format Indicator: set if the payload is UTF-8 text.
    PayloadFormat(bool),
    /// Message Expiry Interval in seconds.
    MessageExpiry(u32),
    /// Content type.
    ContentType(&'a str),
    /// Topic for the response.
    ResponseTopic(&'a str),
    /// Correlation Data: identifies the request of a response.
    CorrelationData(&'a [u8]),
    /// Subscription Identifier: 1 to [`VARINT_MAX`](crate::wire::VARINT_MAX).
    SubscriptionId(u32),
    /// Session Expiry Interval in seconds; [`u32::MAX`] means that the session does not expire.
    SessionExpiry(u32),
    /// Client id that the server assigned.
    AssignedClientId(&'a str),
    /// Keep alive that the server requires, in seconds.
    ServerKeepAlive(u16),
    /// Method of enhanced authentication.
    AuthenticationMethod(&'a str),
    /// Data of enhanced authentication.
    AuthenticationData(&'a [u8]),
    /// Set if the server may send reason strings and user properties with any packet.
    RequestProblemInformation(bool),
    /// Will Delay Interval in seconds. The will is not published if the client reconnects before.
    WillDelay(u32),
    /// Set if the client requests response information.
    RequestResponseInformation(bool),
    /// Basis for the response topics of the client.
    ResponseInformation(&'a str),
    /// Another server to use.
    ServerReference(&'a str),
    /// Human-readable reason.
    ReasonString(&'a str),
    /// Maximum number of unacknowledged PUBLISH packets at QoS 1 and 2; not 0.
    ReceiveMaximum(u16),
    /// Topic Alias Maximum; 0 means that topic aliases are not accepted.
    TopicAliasMaximum(u16),
    /// Topic alias; not 0.
    TopicAlias(u16),
    /// Maximum QoS of the server, if it is not 2.
    MaximumQos(Qos),
    /// Set if the server retains messages.
    RetainAvailable(bool),
    /// A user property: name and value.
    User(&'a str, &'a str),
    /// Maximum Packet Size in bytes; not 0.
    MaximumPacketSize(u32),
    /// Set if filters may contain wildcards.
    WildcardAvailable(bool),
    /// Set if subscriptions may have identifiers.
    SubscriptionIdsAvailable(bool),
    /// Set if subscriptions may be shared.
    SharedAvailable(bool),
}

impl<'a> Property<'a> {
    /// Reads a property whose value was [checked](ValueType::check) before.
    fn read_checked(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        // An identifier is a variable byte integer, and all known ones have one byte.
        let id = reader.byte()?;
        let flag = |reader: &mut Reader<'_>| reader.byte().map(|byte| byte != 0);
        Ok(match id {
            id::PAYLOAD_FORMAT => Self::PayloadFormat(flag(reader)?),
            id::MESSAGE_EXPIRY => Self::MessageExpiry(reader.four()?),
            id::CONTENT_TYPE => Self::ContentType(reader.checked_text()?),
            id::RESPONSE_TOPIC => Self::ResponseTopic(reader.checked_text()?),
            id::CORRELATION_DATA => Self::CorrelationData(reader.binary()?),
            id::SUBSCRIPTION => Self::SubscriptionId(reader.varint()?),
            id::SESSION_EXPIRY => Self::SessionExpiry(reader.four()?),
            id::ASSIGNED_CLIENT_ID => Self::AssignedClientId(reader.checked_text()?),
            id::SERVER_KEEP_ALIVE => Self::ServerKeepAlive(reader.two()?),
            id::AUTHENTICATION_METHOD => Self::AuthenticationMethod(reader.checked_text()?),
            id::AUTHENTICATION_DATA => Self::AuthenticationData(reader.binary()?),
            id::REQUEST_PROBLEM_INFORMATION => Self::RequestProblemInformation(flag(reader)?),
            id::WILL_DELAY => Self::WillDelay(reader.four()?),
            id::REQUEST_RESPONSE_INFORMATION => Self::RequestResponseInformation(flag(reader)?),
            id::RESPONSE_INFORMATION => Self::ResponseInformation(reader.checked_text()?),
            id::SERVER_REFERENCE => Self::ServerReference(reader.checked_text()?),
            id::REASON_STRING => Self::ReasonString(reader.checked_text()?),
            id::RECEIVE_MAXIMUM => Self::ReceiveMaximum(reader.two()?),
            id::TOPIC_ALIAS_MAXIMUM => Self::TopicAliasMaximum(reader.two()?),
            id::TOPIC_ALIAS => Self::TopicAlias(reader.two()?),
            id::MAXIMUM_QOS => Self::MaximumQos(match flag(reader)? {
                false => Qos::AtMostOnce,
                true => Qos::AtLeastOnce,
            }),
            id::RETAIN_AVAILABLE => Self::RetainAvailable(flag(reader)?),
            id::USER => Self::User(reader.checked_text()?, reader.checked_text()?),
            id::MAXIMUM_PACKET_SIZE => Self::MaximumPacketSize(reader.four()?),
            id::WILDCARD_AVAILABLE => Self::WildcardAvailable(flag(reader)?),
            id::SUBSCRIPTION_IDS_AVAILABLE => Self::SubscriptionIdsAvailable(flag(reader)?),
            id::SHARED_AVAILABLE => Self::SharedAvailable(flag(reader)?),
            _ => return Err(Malformed::Property(id)),
        })
    }

    /// Property identifier, a constant of [`id`].
    #[must_use]
    pub const fn id(&self) -> u8 {
        match self {
            Self::PayloadFormat(_) => id::PAYLOAD_FORMAT,
            Self::MessageExpiry(_) => id::MESSAGE_EXPIRY,
            Self::ContentType(_) => id::CONTENT_TYPE,
            Self::ResponseTopic(_) => id::RESPONSE_TOPIC,
            Self::CorrelationData(_) => id::CORRELATION_DATA,
            Self::SubscriptionId(_) => id::SUBSCRIPTION,
            Self::SessionExpiry(_) => id::SESSION_EXPIRY,
            Self::AssignedClientId(_) => id::ASSIGNED_CLIENT_ID,
            Self::ServerKeepAlive(_) => id::SERVER_KEEP_ALIVE,
            Self::AuthenticationMethod(_) => id::AUTHENTICATION_METHOD,
            Self::AuthenticationData(_) => id::AUTHENTICATION_DATA,
            Self::RequestProblemInformation(_) => id::REQUEST_PROBLEM_INFORMATION,
            Self::WillDelay(_) => id::WILL_DELAY,
            Self::RequestResponseInformation(_) => id::REQUEST_RESPONSE_INFORMATION,
            Self::ResponseInformation(_) => id::RESPONSE_INFORMATION,
            Self::ServerReference(_) => id::SERVER_REFERENCE,
            Self::ReasonString(_) => id::REASON_STRING,
            Self::ReceiveMaximum(_) => id::RECEIVE_MAXIMUM,
            Self::TopicAliasMaximum(_) => id::TOPIC_ALIAS_MAXIMUM,
            Self::TopicAlias(_) => id::TOPIC_ALIAS,
            Self::MaximumQos(_) => id::MAXIMUM_QOS,
            Self::RetainAvailable(_) => id::RETAIN_AVAILABLE,
            Self::User(..) => id::USER,
            Self::MaximumPacketSize(_) => id::MAXIMUM_PACKET_SIZE,
            Self::WildcardAvailable(_) => id::WILDCARD_AVAILABLE,
            Self::SubscriptionIdsAvailable(_) => id::SUBSCRIPTION_IDS_AVAILABLE,
            Self::SharedAvailable(_) => id::SHARED_AVAILABLE,
        }
    }
}

/// Omits correlation data, authentication data and the values of user properties.
impl fmt::Debug for Property<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value): (_, &dyn fmt::Debug) = match self {
            Self::CorrelationData(data) => ("CorrelationData", &Hidden(data)),
            Self::AuthenticationData(data) => ("AuthenticationData", &Hidden(data)),
            Self::User(name, value) => {
                return f.debug_tuple("User").field(name).field(&Hidden(value.as_bytes())).finish();
            }
            Self::PayloadFormat(value) => ("PayloadFormat", value),
            Self::MessageExpiry(value) => ("MessageExpiry", value),
            Self::ContentType(value) => ("ContentType", value),
            Self::ResponseTopic(value) => ("ResponseTopic", value),
            Self::SubscriptionId(value) => ("SubscriptionId", value),
            Self::SessionExpiry(value) => ("SessionExpiry", value),
            Self::AssignedClientId(value) => ("AssignedClientId", value),
            Self::ServerKeepAlive(value) => ("ServerKeepAlive", value),
            Self::AuthenticationMethod(value) => ("AuthenticationMethod", value),
            Self::RequestProblemInformation(value) => ("RequestProblemInformation", value),
            Self::WillDelay(value) => ("WillDelay", value),
            Self::RequestResponseInformation(value) => ("RequestResponseInformation", value),
            Self::ResponseInformation(value) => ("ResponseInformation", value),
            Self::ServerReference(value) => ("ServerReference", value),
            Self::ReasonString(value) => ("ReasonString", value),
            Self::ReceiveMaximum(value) => ("ReceiveMaximum", value),
            Self::TopicAliasMaximum(value) => ("TopicAliasMaximum", value),
            Self::TopicAlias(value) => ("TopicAlias", value),
            Self::MaximumQos(value) => ("MaximumQos", value),
            Self::RetainAvailable(value) => ("RetainAvailable", value),
            Self::MaximumPacketSize(value) => ("MaximumPacketSize", value),
            Self::WildcardAvailable(value) => ("WildcardAvailable", value),
            Self::SubscriptionIdsAvailable(value) => ("SubscriptionIdsAvailable", value),
            Self::SharedAvailable(value) => ("SharedAvailable", value),
        };
        f.debug_tuple(name).field(value).finish()
    }
}

/// A set of property [identifiers](id), all of which are below 64.
///
/// ```
/// use statestore_mqtt::property::{IdSet, id};
///
/// let ids = IdSet::of(&[id::TOPIC_ALIAS, id::SUBSCRIPTION]);
/// assert!(ids.has(id::TOPIC_ALIAS) && !ids.has(id::USER));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdSet(u64);

impl IdSet {
    /// The set of these identifiers.
    #[must_use]
    pub const fn of(mut ids: &[u8]) -> Self {
        let mut set = Self(0);
        while let [id, rest @ ..] = ids {
            set.insert(*id);
            ids = rest;
        }
        set
    }

    /// Adds an identifier. One above 63, which is no property, is ignored.
    pub const fn insert(&mut self, id: u8) {
        if id < 64 {
            self.0 |= 1 << id;
        }
    }

    /// Returns whether the set has this identifier.
    #[must_use]
    pub const fn has(self, id: u8) -> bool {
        id < 64 && self.0 & 1 << id != 0
    }

    /// Returns whether both sets have an identifier in common.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The place of properties, which determines the allowed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a packet.
    Packet(Kind),
    /// In the will of a CONNECT.
    Will,
}

impl Place {
    const fn bit(self) -> u16 {
        match self {
            Self::Will => 1,
            Self::Packet(kind) => 1 << kind as u8,
        }
    }

    /// Returns whether the property is allowed here (table 2-4).
    const fn has(self, id: u8) -> bool {
        const WILL: u16 = Place::Will.bit();
        const CONNECT: u16 = Place::Packet(Kind::Connect).bit();
        const CONNACK: u16 = Place::Packet(Kind::ConnAck).bit();
        const PUBLISH: u16 = Place::Packet(Kind::Publish).bit();
        const SUBSCRIBE: u16 = Place::Packet(Kind::Subscribe).bit();
        const DISCONNECT: u16 = Place::Packet(Kind::Disconnect).bit();
        const AUTH: u16 = Place::Packet(Kind::Auth).bit();
        const WITHOUT_REASON_STRING: u16 = CONNECT
            | PUBLISH
            | SUBSCRIBE
            | WILL
            | Place::Packet(Kind::Unsubscribe).bit()
            | Place::Packet(Kind::PingReq).bit()
            | Place::Packet(Kind::PingResp).bit();
        let places = match id {
            id::PAYLOAD_FORMAT
            | id::MESSAGE_EXPIRY
            | id::CONTENT_TYPE
            | id::RESPONSE_TOPIC
            | id::CORRELATION_DATA => PUBLISH | WILL,
            id::SUBSCRIPTION => PUBLISH | SUBSCRIBE,
            id::SESSION_EXPIRY => CONNECT | CONNACK | DISCONNECT,
            id::AUTHENTICATION_METHOD | id::AUTHENTICATION_DATA => CONNECT | CONNACK | AUTH,
            id::REQUEST_PROBLEM_INFORMATION | id::REQUEST_RESPONSE_INFORMATION => CONNECT,
            id::WILL_DELAY => WILL,
            id::SERVER_REFERENCE => CONNACK | DISCONNECT,
            id::REASON_STRING => !WITHOUT_REASON_STRING,
            id::RECEIVE_MAXIMUM | id::TOPIC_ALIAS_MAXIMUM | id::MAXIMUM_PACKET_SIZE => {
                CONNECT | CONNACK
            }
            id::TOPIC_ALIAS => PUBLISH,
            id::USER => u16::MAX,
            id::ASSIGNED_CLIENT_ID
            | id::SERVER_KEEP_ALIVE
            | id::RESPONSE_INFORMATION
            | id::MAXIMUM_QOS
            | id::RETAIN_AVAILABLE
            | id::WILDCARD_AVAILABLE
            | id::SUBSCRIPTION_IDS_AVAILABLE
            | id::SHARED_AVAILABLE => CONNACK,
            _ => 0,
        };
        places & self.bit() != 0
    }

    const fn may_repeat(self, id: u8) -> bool {
        match id {
            id::USER => true,
            // One for each matching subscription.
            id::SUBSCRIPTION => matches!(self, Self::Packet(Kind::Publish)),
            _ => false,
        }
    }
}

/// Validated properties of a received packet, still encoded.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    all: Reader<'a>,
    ids: IdSet,
}

impl<'a> Properties<'a> {
    /// Reads and validates the property length and the properties.
    ///
    /// # Errors
    /// [`Malformed`] if a property is malformed, not allowed in this place, invalid or repeated.
    pub fn read(body: &mut Reader<'a>, place: Place) -> Result<Self, Malformed> {
        Self::check(body.block()?, place)
    }

    /// Validates encoded properties without their length, see [`as_bytes`](Self::as_bytes).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_bytes(bytes: &'a [u8], place: Place) -> Result<Self, Malformed> {
        Self::check(Reader::new(bytes), place)
    }

    fn check(all: Reader<'a>, place: Place) -> Result<Self, Malformed> {
        let (mut rest, mut ids) = (all, IdSet::default());
        while !rest.is_empty() {
            let id = rest.byte()?;
            let value_type = ValueType::of(id).ok_or(Malformed::Property(id))?;
            if !place.has(id) {
                return Err(Malformed::Misplaced(id));
            }
            value_type.check(&mut rest, id)?;
            if ids.has(id) && !place.may_repeat(id) {
                return Err(Malformed::Twice(id));
            }
            ids.insert(id);
        }
        let properties = Self { all, ids };
        if properties.has(id::AUTHENTICATION_DATA) && !properties.has(id::AUTHENTICATION_METHOD) {
            return Err(Malformed::Missing(id::AUTHENTICATION_METHOD));
        }
        Ok(properties)
    }

    /// Returns whether a property with this [identifier](id) is present, in constant time.
    ///
    /// ```
    /// use statestore_mqtt::Kind;
    /// use statestore_mqtt::property::{Place, Properties, id};
    ///
    /// let properties = Properties::from_bytes(&[0x01, 0x01], Place::Packet(Kind::Publish))?;
    /// assert!(properties.has(id::PAYLOAD_FORMAT));
    /// assert!(!properties.has(id::USER));
    /// # Ok::<(), statestore_mqtt::Malformed>(())
    /// ```
    #[must_use]
    pub const fn has(&self, id: u8) -> bool {
        self.ids.has(id)
    }

    /// The encoded properties, without their length.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.all.as_bytes()
    }

    /// Iterates over the properties in order.
    #[must_use]
    pub const fn iter(&self) -> Iter<'a> {
        Iter(self.all)
    }

    /// The user properties, in order.
    pub fn user(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.iter().filter_map(|property| match property {
            Property::User(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// The [bytes](Self::as_bytes) and [identifiers](Self::ids) of other properties. For the
    /// packages of this repository: checks nothing.
    #[doc(hidden)]
    #[must_use]
    #[cfg(feature = "alloc")]
    pub const fn from_validated(bytes: &'a [u8], ids: IdSet) -> Self {
        Self { all: Reader::new(bytes), ids }
    }

    /// The identifiers that are present.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub const fn ids(&self) -> IdSet {
        self.ids
    }

    /// The first property with this identifier. Properties before it are not decoded.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub fn first(&self, id: u8) -> Option<Property<'a>> {
        let mut pieces = Pieces::new(self.as_bytes());
        let piece = self.has(id).then(|| pieces.find(|piece| piece.id == id)).flatten()?;
        Property::read_checked(&mut Reader::new(piece.bytes)).ok()
    }

    /// The first result of `choose` that is not `None`.
    pub fn find<T>(&self, choose: impl FnMut(Property<'a>) -> Option<T>) -> Option<T> {
        self.iter().find_map(choose)
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator over properties in order.
#[derive(Clone, Debug)]
pub struct Iter<'a>(Reader<'a>);

impl<'a> Iter<'a> {
    /// The encoded remaining properties.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0.as_bytes()
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        // The properties were validated, so the only possible error is the end.
        Property::read_checked(&mut self.0).ok()
    }
}

/// Properties to encode. They are not checked: the receiver rejects a property that is repeated or
/// not allowed in the packet.
pub trait Encode {
    /// Writes the properties without their length. Each call must write the same bytes.
    ///
    /// # Errors
    /// [`Unwritable::TooLong`].
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable>;
}

impl Encode for Properties<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        sink.put(self.as_bytes());
        Ok(())
    }
}

impl Encode for Property<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let id = self.id();
        match *self {
            Self::PayloadFormat(flag)
            | Self::RequestProblemInformation(flag)
            | Self::RequestResponseInformation(flag)
            | Self::RetainAvailable(flag)
            | Self::WildcardAvailable(flag)
            | Self::SubscriptionIdsAvailable(flag)
            | Self::SharedAvailable(flag) => sink.put(&[id, u8::from(flag)]),
            Self::MaximumQos(qos) => sink.put(&[id, qos as u8]),
            Self::ServerKeepAlive(number)
            | Self::ReceiveMaximum(number)
            | Self::TopicAliasMaximum(number)
            | Self::TopicAlias(number) => {
                let [high, low] = number.to_be_bytes();
                sink.put(&[id, high, low]);
            }
            Self::MessageExpiry(number)
            | Self::SessionExpiry(number)
            | Self::WillDelay(number)
            | Self::MaximumPacketSize(number) => {
                let [a, b, c, d] = number.to_be_bytes();
                sink.put(&[id, a, b, c, d]);
            }
            Self::SubscriptionId(number) => {
                sink.put(&[id]);
                put_varint(sink, usize::try_from(number).unwrap_or(usize::MAX))?;
            }
            Self::ContentType(text)
            | Self::ResponseTopic(text)
            | Self::AssignedClientId(text)
            | Self::AuthenticationMethod(text)
            | Self::ResponseInformation(text)
            | Self::ServerReference(text)
            | Self::ReasonString(text) => put_binary_property(sink, id, text.as_bytes())?,
            Self::CorrelationData(data) | Self::AuthenticationData(data) => {
                put_binary_property(sink, id, data)?;
            }
            Self::User(name, value) => {
                put_binary_property(sink, id, name.as_bytes())?;
                put_binary(sink, value.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Writes an identifier, a length of two bytes, and the data. Few writes take less time than many.
fn put_binary_property(sink: &mut impl Sink, id: u8, data: &[u8]) -> Result<(), Unwritable> {
    let len = u16::try_from(data.len()).map_err(|_| Unwritable::TooLong)?;
    let [high, low] = len.to_be_bytes();
    sink.put(&[id, high, low]);
    sink.put(data);
    Ok(())
}

/// No properties.
impl Encode for () {
    fn put<S: Sink>(&self, _: &mut S) -> Result<(), Unwritable> {
        Ok(())
    }
}

impl<T: Encode> Encode for [T] {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        self.iter().try_for_each(|property| property.put(sink))
    }
}

#[cfg(feature = "alloc")]
impl<T: Encode> Encode for alloc::vec::Vec<T> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        self.as_slice().put(sink)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        self.iter().try_for_each(|property| property.put(sink))
    }
}

/// The properties of both, in order.
impl<A: Encode, B: Encode> Encode for (A, B) {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        self.0.put(sink)?;
        self.1.put(sink)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        (**self).put(sink)
    }
}
