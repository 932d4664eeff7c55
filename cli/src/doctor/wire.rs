//! A connection that reports every reason code and collects the received messages.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_client::TlsProblem;
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::property::{Property, id};
use statestore_mqtt::session::{
    Error, Event, Message, Options, PropertyBytes, Publish, SendError, Session, Violation,
};
use statestore_mqtt::{Kind, Qos, Reason};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

/// Maximum size of a received packet in bytes. The CONNECT contains it.
const PACKET_MAX: u32 = 2 << 20;

/// Collected messages; further ones are dropped.
const MESSAGES_MAX: usize = 64;

/// Bytes of a payload that are collected; the rest is dropped.
const PAYLOAD_MAX: usize = 4 << 10;

/// Bytes of correlation data that are collected; the rest is dropped. This client sends less, so
/// that cut data never equals its own.
const CORRELATION_MAX: usize = 64;

/// User properties that are collected, and the characters of each name and value.
const USER_PROPERTIES_MAX: usize = 16;
const USER_CHARS_MAX: usize = 256;

/// First bytes of a CONNACK of MQTT 3.1.1. A CONNACK of MQTT 5 is longer.
const CONNACK_MQTT_3: [u8; 2] = [0x20, 2];

/// A byte stream to a broker.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A received message.
pub(crate) struct Received {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    correlation: Option<Vec<u8>>,
    user: Vec<(String, String)>,
}

impl Received {
    /// Returns whether the message has this correlation data of at most [`CORRELATION_MAX`] bytes.
    pub(crate) fn has_correlation(&self, data: &[u8]) -> bool {
        self.correlation.as_deref() == Some(data)
    }

    pub(crate) fn user(&self, name: &str) -> Option<&str> {
        let found = self.user.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value)
    }
}

/// Properties of a CONNACK: the limits of the broker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connack {
    pub(crate) reason: Reason,
    pub(crate) text: Option<String>,
    pub(crate) packet_max: Option<u32>,
    pub(crate) receive_max: Option<u16>,
    pub(crate) alias_max: u16,
    pub(crate) has_qos_1: bool,
    pub(crate) has_wildcards: bool,
}

/// Error that ended the connection.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// The broker sent DISCONNECT.
    Disconnected(Reason),
    /// The socket failed or was closed, or the port is for TLS.
    Io(io::Error),
    /// The broker does not speak MQTT 5, or violates it.
    NotMqtt(String),
    /// The broker sent AUTH, but this client does not use enhanced authentication.
    AuthenticationRequired,
    /// The options of this client do not fit into a CONNECT.
    Options(String),
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected(reason) => {
                write!(f, "the broker disconnected this client: {reason}")
            }
            Self::Io(error) => write!(f, "the connection was lost: {error}"),
            Self::NotMqtt(what) => f.write_str(what),
            Self::AuthenticationRequired => {
                f.write_str("the broker requires enhanced authentication (AUTH)")
            }
            Self::Options(reason) => write!(f, "CONNECT cannot be sent: {reason}"),
        }
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    session: Session,
    origin: Instant,
    received: BytesMut,
    /// The CONNECT could not be written. Its response may still arrive.
    is_write_closed: bool,
    last_token: u64,
    pub(crate) messages: Vec<Received>,
    acks: BTreeMap<u64, Reason>,
    pub(crate) end: Option<ConnectionEnd>,
}

