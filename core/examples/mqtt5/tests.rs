//! The codec against itself and against bytes written by hand; the session against a broker that is played.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request};
use statestore_proto::mqtt::{Delivery, ReasonCode, Transmit};
use statestore_proto::time::{Instant, Now};

use super::packet::{
    ConnAck, Connect, Packet, PubAck, Publish, ReceivedProperties, SubAck, Subscribe,
    UserProperties, frame_len,
};
use super::session::{Error, News, Options, Session};
use super::wire::{Length, Malformed, Reader, Sink, Unwritable, VARINT_MAX, put_text, put_varint};

type Plain<'a> = Packet<'a, ReceivedProperties<'a>>;

fn encoded<U: UserProperties>(packet: &Packet<'_, U>) -> Vec<u8> {
    let mut out = vec![0xee; packet.encoded_len().unwrap() + 1];
    let len = packet.encode_into(&mut out).unwrap();
    assert_eq!((len, out.pop()), (out.len(), Some(0xee)), "{out:?}");
    assert_eq!(frame_len(&out, len), Ok(Some(len)));
    let needed = Err(Unwritable::NoRoom { needed: len });
    assert_eq!(packet.encode_into(&mut vec![0; len - 1]), needed);
    out
}

/// A PUBLISH with everything, and its user properties.
fn full(id: u16) -> Publish<'static, &'static [(&'static str, &'static str)]> {
    let properties: &[_] = &[("__ts", "1:0:c"), ("empty", ""), ("__ts", "again")];
    Publish {
        dup: true,
        retain: true,
        message_expiry: Some(0),
        content_type: Some("application/octet-stream"),
        response_topic: Some("clients/c/ü"),
        correlation_data: Some(&[]),
        ..Publish::new("a/b", id, b"payload\0", properties)
    }
}

/// One of each packet, as bytes.
fn all() -> Vec<Vec<u8>> {
    let plain: [Plain<'_>; 12] = [
        Packet::Connect(Connect {
            client_id: "client",
            clean_start: true,
            keep_alive: 30,
            session_expiry: 3_600,
            receive_maximum: 7,
            packet_max: 1 << 20,
        }),
        Packet::ConnAck(ConnAck::default()),
        Packet::ConnAck(ConnAck {
            session_present: true,
            reason: 0,
            receive_maximum: 20,
            packet_max: Some(1),
            keep_alive: Some(0),
            qos_max: 1,
        }),
        Packet::PubAck(PubAck { id: 1, reason: 0 }),
        Packet::PubAck(PubAck { id: u16::MAX, reason: 0x10 }),
        Packet::Subscribe(Subscribe { id: 2, filter: "a/+" }),
        Packet::SubAck(SubAck { id: 2, reason: 1 }),
        Packet::PingReq,
        Packet::PingResp,
        Packet::Disconnect(0),
        Packet::Disconnect(0x8e),
        Packet::Publish(Publish { id: None, ..Publish::new("t", 0, b"", Default::default()) }),
    ];
    plain.iter().map(encoded).chain([encoded(&Packet::Publish(full(9)))]).collect()
}

#[test]
fn what_is_written_is_read() {
    for bytes in all() {
        let packet = Packet::decode(&bytes).unwrap();
        // Properties that are no user properties are written by their fields.
        if !matches!(packet, Packet::Publish(_)) {
            assert_eq!(encoded(&packet), bytes, "{packet:?}");
        }
    }
    let bytes = encoded(&Packet::Publish(full(9)));
    let Ok(Packet::Publish(read)) = Packet::decode(&bytes) else { panic!("a PUBLISH") };
    assert_eq!(read.user_properties.collect::<Vec<_>>(), full(9).user_properties);
    assert_eq!(Publish { user_properties: (), ..read_as(read) }, read_as(full(9)));
    assert_eq!(encoded(&Packet::Publish(read)), bytes);
}

