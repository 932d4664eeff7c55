//! An MQTT 5 client without any of our code between the test and the bytes.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use rumqttc::v5::mqttbytes::v5::{
    Connect, ConnectProperties, Disconnect, DisconnectReasonCode, Filter, Packet, PubAck, Publish,
    PublishProperties, Subscribe,
};
use rumqttc::v5::mqttbytes::{Error, QoS};
use statestore_rumqttc::rumqttc;

use crate::process::HANGS;

/// The topic of requests, spelled out.
pub(crate) const REQUEST: &str =
    "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// What every notification topic begins with.
const NOTIFICATIONS: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/";

/// The time stamp of the protocol page: years behind any store, which is never an error.
pub(crate) const LONG_AGO: &str = "1696374425000:0:CLIENT";

/// A request, and everything that can be wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) payload: Vec<u8>,
    pub(crate) response_topic: Option<String>,
    pub(crate) correlation: Option<Vec<u8>>,
    pub(crate) qos: QoS,
    pub(crate) expiry: Option<u32>,
    pub(crate) properties: Vec<(String, String)>,
}

impl Ask {
    /// As the protocol page has it: nothing but what it asks for.
    pub(crate) fn page(client_id: &str, payload: impl Into<Vec<u8>>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(1);
        let number = u128::from(LAST.fetch_add(1, Ordering::Relaxed));
        Self {
            payload: payload.into(),
            response_topic: Some(response_topic(client_id)),
            correlation: Some(number.to_be_bytes().to_vec()),
            qos: QoS::AtLeastOnce,
            expiry: None,
            properties: vec![("__ts".into(), LONG_AGO.into())],
        }
    }

    /// As deployed clients send it.
    pub(crate) fn deployed(client_id: &str, payload: impl Into<Vec<u8>>) -> Self {
        let mut ask = Self::page(client_id, payload);
        ask.expiry = Some(10);
        ask.properties.clear();
        ask.with("__ts", "001696374425000:00000:CLIENT")
            .with("__srcId", client_id)
            .with("__protVer", "1.0")
            .with("$partition", client_id)
            .with("$high_priority", "")
    }

    /// With one user property more.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Without a user property.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.properties.retain(|(other, _)| other != name);
        self
    }

    /// With another value of a user property.
    pub(crate) fn replacing(self, name: &str, value: impl Into<String>) -> Self {
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

/// The recommended response topic of a client.
pub(crate) fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/statestore/_any_/command/invoke/response")
}

/// The notification topic of a client for a key, or the filter for all of its keys when the key is `None`.
pub(crate) fn notification_topic(client_id: &str, key: Option<&[u8]>) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let key = key.map_or_else(|| "+".to_owned(), hex);
    format!("{NOTIFICATIONS}{}/command/notify/{key}", hex(client_id.as_bytes()))
}

/// A request payload, written here and not by the code under test.
pub(crate) fn array(elements: &[&[u8]]) -> Vec<u8> {
    let mut payload = format!("*{}\r\n", elements.len()).into_bytes();
    for element in elements {
        payload.extend(format!("${}\r\n", element.len()).into_bytes());
        payload.extend(*element);
        payload.extend(b"\r\n");
    }
    payload
}

/// A value as a reply.
pub(crate) fn blob(value: &[u8]) -> Vec<u8> {
    array(&[value])[4..].to_vec()
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a client stamps its requests with its clock")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("before the end of time")
}

/// The value of the first user property of that name.
pub(crate) fn property<'a>(publish: &'a Publish, name: &str) -> Option<&'a str> {
    let mut all = publish.properties.as_ref()?.user_properties.iter();
    all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

/// One connection.
pub(crate) struct Raw {
    stream: TcpStream,
    unread: BytesMut,
    arrived: VecDeque<Publish>,
    acknowledged: VecDeque<u16>,
    subscribed: bool,
    closed: bool,
    client_id: String,
    packet_id: u16,
    /// Whether the broker kept its session.
    pub(crate) session_present: bool,
}

impl Raw {
    /// Connects with a clean session and subscribes to replies and notifications.
    pub(crate) fn connect(port: u16, client_id: &str) -> Self {
        let mut raw = Self::open(port, client_id, None);
        raw.subscribe(&response_topic(client_id));
        raw.subscribe(&notification_topic(client_id, None));
        raw
    }

