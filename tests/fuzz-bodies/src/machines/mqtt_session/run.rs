//! One run: a naive server and two equal sessions, one of which receives its input in pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_mqtt::packet::{Subscription, SubscriptionOptions};
use statestore_mqtt::property::Property;
use statestore_mqtt::session::{Delivery, Error, Event, Options, Publish, SendError, Session};
use statestore_mqtt::{Qos, Reason};

use super::SessionOp;
use super::peer::{Peer, RECEIVE_MAXIMUM};
use statestore_models::machines::Args;

/// Upper limit of the memory of a session with these limits.
const USAGE_MAX: usize = 20_000;

const TOPICS: [&str; 4] = ["t", "topic/1", "topic/2", "topic/3"];
const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// Kind of an accepted token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Publish,
    Request,
}

pub(super) struct Run {
    whole: Session,
    pieces: Session,
    inputs: [BytesMut; 2],
    piece: usize,
    now: Duration,
    peer: Peer,
    last_token: u64,
    tokens: BTreeMap<u64, Token>,
    /// Numbers of delivered messages at QoS 2.
    delivered: BTreeSet<u64>,
    /// Deliveries without an acknowledgement, with the numbers of their messages.
    deliveries: Vec<(Delivery, u64)>,
    /// For each connection, whether the server sent arbitrary bytes.
    connections: Vec<bool>,
    /// Number of reported ends of connections.
    ends: usize,
}

fn options(flags: u8) -> Options {
    Options::new("client")
        .clean_start(flags & 4 != 0)
        .accept_unknown_session(true)
        .session_expiry(if flags & 8 != 0 { 0 } else { 60 })
        .keep_alive(10)
        .connect_timeout(Duration::from_secs(5))
        .receive_maximum(u16::try_from(RECEIVE_MAXIMUM).expect("small"))
        .maximum_packet_size(600)
        .topic_alias_maximum(2)
        .topic_aliases(2)
        .manual_acknowledgement(flags & 1 != 0)
        .in_flight(3)
        .publishes(6)
        .publish_bytes(1_000)
        .output_bytes(300)
        .events(4)
        .event_bytes(200)
        .requests(2)
}

impl Run {
    pub(super) fn new(flags: u8, start: u8) -> Self {
        // Some inputs begin near the end of time.
        let now = if flags & 0x30 == 0x30 { Duration::MAX } else { Duration::from_secs(1_000) };
        Self {
            whole: Session::new(options(flags)),
            pieces: Session::new(options(flags)),
            inputs: [BytesMut::new(), BytesMut::new()],
            piece: usize::from(flags >> 6) + 1,
            now: now.saturating_sub(Duration::from_secs(start.into())),
            peer: Peer::new(),
            last_token: 0,
            tokens: BTreeMap::new(),
            delivered: BTreeSet::new(),
            deliveries: Vec::new(),
            connections: Vec::new(),
            ends: 0,
        }
    }

    fn both<T: PartialEq + std::fmt::Debug>(&mut self, call: impl Fn(&mut Session) -> T) -> T {
        let result = call(&mut self.whole);
        assert_eq!(result, call(&mut self.pieces), "equal calls have equal results");
        result
    }

