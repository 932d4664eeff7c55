//! The fifteen packets of MQTT 5, decoded without copying and encoded without allocating.

use core::fmt;
use core::num::NonZeroU16;

use crate::error::{Malformed, Unwritable};
use crate::hidden::Hidden;
use crate::kind::Kind;
use crate::property::{Encode, Place, Properties};
use crate::qos::Qos;
use crate::reason::Reason;
use crate::topic;
use crate::wire::{Fixed, Length, Reader, Sink, VARINT_MAX, put_binary, put_varint, varint_len};

mod filters;
mod read;

pub use filters::{Filters, RetainHandling, Subscription, SubscriptionOptions, Subscriptions};

/// The protocol level of MQTT 5.
pub const LEVEL: u8 = 5;

/// A CONNECT packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a, P = Properties<'a>> {
    /// Clean Start: discard an existing session.
    pub clean_start: bool,
    /// Keep Alive in seconds, 0 for none.
    pub keep_alive: u16,
    /// Properties.
    pub properties: P,
    /// Client id. If it is empty, the server assigns one.
    pub client_id: &'a str,
    /// Will, published when the connection ends without a normal DISCONNECT.
    pub will: Option<Will<'a, P>>,
    /// User name.
    pub user_name: Option<&'a str>,
    /// Password.
    pub password: Option<&'a [u8]>,
}

/// Omits the password.
impl<P: fmt::Debug> fmt::Debug for Connect<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("properties", &self.properties)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("password", &self.password.map(Hidden))
            .finish()
    }
}

/// The will of a CONNECT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Will<'a, P = Properties<'a>> {
    /// QoS of the will message.
    pub qos: Qos,
    /// Set if the server retains the will message.
    pub retain: bool,
    /// Properties.
    pub properties: P,
    /// Topic name.
    pub topic: &'a str,
    /// Payload.
    pub payload: &'a [u8],
}

/// Omits the payload.
impl<P: fmt::Debug> fmt::Debug for Will<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Will")
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("properties", &self.properties)
            .field("topic", &self.topic)
            .field("payload", &Hidden(self.payload))
            .finish()
    }
}

/// A CONNACK packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck<P> {
    /// Set if the server resumes a session of this client; never set with an error.
    pub session_present: bool,
    /// Reason code.
    pub reason: Reason,
    /// Properties.
    pub properties: P,
}

/// A PUBLISH packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a, P = Properties<'a>> {
    /// DUP: set if the packet may have been sent before; never set at QoS 0.
    pub dup: bool,
    /// QoS.
    pub qos: Qos,
    /// Retain flag. To a server: retain the message. To a client: the message was retained.
    pub retain: bool,
    /// Topic name; empty if a topic alias replaces it.
    pub topic: &'a str,
    /// Packet identifier, at QoS 1 and 2.
    pub id: Option<NonZeroU16>,
    /// Properties.
    pub properties: P,
    /// Payload.
    pub payload: &'a [u8],
}

/// Omits the payload.
impl<P: fmt::Debug> fmt::Debug for Publish<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("dup", &self.dup)
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("topic", &self.topic)
            .field("id", &self.id)
            .field("properties", &self.properties)
            .field("payload", &Hidden(self.payload))
            .finish()
    }
}

/// A PUBACK, PUBREC, PUBREL or PUBCOMP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<P> {
    /// Packet identifier.
    pub id: NonZeroU16,
    /// Reason code.
    pub reason: Reason,
    /// Properties.
    pub properties: P,
}

/// A SUBSCRIBE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a, P = Properties<'a>> {
    /// Packet identifier.
    pub id: NonZeroU16,
    /// Properties.
    pub properties: P,
    /// Subscriptions: one or more.
    pub subscriptions: Subscriptions<'a>,
}

/// An UNSUBSCRIBE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a, P = Properties<'a>> {
    /// Packet identifier.
    pub id: NonZeroU16,
    /// Properties.
    pub properties: P,
    /// Topic filters: one or more.
    pub filters: Filters<'a>,
}

