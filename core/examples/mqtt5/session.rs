//! One MQTT 5 connection without its socket: bytes and packets to be sent in, bytes to be written and news out.
//!
//! A [`Session`] lives as long as its connection. What it holds when that is lost is dropped with it, as the
//! [loop](statestore_proto::machine) asks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display};
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_mqtt::packet::{
    Ack, Acks, ConnAck, Connect, Header, Notice, Packet, Publish, Subscribe, Subscription,
    SubscriptionOptions, Subscriptions,
};
use statestore_mqtt::property::{Encode, Properties, Property, id};
use statestore_mqtt::wire::{Sink, put_binary, put_text};
use statestore_mqtt::{Malformed, Qos as PacketQos, Reason, Unwritable};
use statestore_proto::mqtt::{
    self, Correlation, Delivery, Incoming, PublishToken, Qos, ReasonCode, SubscribeToken, Transmit,
};
use statestore_proto::time::Instant;

/// Bytes that may wait to be written before there is no room for another packet. One packet may go beyond it.
const OUTPUT_MAX: usize = 64 * 1024;

/// How many times the Receive Maximum may wait here. Once would do for a broker that keeps to it; mosquitto 2.0 sends as
/// many more for each that is acknowledged. A broker that goes beyond this is disconnected, and sends again.
const HELD_FACTOR: usize = 4;

/// How a client connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Client id.
    pub client_id: String,
    /// Whether a session from before is dropped.
    pub clean_start: bool,
    /// For how many seconds the broker keeps the session without a connection.
    pub session_expiry: u32,
    /// Keep Alive in seconds; zero is none. The broker may decide otherwise.
    pub keep_alive: u16,
    /// How many messages the broker may send ahead; at least one.
    pub receive_maximum: u16,
    /// Bytes of the largest packet that is taken.
    pub packet_max: u32,
    /// Whether messages are acknowledged by [`Transmit::Acknowledge`] only, rather than when they are handed over.
    pub acknowledges_by_hand: bool,
    /// How long the broker has to answer a CONNECT or a PINGREQ.
    pub patience: Duration,
}

impl Options {
    /// Those of a client that keeps nothing between connections.
    #[must_use]
    pub fn new(client_id: impl Into<String>) -> Self {
        Self {
            client_id: client_id.into(),
            clean_start: true,
            session_expiry: 0,
            keep_alive: 30,
            receive_maximum: 64,
            packet_max: 1 << 20,
            acknowledges_by_hand: false,
            patience: Duration::from_secs(10),
        }
    }
}

/// What happened on a connection.
#[derive(Clone, Debug)]
pub enum News {
    /// The broker has accepted the connection.
    Connected {
        /// Whether it had a session for this client.
        session_present: bool,
    },
    /// A SUBACK.
    Subscribed(SubscribeToken, ReasonCode),
    /// A PUBACK, or why the packet was not sent.
    Published(PublishToken, ReasonCode),
    /// There is [room](Session::has_room) again, after there was none: the machine may have packets that waited for it.
    Room,
    /// A message.
    Message(Message),
}

/// A received PUBLISH that was checked to be one.
#[derive(Clone, Debug)]
pub struct Message {
    frame: Bytes,
    arrived: Instant,
    delivery: Option<Delivery>,
}

