//! The session against a broker that is played.

use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use statestore_mqtt::packet::{
    Ack, Acks, ConnAck, Header, Notice, Packet, Publish, Subscribe, Subscription,
};
use statestore_mqtt::property::{Encode, Property};
use statestore_mqtt::{Qos, Reason};
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request};
use statestore_proto::mqtt::{Delivery, ReasonCode, Transmit};
use statestore_proto::time::{Instant, Now};

use super::session::{Error, News, Options, Session};

fn encoded<P: Encode>(packet: &Packet<'_, P>) -> Vec<u8> {
    let mut out = vec![0; packet.encoded_len().unwrap()];
    packet.encode_into(&mut out).unwrap();
    out
}

/// A CONNACK that accepts, with these properties.
const fn accepting<'a>(properties: &'a [Property<'a>]) -> Packet<'a, &'a [Property<'a>]> {
    Packet::ConnAck(ConnAck { session_present: false, reason: Reason::SUCCESS, properties })
}

/// What a message says beside its payload, some of it more than once.
const SAID: [Property<'static>; 7] = [
    Property::MessageExpiry(0),
    Property::ContentType("application/octet-stream"),
    Property::ResponseTopic("clients/c/ü"),
    Property::CorrelationData(&[]),
    Property::User("__ts", "1:0:c"),
    Property::User("empty", ""),
    Property::User("__ts", "again"),
];

/// A message to `a/b`; without an identifier at QoS 0.
fn message<'a>(id: u16, said: &'a [Property<'a>]) -> Publish<'a, &'a [Property<'a>]> {
    let id = NonZeroU16::new(id);
    let qos = if id.is_some() { Qos::AtLeastOnce } else { Qos::AtMostOnce };
    let (dup, retain, topic, payload) = (false, true, "a/b", b"payload\0");
    Publish { dup, qos, retain, topic, id, properties: said, payload }
}

/// A session and the broker at its other end.
struct Rig {
    session: Session,
    now: Instant,
}

impl Rig {
    fn new(options: Options) -> Self {
        let session = Session::new(Instant::default(), 3, options).unwrap();
        Self { session, now: Instant::default() }
    }

