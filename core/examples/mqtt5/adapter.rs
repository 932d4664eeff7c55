//! The adapter between a machine and an MQTT session. Both are sans I/O, and so is the adapter.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display};
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::property::{Encode, Property, id};
use statestore_mqtt::session::{self, Event, Message, Options, SendError, Session};
use statestore_mqtt::wire::{Sink, put_binary, put_text};
use statestore_mqtt::{Qos, Reason, Unwritable};
use statestore_proto::time::Instant;
use statestore_proto::transport::{
    self, Correlation, Delivery, Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit,
};

/// Time for the broker to accept the connection, to respond, and to read.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Capacity of the output in bytes. One packet may exceed it.
const OUTPUT_MAX: usize = 64 * 1024;

/// Bytes of the largest packet of a machine: a value of 1 MiB, and its key, topics and properties.
const PUBLISH_MAX: usize = (1 << 20) + (64 << 10);

/// Messages at QoS 0 that wait for the machine; further ones are dropped. The Receive Maximum
/// bounds the others.
const HELD_MAX: usize = 256;

/// Token of a publish whose PUBACK the machine does not need.
const NO_TOKEN: u64 = u64::MAX;

/// The kind of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client. Its messages are acknowledged when it receives them.
    Client,
    /// A store. Its messages are acknowledged on [`Transmit::Acknowledge`].
    Store,
}

impl Role {
    /// Options of the MQTT session.
    #[must_use]
    pub fn options(self, client_id: &str) -> Options {
        let options = Options::new(client_id)
            .keep_alive(30)
            // Bounds the messages that wait here for the machine. The broker queues the others.
            .receive_maximum(64)
            // mosquitto 2.0 exceeds the maximum when it resumes a session with queued requests.
            .receive_excess(192)
            .manual_acknowledgement(true)
            .output_bytes(OUTPUT_MAX)
            .connect_timeout(TIMEOUT)
            .ping_timeout(TIMEOUT);
        match self {
            // The client itself repeats what a lost connection leaves open.
            Self::Client => options,
            // The broker redelivers requests without an acknowledgement.
            Self::Store => {
                options.clean_start(false).accept_unknown_session(true).session_expiry(3_600)
            }
        }
    }
}