/// Everything but the user properties.
fn read_as<U>(publish: Publish<'_, U>) -> Publish<'_, ()> {
    let Publish { topic, id, dup, retain, message_expiry, content_type, .. } = publish;
    let Publish { response_topic, correlation_data, payload, .. } = publish;
    Publish {
        topic,
        id,
        dup,
        retain,
        message_expiry,
        content_type,
        response_topic,
        correlation_data,
        payload,
        user_properties: (),
    }
}

#[test]
fn bytes_written_by_hand() {
    let connack = [0x20, 0x09, 0x01, 0x00, 0x06, 0x21, 0x00, 0x14, 0x22, 0x00, 0x0a];
    let expected = ConnAck { session_present: true, receive_maximum: 20, ..ConnAck::default() };
    assert_eq!(Packet::decode(&connack), Ok(Packet::ConnAck(expected)));
    // A PUBACK with a reason string, a DISCONNECT with nothing.
    let puback = [0x40, 0x08, 0x00, 0x01, 0x87, 0x04, 0x1f, 0x00, 0x01, b'x'];
    assert_eq!(Packet::decode(&puback), Ok(Packet::PubAck(PubAck { id: 1, reason: 0x87 })));
    assert_eq!(Packet::decode(&[0xe0, 0x00]), Ok(Packet::Disconnect(0)));
    let publish = [0x32, 0x09, 0x00, 0x01, b't', 0x00, 0x05, 0x02, 0x0b, 0x01, b'p'];
    let Ok(Packet::Publish(read)) = Packet::decode(&publish) else { panic!("a PUBLISH") };
    assert_eq!((read.topic, read.id, read.payload), ("t", Some(5), b"p".as_slice()));
}

#[test]
fn what_is_cut_short_or_goes_on_is_refused() {
    for bytes in all() {
        for len in 0..bytes.len() {
            let cut = bytes.get(..len).unwrap();
            assert!(Packet::decode(cut).is_err(), "{len} of {bytes:?}");
            assert!(frame_len(cut, bytes.len()).unwrap().is_none_or(|all| all == bytes.len()));
            // The same with a length that agrees, so that what is cut is inside.
            let Some(body) = cut.get(2..).filter(|_| bytes.len() < 128) else { continue };
            let mut shorter = vec![bytes[0], u8::try_from(body.len()).unwrap()];
            shorter.extend_from_slice(body);
            let _ = Packet::decode(&shorter);
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Packet::decode(&longer), Err(Malformed::Trailing), "{bytes:?}");
    }
}

#[test]
fn no_byte_that_is_changed_leads_to_a_panic() {
    for bytes in all() {
        for at in 0..bytes.len() {
            for value in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(Packet::Publish(publish)) = Packet::decode(&changed) {
                    let _ = publish.user_properties.count();
                }
                let _ = frame_len(&changed, 1 << 20);
            }
        }
    }
}

#[test]
fn lengths_are_checked_before_anything_is_kept() {
    assert_eq!(frame_len(&[0x30, 0xff, 0xff, 0xff, 0x7f], 1 << 20).unwrap_err(), {
        Malformed::TooLarge { len: usize::try_from(VARINT_MAX).unwrap() + 5 }
    });
    assert_eq!(frame_len(&[0x30, 0xff, 0xff, 0xff, 0xff], 1 << 30), Err(Malformed::Varint));
    assert_eq!(frame_len(&[0x30, 0xff, 0xff], 1 << 20), Ok(None));
    assert_eq!(frame_len(&[0x30, 0x05], 7), Ok(Some(7)));
    assert_eq!(frame_len(&[0x30, 0x05], 6), Err(Malformed::TooLarge { len: 7 }));
    assert_eq!(frame_len(&[], 0), Ok(None));
    // Padded.
    assert_eq!(Packet::decode(&[0xd0, 0x80, 0x00]), Err(Malformed::Varint));
    // A topic, a property block, a text in it: each longer than what is there.
    for body in [
        &[0x00, 0x09, b't'][..],
        &[0x00, 0x01, b't', 0x00, 0x01, 0x7f],
        &[0x00, 0x01, b't', 0x00, 0x01, 0x04, 0x03, 0xff, 0xff, b'x'],
    ] {
        let mut packet = vec![0x32, u8::try_from(body.len()).unwrap()];
        packet.extend_from_slice(body);
        assert_eq!(Packet::decode(&packet), Err(Malformed::Truncated), "{body:?}");
    }
}

