//! Tests of the adapter against a simulated broker.

use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use statestore_mqtt::packet::{
    Ack, Acks, ConnAck, Header, Notice, Packet, Publish, Subscribe, Subscription,
};
use statestore_mqtt::property::{Encode, Property};
use statestore_mqtt::session::{self, Options};
use statestore_mqtt::{Qos, Reason};
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::time::{Instant, Now};
use statestore_proto::transport::{Delivery, ReasonCode, Transmit};

use super::adapter::{Adapter, Error, MachineEvent, Role};

fn encoded<P: Encode>(packet: &Packet<'_, P>) -> Vec<u8> {
    let mut out = vec![0; packet.encoded_len().unwrap()];
    packet.encode_into(&mut out).unwrap();
    out
}

/// A CONNACK with success and these properties.
const fn accepting<'a>(properties: &'a [Property<'a>]) -> Packet<'a, &'a [Property<'a>]> {
    Packet::ConnAck(ConnAck { session_present: false, reason: Reason::SUCCESS, properties })
}

/// Properties of a message, one of them repeated.
const PROPERTIES: [Property<'static>; 7] = [
    Property::MessageExpiry(0),
    Property::ContentType("application/octet-stream"),
    Property::ResponseTopic("clients/c/ü"),
    Property::CorrelationData(&[]),
    Property::User("__ts", "1:0:c"),
    Property::User("empty", ""),
    Property::User("__ts", "again"),
];

/// A message to `a/b`; at QoS 0 if `id` is zero.
fn message<'a>(id: u16, properties: &'a [Property<'a>]) -> Publish<'a, &'a [Property<'a>]> {
    let id = NonZeroU16::new(id);
    let qos = if id.is_some() { Qos::AtLeastOnce } else { Qos::AtMostOnce };
    let (dup, retain, topic, payload) = (false, true, "a/b", b"payload\0");
    Publish { dup, qos, retain, topic, id, properties, payload }
}

/// An adapter and its simulated broker.
struct Rig {
    adapter: Adapter,
    now: Instant,
}

impl Rig {
    fn new((role, options): (Role, Options)) -> Self {
        let adapter = Adapter::new(Instant::default(), 3, role, options).unwrap();
        Self { adapter, now: Instant::default() }
    }

