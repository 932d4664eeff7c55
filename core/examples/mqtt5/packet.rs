//! The packets of MQTT 5 as far as this protocol has use for them, read and written without an allocator.
//!
//! Reading knows every property and keeps those that matter. Not here, because a client that subscribes at QoS 1 and
//! offers neither is never sent any: QoS 2, topic aliases, enhanced authentication.

use core::fmt::Display;

use super::wire::{
    Fixed, Length, Malformed, Reader, Sink, Unwritable, put_binary, put_text, put_varint,
};

/// What a CONNECT says. No will, user name or password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Client id.
    pub client_id: &'a str,
    /// Whether a session from before is dropped.
    pub clean_start: bool,
    /// Keep Alive in seconds; zero is none.
    pub keep_alive: u16,
    /// Session Expiry Interval in seconds; zero ends the session with its connection.
    pub session_expiry: u32,
    /// How many QoS 1 messages the broker may send ahead; not zero.
    pub receive_maximum: u16,
    /// Bytes of the largest packet that the broker may send; not zero.
    pub packet_max: u32,
}

/// What a CONNACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck {
    /// Whether the broker had a session for this client.
    pub session_present: bool,
    /// Reason code.
    pub reason: u8,
    /// How many QoS 1 messages the broker takes ahead.
    pub receive_maximum: u16,
    /// Bytes of the largest packet that the broker takes, if it says so.
    pub packet_max: Option<u32>,
    /// Keep Alive in seconds, if the broker wants another than was asked for.
    pub keep_alive: Option<u16>,
    /// The greatest QoS that the broker takes.
    pub qos_max: u8,
}

impl Default for ConnAck {
    /// What counts where a CONNACK says nothing.
    fn default() -> Self {
        Self {
            session_present: false,
            reason: 0,
            receive_maximum: u16::MAX,
            packet_max: None,
            keep_alive: None,
            qos_max: 2,
        }
    }
}

/// A PUBLISH. The last field decides whether it can be written: any [`UserProperties`] can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a, U = ReceivedProperties<'a>> {
    /// Topic name.
    pub topic: &'a str,
    /// Packet id; `None` at QoS 0.
    pub id: Option<u16>,
    /// Whether it may have been sent before.
    pub dup: bool,
    /// Whether the broker had retained it.
    pub retain: bool,
    /// Message expiry interval in seconds.
    pub message_expiry: Option<u32>,
    /// Content type.
    pub content_type: Option<&'a str>,
    /// Response topic.
    pub response_topic: Option<&'a str>,
    /// Correlation data; absent and empty differ.
    pub correlation_data: Option<&'a [u8]>,
    /// Payload.
    pub payload: &'a [u8],
    /// User properties, in order.
    pub user_properties: U,
}

impl<'a, U> Publish<'a, U> {
    /// A PUBLISH with nothing but this.
    pub const fn new(topic: &'a str, id: u16, payload: &'a [u8], user_properties: U) -> Self {
        Self {
            topic,
            id: Some(id),
            dup: false,
            retain: false,
            message_expiry: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            payload,
            user_properties,
        }
    }
}

/// User properties to be written.
pub trait UserProperties {
    /// Shows each of them, in order, the same at every call.
    ///
    /// # Errors
    /// Those of `visit`, at the first of them.
    fn each(
        &self,
        visit: &mut dyn FnMut(&str, &dyn Display) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable>;
}

/// The user properties of a received PUBLISH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedProperties<'a>(Reader<'a>);

impl<'a> Iterator for ReceivedProperties<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        // They were read once already, so none of them fails now.
        while let Ok((_, value)) = property(&mut self.0) {
            if let Value::Pair(name, text) = value {
                return Some((name, text));
            }
        }
        None
    }
}

impl UserProperties for ReceivedProperties<'_> {
    fn each(
        &self,
        visit: &mut dyn FnMut(&str, &dyn Display) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        { *self }.try_for_each(|(name, value)| visit(name, &value))
    }
}

impl<V: Display> UserProperties for [(&str, V)] {
    fn each(
        &self,
        visit: &mut dyn FnMut(&str, &dyn Display) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        self.iter().try_for_each(|(name, value)| visit(name, value))
    }
}

