//! Requests to a store as MQTT messages, without the client of the core. Every failure is a panic.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use statestore_mqtt::session::{Error, Event, Options, Will};

use crate::process::HANGS;
use crate::wire::client::{Client, REFUSED};
use crate::wire::packets::{ConnAck, Publish, PublishProperties, Qos, Reason};
pub use statestore_models::machines::request::response_topic;

/// Topic of requests.
pub const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// Prefix of every notification topic.
const NOTIFICATIONS: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/";

/// The timestamp in the examples of the specification. It is far behind every clock, which is
/// valid.
pub const LONG_AGO: &str = "1696374425000:0:CLIENT";

/// A request, which may be invalid on purpose.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// Payload.
    pub payload: Vec<u8>,
    /// Response topic.
    pub response_topic: Option<String>,
    /// Correlation data.
    pub correlation: Option<Vec<u8>>,
    /// Quality of service.
    pub qos: Qos,
    /// Message expiry interval in seconds.
    pub expiry: Option<u32>,
    /// User properties, in their order.
    pub properties: Vec<(String, String)>,
}

impl RawRequest {
    /// A request with only the properties that the specification requires.
    #[must_use]
    pub fn minimal(client_id: &str, payload: impl Into<Vec<u8>>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(1);
        let number = u128::from(LAST.fetch_add(1, Ordering::Relaxed));
        Self {
            payload: payload.into(),
            response_topic: Some(response_topic(client_id)),
            correlation: Some(number.to_be_bytes().to_vec()),
            qos: Qos::AtLeastOnce,
            expiry: None,
            properties: vec![("__ts".into(), LONG_AGO.into())],
        }
    }

    /// A request in the form of the deployed clients.
    #[must_use]
    pub fn deployed(client_id: &str, payload: impl Into<Vec<u8>>) -> Self {
        let mut request = Self::minimal(client_id, payload);
        request.expiry = Some(10);
        request.properties.clear();
        request
            .with("__ts", "001696374425000:00000:CLIENT")
            .with("__srcId", client_id)
            .with("__protVer", "1.0")
            .with("$partition", client_id)
            .with("$high_priority", "")
    }

    /// Adds a user property.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Removes a user property.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.properties.retain(|(other, _)| other != name);
        self
    }

    /// Replaces a user property.
    #[must_use]
    pub fn replacing(self, name: &str, value: impl Into<String>) -> Self {
        self.without(name).with(name, value)
    }

    fn packet(&self) -> Publish {
        let properties = PublishProperties {
            response_topic: self.response_topic.clone(),
            correlation_data: self.correlation.clone().map(Bytes::from),
            content_type: Some("application/octet-stream".into()),
            message_expiry_interval: self.expiry,
            user_properties: self.properties.clone(),
            ..PublishProperties::default()
        };
        Publish::new(REQUEST, self.qos, self.payload.clone(), Some(properties))
    }
}

/// The notification topic of a client for a key. If the key is `None`, the filter for all keys.
#[must_use]
pub fn notification_topic(client_id: &str, key: Option<&[u8]>) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let key = key.map_or_else(|| "+".to_owned(), hex);
    format!("{NOTIFICATIONS}{}/command/notify/{key}", hex(client_id.as_bytes()))
}

/// Encodes a request payload, independently of the code under test.
#[must_use]
pub fn array(elements: &[&[u8]]) -> Vec<u8> {
    let mut payload = format!("*{}\r\n", elements.len()).into_bytes();
    for element in elements {
        payload.extend(format!("${}\r\n", element.len()).into_bytes());
        payload.extend(*element);
        payload.extend(b"\r\n");
    }
    payload
}

/// Encodes a request payload from texts.
#[must_use]
pub fn words(elements: &[&str]) -> Vec<u8> {
    array(&elements.iter().map(|element| element.as_bytes()).collect::<Vec<_>>())
}

/// Encodes a reply with a value.
#[must_use]
pub fn blob(value: &[u8]) -> Vec<u8> {
    array(&[value])[4..].to_vec()
}

/// Milliseconds since 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a client stamps its requests with its clock")]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("64 bits")
}

/// The value of the first user property of that name.
pub fn property<'a>(publish: &'a Publish, name: &str) -> Option<&'a str> {
    let mut all = publish.properties.as_ref()?.user_properties.iter();
    all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

/// Fields of a CONNECT besides the client id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello<'a> {
    /// Session expiry in seconds. `None` for a new session that ends with the connection.
    pub session: Option<u32>,
    /// Topic and payload of the will.
    pub will: Option<(&'a str, &'a str)>,
    /// User name and password.
    pub login: Option<(&'a str, &'a str)>,
    /// Maximum Packet Size in bytes.
    pub packet_bytes: Option<u32>,
}