impl Wire {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            session: Session::new(Options::new("")),
            origin: Instant::now(),
            received: BytesMut::new(),
            is_write_closed: false,
            last_token: 0,
            messages: Vec::new(),
            acks: BTreeMap::new(),
            end: None,
        }
    }

    /// Connects with a clean session and returns the CONNACK.
    pub(crate) async fn connect(
        &mut self,
        client_id: &str,
        credentials: Option<&(String, String)>,
        token: Option<&[u8]>,
        until: Instant,
    ) -> Option<Connack> {
        let mut options = Options::new(client_id)
            .receive_maximum(64)
            .maximum_packet_size(PACKET_MAX)
            .topic_alias_maximum(0)
            .topic_aliases(0)
            // `until` is the timeout.
            .connect_timeout(Duration::MAX);
        if let Some((user, password)) = credentials {
            options = options.user(&**user).password(password.clone());
        }
        if let Some(token) = token {
            options = options.authentication("K8S-SAT", token.to_vec());
        }
        self.session = Session::new(options);
        self.session.handle_connected(self.origin.elapsed());
        while let Some(event) = self.event(until).await {
            match event {
                Event::Connected(server) => {
                    return Some(connack(Reason::SUCCESS, &server.properties));
                }
                Event::Disconnected(Error::Refused(notice)) => {
                    return Some(connack(notice.reason, &notice.properties));
                }
                Event::Authenticate(_) => {
                    self.end = Some(ConnectionEnd::AuthenticationRequired);
                }
                other => self.handle(other),
            }
        }
        None
    }

    /// Subscribes at QoS 1 and returns the reason code of the SUBACK.
    pub(crate) async fn subscribe(&mut self, filter: &str, until: Instant) -> Option<Reason> {
        let token = self.next_token();
        let subscription = Subscription::new(filter, Qos::AtLeastOnce);
        let sent = self.session.subscribe(&[subscription], (), token);
        self.record_send_error(token, sent);
        self.ack(token, until).await
    }

    /// Publishes at QoS 1. Returns the token for [`ack`](Self::ack).
    pub(crate) async fn publish(
        &mut self,
        topic: &str,
        properties: &[Property<'_>],
        payload: &[u8],
        until: Instant,
    ) -> u64 {
        let token = self.next_token();
        let publish = Publish {
            topic,
            payload: Bytes::copy_from_slice(payload),
            qos: Qos::AtLeastOnce,
            retain: false,
            properties,
            token,
        };
        let sent = self.session.publish(publish);
        self.record_send_error(token, sent);
        self.flush(until).await;
        token
    }

    /// Sends DISCONNECT, so that the broker does not log a lost connection.
    pub(crate) async fn close(mut self, until: Instant) {
        self.session.disconnect(Reason::SUCCESS, ());
        self.flush(until).await;
        let _ = timeout_at(until, self.stream.shutdown()).await;
    }

    /// Waits for the acknowledgement and returns its reason code.
    pub(crate) async fn ack(&mut self, token: u64, until: Instant) -> Option<Reason> {
        self.listen(until, |wire| wire.acks.contains_key(&token)).await;
        self.acks.remove(&token)
    }

    /// Receives until the condition holds. Returns `false` if the connection or the time ends
    /// before that.
    pub(crate) async fn listen(
        &mut self,
        until: Instant,
        mut is_done: impl FnMut(&Self) -> bool,
    ) -> bool {
        while !is_done(self) {
            let Some(event) = self.event(until).await else { return false };
            self.handle(event);
        }
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message(message) if self.messages.len() < MESSAGES_MAX => {
                self.messages.push(received(&message));
            }
            Event::Published { token, reason, .. } => {
                self.acks.insert(token, reason);
            }
            Event::Subscribed { token, reasons, .. } => {
                let reason = reasons.first().copied().unwrap_or(Reason::UNSPECIFIED_ERROR);
                self.acks.insert(token, reason);
            }
            Event::Disconnected(error) => {
                let end = self.explain(&error);
                self.end.get_or_insert(end);
            }
            _ => {}
        }
    }

    fn explain(&self, error: &Error) -> ConnectionEnd {
        let is_connecting = self.session.server().is_none() && self.last_token == 0;
        match error {
            Error::Disconnected(notice) => ConnectionEnd::Disconnected(notice.reason),
            Error::Protocol(Violation::Unexpected(Kind::Auth)) if is_connecting => {
                ConnectionEnd::AuthenticationRequired
            }
            Error::Protocol(Violation::Unexpected(kind)) if is_connecting => {
                ConnectionEnd::NotMqtt(format!("the peer responded to CONNECT with {kind:?}"))
            }
            error if TlsProblem::of(error).is_some() => {
                ConnectionEnd::Io(io::Error::other(error.clone()))
            }
            Error::Malformed(error) => {
                ConnectionEnd::NotMqtt(format!("the response is not MQTT 5: {error}"))
            }
            Error::Options(error) => ConnectionEnd::Options(error.to_string()),
            Error::KeepAliveTimeout => {
                ConnectionEnd::Io(io::Error::new(io::ErrorKind::TimedOut, "no response to PINGREQ"))
            }
            error => ConnectionEnd::NotMqtt(error.to_string()),
        }
    }

    /// The next event. `None` if the time or the connection ends before it.
    async fn event(&mut self, until: Instant) -> Option<Event> {
        loop {
            // Messages without end must not delay the time limit.
            if self.end.is_some() || Instant::now() >= until {
                return None;
            }
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            self.flush(until).await;
            // Packets that waited until the events before them were polled.
            let before = self.received.len();
            self.session.handle_bytes(self.origin.elapsed(), &mut self.received);
            if self.end.is_none() && self.received.len() == before {
                self.read(until).await;
            }
        }
    }

    /// Reads once, or handles a deadline of the session.
    async fn read(&mut self, until: Instant) {
        let deadline = self.session.poll_timeout().and_then(|at| self.origin.checked_add(at));
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let read = timeout_at(until, self.stream.read_buf(&mut self.received)).await;
        let now = self.origin.elapsed();
        match read {
            Ok(Ok(0)) => {
                let closed =
                    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection");
                self.end = Some(ConnectionEnd::Io(closed));
            }
            Ok(Ok(_)) if self.last_token == 0 && self.received.starts_with(&CONNACK_MQTT_3) => {
                let text = "the broker responded in MQTT 3.1.1".to_owned();
                self.end = Some(ConnectionEnd::NotMqtt(text));
            }
            Ok(Ok(_)) => self.session.handle_bytes(now, &mut self.received),
            Ok(Err(error)) => self.end = Some(ConnectionEnd::Io(error)),
            Err(_) => self.session.handle_timeout(now),
        }
    }

    /// Writes the output of the session.
    async fn flush(&mut self, until: Instant) {
        if self.is_write_closed {
            return;
        }
        while let Some(chunk) = self.session.chunks().next() {
            match timeout_at(until, self.stream.write(chunk)).await {
                Ok(Ok(len)) if len > 0 => self.session.written(self.origin.elapsed(), len),
                // The reason may have arrived before the broker closed the connection.
                Ok(_) if !self.session.is_connected() => {
                    self.is_write_closed = true;
                    return;
                }
                Ok(written) => {
                    let error = written.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    self.end.get_or_insert(ConnectionEnd::Io(error));
                    return;
                }
                Err(_) => {
                    let late = io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the peer does not accept more bytes",
                    );
                    self.end.get_or_insert(ConnectionEnd::Io(late));
                    return;
                }
            }
        }
        let _ = timeout_at(until, self.stream.flush()).await;
    }

    /// Records the reason code that the broker would send for a packet that the session does not
    /// send.
    fn record_send_error(&mut self, token: u64, sent: Result<(), SendError>) {
        let reason = match sent {
            Ok(()) | Err(SendError::NotConnected) => return,
            Err(SendError::TooLarge { .. }) => Reason::PACKET_TOO_LARGE,
            Err(SendError::QosUnsupported { .. }) => Reason::QOS_NOT_SUPPORTED,
            Err(SendError::WildcardUnsupported) => Reason::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
            Err(SendError::InvalidTopic) => Reason::TOPIC_NAME_INVALID,
            Err(SendError::InvalidFilter) => Reason::TOPIC_FILTER_INVALID,
            Err(_) => Reason::IMPLEMENTATION_SPECIFIC_ERROR,
        };
        self.acks.insert(token, reason);
    }

    const fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }
}