/// A SUBACK or UNSUBACK packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks<'a, P = Properties<'a>> {
    /// Packet identifier.
    pub id: NonZeroU16,
    /// Properties.
    pub properties: P,
    /// Reason codes, in the order of the filters: one or more.
    pub reasons: &'a [u8],
}

/// A DISCONNECT or AUTH packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<P> {
    /// Reason code.
    pub reason: Reason,
    /// Properties.
    pub properties: P,
}

/// Any packet. A decoded packet has [`Properties`]; a packet to encode has properties of any type
/// that implements [`Encode`].
///
/// ```
/// use statestore_mqtt::packet::{Packet, Publish};
/// use statestore_mqtt::property::Property;
/// use statestore_mqtt::Qos;
///
/// let properties = [Property::MessageExpiry(60), Property::User("name", "value")];
/// let publish = Publish {
///     dup: false,
///     qos: Qos::AtLeastOnce,
///     retain: false,
///     topic: "sensors/7",
///     id: core::num::NonZeroU16::new(1),
///     properties: &properties[..],
///     payload: b"21",
/// };
/// let mut buffer = [0; 64];
/// let len = Packet::Publish(publish).encode_into(&mut buffer)?;
/// let Packet::Publish(read) = Packet::decode(&buffer[..len])? else { panic!() };
/// assert_eq!((read.topic, read.payload), ("sensors/7", &b"21"[..]));
/// assert_eq!(read.properties.iter().collect::<Vec<_>>(), properties);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants have the names of the standard")]
pub enum Packet<'a, P = Properties<'a>> {
    Connect(Connect<'a, P>),
    ConnAck(ConnAck<P>),
    Publish(Publish<'a, P>),
    PubAck(Ack<P>),
    PubRec(Ack<P>),
    PubRel(Ack<P>),
    PubComp(Ack<P>),
    Subscribe(Subscribe<'a, P>),
    SubAck(Acks<'a, P>),
    Unsubscribe(Unsubscribe<'a, P>),
    UnsubAck(Acks<'a, P>),
    PingReq,
    PingResp,
    Disconnect(Notice<P>),
    Auth(Notice<P>),
}

/// The fixed header of a packet: its type and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Packet type.
    pub kind: Kind,
    /// Bytes of the whole packet.
    pub len: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`; `None` if more bytes are needed. `max` is the
    /// maximum packet size.
    ///
    /// ```
    /// use statestore_mqtt::Kind;
    /// use statestore_mqtt::packet::Header;
    ///
    /// assert_eq!(Header::read(&[0xc0], 64), Ok(None));
    /// assert_eq!(Header::read(&[0xc0, 0], 64), Ok(Some(Header { kind: Kind::PingReq, len: 2 })));
    /// assert!(Header::read(&[0x30, 0x80, 0x80, 0x40], 64).is_err(), "a megabyte");
    /// ```
    ///
    /// # Errors
    /// [`Malformed::First`], [`Malformed::Varint`] or [`Malformed::TooLarge`]. None of them needs
    /// bytes behind the header.
    pub fn read(bytes: &[u8], max: usize) -> Result<Option<Self>, Malformed> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let kind = Kind::of(first)?;
        let mut reader = Reader::new(rest);
        let body = match reader.varint() {
            Ok(body) => usize::try_from(body).unwrap_or(usize::MAX),
            Err(Malformed::Truncated) => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = body.saturating_add(bytes.len() - reader.as_bytes().len());
        if len > max { Err(Malformed::TooLarge { len }) } else { Ok(Some(Self { kind, len })) }
    }
}

impl<P> Packet<'_, P> {
    /// Packet type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Connect(_) => Kind::Connect,
            Self::ConnAck(_) => Kind::ConnAck,
            Self::Publish(_) => Kind::Publish,
            Self::PubAck(_) => Kind::PubAck,
            Self::PubRec(_) => Kind::PubRec,
            Self::PubRel(_) => Kind::PubRel,
            Self::PubComp(_) => Kind::PubComp,
            Self::Subscribe(_) => Kind::Subscribe,
            Self::SubAck(_) => Kind::SubAck,
            Self::Unsubscribe(_) => Kind::Unsubscribe,
            Self::UnsubAck(_) => Kind::UnsubAck,
            Self::PingReq => Kind::PingReq,
            Self::PingResp => Kind::PingResp,
            Self::Disconnect(_) => Kind::Disconnect,
            Self::Auth(_) => Kind::Auth,
        }
    }
}

impl<P: Encode> Packet<'_, P> {
    /// Length of the encoded packet in bytes.
    ///
    /// # Errors
    /// [`Unwritable`], except [`Unwritable::NoRoom`].
    pub fn encoded_len(&self) -> Result<usize, Unwritable> {
        self.lengths().map(|lengths| lengths.packet())
    }

    /// Writes the packet to the start of `out` and returns its length. On error, `out` is
    /// unchanged.
    ///
    /// # Errors
    /// [`Unwritable`].
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, Unwritable> {
        let lengths = self.lengths()?;
        let needed = lengths.packet();
        let out = out.get_mut(..needed).ok_or(Unwritable::NoRoom { needed })?;
        self.put(lengths, &mut Fixed::new(out))
    }

    /// Writes the packet and returns its length. On error, nothing is written.
    ///
    /// # Errors
    /// [`Unwritable`], except [`Unwritable::NoRoom`].
    pub fn encode<S: Sink>(&self, sink: &mut S) -> Result<usize, Unwritable> {
        self.put(self.lengths()?, sink)
    }

    fn put<S: Sink>(&self, lengths: Lengths, sink: &mut S) -> Result<usize, Unwritable> {
        sink.put(&[self.first()?]);
        put_varint(sink, lengths.body)?;
        self.put_body(lengths.properties, sink)?;
        Ok(lengths.packet())
    }

    fn lengths(&self) -> Result<Lengths, Unwritable> {
        // Every error is found here, before the caller writes anything.
        self.first()?;
        let properties = self.properties().map_or(Ok(0), properties_len)?;
        let mut length = Length::default();
        self.put_body(properties, &mut length)?;
        match u32::try_from(length.0) {
            Ok(len) if len <= VARINT_MAX => Ok(Lengths { body: length.0, properties }),
            _ => Err(Unwritable::TooLong),
        }
    }

    /// The properties of the packet, without those of a will.
    const fn properties(&self) -> Option<&P> {
        match self {
            Self::Connect(Connect { properties, .. })
            | Self::ConnAck(ConnAck { properties, .. })
            | Self::Publish(Publish { properties, .. })
            | Self::PubAck(Ack { properties, .. })
            | Self::PubRec(Ack { properties, .. })
            | Self::PubRel(Ack { properties, .. })
            | Self::PubComp(Ack { properties, .. })
            | Self::Subscribe(Subscribe { properties, .. })
            | Self::SubAck(Acks { properties, .. })
            | Self::Unsubscribe(Unsubscribe { properties, .. })
            | Self::UnsubAck(Acks { properties, .. })
            | Self::Disconnect(Notice { properties, .. })
            | Self::Auth(Notice { properties, .. }) => Some(properties),
            Self::PingReq | Self::PingResp => None,
        }
    }

    fn first(&self) -> Result<u8, Unwritable> {
        let Self::Publish(publish) = self else { return Ok(self.kind().first()) };
        let at_most_once = publish.qos == Qos::AtMostOnce;
        if at_most_once != publish.id.is_none() || (at_most_once && publish.dup) {
            return Err(Unwritable::PacketId);
        }
        let flags = u8::from(publish.dup) << 3 | (publish.qos as u8) << 1;
        Ok(Kind::Publish.first() | flags | u8::from(publish.retain))
    }

    /// Writes the packet without its fixed header. `len` is the length of its properties.
    fn put_body<S: Sink>(&self, len: usize, sink: &mut S) -> Result<(), Unwritable> {
        match self {
            Self::Connect(connect) => connect.put(len, sink),
            Self::ConnAck(ConnAck { session_present, reason, properties }) => {
                sink.put(&[u8::from(*session_present), reason.0]);
                put_properties(len, properties, sink)
            }
            Self::Publish(publish) => {
                put_binary(sink, publish.topic.as_bytes())?;
                if let Some(id) = publish.id {
                    sink.put(&id.get().to_be_bytes());
                }
                put_properties(len, &publish.properties, sink)?;
                sink.put(publish.payload);
                Ok(())
            }
            Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) => {
                sink.put(&ack.id.get().to_be_bytes());
                put_reason(ack.reason, len, &ack.properties, sink)
            }
            Self::Subscribe(Subscribe { id, properties, subscriptions }) => {
                sink.put(&id.get().to_be_bytes());
                put_properties(len, properties, sink)?;
                subscriptions.put(sink)
            }
            Self::Unsubscribe(Unsubscribe { id, properties, filters }) => {
                sink.put(&id.get().to_be_bytes());
                put_properties(len, properties, sink)?;
                filters.put(sink)
            }
            Self::SubAck(Acks { id, properties, reasons })
            | Self::UnsubAck(Acks { id, properties, reasons }) => {
                sink.put(&id.get().to_be_bytes());
                put_properties(len, properties, sink)?;
                sink.put(reasons);
                Ok(())
            }
            Self::PingReq | Self::PingResp => Ok(()),
            // The property length is written even if it is 0: rumqttc does not read a reason
            // code without it.
            Self::Disconnect(Notice { reason, properties }) if *reason != Reason::SUCCESS => {
                sink.put(&[reason.0]);
                put_properties(len, properties, sink)
            }
            Self::Disconnect(Notice { reason, properties })
            | Self::Auth(Notice { reason, properties }) => {
                put_reason(*reason, len, properties, sink)
            }
        }
    }
}