    /// An adapter after a CONNACK with these properties.
    fn connected(options: (Role, Options), properties: &[Property<'_>]) -> Self {
        let mut rig = Self::new(options);
        assert!(rig.written().starts_with(&[0x10]) && !rig.adapter.has_capacity());
        rig.receive(&accepting(properties)).unwrap();
        assert!(matches!(rig.adapter.poll(false), Some(MachineEvent::Connected { .. })));
        rig
    }

    /// Bytes that the broker has received since the last call.
    fn written(&mut self) -> Vec<u8> {
        let bytes: Vec<u8> = self.adapter.chunks().flatten().copied().collect();
        self.adapter.written(self.now, bytes.len());
        bytes
    }

    fn receive<P: Encode>(&mut self, packet: &Packet<'_, P>) -> Result<(), Error> {
        // Byte by byte, since a packet may be split anywhere.
        encoded(packet).iter().try_for_each(|byte| self.adapter.handle_bytes(self.now, &[*byte]))
    }

    /// Receives a message; at QoS 0 if `id` is zero.
    fn message(&mut self, id: u16) -> Result<(), Error> {
        self.receive(&Packet::Publish(message(id, &PROPERTIES)))
    }
}

fn client() -> (Role, Options) {
    (Role::Client, Role::Client.options("c"))
}

fn store() -> (Role, Options) {
    (Role::Store, Role::Store.options("c").receive_maximum(2))
}

/// The reason code of an error of the session.
fn reason_of(error: &Error) -> Option<Reason> {
    match error {
        Error::Session(error) => error.reason(),
        _ => None,
    }
}

/// A subscribed client with this number of queued requests of this size.
fn client_with(rig: &mut Rig, requests: usize, bytes: usize) -> Client {
    let mut client = Client::new(ClientConfig::new("c", [7; 8])).unwrap();
    let now = Now::default();
    client.handle(now, Input::Connected { session_present: false });
    let subscribe = client.poll_transmit().unwrap();
    rig.adapter.send(&subscribe);
    let written = rig.written();
    let Ok(Packet::Subscribe(Subscribe { id, subscriptions, .. })) = Packet::decode(&written)
    else {
        panic!("{written:?}")
    };
    let Transmit::Subscribe { filter, .. } = &subscribe else { panic!("{subscribe:?}") };
    let asked: Vec<_> =
        subscriptions.map(|Subscription { filter, options }| (filter, options.qos)).collect();
    assert_eq!(asked, [(&**filter, Qos::AtLeastOnce)]);
    rig.receive(&Packet::SubAck(Acks { id, properties: (), reasons: &[1] })).unwrap();
    let Some(MachineEvent::Subscribed(token, reason)) = rig.adapter.poll(true) else {
        panic!("a SUBACK")
    };
    client.handle(now, Input::Subscribed(token, reason));
    for _ in 0..requests {
        client.submit(now, Request::set("k", vec![0; bytes])).unwrap();
    }
    client
}

#[test]
fn request_has_all_required_properties() {
    let mut rig = Rig::connected(client(), &[]);
    let mut client = client_with(&mut rig, 1, 1);
    rig.adapter.send(&client.poll_transmit().unwrap());
    let written = rig.written();
    let Ok(Packet::Publish(publish)) = Packet::decode(&written) else { panic!("{written:?}") };
    assert_eq!((publish.qos, publish.dup, publish.retain), (Qos::AtLeastOnce, false, false));
    let mut found = String::new();
    for property in &publish.properties {
        match property {
            Property::CorrelationData(data) => assert_eq!(data.len(), 16),
            Property::User(name, value) => write!(found, "{name}={value} ").unwrap(),
            Property::ResponseTopic(topic) => assert_eq!(topic, client.response_topic().as_ref()),
            Property::MessageExpiry(seconds) => assert_eq!(seconds, 10),
            other => assert_eq!(other, Property::ContentType("application/octet-stream")),
        }
    }
    assert_eq!(publish.properties.iter().count(), 8, "each property once");
    assert_eq!(found, "__ts=0:1:c __srcId=c __protVer=1.0 statestore-incarnation= ");
}

#[test]
fn packet_above_the_maximum_packet_size_is_reported_and_not_sent() {
    let properties = [Property::MaximumPacketSize(400)];
    let mut rig = Rig::connected(client(), &properties);
    let mut client = client_with(&mut rig, 1, 400);
    rig.adapter.send(&client.poll_transmit().unwrap());
    assert_eq!(rig.written(), []);
    let Some(MachineEvent::Published(token, reason)) = rig.adapter.poll(true) else {
        panic!("a refusal")
    };
    client.handle(Now::default(), Input::Published(token, reason));
    let found = std::iter::from_fn(|| client.poll_event()).last();
    let Some(Event::Completed { outcome, .. }) = found else { panic!("{found:?}") };
    assert_eq!(outcome, Outcome::Undelivered(ReasonCode::PACKET_TOO_LARGE));
}

#[test]
fn receive_maximum_of_the_broker_limits_messages_in_flight() {
    let mut rig = Rig::connected(client(), &[Property::ReceiveMaximum(2)]);
    let mut client = client_with(&mut rig, 3, 1);
    rig.adapter.send(&client.poll_transmit().unwrap());
    assert!(rig.adapter.has_capacity());
    rig.adapter.send(&client.poll_transmit().unwrap());
    assert!(!rig.adapter.has_capacity());
    let written = rig.written();
    let Ok(Packet::Publish(Publish { id: Some(id), .. })) =
        Packet::decode(&written[..Header::read(&written, 1 << 20).unwrap().unwrap().len])
    else {
        panic!("{written:?}")
    };
    let reason = Reason::NO_MATCHING_SUBSCRIBERS;
    let puback = Packet::PubAck(Ack { id, reason, properties: () });
    rig.receive(&puback).unwrap();
    assert!(rig.adapter.has_capacity());
    let found = rig.adapter.poll(true);
    assert!(matches!(found, Some(MachineEvent::Published(_, ReasonCode::NO_MATCHING_SUBSCRIBERS))));
    // Most PUBLISHes of a store do not have a token, so capacity is reported separately.
    assert!(matches!(rig.adapter.poll(false), Some(MachineEvent::Writable)));
    assert!(rig.adapter.poll(true).is_none());
    let repeated = rig.receive(&puback).unwrap_err();
    assert_eq!(reason_of(&repeated), Some(Reason::PROTOCOL_ERROR), "{repeated}");
}

#[test]
fn written_output_frees_capacity() {
    let mut rig = Rig::connected(client(), &[]);
    let mut client = client_with(&mut rig, 1, 70_000);
    rig.adapter.send(&client.poll_transmit().unwrap());
    assert!(!rig.adapter.has_capacity() && rig.adapter.poll(true).is_none());
    assert!(rig.written().len() > 70_000);
    assert!(matches!(rig.adapter.poll(false), Some(MachineEvent::Writable)));
}

#[test]
fn messages_are_queued_until_requested_and_acknowledged_manually() {
    let mut rig = Rig::connected(store(), &[]);
    rig.now = Instant::from_millis(5);
    rig.message(11).unwrap();
    rig.message(0).unwrap();
    assert!(rig.adapter.poll(false).is_none());
    let Some(MachineEvent::Message(first)) = rig.adapter.poll(true) else { panic!("a message") };
    let delivery = first.with_incoming(|incoming| {
        assert_eq!((incoming.topic, incoming.arrived), ("a/b", Some(Instant::from_millis(5))));
        assert_eq!((incoming.message_expiry, incoming.retain), (Some(0), true));
        assert_eq!(incoming.payload, &Bytes::from_static(b"payload\0"));
        incoming.delivery.unwrap()
    });
    assert_eq!(rig.written(), []);
    for earlier in
        [Delivery(delivery.0 - (1 << 16)), Delivery(delivery.0 + (1 << 16)), Delivery(11)]
    {
        rig.adapter.send(&Transmit::Acknowledge(earlier));
        assert_eq!(rig.written(), [], "{earlier:?} is of another connection");
    }
    rig.adapter.send(&Transmit::Acknowledge(delivery));
    assert_eq!(rig.written(), [0x40, 0x02, 0x00, 11]);
    let Some(MachineEvent::Message(second)) = rig.adapter.poll(true) else { panic!("a message") };
    assert_eq!(second.with_incoming(|incoming| incoming.delivery), None);
}

#[test]
fn client_acknowledges_messages_on_delivery() {
    let mut rig = Rig::connected(client(), &[]);
    rig.message(11).unwrap();
    assert_eq!(rig.written(), []);
    assert!(rig.adapter.poll(true).is_some());
    assert_eq!(rig.written(), [0x40, 0x02, 0x00, 11]);
}

#[test]
fn inbox_is_bounded() {
    let (role, options) = store();
    let mut rig = Rig::connected((role, options.receive_excess(0)), &[]);
    for id in 1..=2 {
        rig.message(id).unwrap();
    }
    // Messages at QoS 0 are not counted, and dropped when there are too many.
    for _ in 0..300 {
        rig.message(0).unwrap();
    }
    let found = rig.message(3).unwrap_err();
    assert_eq!(reason_of(&found), Some(Reason::RECEIVE_MAXIMUM_EXCEEDED), "{found}");
    assert_eq!(rig.written(), [0xe0, 2, Reason::RECEIVE_MAXIMUM_EXCEEDED.0, 0]);
    let held = std::iter::from_fn(|| rig.adapter.poll(true)).count();
    assert_eq!(held, 256);
    let small = (Role::Client, client().1.maximum_packet_size(32));
    let found = Rig::connected(small, &[]).message(1).unwrap_err();
    assert_eq!(reason_of(&found), Some(Reason::PACKET_TOO_LARGE), "{found}");
}

#[test]
fn pings_keep_the_connection_alive_and_detect_a_dead_one() {
    let at = Instant::from_millis;
    let options = || (Role::Client, client().1.ping_timeout(Duration::from_secs(2)));
    let mut rig = Rig::connected(options(), &[Property::ServerKeepAlive(4)]);
    assert_eq!(
        rig.adapter.poll_timeout(),
        Some(at(3_000)),
        "the broker's Keep Alive takes precedence"
    );
    rig.adapter.handle_timeout(at(2_999)).unwrap();
    assert_eq!(rig.written(), []);
    rig.adapter.handle_timeout(at(3_000)).unwrap();
    rig.now = at(3_000);
    assert_eq!(rig.written(), [0xc0, 0x00]);
    rig.receive(&Packet::<()>::PingResp).unwrap();
    assert_eq!(rig.adapter.poll_timeout(), Some(at(6_000)));
    rig.adapter.handle_timeout(at(6_000)).unwrap();
    assert_eq!(rig.adapter.poll_timeout(), Some(at(8_000)));
    let found = rig.adapter.handle_timeout(at(8_000));
    assert!(matches!(found, Err(Error::Session(session::Error::KeepAliveTimeout))));
    let never = [Property::ServerKeepAlive(0)];
    assert_eq!(Rig::connected(options(), &never).adapter.poll_timeout(), None);
    let found = Rig::new(client()).adapter.handle_timeout(at(10_000));
    assert!(matches!(found, Err(Error::Session(session::Error::ConnectTimeout))));
}

#[test]
fn rejection_and_protocol_error_differ() {
    use session::Error::{Disconnected, Options as Invalid, Protocol, Refused};
    let refusing = |session_present, reason, properties: Option<Property<'_>>| {
        let packet = Packet::ConnAck(ConnAck { session_present, reason, properties });
        Rig::new(client()).receive(&packet).unwrap_err()
    };
    let refused = refusing(false, Reason::NOT_AUTHORIZED, None);
    assert!(matches!(refused, Error::Session(Refused(_))), "{refused}");
    assert_eq!(reason_of(&refused), Some(Reason::NOT_AUTHORIZED));
    let qos_0 = Property::MaximumQos(Qos::AtMostOnce);
    let refused = refusing(false, Reason::SUCCESS, Some(qos_0));
    assert!(matches!(refused, Error::QosUnsupported), "{refused}");
    let refused = refusing(true, Reason::SUCCESS, None);
    assert!(matches!(refused, Error::Session(Protocol(_))), "{refused}");
    let early = Rig::new(client()).message(0);
    assert!(matches!(early, Err(Error::Session(Protocol(_)))));
    let mut rig = Rig::connected(client(), &[]);
    let bye = Packet::Disconnect(Notice { reason: Reason::SESSION_TAKEN_OVER, properties: () });
    let ended = rig.receive(&bye).unwrap_err();
    assert!(matches!(ended, Error::Session(Disconnected(_))), "{ended}");
    assert_eq!(reason_of(&ended), Some(Reason::SESSION_TAKEN_OVER));
    let closed = Rig::connected(client(), &[]).adapter.handle_end(Instant::default());
    assert!(matches!(closed, Err(Error::Session(session::Error::ConnectionLost))));
    let long = Role::Client.options(&"x".repeat(70_000));
    let found = Adapter::new(Instant::default(), 0, Role::Client, long);
    assert!(matches!(found, Err(Error::Session(Invalid(_)))));
}