#[test]
fn what_the_protocol_forbids_is_refused() {
    for (packet, error) in [
        (&[0x34, 0x06, 0x00, 0x01, b't', 0x00, 0x05, 0x00][..], Malformed::Type(0x34)),
        (&[0x38, 0x04, 0x00, 0x01, b't', 0x00], Malformed::Value),
        (&[0x30, 0x03, 0x00, 0x00, 0x00], Malformed::Value),
        (&[0x32, 0x06, 0x00, 0x01, b't', 0x00, 0x00, 0x00], Malformed::Value),
        (&[0x30, 0x04, 0x00, 0x01, 0xff, 0x00], Malformed::Text),
        (&[0x30, 0x04, 0x00, 0x01, 0x00, 0x00], Malformed::Text),
        (&[0x30, 0x06, 0x00, 0x01, b't', 0x02, 0x7e, 0x00], Malformed::Property(0x7e)),
        (&[0x30, 0x08, 0x00, 0x01, b't', 0x04, 0x01, 0x00, 0x01, 0x00], Malformed::Twice(0x01)),
        (&[0x30, 0x07, 0x00, 0x01, b't', 0x03, 0x23, 0x00, 0x01], Malformed::Value),
        (&[0x20, 0x03, 0x02, 0x00, 0x00], Malformed::Value),
        (&[0x20, 0x06, 0x00, 0x00, 0x03, 0x21, 0x00, 0x00], Malformed::Value),
        (&[0x20, 0x05, 0x00, 0x00, 0x02, 0x24, 0x02], Malformed::Value),
        (&[0x90, 0x05, 0x00, 0x01, 0x00, 0x01, 0x01], Malformed::Trailing),
        (&[0x50, 0x02, 0x00, 0x01], Malformed::Type(0x50)),
    ] {
        assert_eq!(Packet::decode(packet), Err(error), "{packet:?}");
    }
}