impl Message {
    /// Shows it as the machines take it.
    pub fn show<T>(&self, to: impl FnOnce(&Incoming<'_>) -> T) -> Option<T> {
        let Ok(Packet::Publish(publish)) = Packet::decode(&self.frame) else { return None };
        let payload = self.frame.slice_ref(publish.payload);
        let mut incoming = Incoming::new(publish.topic, &payload);
        incoming.qos = if publish.id.is_some() { Qos::AtLeastOnce } else { Qos::AtMostOnce };
        incoming.retain = publish.retain;
        incoming.arrived = Some(self.arrived);
        incoming.delivery = self.delivery;
        for property in &publish.properties {
            match property {
                Property::ResponseTopic(topic) => incoming.response_topic = Some(topic),
                Property::CorrelationData(data) => incoming.correlation_data = Some(data),
                Property::MessageExpiry(seconds) => incoming.message_expiry = Some(seconds),
                Property::User(name, value) => incoming.user_property(name, value),
                _ => {}
            }
        }
        Some(to(&incoming))
    }
}

/// Why a connection is over.
#[derive(Debug)]
pub enum Error {
    /// The socket says so.
    Io(std::io::Error),
    /// The broker closed the connection without a word.
    Closed,
    /// The broker does not answer.
    Silent,
    /// The broker refused the CONNECT.
    Refused(ReasonCode),
    /// The broker sent a DISCONNECT.
    Disconnected(ReasonCode),
    /// The broker sent what is no packet.
    Malformed(Malformed),
    /// The broker sent a packet that has no place there.
    Protocol(&'static str),
    /// The broker sent more than it was allowed.
    TooMany,
    /// The CONNECT cannot be written.
    Options(Unwritable),
}

impl Error {
    /// What to tell the broker in a DISCONNECT, when it is to blame.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Malformed(error) => Some(error.reason()),
            Self::Protocol(_) => Some(Reason::PROTOCOL_ERROR),
            Self::TooMany => Some(Reason::RECEIVE_MAXIMUM_EXCEEDED),
            Self::Io(_)
            | Self::Closed
            | Self::Silent
            | Self::Refused(_)
            | Self::Disconnected(_)
            | Self::Options(_) => None,
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => Display::fmt(error, f),
            Self::Closed => f.write_str("the broker closed the connection"),
            Self::Silent => f.write_str("the broker does not answer"),
            Self::Refused(reason) => write!(f, "the broker refused the connection: {reason}"),
            Self::Disconnected(reason) => write!(f, "the broker disconnected: {reason}"),
            Self::Malformed(error) => write!(f, "a packet of the broker cannot be read: {error}"),
            Self::Protocol(what) => write!(f, "the broker sent {what}"),
            Self::TooMany => f.write_str("the broker sent more messages than it was allowed"),
            Self::Options(error) => write!(f, "the CONNECT cannot be written: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

/// What a packet id is in use for.
#[derive(Clone, Copy, Debug)]
enum InUse {
    Subscribe(SubscribeToken),
    Publish(Option<PublishToken>),
}

/// What the broker said at the start.
#[derive(Clone, Copy, Debug)]
struct Broker {
    /// How many QoS 1 messages it takes ahead.
    receive_maximum: u16,
    /// Bytes of the largest packet that it takes.
    packet_max: u32,
    /// Keep Alive in seconds, if it wants another than was asked for.
    keep_alive: Option<u16>,
}

/// One connection, as far as MQTT goes. See the [module documentation](self).
#[derive(Debug)]
pub struct Session {
    options: Options,
    /// Distinguishes deliveries of this connection from those of others.
    number: u64,
    /// `None` before the broker has said it.
    broker: Option<Broker>,
    input: BytesMut,
    output: BytesMut,
    in_use: BTreeMap<NonZeroU16, InUse>,
    last_id: NonZeroU16,
    /// PUBLISH packets without a PUBACK.
    in_flight: u16,
    /// Whether the last packet took the last room, and nothing was told since.
    starved: bool,
    news: VecDeque<News>,
    /// Messages that were not handed over yet.
    held: VecDeque<Message>,
    last_sent: Instant,
    /// When the broker must have answered.
    answer_by: Option<Instant>,
}

impl Session {
    /// A connection that was just made. `number` is another for each connection of a client.
    ///
    /// # Errors
    /// [`Error::Options`] when the client id is too long.
    pub fn new(now: Instant, number: u64, mut options: Options) -> Result<Self, Error> {
        options.receive_maximum = options.receive_maximum.max(1);
        options.packet_max = options.packet_max.max(1);
        let answer_by = Some(now + options.patience);
        let mut session = Self {
            options,
            number,
            broker: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
            in_use: BTreeMap::new(),
            last_id: NonZeroU16::MAX,
            in_flight: 0,
            starved: false,
            news: VecDeque::new(),
            held: VecDeque::new(),
            last_sent: now,
            answer_by,
        };
        let options = session.options.clone();
        let properties = [
            Property::SessionExpiry(options.session_expiry),
            Property::ReceiveMaximum(options.receive_maximum),
            Property::MaximumPacketSize(options.packet_max),
        ];
        let connect = Connect {
            clean_start: options.clean_start,
            keep_alive: options.keep_alive,
            properties: &properties[..],
            client_id: &options.client_id,
            will: None,
            user_name: None,
            password: None,
        };
        session.write(&Packet::Connect(connect)).map_err(Error::Options)?;
        Ok(session)
    }

    /// Whether another packet may be sent now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let allowed = self.broker.map_or(0, |broker| broker.receive_maximum);
        // A packet id is always free then, since subscriptions are few.
        self.in_flight < allowed && self.in_use.len() < 0xff00 && self.output.len() < OUTPUT_MAX
    }

    /// Takes a packet to be sent. Call it only while there is [room](Self::has_room).
    ///
    /// One that is larger than the broker takes is not sent, and reported as refused if it has a token: a request of a
    /// client has one, an answer of a store has not, and its requester runs into its time limit.
    pub fn send(&mut self, transmit: &Transmit) {
        match transmit {
            Transmit::Subscribe { filter, token } => {
                let id = self.free_id();
                let qos = PacketQos::AtLeastOnce;
                let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
                let list = [Subscription { filter, options }];
                let subscriptions = Subscriptions::new(&list);
                let packet = Packet::Subscribe(Subscribe { id, properties: (), subscriptions });
                if self.write_if_taken(&packet) {
                    self.in_use.insert(id, InUse::Subscribe(*token));
                } else {
                    self.news.push_back(News::Subscribed(*token, ReasonCode::PACKET_TOO_LARGE));
                }
            }
            Transmit::Publish(publish) => {
                let id = self.free_id();
                if self.write_if_taken(&Packet::Publish(to_packet(publish, id))) {
                    self.in_use.insert(id, InUse::Publish(publish.token));
                    self.in_flight = self.in_flight.saturating_add(1);
                } else if let Some(token) = publish.token {
                    self.news.push_back(News::Published(token, ReasonCode::PACKET_TOO_LARGE));
                }
            }
            Transmit::Acknowledge(delivery) => self.acknowledge(*delivery),
            // Only a broker can disconnect somebody else.
            Transmit::Disconnect { .. } => {}
        }
        self.starved = !self.has_room();
    }

    /// What is to be written to the socket; [`written`](Self::written) says how much was.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Says that so much of the output was written.
    pub fn written(&mut self, now: Instant, len: usize) {
        let _ = self.output.split_to(len.min(self.output.len()));
        self.last_sent = now;
    }

    /// Takes bytes that were read from the socket.
    ///
    /// # Errors
    /// [`Error`], after which the connection is of no more use.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        self.input.extend_from_slice(bytes);
        let max = usize::try_from(self.options.packet_max).unwrap_or(usize::MAX);
        while let Some(Header { len, .. }) = Header::read(&self.input, max)? {
            if self.input.len() < len {
                break;
            }
            let frame = self.input.split_to(len).freeze();
            self.handle_frame(now, &frame)?;
        }
        Ok(())
    }