/// The connection was lost.
#[derive(Debug)]
pub enum Error {
    /// Error of the socket.
    Io(std::io::Error),
    /// The MQTT session ended.
    Session(session::Error),
    /// The broker does not support QoS 1.
    QosUnsupported,
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => Display::fmt(error, f),
            Self::Session(error) => Display::fmt(error, f),
            Self::QosUnsupported => f.write_str("the broker does not support QoS 1"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Session(error) => Some(error),
            Self::QosUnsupported => None,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<session::Error> for Error {
    fn from(error: session::Error) -> Self {
        Self::Session(error)
    }
}

/// An event for the machine.
#[derive(Clone, Debug)]
pub enum MachineEvent {
    /// The broker has accepted the connection.
    Connected {
        /// Session Present flag of the CONNACK.
        session_present: bool,
    },
    /// A SUBACK.
    Subscribed(SubscribeToken, ReasonCode),
    /// A PUBACK, or the reason for which the packet was not sent.
    Published(PublishToken, ReasonCode),
    /// The session was full and [has capacity](Adapter::has_capacity) again: poll the machine.
    Writable,
    /// A message.
    Message(Received),
}

/// A received message.
#[derive(Clone, Debug)]
pub struct Received {
    message: Message,
    arrived: Instant,
    delivery: Option<Delivery>,
}

impl Received {
    /// Passes the message to `to` in the form that machines accept.
    pub fn with_incoming<T>(&self, to: impl FnOnce(&Incoming<'_>) -> T) -> T {
        let payload = self.message.payload_bytes();
        let mut incoming = Incoming::new(self.message.topic(), &payload);
        incoming.qos = match self.message.qos() {
            Qos::AtMostOnce => transport::Qos::AtMostOnce,
            Qos::AtLeastOnce => transport::Qos::AtLeastOnce,
            Qos::ExactlyOnce => transport::Qos::ExactlyOnce,
        };
        incoming.retain = self.message.retain();
        incoming.arrived = Some(self.arrived);
        incoming.delivery = self.delivery;
        for property in &self.message.properties() {
            match property {
                Property::ResponseTopic(topic) => incoming.response_topic = Some(topic),
                Property::CorrelationData(data) => incoming.correlation_data = Some(data),
                Property::MessageExpiry(seconds) => incoming.message_expiry = Some(seconds),
                Property::User(name, value) => incoming.user_property(name, value),
                _ => {}
            }
        }
        to(&incoming)
    }
}

/// One connection of a machine. See the [module documentation](self).
///
/// When the connection is lost, its queues are dropped, as the [loop](statestore_proto::machine)
/// requires.
#[derive(Debug)]
pub struct Adapter {
    session: Session,
    role: Role,
    /// Distinguishes deliveries of this connection from those of others.
    number: u64,
    input: BytesMut,
    events: VecDeque<MachineEvent>,
    /// Messages that the machine has not received.
    held: VecDeque<Received>,
    /// Messages that the store has not acknowledged, at most the Receive Maximum.
    deliveries: BTreeMap<Delivery, session::Delivery>,
    /// The session was full after the last packet, and has not yet reported capacity.
    is_blocked: bool,
}

/// The origin of the session's clock is that of the machine's.
fn since_origin(now: Instant) -> Duration {
    now.duration_since(Instant::default())
}

impl Adapter {
    /// Starts the session of a new connection. Each connection of a machine needs another `number`.
    ///
    /// # Errors
    /// [`session::Error::Options`] if the options are invalid.
    pub fn new(now: Instant, number: u64, role: Role, options: Options) -> Result<Self, Error> {
        options.check().map_err(session::Error::Options)?;
        let mut session = Session::new(options);
        session.handle_connected(since_origin(now));
        Ok(Self {
            session,
            role,
            number,
            input: BytesMut::new(),
            events: VecDeque::new(),
            held: VecDeque::new(),
            deliveries: BTreeMap::new(),
            is_blocked: false,
        })
    }

    /// Returns whether another packet can be sent.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.session.can_publish(PUBLISH_MAX)
    }

    /// Queues a packet. Call it only if the session [has capacity](Self::has_capacity).
    ///
    /// A packet that the broker does not accept, for example because of its size, is reported as
    /// rejected if it has a token. A response of a store has none, so its requester times out.
    pub fn send(&mut self, transmit: &Transmit) {
        match transmit {
            Transmit::Subscribe { filter, token } => {
                let list = [Subscription::new(filter, Qos::AtLeastOnce)];
                if let Err(error) = self.session.subscribe(&list, (), token.into_raw()) {
                    self.events.push_back(MachineEvent::Subscribed(*token, rejected(&error)));
                }
            }
            Transmit::Publish(publish) => {
                let sent = self.session.publish(session::Publish {
                    topic: &publish.topic,
                    payload: publish.payload.clone(),
                    qos: Qos::AtLeastOnce,
                    retain: false,
                    properties: PublishProperties(publish),
                    token: publish.token.map_or(NO_TOKEN, PublishToken::into_raw),
                });
                match (sent, publish.token) {
                    (Ok(()), _) => {}
                    (Err(error), Some(token)) => {
                        self.events.push_back(MachineEvent::Published(token, rejected(&error)));
                    }
                    (Err(error), None) => eprintln!("response not sent: {error}"),
                }
            }
            Transmit::Acknowledge(delivery) => self.acknowledge(*delivery),
            // Only a broker can disconnect another client.
            Transmit::Disconnect { .. } => {}
            unsupported => eprintln!("output of the machine not supported: {unsupported:?}"),
        }
        self.is_blocked = !self.has_capacity();
    }

    /// Acknowledges a message of this connection; others are redelivered by the broker.
    fn acknowledge(&mut self, delivery: Delivery) {
        if let Some(delivery) = self.deliveries.remove(&delivery) {
            let _ = self.session.acknowledge(delivery, Reason::SUCCESS);
        }
    }

    /// Bytes to write to the socket, in order. Report the number of written bytes with
    /// [`written`](Self::written).
    #[must_use]
    pub fn chunks(&self) -> session::Chunks<'_> {
        self.session.chunks()
    }

    /// Removes written bytes from the output.
    pub fn written(&mut self, now: Instant, len: usize) {
        self.session.written(since_origin(now), len);
    }

    /// Handles bytes read from the socket.
    ///
    /// # Errors
    /// [`Error`] if the connection is over. Write the rest of the output, then close the socket.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        self.input.extend_from_slice(bytes);
        loop {
            let before = self.input.len();
            self.session.handle_bytes(since_origin(now), &mut self.input);
            self.take_events(now)?;
            // The session pauses when too many events wait, and continues after they were taken.
            if self.input.is_empty() || self.input.len() == before {
                return Ok(());
            }
        }
    }