impl<U: UserProperties + ?Sized> UserProperties for &U {
    fn each(
        &self,
        visit: &mut dyn FnMut(&str, &dyn Display) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        (**self).each(visit)
    }
}

/// A PUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PubAck {
    /// Packet id of the PUBLISH.
    pub id: u16,
    /// Reason code.
    pub reason: u8,
}

/// A SUBSCRIBE to one filter, at QoS 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Packet id.
    pub id: u16,
    /// Topic filter.
    pub filter: &'a str,
}

/// The SUBACK for one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAck {
    /// Packet id of the SUBSCRIBE.
    pub id: u16,
    /// Reason code.
    pub reason: u8,
}

/// Any packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a, U = ReceivedProperties<'a>> {
    /// CONNECT
    Connect(Connect<'a>),
    /// CONNACK
    ConnAck(ConnAck),
    /// PUBLISH
    Publish(Publish<'a, U>),
    /// PUBACK
    PubAck(PubAck),
    /// SUBSCRIBE
    Subscribe(Subscribe<'a>),
    /// SUBACK
    SubAck(SubAck),
    /// PINGREQ
    PingReq,
    /// PINGRESP
    PingResp,
    /// DISCONNECT, with its reason code
    Disconnect(u8),
}

/// Bytes of the packet that these begin with; `None` while that cannot be said. `max` is the longest that is agreed.
///
/// # Errors
/// [`Malformed::Varint`], and [`Malformed::TooLarge`] before a byte of the packet needs to be kept.
pub fn frame_len(bytes: &[u8], max: usize) -> Result<Option<usize>, Malformed> {
    let mut reader = Reader::new(bytes.get(1..).unwrap_or_default());
    let body = match reader.varint() {
        Ok(body) => usize::try_from(body).unwrap_or(usize::MAX),
        Err(Malformed::Truncated) => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = body.saturating_add(bytes.len() - reader.rest().len());
    if len > max { Err(Malformed::TooLarge { len }) } else { Ok(Some(len)) }
}

impl<'a> Packet<'a> {
    /// Reads one whole packet, of exactly the length that [`frame_len`] says.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let first = reader.byte()?;
        let mut body = reader.block()?;
        reader.end()?;
        let packet = match first {
            0x10 => Self::Connect(read_connect(&mut body)?),
            0x20 => Self::ConnAck(read_connack(&mut body)?),
            0x30..=0x3f => Self::Publish(read_publish(first, &mut body)?),
            0x40 => {
                let id = packet_id(&mut body)?;
                Self::PubAck(PubAck { id, reason: reason_and_properties(&mut body)? })
            }
            0x82 => Self::Subscribe(read_subscribe(&mut body)?),
            0x90 => {
                let id = packet_id(&mut body)?;
                skip_properties(&mut body)?;
                Self::SubAck(SubAck { id, reason: body.byte()? })
            }
            0xc0 => Self::PingReq,
            0xd0 => Self::PingResp,
            0xe0 => Self::Disconnect(reason_and_properties(&mut body)?),
            other => return Err(Malformed::Type(other)),
        };
        body.end()?;
        Ok(packet)
    }
}

impl<U: UserProperties> Packet<'_, U> {
    /// Bytes of the whole packet.
    ///
    /// # Errors
    /// [`Unwritable::TooLong`].
    pub fn encoded_len(&self) -> Result<usize, Unwritable> {
        let mut length = Length::default();
        self.put(self.body_len()?, &mut length)?;
        Ok(length.0)
    }

    /// Writes the packet to the start of `out` and returns its length; `out` is untouched when that fails.
    ///
    /// # Errors
    /// [`Unwritable`].
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, Unwritable> {
        let needed = self.encoded_len()?;
        let out = out.get_mut(..needed).ok_or(Unwritable::NoRoom { needed })?;
        self.put(self.body_len()?, &mut Fixed::new(out))?;
        Ok(needed)
    }

    fn body_len(&self) -> Result<usize, Unwritable> {
        let mut length = Length::default();
        self.put_body(&mut length)?;
        Ok(length.0)
    }

    fn put(&self, body_len: usize, sink: &mut impl Sink) -> Result<(), Unwritable> {
        sink.put(&[self.first()]);
        put_varint(sink, body_len)?;
        self.put_body(sink)
    }

    fn first(&self) -> u8 {
        match self {
            Self::Connect(_) => 0x10,
            Self::ConnAck(_) => 0x20,
            Self::Publish(publish) => {
                let flag = |set, bit| if set { bit } else { 0 };
                let qos_1 = flag(publish.id.is_some(), 0x02);
                0x30 | flag(publish.dup, 0x08) | qos_1 | flag(publish.retain, 0x01)
            }
            Self::PubAck(_) => 0x40,
            Self::Subscribe(_) => 0x82,
            Self::SubAck(_) => 0x90,
            Self::PingReq => 0xc0,
            Self::PingResp => 0xd0,
            Self::Disconnect(_) => 0xe0,
        }
    }

    fn put_body(&self, sink: &mut impl Sink) -> Result<(), Unwritable> {
        match self {
            Self::Connect(connect) => return put_connect(connect, sink),
            Self::ConnAck(connack) => return put_connack(connack, sink),
            Self::Publish(publish) => return put_publish(publish, sink),
            Self::PubAck(PubAck { id, reason }) => {
                sink.put(&id.to_be_bytes());
                // Success is understood where nothing is said.
                sink.put(if *reason == 0 { &[] } else { core::slice::from_ref(reason) });
            }
            Self::Subscribe(Subscribe { id, filter }) => {
                sink.put(&id.to_be_bytes());
                put_varint(sink, 0)?;
                put_text(sink, filter)?;
                sink.put(&[1]);
            }
            Self::SubAck(SubAck { id, reason }) => {
                sink.put(&id.to_be_bytes());
                put_varint(sink, 0)?;
                sink.put(&[*reason]);
            }
            Self::PingReq | Self::PingResp => {}
            Self::Disconnect(reason) => sink.put(&[*reason]),
        }
        Ok(())
    }
}

/// The value of a property, by how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Byte(u8),
    Two(u16),
    Four(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

mod id {
    pub(super) const MESSAGE_EXPIRY: u8 = 0x02;
    pub(super) const CONTENT_TYPE: u8 = 0x03;
    pub(super) const RESPONSE_TOPIC: u8 = 0x08;
    pub(super) const CORRELATION_DATA: u8 = 0x09;
    pub(super) const SUBSCRIPTION: u8 = 0x0b;
    pub(super) const SESSION_EXPIRY: u8 = 0x11;
    pub(super) const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub(super) const RECEIVE_MAXIMUM: u8 = 0x21;
    pub(super) const TOPIC_ALIAS: u8 = 0x23;
    pub(super) const QOS_MAX: u8 = 0x24;
    pub(super) const USER: u8 = 0x26;
    pub(super) const PACKET_MAX: u8 = 0x27;
}

/// Reads one property of any packet.
fn property<'a>(reader: &mut Reader<'a>) -> Result<(u8, Value<'a>), Malformed> {
    // An identifier is a variable byte integer, and all that there are take one byte.
    let id = reader.byte()?;
    let value = match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => Value::Byte(reader.byte()?),
        0x13 | 0x21 | 0x22 | 0x23 => Value::Two(reader.two()?),
        0x02 | 0x11 | 0x18 | 0x27 => Value::Four(reader.four()?),
        id::SUBSCRIPTION => Value::Four(reader.varint()?),
        0x03 | 0x08 | 0x12 | 0x15 | 0x1a | 0x1c | 0x1f => Value::Text(reader.text()?),
        0x09 | 0x16 => Value::Binary(reader.binary()?),
        id::USER => Value::Pair(reader.text()?, reader.text()?),
        _ => return Err(Malformed::Property(id)),
    };
    Ok((id, value))
}

