//! Memory of the messages that the host delivers.

use proptest::collection::vec;
use proptest::prelude::*;
use statestore_broker::{LocalEvent, LocalId};

use super::*;

/// A broker with a host, and this many bytes for all clients.
fn host_with_memory(bytes: usize) -> (Net, LocalId) {
    let mut config = Config::default();
    config.limits.memory = bytes;
    let mut net = Net::new(config);
    let host = net.broker.attach_host(net.now, "$host");
    (net, host)
}

/// Notifications of one change go to many clients, each with another topic.
#[test]
fn payload_that_the_host_sends_to_many_clients_counts_once() {
    const CLIENTS: u16 = 100;
    let (mut net, host) = host_with_memory(1_000_000);
    let names: Vec<_> = (0..CLIENTS).map(|at| format!("c{at}")).collect();
    let clients: Vec<_> = names.iter().map(|name| net.connect(name, CLEAN)).collect();
    clients.iter().for_each(|client| _ = net.receive(*client));
    let before = net.broker.stats().bytes;
    for payload in ["x", "y"].map(|text| text.repeat(100_000)) {
        for name in &names {
            let topic = format!("to/{name}");
            let notification = publish(&topic, &payload, Qos::AtLeastOnce, 0);
            assert_eq!(net.broker.deliver(net.now, name, &notification), Reason::SUCCESS);
        }
    }
    let bytes = net.broker.stats().bytes - before;
    assert!((200_000..300_000).contains(&bytes), "{bytes}");
    for (client, name) in clients.iter().zip(&names) {
        let messages = net.receive_messages(*client);
        let first = messages.iter().map(|message| message.payload.first().copied());
        assert_eq!(first.collect::<Vec<_>>(), [Some(b'x'), Some(b'y')], "{name}");
        messages.iter().for_each(|message| net.ack(*client, message.id));
        net.receive(*client);
    }
    assert_eq!(net.broker.stats().bytes, before, "the bytes are freed");
    assert_eq!(net.broker.stats().evicted, 0);
    assert!(net.broker.is_attached(host));
}

/// Returns the next output of a connection, after `expected` as the next step.
fn poll(net: &mut Net, id: ConnectionId, expected: Output) -> BytesMut {
    let mut out = BytesMut::new();
    assert_eq!(net.broker.poll_output(net.now, id, &mut out), expected);
    out
}

#[test]
fn output_counts_until_the_next_poll() {
    let (mut net, _) = host_with_memory(1_000_000);
    let a = net.connect("a", CLEAN);
    net.receive(a);
    let before = net.broker.stats().bytes;
    for _ in 0..2 {
        let payload = "x".repeat(20_000);
        net.broker.deliver(net.now, "a", &publish("r", &payload, Qos::AtMostOnce, 0));
    }
    let out = poll(&mut net, a, Output::More);
    assert_eq!(net.broker.stats().bytes, before + out.len());
    assert!(poll(&mut net, a, Output::Idle).is_empty());
    assert_eq!(net.broker.stats().bytes, before);
}

#[test]
fn clients_that_do_not_read_a_large_message_share_it() {
    const CLIENTS: usize = 100;
    const LEN: usize = 900_000;
    const PART: usize = 32 << 10;
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let (mut net, _) = host_with_memory(8_000_000);
        let names: Vec<_> = (0..CLIENTS).map(|at| format!("c{at}")).collect();
        let clients: Vec<_> = names.iter().map(|name| net.connect(name, CLEAN)).collect();
        clients.iter().for_each(|client| _ = net.receive(*client));
        let before = net.broker.stats().bytes;
        let payload = "x".repeat(LEN);
        for name in &names {
            let message = publish("t", &payload, qos, u16::from(qos > Qos::AtMostOnce));
            assert_eq!(net.broker.deliver(net.now, name, &message), Reason::SUCCESS);
        }
        for client in &clients {
            let part = poll(&mut net, *client, Output::More);
            assert_eq!(part.len(), PART);
            net.unread.entry(*client).or_default().extend_from_slice(&part);
        }
        let bytes = net.broker.stats().bytes - before;
        assert!(bytes < LEN + CLIENTS * (PART + 1_024), "{bytes} bytes at {qos:?}");
        for client in &clients {
            let [message] = &net.receive_messages(*client)[..] else { panic!("one message") };
            assert!(message.payload == payload.as_bytes(), "another payload");
            if message.id > 0 {
                net.ack(*client, message.id);
            }
            net.receive(*client);
        }
        assert_eq!(net.broker.stats().bytes, before, "the bytes are freed");
        assert_eq!(net.broker.stats().evicted, 0);
    }
}