    pub(super) fn apply(&mut self, op: SessionOp, args: Args, raw: &[u8]) {
        let now = self.now;
        let mut bytes = BytesMut::new();
        match op {
            SessionOp::Connect => self.connect(),
            SessionOp::ConnAck => self.peer.connack(args, &mut bytes),
            SessionOp::Publish => self.publish(args),
            SessionOp::Request => self.request(args),
            SessionOp::Acknowledge => self.peer.acknowledge(args, &mut bytes),
            SessionOp::Message => self.peer.message(args, &mut bytes),
            SessionOp::Release => self.peer.release(&mut bytes),
            SessionOp::Pong => self.peer.pong(&mut bytes),
            SessionOp::Poll => self.poll(usize::from(args[0] % 8) + 1),
            SessionOp::Answer => {
                if !self.deliveries.is_empty() {
                    let at = usize::from(args[0]) % self.deliveries.len();
                    let (delivery, number) = self.deliveries.remove(at);
                    let is_bad = args[1].is_multiple_of(8);
                    let reason = if is_bad { Reason::QUOTA_EXCEEDED } else { Reason::SUCCESS };
                    let _ = self.both(|session| session.acknowledge(delivery, reason));
                    if is_bad {
                        // MQTT 5, section 4.3.3: after an error, the next PUBLISH is a new message.
                        self.delivered.remove(&number);
                    }
                }
            }
            SessionOp::Write => {
                let len = if args[0].is_multiple_of(2) { usize::MAX } else { args[1].into() };
                self.write(len);
            }
            SessionOp::Pass => {
                self.now = now.saturating_add(Duration::from_millis(u64::from(args[0]) * 50));
                self.expire();
            }
            SessionOp::Close => {
                self.both(|session| session.handle_disconnected());
                self.close();
            }
            SessionOp::Disconnect => {
                self.both(|session| session.disconnect(Reason::SUCCESS, ()));
            }
            SessionOp::Raw => {
                self.peer.stop_checking();
                if let Some(is_unchecked) = self.connections.last_mut() {
                    *is_unchecked = true;
                }
                bytes.extend_from_slice(raw);
            }
        }
        self.receive(&bytes);
    }

    fn connect(&mut self) {
        let now = self.now;
        self.both(|session| session.handle_connected(now));
        self.close();
        self.peer.open();
        self.connections.push(false);
    }

    fn close(&mut self) {
        self.peer.close();
        self.inputs = [BytesMut::new(), BytesMut::new()];
    }

    fn receive(&mut self, bytes: &[u8]) {
        let [whole, pieces] = &mut self.inputs;
        whole.extend_from_slice(bytes);
        self.whole.handle_bytes(self.now, whole);
        for piece in bytes.chunks(self.piece) {
            pieces.extend_from_slice(piece);
            self.pieces.handle_bytes(self.now, pieces);
        }
        self.pieces.handle_bytes(self.now, pieces);
        assert_eq!(whole, pieces, "both consume the same bytes");
    }

    fn publish(&mut self, args: Args) {
        self.last_token += 1;
        let token = self.last_token;
        let mut payload = token.to_be_bytes().to_vec();
        payload.resize(8 + usize::from(args[2]) * 2, 0);
        let payload = Bytes::from(payload);
        let properties = [Property::User("a", "b")];
        let qos = QOS[usize::from(args[0]) % 3];
        let result = self.both(|session| {
            session.publish(Publish {
                topic: TOPICS[usize::from(args[1]) % TOPICS.len()],
                payload: payload.clone(),
                qos,
                retain: args[3].is_multiple_of(8),
                properties: &properties[..usize::from(args[4] % 2)],
                token,
            })
        });
        if result == Ok(()) && qos != Qos::AtMostOnce {
            self.tokens.insert(token, Token::Publish);
        }
    }

    fn request(&mut self, args: Args) {
        self.last_token += 1;
        let token = self.last_token;
        let filters = ["a/+", "b", "$share/s/c"];
        let count = usize::from(args[1] % 4);
        let is_connected = self.whole.is_connected();
        let result = self.both(|session| {
            if args[0].is_multiple_of(2) {
                let options = SubscriptionOptions::default();
                let all = filters.map(|filter| Subscription { filter, options });
                session.subscribe(&all[..count], (), token)
            } else {
                session.unsubscribe(&filters[..count], (), token)
            }
        });
        match result {
            Ok(()) => assert_eq!(self.tokens.insert(token, Token::Request), None),
            Err(SendError::NotConnected) => assert!(!is_connected),
            Err(_) => {}
        }
    }

    fn write(&mut self, len: usize) {
        let mut bytes = Vec::new();
        self.whole.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes.truncate(len);
        let now = self.now;
        self.both(|session| session.written(now, bytes.len()));
        self.peer.read(&bytes);
    }

