//! Tests of the broker state machine: clients are byte streams, and time is an argument.

mod against_session;
mod aliases;
mod attacks;
mod contract;
mod costs;
mod deliveries;
mod exchanges;
mod hostile;
mod incidents;
mod laws;
mod local;
mod logins;
mod owners;
mod pending;
mod statements;
mod turns;
mod world;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_broker::{
    Admission, Broker, Config, ConnectionId, Incident, IncidentKind, Limits, Output, Refused, Wake,
};
use statestore_mqtt::packet::{
    Ack, Connect, Header, Notice, Packet, Publish, Subscribe, Subscription, SubscriptionOptions,
    Subscriptions, Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};
use statestore_testkit::wire::mqtt_text::show_property;

type Properties<'a> = &'a [Property<'a>];

/// A packet that a client received from the broker, reduced to the fields that tests check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Received {
    ConnAck(bool, Reason),
    Publish(Message),
    PubAck(u16, Reason),
    PubRec(u16, Reason),
    PubRel(u16, Reason),
    PubComp(u16, Reason),
    SubAck(Vec<u8>),
    UnsubAck(Vec<u8>),
    PingResp,
    Disconnect(Reason),
    /// The reason code and the authentication method.
    Auth(Reason, String),
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    topic: String,
    payload: Vec<u8>,
    qos: Qos,
    dup: bool,
    retain: bool,
    id: u16,
    /// Debug output of each property, in order.
    properties: Vec<String>,
}

impl From<Packet<'_>> for Received {
    fn from(packet: Packet<'_>) -> Self {
        match packet {
            Packet::ConnAck(connack) => Self::ConnAck(connack.session_present, connack.reason),
            Packet::Publish(publish) => Self::Publish(Message {
                topic: publish.topic.into(),
                payload: publish.payload.into(),
                qos: publish.qos,
                dup: publish.dup,
                retain: publish.retain,
                id: publish.id.map_or(0, NonZeroU16::get),
                properties: publish
                    .properties
                    .iter()
                    .map(|property| show_property(&property))
                    .collect(),
            }),
            Packet::PubAck(ack) => Self::PubAck(ack.id.get(), ack.reason),
            Packet::PubRec(ack) => Self::PubRec(ack.id.get(), ack.reason),
            Packet::PubRel(ack) => Self::PubRel(ack.id.get(), ack.reason),
            Packet::PubComp(ack) => Self::PubComp(ack.id.get(), ack.reason),
            Packet::SubAck(acks) => Self::SubAck(acks.reasons.into()),
            Packet::UnsubAck(acks) => Self::UnsubAck(acks.reasons.into()),
            Packet::PingResp => Self::PingResp,
            Packet::Disconnect(notice) => Self::Disconnect(notice.reason),
            Packet::Auth(notice) => {
                let method = notice.properties.iter().find_map(|property| match property {
                    Property::AuthenticationMethod(method) => Some(method.to_owned()),
                    _ => None,
                });
                Self::Auth(notice.reason, method.expect("an authentication method"))
            }
            _ => Self::Other,
        }
    }
}

impl Received {
    fn into_message(self) -> Message {
        match self {
            Self::Publish(message) => message,
            other => panic!("not a message: {other:?}"),
        }
    }
}

/// A broker, the bytes that it wrote to each connection, and a simulated clock.
struct Net {
    broker: Broker,
    now: Duration,
    unread: BTreeMap<ConnectionId, BytesMut>,
    closed: BTreeMap<ConnectionId, bool>,
}

/// Fields of a CONNECT that tests vary.
#[derive(Clone, Copy)]
struct ConnectOptions<'a> {
    clean_start: bool,
    keep_alive: u16,
    properties: Properties<'a>,
    will: Option<Will<'a, Properties<'a>>>,
}

const CLEAN: ConnectOptions<'static> =
    ConnectOptions { clean_start: true, keep_alive: 0, properties: &[], will: None };

/// A session that outlives its connection by 60 seconds.
const PERSISTENT: ConnectOptions<'static> =
    ConnectOptions { clean_start: false, properties: &[Property::SessionExpiry(60)], ..CLEAN };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn packet_id(id: u16) -> NonZeroU16 {
    NonZeroU16::new(id).expect("a packet identifier")
}

impl Default for Net {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Net {
    /// A broker without probation. During probation the broker handles input only when output is
    /// polled.
    fn new(config: Config) -> Self {
        Self::with_probation(config, Duration::ZERO)
    }

    fn with_probation(mut config: Config, probation: Duration) -> Self {
        config.limits.slow_start = probation;
        let broker = Broker::new(config);
        Self { broker, now: seconds(1), unread: BTreeMap::new(), closed: BTreeMap::new() }
    }

    fn with_limits(change: impl FnOnce(&mut Limits)) -> Self {
        let mut config = Config::default();
        change(&mut config.limits);
        Self::new(config)
    }

    fn accept(&mut self) -> Result<ConnectionId, Refused> {
        self.broker.handle_accept(self.now, None)
    }

    /// Connects, and expects a CONNACK with success as the first packet.
    fn connect(&mut self, client_id: &str, options: ConnectOptions<'_>) -> ConnectionId {
        let id = self.try_connect(client_id, options);
        match self.receive(id).as_slice() {
            [Received::ConnAck(_, Reason::SUCCESS), ..] => id,
            other => panic!("{client_id}: {other:?}"),
        }
    }