#[test]
fn store_resumes_a_session_of_another_process() {
    let mut rig = Rig::new(store());
    let properties = ();
    rig.receive(&Packet::ConnAck(ConnAck {
        session_present: true,
        reason: Reason::SUCCESS,
        properties,
    }))
    .unwrap();
    let found = rig.adapter.poll(false);
    assert!(matches!(found, Some(MachineEvent::Connected { session_present: true })));
}

#[test]
fn violations_of_the_broker_end_the_connection_with_a_reason() {
    let (unknown, too_large) = ([Property::TopicAlias(1)], [Property::TopicAlias(1_000)]);
    let message = |properties| Packet::Publish(message(0, properties));
    let nameless = Packet::Publish(Publish { topic: "", ..self::message(0, &unknown) });
    for (packet, expected) in [
        (message(&too_large), Reason::TOPIC_ALIAS_INVALID),
        (nameless, Reason::PROTOCOL_ERROR),
        (Packet::PingReq, Reason::PROTOCOL_ERROR),
    ] {
        let mut rig = Rig::connected(client(), &[]);
        let found = rig.receive(&packet).unwrap_err();
        assert_eq!(reason_of(&found), Some(expected), "{found}");
        assert_eq!(rig.written(), [0xe0, 2, expected.0, 0]);
    }
    let malformed = Rig::connected(store(), &[]).adapter.handle_bytes(Instant::default(), &[0]);
    assert_eq!(reason_of(&malformed.unwrap_err()), Some(Reason::MALFORMED_PACKET));
}