    /// Handles all deadlines that are due.
    fn expire(&mut self) {
        let now = self.now;
        for turn in 0.. {
            let due = self.both(|session| session.poll_timeout());
            let Some(due) = due.filter(|due| *due <= now) else { break };
            assert!(turn < 4, "the deadline {due:?} does not advance at {now:?}");
            self.both(|session| session.handle_timeout(now));
        }
    }

    fn poll(&mut self, count: usize) {
        for _ in 0..count {
            let Some(event) = self.both(Session::poll_event) else { break };
            self.event(event);
        }
        self.receive(&[]);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Message(message) => {
                let number = message.payload().first_chunk().copied().map(u64::from_be_bytes);
                if let Some(delivery) = message.delivery() {
                    self.deliveries.push((delivery, number.unwrap_or_default()));
                    self.deliveries.truncate(100);
                }
                let is_unchecked = self.connections.contains(&true);
                if message.qos() == Qos::ExactlyOnce && !is_unchecked {
                    let number = number.expect("a number");
                    assert!(self.delivered.insert(number), "{number} was delivered before");
                }
            }
            Event::Published { token, reason, .. } => {
                assert_eq!(self.tokens.remove(&token), Some(Token::Publish), "{token} ends once");
                let is_unchecked = self.connections.contains(&true);
                if let Some(expected) = self.peer.reasons.get(&token).filter(|_| !is_unchecked) {
                    assert_eq!(*expected, reason, "the server's reason for {token}");
                }
            }
            Event::Subscribed { token, .. } | Event::Unsubscribed { token, .. } => {
                assert_eq!(self.tokens.remove(&token), Some(Token::Request), "{token} ends once");
            }
            Event::Lost { token, .. } => {
                assert!(self.tokens.remove(&token).is_some(), "{token} ends once");
            }
            Event::Disconnected(error) => {
                let is_unchecked = self.connections[self.ends];
                self.ends += 1;
                let is_fault = matches!(error, Error::Malformed(_) | Error::Protocol(_));
                assert!(is_unchecked || !is_fault, "{error}");
            }
            _ => {}
        }
    }

    /// Checks the invariants after every operation.
    pub(super) fn check(&mut self) {
        let now = self.now;
        assert!(self.whole.chunks().flatten().eq(self.pieces.chunks().flatten()), "equal output");
        let before = (self.whole.poll_timeout(), self.whole.output_len());
        if before.0.is_some_and(|due| due > now) {
            self.both(|session| session.handle_timeout(now));
        }
        assert_eq!(
            before,
            (self.whole.poll_timeout(), self.whole.output_len()),
            "an early timeout changes nothing"
        );
        assert_eq!(self.whole.publishes(), self.pieces.publishes());
        let usage = self.whole.usage();
        assert!(usage <= USAGE_MAX, "{usage} bytes");
        assert!(self.inputs[0].len() <= 16 << 10, "input is consumed");
    }

    /// Checks that everything ends once a server without a session accepts the client and
    /// acknowledges all packets.
    pub(super) fn finish(&mut self) {
        self.poll(usize::MAX);
        self.both(|session| session.set_clean_start(true));
        self.connect();
        self.write(usize::MAX);
        self.peer.is_unchecked = false;
        let mut bytes = BytesMut::new();
        self.peer.connack([0, 3, 0, 1, 1], &mut bytes);
        self.receive(&bytes);
        for _ in 0..40 {
            self.poll(usize::MAX);
            self.write(usize::MAX);
            let mut bytes = BytesMut::new();
            self.peer.acknowledge([1, 0, 0, 0, 0], &mut bytes);
            self.receive(&bytes);
            self.check();
        }
        self.poll(usize::MAX);
        assert!(self.tokens.is_empty(), "tokens without an event: {:?}", self.tokens);
        assert_eq!((self.whole.publishes(), self.whole.publish_bytes()), (0, 0));
        self.both(|session| session.handle_disconnected());
        self.poll(usize::MAX);
        assert_eq!(self.connections.len(), self.ends, "each connection ends once");
    }
}