#[test]
fn numbers_take_as_few_bytes_as_they_need() {
    for (number, len) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (2_097_152, 4)] {
        let mut length = Length::default();
        put_varint(&mut length, number).unwrap();
        assert_eq!(length.0, len, "{number}");
    }
    struct Bytes(Vec<u8>);
    impl Sink for Bytes {
        fn put(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
    }
    let max = usize::try_from(VARINT_MAX).unwrap();
    for number in [0, 1, 127, 128, 255, 256, 16_383, 16_384, 2_097_151, 2_097_152, max] {
        let mut bytes = Bytes(Vec::new());
        put_varint(&mut bytes, number).unwrap();
        assert_eq!(Reader::new(&bytes.0).varint().map(|read| read as usize), Ok(number));
    }
    assert_eq!(put_varint(&mut Length::default(), max + 1), Err(Unwritable::TooLong));
    let long = "x".repeat(65_536);
    assert_eq!(put_text(&mut Length::default(), &long), Err(Unwritable::TooLong));
    assert_eq!(put_text(&mut Length::default(), &&long[1..]), Ok(()));
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

    /// A connection that the broker accepted with this.
    fn connected(options: Options, connack: ConnAck) -> Self {
        let mut rig = Self::new(options);
        assert!(rig.written().starts_with(&[0x10]) && !rig.session.has_room());
        let packet: Plain<'_> = Packet::ConnAck(connack);
        rig.told(&packet).unwrap();
        assert!(matches!(rig.session.poll(false), Some(News::Connected { .. })));
        rig
    }

    /// What the broker has received since.
    fn written(&mut self) -> Vec<u8> {
        let bytes = self.session.output().to_vec();
        self.session.written(self.now, bytes.len());
        bytes
    }

    fn told<U: UserProperties>(&mut self, packet: &Packet<'_, U>) -> Result<(), Error> {
        // Byte by byte: no packet may depend on how it is cut.
        encoded(packet).iter().try_for_each(|byte| self.session.handle_bytes(self.now, &[*byte]))
    }

    fn message(&mut self, id: Option<u16>) -> Result<(), Error> {
        let mut publish = full(1);
        publish.id = id;
        publish.dup = false;
        self.told(&Packet::Publish(publish))
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
    let Ok(Packet::Subscribe(Subscribe { id, .. })) = Packet::decode(&written) else {
        panic!("{written:?}")
    };
    let suback: Plain<'_> = Packet::SubAck(SubAck { id, reason: 1 });
    rig.told(&suback).unwrap();
    let Some(News::Subscribed(token, reason)) = rig.session.poll(true) else { panic!("a SUBACK") };
    client.handle_subscribed(now, token, reason);
    for _ in 0..requests {
        client.submit(now, Request::set("k", vec![0; bytes])).unwrap();
    }
    client
}

#[test]
fn a_request_carries_what_it_must() {
    let mut rig = Rig::connected(Options::new("c"), ConnAck::default());
    let mut client = asking(&mut rig, 1, 1);
    rig.session.send(&client.poll_transmit().unwrap());
    let written = rig.written();
    let Ok(Packet::Publish(publish)) = Packet::decode(&written) else { panic!("{written:?}") };
    assert_eq!(
        (publish.message_expiry, publish.content_type),
        (Some(10), Some("application/octet-stream"))
    );
    assert_eq!(publish.response_topic, Some(client.response_topic().as_ref()));
    assert_eq!(publish.correlation_data.map(<[u8]>::len), Some(16));
    let mut told = String::new();
    publish.user_properties.for_each(|(name, value)| write!(told, "{name}={value} ").unwrap());
    assert_eq!(told, "__ts=0:1:c __srcId=c __protVer=1.0 statestore-incarnation= ");
}

#[test]
fn what_the_broker_does_not_take_is_reported_and_not_sent() {
    let connack = ConnAck { packet_max: Some(400), ..ConnAck::default() };
    let mut rig = Rig::connected(Options::new("c"), connack);
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
    let connack = ConnAck { receive_maximum: 2, ..ConnAck::default() };
    let mut rig = Rig::connected(Options::new("c"), connack);
    let mut client = asking(&mut rig, 3, 1);
    rig.session.send(&client.poll_transmit().unwrap());
    assert!(rig.session.has_room());
    rig.session.send(&client.poll_transmit().unwrap());
    assert!(!rig.session.has_room());
    let written = rig.written();
    let Ok(Packet::Publish(Publish { id: Some(id), .. })) =
        Packet::decode(&written[..frame_len(&written, 1 << 20).unwrap().unwrap()])
    else {
        panic!("{written:?}")
    };
    let puback: Plain<'_> = Packet::PubAck(PubAck { id, reason: 0x10 });
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
    let mut rig = Rig::connected(Options::new("c"), ConnAck::default());
    let mut client = asking(&mut rig, 1, 70_000);
    rig.session.send(&client.poll_transmit().unwrap());
    assert!(!rig.session.has_room() && rig.session.poll(true).is_none());
    assert!(rig.written().len() > 70_000);
    assert!(matches!(rig.session.poll(false), Some(News::Room)));
}

#[test]
fn messages_wait_until_they_are_wanted_and_acknowledged_by_hand() {
    let mut rig = Rig::connected(by_hand(), ConnAck::default());
    rig.now = Instant::from_millis(5);
    rig.message(Some(11)).unwrap();
    rig.message(None).unwrap();
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
    let mut rig = Rig::connected(Options::new("c"), ConnAck::default());
    rig.message(Some(11)).unwrap();
    assert_eq!(rig.written(), []);
    assert!(rig.session.poll(true).is_some());
    assert_eq!(rig.written(), [0x40, 0x02, 0x00, 11]);
}

#[test]
fn what_waits_is_bounded_whatever_the_broker_sends() {
    let mut rig = Rig::connected(by_hand(), ConnAck::default());
    for id in 1..=8 {
        rig.message(Some(id)).unwrap();
    }
    rig.message(None).unwrap();
    let told = rig.message(Some(9)).unwrap_err();
    assert_eq!(told.reason(), Some(0x93), "{told}");
    let large = Options { packet_max: 32, ..Options::new("c") };
    let told = Rig::connected(large, ConnAck::default()).message(Some(1)).unwrap_err();
    assert_eq!(told.reason(), Some(0x95), "{told}");
}

#[test]
fn pings_keep_the_connection_alive_and_find_it_dead() {
    let at = Instant::from_millis;
    let connack = ConnAck { keep_alive: Some(4), ..ConnAck::default() };
    let options = Options { patience: Duration::from_secs(2), ..Options::new("c") };
    let mut rig = Rig::connected(options.clone(), connack);
    assert_eq!(rig.session.poll_timeout(), Some(at(3_000)), "the broker's number counts");
    rig.session.handle_timeout(at(2_999)).unwrap();
    assert_eq!(rig.written(), []);
    rig.session.handle_timeout(at(3_000)).unwrap();
    rig.now = at(3_000);
    assert_eq!(rig.written(), [0xc0, 0x00]);
    let pong: Plain<'_> = Packet::PingResp;
    rig.told(&pong).unwrap();
    assert_eq!(rig.session.poll_timeout(), Some(at(6_000)));
    rig.session.handle_timeout(at(6_000)).unwrap();
    assert_eq!(rig.session.poll_timeout(), Some(at(8_000)));
    assert!(matches!(rig.session.handle_timeout(at(8_000)), Err(Error::Silent)));
    let never = ConnAck { keep_alive: Some(0), ..ConnAck::default() };
    assert_eq!(Rig::connected(options, never).session.poll_timeout(), None);
    let mut unanswered = Rig::new(Options::new("c"));
    assert!(matches!(unanswered.session.handle_timeout(at(10_000)), Err(Error::Silent)));
}

#[test]
fn a_broker_that_refuses_or_errs_is_told_apart() {
    let refusing = |connack: ConnAck| {
        let packet: Plain<'_> = Packet::ConnAck(connack);
        Rig::new(Options::new("c")).told(&packet).unwrap_err()
    };
    let refused = refusing(ConnAck { reason: 0x87, ..ConnAck::default() });
    assert!(matches!(refused, Error::Refused(ReasonCode::NOT_AUTHORIZED)), "{refused}");
    let refused = refusing(ConnAck { qos_max: 0, ..ConnAck::default() });
    assert!(matches!(refused, Error::Protocol(_)), "{refused}");
    let refused = refusing(ConnAck { session_present: true, ..ConnAck::default() });
    assert!(matches!(refused, Error::Protocol(_)), "{refused}");
    assert!(matches!(Rig::new(Options::new("c")).message(None), Err(Error::Protocol(_))));
    let mut rig = Rig::connected(Options::new("c"), ConnAck::default());
    let bye: Plain<'_> = Packet::Disconnect(0x8e);
    assert!(matches!(rig.told(&bye), Err(Error::Disconnected(ReasonCode(0x8e)))));
    let long = Options::new("x".repeat(70_000));
    assert!(matches!(Session::new(Instant::default(), 0, long), Err(Error::Options(_))));
}