#[test]
fn responses_follow_the_last_part_of_a_packet() {
    let mut net = Net::default();
    let a = net.connect("a", CLEAN);
    net.broker.deliver(net.now, "a", &publish("t", &"x".repeat(100_000), Qos::AtMostOnce, 0));
    let part = poll(&mut net, a, Output::More);
    net.unread.entry(a).or_default().extend_from_slice(&part);
    net.send(a, Packet::PingReq);
    let received = net.receive(a);
    assert!(matches!(&received[..], [Received::Publish(_), Received::PingResp]), "{received:?}");
}

#[test]
fn connection_that_ends_after_a_part_of_a_packet_is_sent_nothing_more() {
    let mut net = Net::default();
    let before = net.broker.stats().bytes;
    let a = net.connect("a", CLEAN);
    net.broker.deliver(net.now, "a", &publish("t", &"x".repeat(100_000), Qos::AtMostOnce, 0));
    let _ = poll(&mut net, a, Output::More);
    net.send(a, Packet::PingReq);
    assert!(net.broker.disconnect(net.now, "a", Reason::ADMINISTRATIVE_ACTION));
    assert!(poll(&mut net, a, Output::Close).is_empty());
    net.close(a);
    assert_eq!(net.broker.stats().bytes, before, "the bytes are freed");
}

/// A part ends within the property with the message expiry interval. The remaining interval changes
/// before the next part.
#[test]
fn parts_have_the_expiry_interval_of_the_first_part() {
    let (long, payload) = ("x".repeat((32 << 10) - 14), "x".repeat(100));
    for cut in 0..16 {
        let mut net = Net::default();
        let a = net.connect("a", CLEAN);
        let properties = [Property::User("n", &long[cut..]), Property::MessageExpiry(0x0102_0304)];
        let message = publish("t", &payload, Qos::AtMostOnce, 0);
        let message = Publish { properties: &properties[..], ..message };
        assert_eq!(net.broker.deliver(net.now, "a", &message), Reason::SUCCESS);
        let part = poll(&mut net, a, Output::More);
        net.unread.entry(a).or_default().extend_from_slice(&part);
        net.now += seconds(0x0101_0101);
        let [message] = &net.receive_messages(a)[..] else { panic!("one message") };
        let properties = properties.map(|property| show_property(&property));
        assert_eq!(message.properties, properties, "{cut}");
    }
}

/// An operation of the host or of a client. Clients, topics and payloads are indices into small
/// tables.
#[derive(Clone, Debug)]
enum Op {
    Deliver {
        client: usize,
        payload: usize,
        qos: u8,
        expiry: Option<u32>,
    },
    /// To a topic to which some clients have subscribed.
    Publish {
        topic: usize,
        payload: usize,
        qos: u8,
        retain: bool,
        expiry: Option<u32>,
    },
    Connect {
        client: usize,
        expiry: u32,
    },
    Read {
        client: usize,
        acks: bool,
    },
    Close(usize),
    /// A client in this process subscribes to all topics.
    Attach,
    PollLocal,
    Detach,
    Advance(u64),
}

/// So few bytes that sessions are evicted, too.
const MEMORY: usize = 24_000;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TOPICS: [&str; 2] = ["t/0", "t/1"];

/// No payload, a short one, and long ones: two have the same length, and two begin with another.
fn payloads() -> [String; 5] {
    let [x, y] = ["x", "y"].map(|text| text.repeat(2_000));
    ["".into(), "x".repeat(1_023), x[..1_024].into(), x, y]
}

fn op() -> impl Strategy<Value = Op> {
    let client = 0..NAMES.len();
    let message = (0..payloads().len(), 0_u8..2, prop::option::weighted(0.2, 0_u32..5));
    prop_oneof![
        6 => (client.clone(), message.clone()).prop_map(|(client, (payload, qos, expiry))| {
            Op::Deliver { client, payload, qos, expiry }
        }),
        4 => (0..TOPICS.len(), message, any::<bool>()).prop_map(
            |(topic, (payload, qos, expiry), retain)| {
                Op::Publish { topic, payload, qos, retain, expiry }
            }
        ),
        3 => (client.clone(), 0_u32..20).prop_map(|(client, expiry)| Op::Connect { client, expiry }),
        4 => (client.clone(), any::<bool>()).prop_map(|(client, acks)| Op::Read { client, acks }),
        2 => client.prop_map(Op::Close),
        1 => Just(Op::Attach),
        1 => Just(Op::PollLocal),
        1 => Just(Op::Detach),
        1 => (0_u64..8).prop_map(Op::Advance),
    ]
}

/// Clients that receive messages of the host.
struct Receivers {
    net: Net,
    host: LocalId,
    connections: [Option<ConnectionId>; NAMES.len()],
    local: Option<LocalId>,
    /// Messages that the local client has received.
    received: Vec<LocalEvent>,
}

impl Receivers {
    fn new() -> Self {
        let (net, host) = host_with_memory(MEMORY);
        Self { net, host, connections: [None; NAMES.len()], local: None, received: Vec::new() }
    }