    /// Connects, with a session that is kept for that many seconds, and subscribes to nothing.
    pub(crate) fn open(port: u16, client_id: &str, session: Option<u32>) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(HANGS)).expect("a socket");
        stream.set_write_timeout(Some(HANGS)).expect("a socket");
        let mut properties = ConnectProperties::new();
        properties.session_expiry_interval = session;
        let connect = Connect {
            keep_alive: 60,
            client_id: client_id.to_owned(),
            clean_start: session.is_none(),
            properties: Some(properties),
        };
        let mut raw = Self {
            stream,
            unread: BytesMut::new(),
            arrived: VecDeque::new(),
            acknowledged: VecDeque::new(),
            subscribed: false,
            closed: false,
            client_id: client_id.to_owned(),
            packet_id: 0,
            session_present: false,
        };
        raw.write(&Packet::Connect(connect, None, None));
        match raw.read() {
            Some(Packet::ConnAck(told)) => raw.session_present = told.session_present,
            other => panic!("{other:?} instead of a CONNACK"),
        }
        raw
    }

    /// Subscribes at QoS 1.
    pub(crate) fn subscribe(&mut self, filter: &str) {
        let mut subscribe = Subscribe::new(Filter::new(filter, QoS::AtLeastOnce), None);
        subscribe.pkid = self.next_id();
        self.write(&Packet::Subscribe(subscribe));
        self.subscribed = false;
        self.until(|raw| raw.subscribed.then_some(()), "SUBACK");
    }

    /// Sends a request and does not wait.
    pub(crate) fn send(&mut self, ask: &Ask) -> u16 {
        let mut packet = ask.packet();
        packet.pkid = if ask.qos == QoS::AtMostOnce { 0 } else { self.next_id() };
        let id = packet.pkid;
        self.write(&Packet::Publish(packet));
        id
    }

    /// Sends a request and waits until the broker has it; `false` when it closes the connection instead.
    pub(crate) fn deliver(&mut self, ask: &Ask) -> bool {
        let id = self.send(ask);
        while !self.closed {
            if self.acknowledged.contains(&id) {
                return true;
            }
            self.step();
        }
        false
    }

    /// Sends a request and waits for its reply, which is the next one.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Publish {
        self.send(ask);
        let reply = self.reply();
        let data = reply.properties.as_ref().and_then(|all| all.correlation_data.as_deref());
        assert_eq!(data, ask.correlation.as_deref(), "the reply of another request: {reply:?}");
        reply
    }

    /// The same, of the reply its payload.
    pub(crate) fn answer(&mut self, ask: &Ask) -> Vec<u8> {
        self.ask(ask).payload.to_vec()
    }

    /// The next reply.
    pub(crate) fn reply(&mut self) -> Publish {
        self.next(false)
    }

    /// The next notification.
    pub(crate) fn notification(&mut self) -> Publish {
        self.next(true)
    }

    /// Whether nothing has arrived that was not taken. It asks for something and waits for the answer, which the store
    /// sends after all it had to say before.
    pub(crate) fn hears_nothing_more(&mut self) -> bool {
        let ask = Ask::page(&self.client_id, array(&[b"GET", b"nothing is here"]));
        assert_eq!(self.answer(&ask), b"$-1\r\n");
        self.arrived.is_empty()
    }

    /// Says goodbye and waits until the broker has closed the connection.
    pub(crate) fn disconnect(mut self) {
        self.write(&Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection)));
        while !self.closed {
            self.step();
        }
    }

    fn next(&mut self, notification: bool) -> Publish {
        let wanted = if notification { "notification" } else { "reply" };
        let is_wanted =
            |publish: &Publish| publish.topic.starts_with(NOTIFICATIONS.as_bytes()) == notification;
        self.until(
            |raw| {
                let at = raw.arrived.iter().position(is_wanted)?;
                raw.arrived.remove(at)
            },
            wanted,
        )
    }

    fn until<T>(&mut self, mut wanted: impl FnMut(&mut Self) -> Option<T>, name: &str) -> T {
        loop {
            if let Some(found) = wanted(self) {
                return found;
            }
            assert!(!self.closed, "{}: closed instead of a {name}", self.client_id);
            self.step();
        }
    }

    /// Takes one packet.
    fn step(&mut self) {
        match self.read() {
            Some(Packet::Publish(publish)) => {
                if publish.qos == QoS::AtLeastOnce {
                    self.write(&Packet::PubAck(PubAck::new(publish.pkid, None)));
                }
                self.arrived.push_back(publish);
            }
            Some(Packet::PubAck(ack)) => self.acknowledged.push_back(ack.pkid),
            Some(Packet::SubAck(_)) => self.subscribed = true,
            Some(Packet::Disconnect(_)) | None => self.closed = true,
            Some(other) => panic!("{other:?}"),
        }
    }

    fn read(&mut self) -> Option<Packet> {
        loop {
            match Packet::read(&mut self.unread, None) {
                Ok(packet) => return Some(packet),
                Err(Error::InsufficientBytes(_)) => {}
                // A DISCONNECT without a reason has no body, which this reader does not know.
                Err(Error::PayloadRequired) => return None,
                Err(error) => panic!("{error:?}"),
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{}: nothing arrives: {error}", self.client_id),
            }
        }
    }

    fn write(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, None).expect("a packet");
        // What cannot be written any more shows when it is read.
        let _ = self.stream.write_all(&bytes);
    }

    const fn next_id(&mut self) -> u16 {
        self.packet_id = if self.packet_id == u16::MAX { 1 } else { self.packet_id + 1 };
        self.packet_id
    }
}