    fn try_connect(&mut self, client_id: &str, options: ConnectOptions<'_>) -> ConnectionId {
        let id = self.accept().expect("the broker accepts the connection");
        let connect = Connect {
            clean_start: options.clean_start,
            keep_alive: options.keep_alive,
            properties: options.properties,
            client_id,
            will: options.will,
            user_name: None,
            password: None,
        };
        self.send(id, Packet::Connect(connect));
        id
    }

    fn send(&mut self, id: ConnectionId, packet: Packet<'_, Properties<'_>>) {
        let mut bytes = BytesMut::new();
        packet.encode(&mut bytes).expect("an encodable packet");
        self.write(id, &bytes);
    }

    fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.broker.handle_bytes(self.now, id, bytes);
    }

    fn subscribe(&mut self, id: ConnectionId, filter: &str, qos: Qos) {
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        self.subscribe_with(id, filter, options, &[]);
        let received = self.receive(id);
        assert!(received.contains(&Received::SubAck(vec![qos as u8])), "{filter}: {received:?}");
    }

    fn subscribe_with(
        &mut self,
        id: ConnectionId,
        filter: &str,
        options: SubscriptionOptions,
        properties: Properties<'_>,
    ) {
        let subscriptions = [Subscription { filter, options }];
        let subscriptions = Subscriptions::new(&subscriptions);
        self.send(id, Packet::Subscribe(Subscribe { id: packet_id(7), properties, subscriptions }));
    }

    /// Publishes a message. `packet` is the packet identifier, or 0 at QoS 0.
    fn publish(&mut self, id: ConnectionId, topic: &str, payload: &str, qos: Qos, packet: u16) {
        self.send(id, Packet::Publish(publish(topic, payload, qos, packet)));
    }

    fn ack(&mut self, id: ConnectionId, packet: u16) {
        let (reason, properties) = (Reason::SUCCESS, &[][..]);
        self.send(id, Packet::PubAck(Ack { id: packet_id(packet), reason, properties }));
    }

    fn disconnect(&mut self, id: ConnectionId, reason: Reason, properties: Properties<'_>) {
        self.send(id, Packet::Disconnect(Notice { reason, properties }));
        self.close(id);
    }

    /// Closes all connections that the broker is closing.
    fn drain_closed(&mut self) {
        while let Some(wake) = self.broker.poll_wake() {
            match wake {
                Wake::Connection(id) if self.broker.is_closing(id) => self.close(id),
                _ => {}
            }
        }
    }

    /// Reports to the broker that the connection is closed.
    fn close(&mut self, id: ConnectionId) {
        self.broker.handle_closed(self.now, id);
        self.unread.remove(&id);
    }

    /// Returns the packets that the broker sent to a connection since the last call.
    fn receive(&mut self, id: ConnectionId) -> Vec<Received> {
        self.receive_as(id, |packet| Received::from(packet))
    }

    /// Returns the packets that the broker sent since the last call, each converted by `read`.
    fn receive_as<T>(&mut self, id: ConnectionId, read: impl Fn(Packet<'_>) -> T) -> Vec<T> {
        let unread = self.unread.entry(id).or_default();
        loop {
            let mut out = BytesMut::new();
            let output = self.broker.poll_output(self.now, id, &mut out);
            unread.extend_from_slice(&out);
            match output {
                Output::More => {}
                Output::Idle => break,
                Output::Close => {
                    self.closed.insert(id, true);
                    break;
                }
            }
        }
        let mut received = Vec::new();
        while let Some(header) = Header::read(unread, usize::MAX).expect("valid packet headers") {
            let packet = unread.split_to(header.len);
            received.push(read(Packet::decode(&packet).expect("a valid packet")));
        }
        assert!(unread.is_empty(), "the output ends with an incomplete packet");
        received
    }

    /// Returns the messages among the received packets.
    fn receive_messages(&mut self, id: ConnectionId) -> Vec<Message> {
        let received = self.receive(id).into_iter();
        received
            .filter(|received| matches!(received, Received::Publish(_)))
            .map(Received::into_message)
            .collect()
    }

    fn receive_payloads(&mut self, id: ConnectionId) -> Vec<String> {
        let messages = self.receive_messages(id).into_iter();
        messages
            .map(|message| String::from_utf8(message.payload).expect("a UTF-8 payload"))
            .collect()
    }

    /// Returns the incidents that the broker reports to its operator.
    fn drain_incidents(&mut self) -> Vec<Incident> {
        std::iter::from_fn(|| self.broker.poll_incident(self.now)).collect()
    }

    fn is_closed(&self, id: ConnectionId) -> bool {
        self.closed.get(&id).copied().unwrap_or_default()
    }

    /// Advances the clock by `time` and handles every deadline on the way.
    fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.broker.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.broker.handle_timeout(self.now);
        }
        self.now = end;
    }
}

fn publish<'a>(
    topic: &'a str,
    payload: &'a str,
    qos: Qos,
    packet: u16,
) -> Publish<'a, Properties<'a>> {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        id: NonZeroU16::new(packet),
        properties: &[],
        payload: payload.as_bytes(),
    }
}

fn will<'a>(
    topic: &'a str,
    payload: &'a str,
    properties: Properties<'a>,
) -> Will<'a, Properties<'a>> {
    Will { qos: Qos::AtLeastOnce, retain: false, properties, topic, payload: payload.as_bytes() }
}