/// Shows every property of a packet, and refuses those that come twice and may not.
fn properties<'a>(
    body: &mut Reader<'a>,
    mut visit: impl FnMut(u8, Value<'a>) -> Result<(), Malformed>,
) -> Result<Reader<'a>, Malformed> {
    let all = body.block()?;
    let (mut rest, mut seen) = (all, 0_u64);
    while !rest.is_empty() {
        let (id, value) = property(&mut rest)?;
        let bit = 1_u64 << (id & 0x3f);
        if seen & bit != 0 && !matches!(id, id::USER | id::SUBSCRIPTION) {
            return Err(Malformed::Twice(id));
        }
        seen |= bit;
        visit(id, value)?;
    }
    Ok(all)
}

fn skip_properties(body: &mut Reader<'_>) -> Result<(), Malformed> {
    properties(body, |_, _| Ok(())).map(|_| ())
}

/// The end of a PUBACK or DISCONNECT: a reason code that may be missing, and properties that may be missing.
fn reason_and_properties(body: &mut Reader<'_>) -> Result<u8, Malformed> {
    if body.is_empty() {
        return Ok(0);
    }
    let reason = body.byte()?;
    if !body.is_empty() {
        skip_properties(body)?;
    }
    Ok(reason)
}

fn packet_id(body: &mut Reader<'_>) -> Result<u16, Malformed> {
    body.two().and_then(|id| if id == 0 { Err(Malformed::Value) } else { Ok(id) })
}