fn connack(reason: Reason, properties: &PropertyBytes) -> Connack {
    let properties = properties.get();
    Connack {
        reason,
        text: properties.find(|property| match property {
            Property::ReasonString(text) => Some(text.to_owned()),
            Property::ServerReference(other) => Some(format!("use {other}")),
            _ => None,
        }),
        packet_max: properties.find(|property| match property {
            Property::MaximumPacketSize(max) => Some(max),
            _ => None,
        }),
        receive_max: properties.find(|property| match property {
            Property::ReceiveMaximum(max) => Some(max),
            _ => None,
        }),
        alias_max: properties
            .find(|property| match property {
                Property::TopicAliasMaximum(max) => Some(max),
                _ => None,
            })
            .unwrap_or_default(),
        has_qos_1: properties.find(|property| match property {
            Property::MaximumQos(qos) => Some(qos),
            _ => None,
        }) != Some(Qos::AtMostOnce),
        has_wildcards: !properties.has(id::WILDCARD_AVAILABLE)
            || properties.find(|property| match property {
                Property::WildcardAvailable(is) => Some(is),
                _ => None,
            }) == Some(true),
    }
}

fn received(message: &Message) -> Received {
    let properties = message.properties();
    let correlation = properties.find(|property| match property {
        Property::CorrelationData(data) => {
            Some(data.get(..CORRELATION_MAX).unwrap_or(data).to_vec())
        }
        _ => None,
    });
    let short = |text: &str| text.chars().take(USER_CHARS_MAX).collect::<String>();
    let user = properties.user().take(USER_PROPERTIES_MAX);
    let payload = message.payload();
    Received {
        topic: message.topic().to_owned(),
        payload: Bytes::copy_from_slice(&payload[..payload.len().min(PAYLOAD_MAX)]),
        correlation,
        user: user.map(|(name, value)| (short(name), short(value))).collect(),
    }
}
