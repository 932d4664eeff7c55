//! The session over TCP to a real mosquitto.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use statestore_mqtt::packet::{Subscription, SubscriptionOptions};
use statestore_mqtt::session::Will;
use statestore_testkit::brokers::Mosquitto;

use super::*;

/// A session and its socket, driven by one thread.
struct Client {
    session: Session,
    start: Instant,
    stream: Option<TcpStream>,
    input: BytesMut,
    events: Vec<Event>,
    port: u16,
}

#[expect(clippy::disallowed_methods, reason = "a driver reads the clock")]
fn instant() -> Instant {
    Instant::now()
}

impl Client {
    fn new(port: u16, options: Options) -> Self {
        let session = Session::new(options);
        let (input, events) = (BytesMut::new(), Vec::new());
        Self { session, start: instant(), stream: None, input, events, port }
    }

    fn now(&self) -> Duration {
        instant() - self.start
    }

    fn connect(&mut self) {
        self.events.clear();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_millis(10))).expect("an option");
        self.stream = Some(stream);
        self.input.clear();
        self.session.handle_connected(self.now());
        self.wait(|event| matches!(event, Event::Connected(_)));
    }

    fn disconnect(&mut self) {
        self.stream = None;
        self.session.handle_disconnected();
        while self.session.poll_event().is_some() {}
    }

    /// One turn of the loop that the module documentation describes.
    fn turn(&mut self) {
        let now = self.now();
        self.session.handle_timeout(now);
        let Some(stream) = &mut self.stream else { return };
        let bytes: Vec<_> = self.session.chunks().flatten().copied().collect();
        stream.write_all(&bytes).expect("written");
        self.session.written(now, bytes.len());
        let mut buffer = [0; 4_096];
        match stream.read(&mut buffer) {
            Ok(0) => self.session.handle_disconnected(),
            Ok(len) => self.input.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
        self.session.handle_bytes(now, &mut self.input);
        self.events.extend(std::iter::from_fn(|| self.session.poll_event()));
    }

    /// Waits for an event and returns it.
    fn wait(&mut self, is_wanted: impl Fn(&Event) -> bool) -> Event {
        for _ in 0..500 {
            if let Some(at) = self.events.iter().position(&is_wanted) {
                return self.events.remove(at);
            }
            self.turn();
        }
        panic!("no such event among {:?}", self.events);
    }

    fn subscribe(&mut self, filter: &str) {
        let options =
            SubscriptionOptions { qos: Qos::ExactlyOnce, ..SubscriptionOptions::default() };
        self.session.subscribe(&[Subscription { filter, options }], (), 0).expect("connected");
        self.wait(|event| matches!(event, Event::Subscribed { .. }));
    }

    fn publish(&mut self, topic: &str, qos: Qos, token: u64, payload: Bytes) {
        let properties = [Property::User("token", "t"), Property::ContentType("text")];
        let properties = &properties[..];
        let publish = session::Publish { topic, payload, qos, retain: false, properties, token };
        self.session.publish(publish).expect("accepted");
    }

    fn message(&mut self) -> Message {
        match self.wait(|event| matches!(event, Event::Message(_))) {
            Event::Message(message) => message,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn messages_round_trip_at_every_qos_with_aliases_and_properties() {
    let Some(broker) = Mosquitto::start("messages_at_every_qos") else { return };
    let mut client = Client::new(broker.port(), Options::new("session-1"));
    client.connect();
    client.subscribe("session/1/#");
    for round in 0..3 {
        for (token, qos) in [(1, Qos::AtMostOnce), (2, Qos::AtLeastOnce), (3, Qos::ExactlyOnce)] {
            let payload = Bytes::from(vec![u8::try_from(token).unwrap(); 10 + 10_000 * round]);
            client.publish("session/1/topic", qos, token, payload.clone());
            let message = client.message();
            assert_eq!((message.topic(), message.qos()), ("session/1/topic", qos));
            assert_eq!(message.payload_bytes(), payload);
            assert_eq!(message.properties().user().collect::<Vec<_>>(), [("token", "t")]);
            if qos != Qos::AtMostOnce {
                client.wait(
                    |event| matches!(event, Event::Published { token: of, .. } if *of == token),
                );
            }
        }
    }
    assert!(client.session.server().is_some_and(|server| server.topic_alias_maximum > 0));
    client.session.disconnect(Reason::SUCCESS, ());
    client.wait(|event| *event == Event::Disconnected(Error::Requested(Reason::SUCCESS)));
}

#[test]
fn session_resumes_and_receives_messages_published_while_disconnected() {
    let Some(broker) = Mosquitto::start("session_resumes") else { return };
    let mut client = Client::new(broker.port(), Options::new("session-2").session_expiry(600));
    client.connect();
    client.subscribe("session/2");
    // These may leave, but their acknowledgements are not read.
    for token in 1..=20 {
        client.publish("session/2", Qos::ExactlyOnce, token, Bytes::from(token.to_string()));
    }
    let bytes: Vec<_> = client.session.chunks().flatten().copied().collect();
    let stream = client.stream.as_mut().expect("connected");
    stream.write_all(&bytes[..bytes.len() / 2]).expect("written");
    let now = client.now();
    client.session.written(now, bytes.len() / 2);
    client.disconnect();
    client.publish("session/2", Qos::ExactlyOnce, 21, Bytes::from_static(b"21"));
    client.connect();
    assert!(client.session.server().is_some_and(|server| server.session_present));
    let mut received = Vec::new();
    for _ in 0..21 {
        received.push(client.message().payload().to_vec());
    }
    let expected: Vec<_> = (1..=21).map(|token: u64| token.to_string().into_bytes()).collect();
    assert_eq!(received, expected, "each message once and in order");
    for token in 1..=21 {
        client.wait(|event| matches!(event, Event::Published { token: of, .. } if *of == token));
    }
    assert_eq!(client.session.publishes(), 0);
}

#[test]
fn will_is_published_when_the_session_is_taken_over() {
    let Some(broker) = Mosquitto::start("will_is_published") else { return };
    let mut watcher = Client::new(broker.port(), Options::new("watcher"));
    watcher.connect();
    watcher.subscribe("wills/#");
    let will = Will::new("wills/7", "gone").properties(&[Property::ContentType("text")]);
    let mut client = Client::new(broker.port(), Options::new("mortal").will(will));
    client.connect();
    let mut other = Client::new(broker.port(), Options::new("mortal"));
    other.connect();
    let end = client.wait(|event| matches!(event, Event::Disconnected(_)));
    let Event::Disconnected(error) = end else { panic!("{end:?}") };
    // Some versions of mosquitto close the connection without a DISCONNECT.
    let is_lost = error == Error::ConnectionLost;
    assert!(is_lost || error.reason() == Some(Reason::SESSION_TAKEN_OVER), "{error}");
    let message = watcher.message();
    assert_eq!((message.topic(), message.payload()), ("wills/7", &b"gone"[..]));
}

#[test]
fn keep_alive_and_limits_are_respected() {
    let lines = "max_keepalive 10\nmax_inflight_messages 2\nmax_qos 1\nmax_packet_size 300";
    let Some(broker) = Mosquitto::start_with("keep_alive_and_limits", lines) else { return };
    let mut client = Client::new(broker.port(), Options::new("limited"));
    client.connect();
    let server = client.session.server().expect("connected").clone();
    assert_eq!((server.keep_alive, server.maximum_packet_size), (10, 300), "{server:?}");
    assert_eq!((server.maximum_qos, server.receive_maximum), (Qos::AtLeastOnce, 2));
    let large = session::Publish {
        topic: "t",
        payload: Bytes::from(vec![0; 300]),
        qos: Qos::AtMostOnce,
        retain: false,
        properties: (),
        token: 1,
    };
    let refused = client.session.publish(large);
    assert!(matches!(refused, Err(SendError::TooLarge { limit: 300, .. })), "{refused:?}");
    for token in 1..=10 {
        client.publish("t", Qos::AtLeastOnce, token, Bytes::new());
    }
    for token in 1..=10 {
        client.wait(|event| matches!(event, Event::Published { token: of, .. } if *of == token));
    }
    let mut client = Client::new(broker.port(), Options::new("short").keep_alive(1));
    client.connect();
    let start = client.now();
    while client.now() - start < Duration::from_millis(2_500) {
        client.turn();
    }
    assert!(client.session.is_connected(), "PINGREQ was sent in time: {:?}", client.events);
}