fn read_connect<'a>(body: &mut Reader<'a>) -> Result<Connect<'a>, Malformed> {
    let (name, version, flags) = (body.text()?, body.byte()?, body.byte()?);
    // Wills, names and passwords are not of this codec.
    if name != "MQTT" || version != 5 || flags & !0x02 != 0 {
        return Err(Malformed::Value);
    }
    let mut connect = Connect {
        client_id: "",
        clean_start: flags & 0x02 != 0,
        keep_alive: body.two()?,
        session_expiry: 0,
        receive_maximum: u16::MAX,
        packet_max: u32::MAX,
    };
    properties(body, |id, value| {
        match (id, value) {
            (id::SESSION_EXPIRY, Value::Four(seconds)) => connect.session_expiry = seconds,
            (id::RECEIVE_MAXIMUM, Value::Two(0)) | (id::PACKET_MAX, Value::Four(0)) => {
                return Err(Malformed::Value);
            }
            (id::RECEIVE_MAXIMUM, Value::Two(number)) => connect.receive_maximum = number,
            (id::PACKET_MAX, Value::Four(bytes)) => connect.packet_max = bytes,
            _ => {}
        }
        Ok(())
    })?;
    connect.client_id = body.text()?;
    Ok(connect)
}

fn put_connect(connect: &Connect<'_>, sink: &mut impl Sink) -> Result<(), Unwritable> {
    put_text(sink, &"MQTT")?;
    sink.put(&[5, if connect.clean_start { 0x02 } else { 0 }]);
    sink.put(&connect.keep_alive.to_be_bytes());
    put_varint(sink, 5 + 3 + 5)?;
    sink.put(&[id::SESSION_EXPIRY]);
    sink.put(&connect.session_expiry.to_be_bytes());
    sink.put(&[id::RECEIVE_MAXIMUM]);
    sink.put(&connect.receive_maximum.to_be_bytes());
    sink.put(&[id::PACKET_MAX]);
    sink.put(&connect.packet_max.to_be_bytes());
    put_text(sink, &connect.client_id)
}

fn read_connack(body: &mut Reader<'_>) -> Result<ConnAck, Malformed> {
    let (flags, reason) = (body.byte()?, body.byte()?);
    if flags & !0x01 != 0 {
        return Err(Malformed::Value);
    }
    let mut connack = ConnAck { session_present: flags != 0, reason, ..ConnAck::default() };
    properties(body, |id, value| {
        match (id, value) {
            (id::RECEIVE_MAXIMUM, Value::Two(0)) | (id::PACKET_MAX, Value::Four(0)) => {
                return Err(Malformed::Value);
            }
            (id::RECEIVE_MAXIMUM, Value::Two(number)) => connack.receive_maximum = number,
            (id::PACKET_MAX, Value::Four(bytes)) => connack.packet_max = Some(bytes),
            (id::SERVER_KEEP_ALIVE, Value::Two(seconds)) => connack.keep_alive = Some(seconds),
            (id::QOS_MAX, Value::Byte(qos @ 0..=1)) => connack.qos_max = qos,
            (id::QOS_MAX, _) => return Err(Malformed::Value),
            _ => {}
        }
        Ok(())
    })?;
    Ok(connack)
}