/// One connection. It reads only while a method waits.
pub struct Raw {
    client: Client<TcpStream>,
    arrived: VecDeque<Publish>,
    /// Reason codes of PUBACK and SUBACK by the token of the request.
    acknowledged: BTreeMap<u64, Reason>,
    closed: bool,
    /// The reason code of the broker's DISCONNECT.
    reason: Option<Reason>,
    client_id: String,
    /// Set if messages bypass the session.
    bypasses_session: bool,
    /// The CONNACK.
    pub welcome: ConnAck,
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl Raw {
    /// Connects with a clean session and subscribes to replies and notifications.
    #[must_use]
    pub fn connect(port: u16, client_id: &str) -> Self {
        let mut raw = Self::open(port, client_id, Hello::default());
        raw.subscribe(&response_topic(client_id));
        raw.subscribe(&notification_topic(client_id, None));
        raw
    }

    /// Connects without subscriptions.
    #[must_use]
    pub fn open(port: u16, client_id: &str, hello: Hello<'_>) -> Self {
        let opened = Self::try_open(port, client_id, hello);
        opened.unwrap_or_else(|refusal| panic!("{client_id}: {refusal:?} instead of a welcome"))
    }

    /// Connects without subscriptions. The error is the reason of the CONNACK, or `None` if the
    /// broker closes the connection without one.
    pub fn try_open(port: u16, client_id: &str, hello: Hello<'_>) -> Result<Self, Option<Reason>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(HANGS)).expect("a socket");
        stream.set_write_timeout(Some(HANGS)).expect("a socket");
        let options = hello.options(client_id);
        let (client, server) = match Client::connect(stream, options) {
            Ok(Ok(connected)) => connected,
            Ok(Err(Error::Refused(notice))) => return Err(Some(notice.reason)),
            Ok(Err(Error::ConnectionLost)) => return Err(None),
            other => panic!("{:?} instead of a CONNACK", other.map(|result| result.map(drop))),
        };
        let welcome = ConnAck {
            session_present: server.session_present,
            reason: Reason::SUCCESS,
            maximum_packet_size: Some(server.maximum_packet_size).filter(|max| *max < u32::MAX),
        };
        Ok(Self {
            client,
            arrived: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            closed: false,
            bypasses_session: false,
            reason: None,
            client_id: client_id.to_owned(),
            welcome,
        })
    }

    /// Subscribes at QoS 1.
    pub fn subscribe(&mut self, filter: &str) -> Reason {
        let token = self.client.subscribe(filter, Qos::AtLeastOnce).expect("a valid filter");
        self.flush();
        self.until(|raw| raw.acknowledged.remove(&token), "SUBACK")
    }

    /// Publishes at QoS 1 and waits for the PUBACK.
    pub fn publish(&mut self, topic: &str, retain: bool, payload: impl Into<Bytes>) -> Reason {
        let mut packet = Publish::new(topic, Qos::AtLeastOnce, payload, None);
        packet.retain = retain;
        let token = self.write(packet);
        self.until(|raw| raw.acknowledged.remove(&token), "PUBACK")
    }

    /// Responds to a request like a store.
    ///
    /// # Panics
    /// If the request has no response topic.
    pub fn reply_to(&mut self, request: &Publish, payload: &[u8]) {
        self.reply_at(request, payload, LONG_AGO);
    }

    /// Responds to a request with this timestamp.
    pub fn reply_at(&mut self, request: &Publish, payload: &[u8], stamp: &str) {
        let asked = request.properties.clone().unwrap_or_default();
        let properties = PublishProperties {
            correlation_data: asked.correlation_data,
            user_properties: vec![("__ts".into(), stamp.into()), ("__stat".into(), "200".into())],
            ..PublishProperties::default()
        };
        let topic = asked.response_topic.expect("a response topic");
        let payload = payload.to_vec();
        self.write(Publish::new(topic, Qos::AtLeastOnce, payload, Some(properties)));
    }

    /// Sends a request without waiting. Returns the token of its acknowledgement.
    pub fn send(&mut self, request: &RawRequest) -> u64 {
        self.write(request.packet())
    }

    /// Sends a request and waits for its acknowledgement. Returns `false` if the broker closes the
    /// connection instead.
    pub fn deliver(&mut self, request: &RawRequest) -> bool {
        self.put(request).is_some()
    }

    /// Sends a request and returns the reason code of its acknowledgement; `None` if the broker
    /// closes the connection instead.
    pub fn put(&mut self, request: &RawRequest) -> Option<Reason> {
        let id = self.send(request);
        while !self.closed {
            if let Some(reason) = self.acknowledged.remove(&id) {
                return Some(reason);
            }
            self.step();
        }
        None
    }

    /// Sends a request and waits for its reply, which is the next message on its response topic.
    pub fn ask(&mut self, request: &RawRequest) -> Publish {
        self.send(request);
        let topic = request.response_topic.as_deref().expect("a response topic");
        let reply = self.next(|publish| publish.topic == topic, "reply");
        let data = reply.properties.as_ref().and_then(|all| all.correlation_data.as_deref());
        assert_eq!(data, request.correlation.as_deref(), "the reply of another request: {reply:?}");
        reply
    }

    /// Sends a request and returns the payload of its reply.
    pub fn answer(&mut self, request: &RawRequest) -> Vec<u8> {
        self.ask(request).payload.to_vec()
    }

    /// Sends a request with these words in the deployed form, and returns the payload of its reply.
    pub fn command(&mut self, elements: &[&str]) -> Vec<u8> {
        self.answer(&RawRequest::deployed(&self.client_id, words(elements)))
    }

    /// Waits for the next message.
    pub fn message(&mut self) -> Publish {
        self.next(|_| true, "message")
    }

    /// Waits for the next reply: a message that is not a notification.
    pub fn reply(&mut self) -> Publish {
        self.next(|publish| !is_notification(publish), "reply")
    }

    /// Waits for the next notification.
    pub fn notification(&mut self) -> Publish {
        self.next(is_notification, "notification")
    }

    /// Returns the messages that have arrived so far.
    pub fn take_messages(&mut self) -> Vec<Publish> {
        self.arrived.drain(..).collect()
    }

    /// Returns whether no further message arrives. Sends a GET and waits for the reply, which the
    /// store sends after all earlier output.
    pub fn receives_nothing_more(&mut self) -> bool {
        let request = RawRequest::minimal(&self.client_id, array(&[b"GET", b"nothing is here"]));
        assert_eq!(self.answer(&request), b"$-1\r\n");
        self.arrived.is_empty()
    }

    /// Sends DISCONNECT and waits until the broker has closed the connection.
    pub fn disconnect(mut self) {
        self.client.disconnect(Reason::SUCCESS);
        self.flush();
        self.ended();
    }

    /// Waits until the broker ends the connection; returns the reason of its DISCONNECT, if any.
    pub fn ended(&mut self) -> Option<Reason> {
        while !self.closed {
            self.step();
        }
        self.reason
    }

    fn next(&mut self, is_wanted: impl Fn(&Publish) -> bool, name: &str) -> Publish {
        self.until(
            |raw| {
                let at = raw.arrived.iter().position(&is_wanted)?;
                raw.arrived.remove(at)
            },
            name,
        )
    }

    fn until<T>(&mut self, mut wanted: impl FnMut(&mut Self) -> Option<T>, name: &str) -> T {
        loop {
            if let Some(found) = wanted(self) {
                return found;
            }
            let (id, reason) = (&self.client_id, self.reason);
            assert!(!self.closed, "{id}: closed instead of a {name}, {reason:?}");
            self.step();
        }
    }

    /// Handles one event.
    fn step(&mut self) {
        let event = match self.client.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => {
                self.closed = true;
                return;
            }
            Err(error) => panic!("{}: nothing arrives: {error}", self.client_id),
        };
        match event {
            Event::Message(message) => self.arrived.push_back(Publish::from(&message)),
            Event::Published { token, reason, .. } => {
                self.acknowledged.insert(token, reason);
            }
            Event::Subscribed { token, reasons, .. } => {
                self.acknowledged.insert(token, reasons[0]);
            }
            Event::Disconnected(error) => {
                match error {
                    // The broker closes the stream after the DISCONNECT of this client.
                    Error::Requested(_) => return,
                    Error::Disconnected(notice) => self.reason = Some(notice.reason),
                    Error::ConnectionLost => {}
                    other => panic!("{}: {other:?}", self.client_id),
                }
                self.closed = true;
            }
            Event::Lost { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Publishes a message, also one that the session refuses, for example one that is too large
    /// for the broker.
    fn write(&mut self, packet: Publish) -> u64 {
        if self.bypasses_session {
            return self.client.publish_refused(packet).unwrap_or_else(|_| REFUSED.into());
        }
        match self.client.publish(&packet) {
            Ok(token) => {
                self.flush();
                token
            }
            // The session reports the lost connection as an event.
            Err(_) => self.client.publish_refused(packet).unwrap_or_else(|_| REFUSED.into()),
        }
    }

    /// Sends messages without the session, which would end at the second PUBACK of a message that
    /// a proxy repeats.
    #[must_use]
    pub fn bypass_session(self) -> Self {
        Self { bypasses_session: true, ..self }
    }

    fn flush(&mut self) {
        // The session reports the lost connection as an event.
        let _ = self.client.flush();
    }
}

impl Hello<'_> {
    fn options(&self, client_id: &str) -> Options {
        let mut options = Client::<TcpStream>::options(client_id);
        if let Some(seconds) = self.session {
            options = options.clean_start(false).session_expiry(seconds);
        }
        if let Some(bytes) = self.packet_bytes {
            options = options.maximum_packet_size(bytes);
        }
        if let Some((topic, payload)) = self.will {
            let payload = Bytes::copy_from_slice(payload.as_bytes());
            options = options.will(Will::new(topic, payload).qos(Qos::AtLeastOnce));
        }
        if let Some((user, password)) = self.login {
            options = options.user(user).password(Bytes::copy_from_slice(password.as_bytes()));
        }
        options
    }
}

fn is_notification(publish: &Publish) -> bool {
    publish.topic.starts_with(NOTIFICATIONS.as_bytes())
}