    fn handle_frame(&mut self, now: Instant, frame: &Bytes) -> Result<(), Error> {
        let packet = Packet::decode(frame)?;
        if self.broker.is_none() {
            return match packet {
                Packet::ConnAck(connack) => self.connected(connack),
                _ => Err(Error::Protocol("something else than a CONNACK")),
            };
        }
        match packet {
            Packet::Publish(publish) => self.take(now, frame, &publish)?,
            Packet::PubAck(Ack { id, reason, .. }) => match self.in_use.remove(&id) {
                Some(InUse::Publish(token)) => {
                    self.in_flight = self.in_flight.saturating_sub(1);
                    let told = token.map(|token| News::Published(token, ReasonCode(reason.0)));
                    self.news.extend(told);
                }
                _ => return Err(Error::Protocol("a PUBACK for nothing")),
            },
            Packet::SubAck(Acks { id, reasons, .. }) => match (self.in_use.remove(&id), reasons) {
                (Some(InUse::Subscribe(token)), [reason]) => {
                    self.news.push_back(News::Subscribed(token, ReasonCode(*reason)));
                }
                _ => return Err(Error::Protocol("a SUBACK for nothing")),
            },
            Packet::PingResp => self.answer_by = None,
            Packet::Disconnect(Notice { reason, .. }) => {
                return Err(Error::Disconnected(ReasonCode(reason.0)));
            }
            _ => return Err(Error::Protocol("a packet that nobody asked for")),
        }
        Ok(())
    }

    fn connected(&mut self, connack: ConnAck<Properties<'_>>) -> Result<(), Error> {
        let ConnAck { session_present, reason, properties } = connack;
        if reason.is_error() {
            return Err(Error::Refused(ReasonCode(reason.0)));
        }
        // What counts where a CONNACK says nothing.
        let mut broker =
            Broker { receive_maximum: u16::MAX, packet_max: u32::MAX, keep_alive: None };
        for property in &properties {
            match property {
                Property::ReceiveMaximum(number) => broker.receive_maximum = number,
                Property::MaximumPacketSize(bytes) => broker.packet_max = bytes,
                Property::ServerKeepAlive(seconds) => broker.keep_alive = Some(seconds),
                Property::MaximumQos(PacketQos::AtMostOnce) => {
                    return Err(Error::Protocol("a CONNACK without QoS 1"));
                }
                _ => {}
            }
        }
        if session_present && self.options.clean_start {
            return Err(Error::Protocol("a session that was not to be kept"));
        }
        self.broker = Some(broker);
        self.answer_by = None;
        self.news.push_back(News::Connected { session_present });
        Ok(())
    }

