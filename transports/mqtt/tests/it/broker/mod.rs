//! The broker as a machine: clients that are bytes, and time that is an argument.

mod aliases;
mod attacks;
mod contract;
mod costs;
mod hostile;
mod incidents;
mod laws;
mod local;
mod logins;
mod statements;
mod turns;
mod world;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::broker::{
    Broker, Config, ConnectionId, Incident, IncidentKind, Limits, Output, Refused,
};
use statestore_mqtt::packet::{
    Ack, Connect, Header, Notice, Packet, Publish, Subscribe, Subscription, SubscriptionOptions,
    Subscriptions, Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};

type Properties<'a> = &'a [Property<'a>];

/// A received packet, as far as tests ask about it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
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
    /// With the method.
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
    /// What the properties say, in order.
    properties: Vec<String>,
}

impl Seen {
    fn of(packet: Packet<'_>) -> Self {
        match packet {
            Packet::ConnAck(told) => Self::ConnAck(told.session_present, told.reason),
            Packet::Publish(publish) => Self::Publish(Message {
                topic: publish.topic.into(),
                payload: publish.payload.into(),
                qos: publish.qos,
                dup: publish.dup,
                retain: publish.retain,
                id: publish.id.map_or(0, NonZeroU16::get),
                properties: publish.properties.iter().map(|one| format!("{one:?}")).collect(),
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
                Self::Auth(notice.reason, method.expect("a method"))
            }
            _ => Self::Other,
        }
    }

    fn message(self) -> Message {
        match self {
            Self::Publish(message) => message,
            other => panic!("{other:?} is no message"),
        }
    }
}

/// A broker, and what was written to each connection.
struct Net {
    broker: Broker,
    now: Duration,
    unread: BTreeMap<ConnectionId, BytesMut>,
    closed: BTreeMap<ConnectionId, bool>,
}

/// How a client connects.
#[derive(Clone, Copy)]
struct Hello<'a> {
    clean_start: bool,
    keep_alive: u16,
    properties: Properties<'a>,
    will: Option<Will<'a, Properties<'a>>>,
}

const HELLO: Hello<'static> =
    Hello { clean_start: true, keep_alive: 0, properties: &[], will: None };

/// For a session that outlives its connection by a minute.
const KEPT: Hello<'static> =
    Hello { clean_start: false, properties: &[Property::SessionExpiry(60)], ..HELLO };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn number(id: u16) -> NonZeroU16 {
    NonZeroU16::new(id).expect("a packet id")
}

impl Default for Net {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Net {
    /// Nobody is on probation, unless somebody says so, or nothing would be done before an output is polled.
    fn new(config: Config) -> Self {
        Self::with_probation(config, Duration::ZERO)
    }

    fn with_probation(mut config: Config, probation: Duration) -> Self {
        config.limits.probation = probation;
        let broker = Broker::new(config);
        Self { broker, now: seconds(1), unread: BTreeMap::new(), closed: BTreeMap::new() }
    }

    fn limited(change: impl FnOnce(&mut Limits)) -> Self {
        let mut config = Config::default();
        change(&mut config.limits);
        Self::new(config)
    }

    fn accept(&mut self) -> Result<ConnectionId, Refused> {
        self.broker.handle_accept(self.now, None)
    }

    /// Connects and takes the CONNACK.
    fn connect(&mut self, client_id: &str, hello: Hello<'_>) -> ConnectionId {
        let id = self.try_connect(client_id, hello);
        match self.seen(id).as_slice() {
            [Seen::ConnAck(_, Reason::SUCCESS), ..] => id,
            other => panic!("{client_id}: {other:?}"),
        }
    }

    fn try_connect(&mut self, client_id: &str, hello: Hello<'_>) -> ConnectionId {
        let id = self.accept().expect("room");
        let connect = Connect {
            clean_start: hello.clean_start,
            keep_alive: hello.keep_alive,
            properties: hello.properties,
            client_id,
            will: hello.will,
            user_name: None,
            password: None,
        };
        self.send(id, Packet::Connect(connect));
        id
    }

    fn send(&mut self, id: ConnectionId, packet: Packet<'_, Properties<'_>>) {
        let mut bytes = BytesMut::new();
        packet.encode(&mut bytes).expect("a packet");
        self.write(id, &bytes);
    }

    fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.broker.handle_bytes(self.now, id, bytes);
    }

    fn subscribe(&mut self, id: ConnectionId, filter: &str, qos: Qos) {
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        self.subscribe_with(id, filter, options, &[]);
        let seen = self.seen(id);
        assert!(seen.contains(&Seen::SubAck(vec![qos as u8])), "{filter}: {seen:?}");
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
        self.send(id, Packet::Subscribe(Subscribe { id: number(7), properties, subscriptions }));
    }

    /// Publishes at QoS 0, or with this packet id.
    fn publish(&mut self, id: ConnectionId, topic: &str, payload: &str, qos: Qos, packet: u16) {
        self.send(id, Packet::Publish(publish(topic, payload, qos, packet)));
    }

    fn ack(&mut self, id: ConnectionId, packet: u16) {
        let (reason, properties) = (Reason::SUCCESS, &[][..]);
        self.send(id, Packet::PubAck(Ack { id: number(packet), reason, properties }));
    }

    fn disconnect(&mut self, id: ConnectionId, reason: Reason, properties: Properties<'_>) {
        self.send(id, Packet::Disconnect(Notice { reason, properties }));
        self.close(id);
    }

    /// The connection is gone.
    fn close(&mut self, id: ConnectionId) {
        self.broker.handle_closed(self.now, id);
        self.unread.remove(&id);
    }

    /// What was sent to a connection since it was asked last.
    fn seen(&mut self, id: ConnectionId) -> Vec<Seen> {
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
        let mut seen = Vec::new();
        while let Some(header) = Header::read(unread, usize::MAX).expect("packets") {
            let packet = unread.split_to(header.len);
            seen.push(Seen::of(Packet::decode(&packet).expect("a packet")));
        }
        assert!(unread.is_empty(), "whole packets");
        seen
    }

    /// The messages among them.
    fn heard(&mut self, id: ConnectionId) -> Vec<Message> {
        let seen = self.seen(id).into_iter();
        seen.filter(|seen| matches!(seen, Seen::Publish(_))).map(Seen::message).collect()
    }

    fn payloads(&mut self, id: ConnectionId) -> Vec<String> {
        let heard = self.heard(id).into_iter();
        heard.map(|message| String::from_utf8(message.payload).expect("text")).collect()
    }

    /// What whoever runs the broker is told.
    fn told(&mut self) -> Vec<Incident> {
        std::iter::from_fn(|| self.broker.poll_incident(self.now)).collect()
    }

    fn is_closed(&self, id: ConnectionId) -> bool {
        self.closed.get(&id).copied().unwrap_or_default()
    }

    /// Time goes by, and everything that is due happens.
    fn pass(&mut self, time: Duration) {
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