    /// Handles the end of the byte stream.
    ///
    /// # Errors
    /// [`Error`], always: the connection is over.
    pub fn handle_end(&mut self, now: Instant) -> Result<(), Error> {
        self.session.handle_disconnected();
        self.take_events(now)
    }

    /// Ends the session. A DISCONNECT follows the rest of the output.
    pub fn disconnect(&mut self) {
        self.session.disconnect(Reason::SUCCESS, ());
    }

    fn take_events(&mut self, now: Instant) -> Result<(), Error> {
        while let Some(event) = self.session.poll_event() {
            let event = match event {
                Event::Connected(server) if server.maximum_qos == Qos::AtMostOnce => {
                    self.disconnect();
                    return Err(Error::QosUnsupported);
                }
                Event::Connected(server) => {
                    MachineEvent::Connected { session_present: server.session_present }
                }
                Event::Published { token: NO_TOKEN, .. } => continue,
                Event::Published { token, reason, .. } => {
                    MachineEvent::Published(PublishToken::from_raw(token), ReasonCode(reason.0))
                }
                Event::Subscribed { token, reasons, .. } => {
                    let reason = reasons.first().copied().unwrap_or(Reason::UNSPECIFIED_ERROR);
                    MachineEvent::Subscribed(SubscribeToken::from_raw(token), ReasonCode(reason.0))
                }
                Event::Message(message) => {
                    self.hold(now, message);
                    continue;
                }
                Event::Disconnected(error) => return Err(error.into()),
                _ => continue,
            };
            self.events.push_back(event);
        }
        Ok(())
    }

    /// Queues a message until the machine can receive it.
    fn hold(&mut self, now: Instant, message: Message) {
        // The sender does not rely on a message at QoS 0.
        if message.delivery().is_none() && self.held.len() >= HELD_MAX {
            return;
        }
        let id = message.packet_id().map(NonZeroU16::get);
        let delivery = id.map(|id| Delivery((self.number << 16) | u64::from(id)));
        self.deliveries.extend(delivery.zip(message.delivery()));
        self.held.push_back(Received { message, arrived: now, delivery });
    }

    /// Returns the next event. Messages stay queued unless `can_receive`.
    pub fn poll(&mut self, can_receive: bool) -> Option<MachineEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.is_blocked && self.has_capacity() {
            self.is_blocked = false;
            return Some(MachineEvent::Writable);
        }
        if !can_receive {
            return None;
        }
        let mut received = self.held.pop_front()?;
        if self.role == Role::Client {
            if let Some(delivery) = received.delivery.take() {
                self.acknowledge(delivery);
            }
        }
        Some(MachineEvent::Message(received))
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout().map(Instant::from_origin)
    }

    /// Sends a PINGREQ when it is due.
    ///
    /// # Errors
    /// [`Error`] if the broker has not responded in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        self.session.handle_timeout(since_origin(now));
        self.take_events(now)
    }
}

/// The reason code to report for a packet that was not sent.
const fn rejected(error: &SendError) -> ReasonCode {
    match error {
        SendError::TooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
        _ => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
    }
}

/// Encoder of the properties of a PUBLISH.
struct PublishProperties<'a>(&'a transport::Publish);

impl Encode for PublishProperties<'_> {
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
