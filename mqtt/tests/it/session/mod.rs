//! Tests of the client session: the server is a byte stream, and time is an argument.

mod acknowledging;
mod against_mosquitto;
mod allocations;
mod authenticating;
mod connecting;
mod keep_alive;
mod model;
mod publishing;
mod receiving;
mod resuming;
mod subscribing;

use std::num::NonZeroU16;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_mqtt::packet::{Ack, Acks, ConnAck, Header, Notice, Packet, Publish};
use statestore_mqtt::property::Property;
use statestore_mqtt::session::{self, Error, Event, Lost, Message, Options, SendError, Session};
use statestore_mqtt::{Qos, Reason};
use statestore_testkit::wire::mqtt_text::show_property;

type Properties<'a> = &'a [Property<'a>];

/// A packet that the session sent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    /// Clean Start and client id.
    Connect(bool, String),
    Publish {
        topic: String,
        payload: Vec<u8>,
        qos: Qos,
        dup: bool,
        retain: bool,
        id: u16,
        properties: Vec<String>,
    },
    PubAck(u16, Reason),
    PubRec(u16, Reason),
    PubRel(u16, Reason),
    PubComp(u16, Reason),
    Subscribe(u16, Vec<String>),
    Unsubscribe(u16, Vec<String>),
    PingReq,
    Disconnect(Reason, Vec<String>),
    Auth(Reason, Vec<String>),
    Other,
}

fn text<'a, P: IntoIterator<Item = Property<'a>>>(properties: P) -> Vec<String> {
    properties.into_iter().map(|property| show_property(&property)).collect()
}

impl Sent {
    fn new(packet: Packet<'_>) -> Self {
        match packet {
            Packet::Connect(connect) => {
                Self::Connect(connect.clean_start, connect.client_id.into())
            }
            Packet::Publish(publish) => Self::Publish {
                topic: publish.topic.into(),
                payload: publish.payload.into(),
                qos: publish.qos,
                dup: publish.dup,
                retain: publish.retain,
                id: publish.id.map_or(0, NonZeroU16::get),
                properties: text(&publish.properties),
            },
            Packet::PubAck(ack) => Self::PubAck(ack.id.get(), ack.reason),
            Packet::PubRec(ack) => Self::PubRec(ack.id.get(), ack.reason),
            Packet::PubRel(ack) => Self::PubRel(ack.id.get(), ack.reason),
            Packet::PubComp(ack) => Self::PubComp(ack.id.get(), ack.reason),
            Packet::Subscribe(subscribe) => Self::Subscribe(
                subscribe.id.get(),
                subscribe.subscriptions.map(|one| one.filter.to_owned()).collect(),
            ),
            Packet::Unsubscribe(unsubscribe) => Self::Unsubscribe(
                unsubscribe.id.get(),
                unsubscribe.filters.map(ToOwned::to_owned).collect(),
            ),
            Packet::PingReq => Self::PingReq,
            Packet::Disconnect(notice) => Self::Disconnect(notice.reason, text(&notice.properties)),
            Packet::Auth(notice) => Self::Auth(notice.reason, text(&notice.properties)),
            _ => Self::Other,
        }
    }

    /// The packet identifier, or 0.
    fn id(&self) -> u16 {
        match self {
            Self::Publish { id, .. }
            | Self::PubAck(id, _)
            | Self::PubRec(id, _)
            | Self::PubRel(id, _)
            | Self::PubComp(id, _)
            | Self::Subscribe(id, _)
            | Self::Unsubscribe(id, _) => *id,
            _ => 0,
        }
    }
}