    fn apply(&mut self, op: &Op) {
        let qos = |qos| if qos == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
        let net = &mut self.net;
        match *op {
            Op::Deliver { client, payload, qos: level, expiry } => {
                let (payload, topic) = (&payloads()[payload], format!("to/{client}"));
                let expiry = expiry.map(Property::MessageExpiry);
                let message = publish(&topic, payload, qos(level), 0);
                let message = Publish { properties: expiry.as_slice(), ..message };
                net.broker.deliver(net.now, NAMES[client], &message);
            }
            Op::Publish { topic, payload, qos: level, retain, expiry } => {
                let payload = &payloads()[payload];
                // An alias and a subscription identifier belong to a connection.
                let properties = [
                    Property::TopicAlias(1),
                    Property::MessageExpiry(expiry.unwrap_or(u32::MAX)),
                    Property::SubscriptionId(1),
                ];
                let message = publish(TOPICS[topic], payload, qos(level), 0);
                let message = Publish { retain, properties: &properties[..], ..message };
                net.broker
                    .publish_local(net.now, self.host, &message)
                    .expect("a host is never busy");
            }
            Op::Connect { client, expiry } => {
                if let Some(old) = self.connections[client].take() {
                    net.close(old);
                }
                let properties = [Property::SessionExpiry(expiry)];
                let id = net.connect(
                    NAMES[client],
                    ConnectOptions { properties: &properties, clean_start: false, ..CLEAN },
                );
                self.connections[client] = Some(id);
                let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..Default::default() };
                net.subscribe_with(id, "t/+", options, &[]);
            }
            Op::Read { client, acks } => {
                let Some(id) = self.connections[client] else { return };
                for message in net.receive_messages(id) {
                    let is_known =
                        payloads().iter().any(|known| known.as_bytes() == message.payload);
                    assert!(is_known, "another payload");
                    if acks && message.id > 0 {
                        net.ack(id, message.id);
                    }
                }
            }
            Op::Close(client) => {
                if let Some(id) = self.connections[client].take() {
                    net.close(id);
                }
            }
            Op::Attach => {
                self.detach();
                let local = self.net.broker.attach(self.net.now, "local").expect("an attachment");
                let options = SubscriptionOptions::default();
                self.net.broker.subscribe_local(local, &Subscription { filter: "t/+", options });
                self.local = Some(local);
            }
            Op::PollLocal => {
                let Some(local) = self.local else { return };
                self.received.extend(net.broker.poll_local(net.now, local));
            }
            Op::Detach => self.detach(),
            Op::Advance(time) => net.advance(seconds(time)),
        }
        // A subscription of a client in this process evicts nothing; the next call does.
        self.net.broker.handle_timeout(self.net.now);
        self.net.drain_closed();
        let stats = self.net.broker.stats();
        assert!(stats.bytes <= MEMORY, "{stats:?}");
    }

    fn detach(&mut self) {
        if let Some(local) = self.local.take() {
            self.net.broker.detach(self.net.now, local);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// A client in this process stores its messages. They do not count after their delivery.
    #[test]
    fn messages_of_the_host_are_freed_with_their_last_receiver(ops in vec(op(), 0..80)) {
        let mut receivers = Receivers::new();
        let before = receivers.net.broker.stats().bytes;
        for op in &ops {
            receivers.apply(op);
        }
        for client in 0..NAMES.len() {
            receivers.apply(&Op::Close(client));
        }
        receivers.detach();
        for topic in 0..TOPICS.len() {
            receivers.apply(&Op::Publish { topic, payload: 0, qos: 0, retain: true, expiry: None });
        }
        receivers.net.advance(seconds(60));
        // The host receives the notices that the clients have disconnected.
        while receivers.net.broker.poll_local(receivers.net.now, receivers.host).is_some() {}
        let stats = receivers.net.broker.stats();
        prop_assert_eq!((stats.bytes, stats.retained), (before, 0));
    }
}

#[test]
fn one_poll_drops_at_most_512_messages_that_exceed_the_maximum_packet_size() {
    let (mut net, _) = host_with_memory(100_000_000);
    let narrow = ConnectOptions { properties: &[Property::MaximumPacketSize(60)], ..CLEAN };
    let a = net.connect("a", narrow);
    net.receive(a);
    let payload = "x".repeat(60);
    for number in 0..1_024 {
        let payload = if number == 1_023 { "fits" } else { &*payload };
        let result = net.broker.deliver(net.now, "a", &publish("r", payload, Qos::AtMostOnce, 0));
        assert_eq!(result, Reason::SUCCESS);
    }
    assert!(poll(&mut net, a, Output::More).is_empty());
    assert_eq!(net.broker.stats().dropped, 512);
    assert_eq!(net.receive_payloads(a), ["fits"]);
    assert_eq!(net.broker.stats().dropped, 1_023);
}