    /// A connection that the broker accepted with these properties.
    fn connected(options: Options, properties: &[Property<'_>]) -> Self {
        let mut rig = Self::new(options);
        assert!(rig.written().starts_with(&[0x10]) && !rig.session.has_room());
        rig.told(&accepting(properties)).unwrap();
        assert!(matches!(rig.session.poll(false), Some(News::Connected { .. })));
        rig
    }

    /// What the broker has received since.
    fn written(&mut self) -> Vec<u8> {
        let bytes = self.session.output().to_vec();
        self.session.written(self.now, bytes.len());
        bytes
    }

    fn told<P: Encode>(&mut self, packet: &Packet<'_, P>) -> Result<(), Error> {
        // Byte by byte: no packet may depend on how it is cut.
        encoded(packet).iter().try_for_each(|byte| self.session.handle_bytes(self.now, &[*byte]))
    }

    /// Zero is QoS 0.
    fn message(&mut self, id: u16) -> Result<(), Error> {
        self.told(&Packet::Publish(message(id, &SAID)))
    }
}

fn by_hand() -> Options {
    Options { acknowledges_by_hand: true, receive_maximum: 2, ..Options::new("c") }
}

/// A client that has subscribed and wants to send this many requests of so many bytes.
fn asking(rig: &mut Rig, requests: usize, bytes: usize) -> Client {
    let mut client = Client::new(ClientConfig::new("c", [7; 8]).unwrap());
    let now = Now::default();
    client.handle_connected(now, false);
    let subscribe = client.poll_transmit().unwrap();
    rig.session.send(&subscribe);
    let written = rig.written();
    let Ok(Packet::Subscribe(Subscribe { id, subscriptions, .. })) = Packet::decode(&written)
    else {
        panic!("{written:?}")
    };
    let Transmit::Subscribe { filter, .. } = &subscribe else { panic!("{subscribe:?}") };
    let asked: Vec<_> =
        subscriptions.map(|Subscription { filter, options }| (filter, options.qos)).collect();
    assert_eq!(asked, [(&**filter, Qos::AtLeastOnce)]);
    rig.told(&Packet::SubAck(Acks { id, properties: (), reasons: &[1] })).unwrap();
    let Some(News::Subscribed(token, reason)) = rig.session.poll(true) else { panic!("a SUBACK") };
    client.handle_subscribed(now, token, reason);
    for _ in 0..requests {
        client.submit(now, Request::set("k", vec![0; bytes])).unwrap();
    }
    client
}

#[test]
fn a_request_carries_what_it_must() {
    let mut rig = Rig::connected(Options::new("c"), &[]);
    let mut client = asking(&mut rig, 1, 1);
    rig.session.send(&client.poll_transmit().unwrap());
    let written = rig.written();
    let Ok(Packet::Publish(publish)) = Packet::decode(&written) else { panic!("{written:?}") };
    assert_eq!((publish.qos, publish.dup, publish.retain), (Qos::AtLeastOnce, false, false));
    let mut told = String::new();
    for property in &publish.properties {
        match property {
            Property::CorrelationData(data) => assert_eq!(data.len(), 16),
            Property::User(name, value) => write!(told, "{name}={value} ").unwrap(),
            Property::ResponseTopic(topic) => assert_eq!(topic, client.response_topic().as_ref()),
            Property::MessageExpiry(seconds) => assert_eq!(seconds, 10),
            other => assert_eq!(other, Property::ContentType("application/octet-stream")),
        }
    }
    assert_eq!(publish.properties.iter().count(), 8, "each of them");
    assert_eq!(told, "__ts=0:1:c __srcId=c __protVer=1.0 statestore-incarnation= ");
}

#[test]
fn what_the_broker_does_not_take_is_reported_and_not_sent() {
    let properties = [Property::MaximumPacketSize(400)];
    let mut rig = Rig::connected(Options::new("c"), &properties);
    let mut client = asking(&mut rig, 1, 400);
    rig.session.send(&client.poll_transmit().unwrap());
    assert_eq!(rig.written(), []);
    let Some(News::Published(token, reason)) = rig.session.poll(true) else { panic!("a refusal") };
    client.handle_published(Now::default(), token, reason);
    let told = std::iter::from_fn(|| client.poll_event()).last();
    let Some(Event::Completed { outcome, .. }) = told else { panic!("{told:?}") };
    assert_eq!(outcome, Outcome::Rejected(ReasonCode::PACKET_TOO_LARGE));
}

#[test]
fn no_more_is_sent_than_the_broker_takes_ahead() {
    let mut rig = Rig::connected(Options::new("c"), &[Property::ReceiveMaximum(2)]);
    let mut client = asking(&mut rig, 3, 1);
    rig.session.send(&client.poll_transmit().unwrap());
    assert!(rig.session.has_room());
    rig.session.send(&client.poll_transmit().unwrap());
    assert!(!rig.session.has_room());
    let written = rig.written();
    let Ok(Packet::Publish(Publish { id: Some(id), .. })) =
        Packet::decode(&written[..Header::read(&written, 1 << 20).unwrap().unwrap().len])
    else {
        panic!("{written:?}")
    };
    let reason = Reason::NO_MATCHING_SUBSCRIBERS;
    let puback = Packet::PubAck(Ack { id, reason, properties: () });
    rig.told(&puback).unwrap();
    assert!(rig.session.has_room());
    let told = rig.session.poll(true);
    assert!(matches!(told, Some(News::Published(_, ReasonCode::NO_MATCHING_SUBSCRIBERS))));
    // A store is not told of most of its PUBACKs, and must hear of the room all the same.
    assert!(matches!(rig.session.poll(false), Some(News::Room)));
    assert!(rig.session.poll(true).is_none());
    assert!(matches!(rig.told(&puback), Err(Error::Protocol(_))), "it came already");
}

#[test]
fn what_is_written_makes_room() {
    let mut rig = Rig::connected(Options::new("c"), &[]);
    let mut client = asking(&mut rig, 1, 70_000);
    rig.session.send(&client.poll_transmit().unwrap());
    assert!(!rig.session.has_room() && rig.session.poll(true).is_none());
    assert!(rig.written().len() > 70_000);
    assert!(matches!(rig.session.poll(false), Some(News::Room)));
}

#[test]
fn messages_wait_until_they_are_wanted_and_acknowledged_by_hand() {
    let mut rig = Rig::connected(by_hand(), &[]);
    rig.now = Instant::from_millis(5);
    rig.message(11).unwrap();
    rig.message(0).unwrap();
    assert!(rig.session.poll(false).is_none());
    let Some(News::Message(first)) = rig.session.poll(true) else { panic!("a message") };
    let delivery = first.show(|incoming| {
        assert_eq!((incoming.topic, incoming.arrived), ("a/b", Some(Instant::from_millis(5))));
        assert_eq!((incoming.message_expiry, incoming.retain), (Some(0), true));
        assert_eq!(incoming.payload, &Bytes::from_static(b"payload\0"));
        incoming.delivery.unwrap()
    });
    assert_eq!(rig.written(), []);
    let delivery = delivery.unwrap();
    for earlier in
        [Delivery(delivery.0 - (1 << 16)), Delivery(delivery.0 + (1 << 16)), Delivery(11)]
    {
        rig.session.send(&Transmit::Acknowledge(earlier));
        assert_eq!(rig.written(), [], "{earlier:?} is of another connection");
    }
    rig.session.send(&Transmit::Acknowledge(delivery));
    assert_eq!(rig.written(), [0x40, 0x02, 0x00, 11]);
    let Some(News::Message(second)) = rig.session.poll(true) else { panic!("a message") };
    assert_eq!(second.show(|incoming| incoming.delivery), Some(None));
}

#[test]
fn a_client_acknowledges_what_is_handed_over() {
    let mut rig = Rig::connected(Options::new("c"), &[]);
    rig.message(11).unwrap();
    assert_eq!(rig.written(), []);
    assert!(rig.session.poll(true).is_some());
    assert_eq!(rig.written(), [0x40, 0x02, 0x00, 11]);
}

#[test]
fn what_waits_is_bounded_whatever_the_broker_sends() {
    let mut rig = Rig::connected(by_hand(), &[]);
    for id in 1..=8 {
        rig.message(id).unwrap();
    }
    rig.message(0).unwrap();
    let told = rig.message(9).unwrap_err();
    assert_eq!(told.reason(), Some(Reason::RECEIVE_MAXIMUM_EXCEEDED), "{told}");
    let large = Options { packet_max: 32, ..Options::new("c") };
    let told = Rig::connected(large, &[]).message(1).unwrap_err();
    assert_eq!(told.reason(), Some(Reason::PACKET_TOO_LARGE), "{told}");
}

#[test]
fn pings_keep_the_connection_alive_and_find_it_dead() {
    let at = Instant::from_millis;
    let options = Options { patience: Duration::from_secs(2), ..Options::new("c") };
    let mut rig = Rig::connected(options.clone(), &[Property::ServerKeepAlive(4)]);
    assert_eq!(rig.session.poll_timeout(), Some(at(3_000)), "the broker's number counts");
    rig.session.handle_timeout(at(2_999)).unwrap();
    assert_eq!(rig.written(), []);
    rig.session.handle_timeout(at(3_000)).unwrap();
    rig.now = at(3_000);
    assert_eq!(rig.written(), [0xc0, 0x00]);
    rig.told(&Packet::<()>::PingResp).unwrap();
    assert_eq!(rig.session.poll_timeout(), Some(at(6_000)));
    rig.session.handle_timeout(at(6_000)).unwrap();
    assert_eq!(rig.session.poll_timeout(), Some(at(8_000)));
    assert!(matches!(rig.session.handle_timeout(at(8_000)), Err(Error::Silent)));
    let never = [Property::ServerKeepAlive(0)];
    assert_eq!(Rig::connected(options, &never).session.poll_timeout(), None);
    let mut unanswered = Rig::new(Options::new("c"));
    assert!(matches!(unanswered.session.handle_timeout(at(10_000)), Err(Error::Silent)));
}

#[test]
fn a_broker_that_refuses_or_errs_is_told_apart() {
    let refusing = |session_present, reason, properties: Option<Property<'_>>| {
        let packet = Packet::ConnAck(ConnAck { session_present, reason, properties });
        Rig::new(Options::new("c")).told(&packet).unwrap_err()
    };
    let refused = refusing(false, Reason::NOT_AUTHORIZED, None);
    assert!(matches!(refused, Error::Refused(ReasonCode::NOT_AUTHORIZED)), "{refused}");
    let qos_0 = Property::MaximumQos(Qos::AtMostOnce);
    let refused = refusing(false, Reason::SUCCESS, Some(qos_0));
    assert!(matches!(refused, Error::Protocol(_)), "{refused}");
    let refused = refusing(true, Reason::SUCCESS, None);
    assert!(matches!(refused, Error::Protocol(_)), "{refused}");
    assert!(matches!(Rig::new(Options::new("c")).message(0), Err(Error::Protocol(_))));
    let mut rig = Rig::connected(Options::new("c"), &[]);
    let bye = Packet::Disconnect(Notice { reason: Reason::SESSION_TAKEN_OVER, properties: () });
    assert!(matches!(rig.told(&bye), Err(Error::Disconnected(ReasonCode(0x8e)))));
    let long = Options::new("x".repeat(70_000));
    assert!(matches!(Session::new(Instant::default(), 0, long), Err(Error::Options(_))));
}

#[test]
fn what_was_not_offered_is_refused() {
    let alias = [Property::TopicAlias(1)];
    for packet in [
        Packet::Publish(Publish { qos: Qos::ExactlyOnce, ..message(1, &SAID) }),
        Packet::Publish(message(1, &alias)),
        Packet::Publish(Publish { topic: "", ..message(0, &alias) }),
        Packet::PingReq,
    ] {
        let told = Rig::connected(Options::new("c"), &[]).told(&packet).unwrap_err();
        assert_eq!(told.reason(), Some(Reason::PROTOCOL_ERROR), "{told}");
    }
    let malformed = Rig::connected(by_hand(), &[]).session.handle_bytes(Instant::default(), &[0]);
    assert_eq!(malformed.unwrap_err().reason(), Some(Reason::MALFORMED_PACKET));
}