fn packet_id(id: u16) -> NonZeroU16 {
    NonZeroU16::new(id).expect("a packet id")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Takes all bytes of the output.
fn take_output(session: &mut Session, now: Duration) -> BytesMut {
    let mut bytes = BytesMut::new();
    session.chunks().for_each(|chunk| {
        assert!(!chunk.is_empty(), "empty chunk");
        bytes.extend_from_slice(chunk);
    });
    assert_eq!(bytes.len(), session.output_len());
    session.written(now, bytes.len());
    bytes
}

/// Divides bytes into packets.
fn packets(bytes: &mut BytesMut) -> Vec<Bytes> {
    let mut all = Vec::new();
    while let Some(header) = Header::read(bytes, usize::MAX).expect("a header") {
        all.push(bytes.split_to(header.len).freeze());
    }
    assert!(bytes.is_empty(), "the output ends with an incomplete packet");
    all
}

/// A session, and a server that each test scripts.
struct Rig {
    session: Session,
    now: Duration,
    input: BytesMut,
    tokens: u64,
}

impl Rig {
    fn new(options: Options) -> Self {
        let session = Session::new(options);
        Self { session, now: seconds(1_000), input: BytesMut::new(), tokens: 0 }
    }

    /// A connected session without waiting output or events.
    fn connected(options: Options) -> Self {
        Self::with_server(options, &[])
    }

    fn with_server(options: Options, properties: Properties<'_>) -> Self {
        let mut rig = Self::new(options);
        rig.connect(false, properties);
        rig
    }

    /// Connects, and takes CONNECT and [`Event::Connected`]. Returns what the session sent next.
    fn connect(&mut self, session_present: bool, properties: Properties<'_>) -> Vec<Sent> {
        self.session.handle_connected(self.now);
        assert!(matches!(self.sent().as_slice(), [Sent::Connect(..)]));
        self.connack(session_present, Reason::SUCCESS, properties);
        assert!(matches!(self.session.poll_event(), Some(Event::Connected(_))));
        self.sent()
    }

    fn connack(&mut self, session_present: bool, reason: Reason, properties: Properties<'_>) {
        self.receive(Packet::ConnAck(ConnAck { session_present, reason, properties }));
    }

    fn reconnect(&mut self, session_present: bool) -> Vec<Sent> {
        self.session.handle_disconnected();
        self.connect_again(session_present, &[])
    }

    /// Reconnects; events of the end of the former connection are dropped.
    fn connect_again(&mut self, session_present: bool, properties: Properties<'_>) -> Vec<Sent> {
        while self.session.poll_event().is_some() {}
        self.connect(session_present, properties)
    }

    fn receive(&mut self, packet: Packet<'_, Properties<'_>>) {
        packet.encode(&mut self.input).expect("a packet");
        self.take_input();
    }

    fn receive_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.take_input();
    }

    fn take_input(&mut self) {
        self.session.handle_bytes(self.now, &mut self.input);
    }

    fn receive_publish(&mut self, qos: Qos, id: u16, dup: bool, topic: &str) {
        self.receive_with(qos, id, dup, topic, &[]);
    }

    fn receive_with(
        &mut self,
        qos: Qos,
        id: u16,
        dup: bool,
        topic: &str,
        properties: Properties<'_>,
    ) {
        let id = NonZeroU16::new(id);
        let payload = b"payload";
        self.receive(Packet::Publish(Publish {
            dup,
            qos,
            retain: false,
            topic,
            id,
            properties,
            payload,
        }));
    }

    fn puback(&mut self, id: u16) {
        self.receive(Packet::PubAck(ack(id, Reason::SUCCESS)));
    }

    fn suback(&mut self, id: u16, reasons: &[u8]) {
        self.receive(Packet::SubAck(Acks { id: packet_id(id), properties: &[], reasons }));
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut bytes = take_output(&mut self.session, self.now);
        let packets = packets(&mut bytes);
        packets.iter().map(|packet| Sent::new(Packet::decode(packet).expect("a packet"))).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// The only event, a message.
    fn message(&mut self) -> Message {
        match self.events().as_slice() {
            [Event::Message(message)] => message.clone(),
            other => panic!("{other:?} is not one message"),
        }
    }

    /// The only event: the end of the connection.
    fn end(&mut self) -> Error {
        assert!(self.session.is_closing());
        match self.events().as_slice() {
            [Event::Disconnected(error)] => error.clone(),
            other => panic!("{other:?} is not the end of a connection"),
        }
    }

    /// Checks that the session ended the connection with this reason in its DISCONNECT.
    fn assert_refused(&mut self, reason: Reason) {
        let error = self.end();
        assert_eq!(error.reason(), Some(reason), "{error}");
        assert_eq!(self.sent().last(), Some(&Sent::Disconnect(reason, vec![])), "{error}");
    }

    fn publish(&mut self, qos: Qos, topic: &str) -> Result<u64, SendError> {
        self.publish_payload(qos, topic, Bytes::from_static(b"payload"))
    }

    fn publish_payload(&mut self, qos: Qos, topic: &str, payload: Bytes) -> Result<u64, SendError> {
        self.tokens += 1;
        let token = self.tokens;
        let publish =
            session::Publish { topic, payload, qos, retain: false, properties: (), token };
        self.session.publish(publish).map(|()| token)
    }
}

fn ack(id: u16, reason: Reason) -> Ack<Properties<'static>> {
    Ack { id: packet_id(id), reason, properties: &[] }
}

/// The outcomes of publishes and requests among events.
fn outcomes(events: &[Event]) -> Vec<(u64, Result<Reason, Lost>)> {
    let mut outcomes = Vec::new();
    for event in events {
        match event {
            Event::Published { token, reason, .. } => outcomes.push((*token, Ok(*reason))),
            Event::Lost { token, cause } => outcomes.push((*token, Err(*cause))),
            _ => {}
        }
    }
    outcomes
}

fn options() -> Options {
    Options::new("client").session_expiry(3_600)
}