fn put_connack(connack: &ConnAck, sink: &mut impl Sink) -> Result<(), Unwritable> {
    let own = |sink: &mut dyn FnMut(&[u8])| {
        if connack.receive_maximum != u16::MAX {
            sink(&[id::RECEIVE_MAXIMUM]);
            sink(&connack.receive_maximum.to_be_bytes());
        }
        if let Some(bytes) = connack.packet_max {
            sink(&[id::PACKET_MAX]);
            sink(&bytes.to_be_bytes());
        }
        if let Some(seconds) = connack.keep_alive {
            sink(&[id::SERVER_KEEP_ALIVE]);
            sink(&seconds.to_be_bytes());
        }
        if connack.qos_max < 2 {
            sink(&[id::QOS_MAX, connack.qos_max]);
        }
    };
    sink.put(&[u8::from(connack.session_present), connack.reason]);
    let mut length = Length::default();
    own(&mut |bytes| length.put(bytes));
    put_varint(sink, length.0)?;
    own(&mut |bytes| sink.put(bytes));
    Ok(())
}

fn read_publish<'a>(first: u8, body: &mut Reader<'a>) -> Result<Publish<'a>, Malformed> {
    let topic = body.text()?;
    let id = match first & 0x06 {
        0x00 => None,
        0x02 => Some(packet_id(body)?),
        _ => return Err(Malformed::Type(first)),
    };
    // Without a topic there would have to be an alias, and none was offered.
    if topic.is_empty() || (id.is_none() && first & 0x08 != 0) {
        return Err(Malformed::Value);
    }
    let mut publish = Publish::new(topic, 0, &[], ReceivedProperties::default());
    publish.id = id;
    publish.dup = first & 0x08 != 0;
    publish.retain = first & 0x01 != 0;
    let all = properties(body, |id, value| {
        match (id, value) {
            (id::MESSAGE_EXPIRY, Value::Four(seconds)) => publish.message_expiry = Some(seconds),
            (id::CONTENT_TYPE, Value::Text(text)) => publish.content_type = Some(text),
            (id::RESPONSE_TOPIC, Value::Text(text)) => publish.response_topic = Some(text),
            (id::CORRELATION_DATA, Value::Binary(data)) => publish.correlation_data = Some(data),
            (id::TOPIC_ALIAS, _) => return Err(Malformed::Value),
            _ => {}
        }
        Ok(())
    })?;
    publish.user_properties = ReceivedProperties(all);
    publish.payload = body.rest();
    Ok(publish)
}

fn put_publish<U: UserProperties>(
    publish: &Publish<'_, U>,
    sink: &mut impl Sink,
) -> Result<(), Unwritable> {
    put_text(sink, &publish.topic)?;
    if let Some(id) = publish.id {
        sink.put(&id.to_be_bytes());
    }
    let mut length = Length::default();
    put_publish_properties(publish, &mut length)?;
    put_varint(sink, length.0)?;
    put_publish_properties(publish, sink)?;
    sink.put(publish.payload);
    Ok(())
}

fn put_publish_properties<U: UserProperties>(
    publish: &Publish<'_, U>,
    sink: &mut impl Sink,
) -> Result<(), Unwritable> {
    if let Some(seconds) = publish.message_expiry {
        sink.put(&[id::MESSAGE_EXPIRY]);
        sink.put(&seconds.to_be_bytes());
    }
    if let Some(text) = publish.content_type {
        sink.put(&[id::CONTENT_TYPE]);
        put_text(sink, &text)?;
    }
    if let Some(topic) = publish.response_topic {
        sink.put(&[id::RESPONSE_TOPIC]);
        put_text(sink, &topic)?;
    }
    if let Some(data) = publish.correlation_data {
        sink.put(&[id::CORRELATION_DATA]);
        put_binary(sink, data)?;
    }
    publish.user_properties.each(&mut |name, value| {
        sink.put(&[id::USER]);
        put_text(sink, &name)?;
        put_text(sink, value)
    })
}

fn read_subscribe<'a>(body: &mut Reader<'a>) -> Result<Subscribe<'a>, Malformed> {
    let id = packet_id(body)?;
    skip_properties(body)?;
    let filter = body.text()?;
    if filter.is_empty() || body.byte()? != 1 {
        return Err(Malformed::Value);
    }
    Ok(Subscribe { id, filter })
}