impl<P: Encode> Connect<'_, P> {
    fn put<S: Sink>(&self, len: usize, sink: &mut S) -> Result<(), Unwritable> {
        put_binary(sink, b"MQTT")?;
        let will = self
            .will
            .as_ref()
            .map_or(0, |will| 0x04 | (will.qos as u8) << 3 | if will.retain { 0x20 } else { 0 });
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let flags = flag(self.clean_start, 0x02)
            | will
            | flag(self.password.is_some(), 0x40)
            | flag(self.user_name.is_some(), 0x80);
        sink.put(&[LEVEL, flags]);
        sink.put(&self.keep_alive.to_be_bytes());
        put_properties(len, &self.properties, sink)?;
        put_binary(sink, self.client_id.as_bytes())?;
        if let Some(will) = &self.will {
            put_properties(properties_len(&will.properties)?, &will.properties, sink)?;
            put_binary(sink, will.topic.as_bytes())?;
            put_binary(sink, will.payload)?;
        }
        if let Some(name) = self.user_name {
            put_binary(sink, name.as_bytes())?;
        }
        if let Some(password) = self.password {
            put_binary(sink, password)?;
        }
        Ok(())
    }
}

/// The length of a packet without its fixed header, and of its properties, in bytes.
struct Lengths {
    body: usize,
    properties: usize,
}

impl Lengths {
    /// The length of the whole packet.
    const fn packet(&self) -> usize {
        1 + varint_len(self.body) + self.body
    }
}

fn properties_len(properties: &impl Encode) -> Result<usize, Unwritable> {
    let mut length = Length::default();
    properties.put(&mut length)?;
    Ok(length.0)
}

/// Writes the length of the properties and the properties.
fn put_properties<P: Encode, S: Sink>(
    len: usize,
    properties: &P,
    sink: &mut S,
) -> Result<(), Unwritable> {
    put_varint(sink, len)?;
    if sink.skip(len) { Ok(()) } else { properties.put(sink) }
}

/// Writes reason code and properties. Defaults at the end of a packet are omitted: an absent
/// reason code means success.
fn put_reason<P: Encode, S: Sink>(
    reason: Reason,
    len: usize,
    properties: &P,
    sink: &mut S,
) -> Result<(), Unwritable> {
    if len > 0 {
        sink.put(&[reason.0]);
        return put_properties(len, properties, sink);
    }
    if reason != Reason::SUCCESS {
        sink.put(&[reason.0]);
    }
    Ok(())
}