    /// Keeps a message until there is room for it.
    fn take(&mut self, now: Instant, frame: &Bytes, publish: &Publish<'_>) -> Result<(), Error> {
        let is_alias = |property| matches!(property, Property::TopicAlias(_)).then_some(());
        if publish.qos == PacketQos::ExactlyOnce || publish.properties.find(is_alias).is_some() {
            return Err(Error::Protocol("a message at QoS 2 or with a topic alias"));
        }
        let most = usize::from(self.options.receive_maximum) * HELD_FACTOR;
        if self.held.len() >= most {
            // Nobody counts on a message at QoS 0.
            return if publish.id.is_none() { Ok(()) } else { Err(Error::TooMany) };
        }
        let delivery = publish.id.map(|id| Delivery((self.number << 16) | u64::from(id.get())));
        self.held.push_back(Message { frame: frame.clone(), arrived: now, delivery });
        Ok(())
    }

    /// What happened next. Messages are left where they are unless they are wanted.
    pub fn poll(&mut self, wants_messages: bool) -> Option<News> {
        if let Some(news) = self.news.pop_front() {
            return Some(news);
        }
        if self.starved && self.has_room() {
            self.starved = false;
            return Some(News::Room);
        }
        if !wants_messages {
            return None;
        }
        let mut message = self.held.pop_front()?;
        if !self.options.acknowledges_by_hand {
            if let Some(delivery) = message.delivery.take() {
                self.acknowledge(delivery);
            }
        }
        Some(News::Message(message))
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.answer_by.or_else(|| Some(self.last_sent + self.ping_after()?))
    }

    /// Asks whether the broker is still there, when it is time to.
    ///
    /// # Errors
    /// [`Error::Silent`] when it has not answered.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return Ok(());
        }
        if self.answer_by.is_some() {
            return Err(Error::Silent);
        }
        self.answer_by = Some(now + self.options.patience);
        self.write(&Packet::<()>::PingReq).map_err(Error::Options)
    }

    /// How long after a packet the next one is due: well before the broker, at one and a half times Keep Alive, gives up.
    fn ping_after(&self) -> Option<Duration> {
        let seconds = self.broker?.keep_alive.unwrap_or(self.options.keep_alive);
        (seconds > 0).then(|| Duration::from_millis(u64::from(seconds) * 750))
    }

    fn acknowledge(&mut self, delivery: Delivery) {
        // The broker of another connection has forgotten its packet ids, or uses them for something else.
        let id = u16::try_from(delivery.0 ^ (self.number << 16)).ok().and_then(NonZeroU16::new);
        let Some(id) = id else { return };
        // A packet of four bytes always fits.
        let _ = self.write(&Packet::PubAck(Ack { id, reason: Reason::SUCCESS, properties: () }));
    }

    /// A packet id that is not in use: there is one while there is [room](Self::has_room).
    fn free_id(&mut self) -> NonZeroU16 {
        for _ in 0..=self.in_use.len() {
            self.last_id = self.last_id.checked_add(1).unwrap_or(NonZeroU16::MIN);
            if !self.in_use.contains_key(&self.last_id) {
                break;
            }
        }
        self.last_id
    }

    /// Writes a packet if the broker takes one of its size; whether it does.
    fn write_if_taken<P: Encode>(&mut self, packet: &Packet<'_, P>) -> bool {
        let max = self.broker.map_or(u32::MAX, |broker| broker.packet_max);
        let len = packet.encoded_len().ok().and_then(|len| u32::try_from(len).ok());
        len.is_some_and(|len| len <= max) && self.write(packet).is_ok()
    }

    fn write<P: Encode>(&mut self, packet: &Packet<'_, P>) -> Result<(), Unwritable> {
        let start = self.output.len();
        self.output.resize(start + packet.encoded_len()?, 0);
        packet.encode_into(self.output.get_mut(start..).unwrap_or_default()).map(|_| ())
    }
}

/// A PUBLISH of a machine as a packet.
fn to_packet(publish: &mqtt::Publish, id: NonZeroU16) -> Publish<'_, Told<'_>> {
    Publish {
        dup: false,
        qos: PacketQos::AtLeastOnce,
        retain: false,
        topic: &publish.topic,
        id: Some(id),
        properties: Told(publish),
        payload: &publish.payload,
    }
}

/// What a PUBLISH of a machine says in properties.
struct Told<'a>(&'a mqtt::Publish);

impl Encode for Told<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        let Self(publish) = self;
        let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
        publish.message_expiry.map(Property::MessageExpiry).put(sink)?;
        publish.content_type.map(Property::ContentType).put(sink)?;
        publish.response_topic.as_deref().map(Property::ResponseTopic).put(sink)?;
        correlation.map(Property::CorrelationData).put(sink)?;
        publish.user_properties().try_for_each(|(name, value)| {
            sink.put(&[id::USER]);
            put_binary(sink, name.as_bytes())?;
            put_text(sink, &value)
        })
    }
}
