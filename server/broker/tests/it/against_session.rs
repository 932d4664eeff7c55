//! The client sessions of `statestore-mqtt` against this broker, with connections that break.

use std::collections::BTreeMap;

use proptest::prelude::*;
use statestore_broker::{Broker, Config, ConnectionId, Output};
use statestore_mqtt::packet::{Subscription, SubscriptionOptions};

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_mqtt::session::{self, Error, Event, Lost, Options, Session};
use statestore_mqtt::{Qos, Reason};

use super::seconds;

/// A broker, and clients that publish numbers at QoS 2 and 1 to each other.
struct World {
    broker: Broker,
    now: Duration,
    clients: Vec<Client>,
}

struct Client {
    session: Session,
    connection: Option<ConnectionId>,
    input: BytesMut,
    sent: u64,
    /// Numbers received, in order, by QoS.
    received: BTreeMap<u8, Vec<u64>>,
    outcomes: Vec<(u64, Result<Reason, Lost>)>,
}

impl World {
    fn new(clients: usize) -> Self {
        let mut config = Config::default();
        config.limits.slow_start = Duration::ZERO;
        config.limits.in_flight = 3;
        config.limits.receive_maximum = 3;
        let clients = (0..clients).map(|at| Client {
            session: Session::new(
                Options::new(format!("client-{at}")).session_expiry(3_600).receive_maximum(2),
            ),
            connection: None,
            input: BytesMut::new(),
            sent: 0,
            received: BTreeMap::new(),
            outcomes: Vec::new(),
        });
        Self { broker: Broker::new(config), now: seconds(10), clients: clients.collect() }
    }

    fn connect(&mut self, at: usize) {
        self.disconnect(at);
        let client = &mut self.clients[at];
        client.connection = Some(self.broker.handle_accept(self.now, None).expect("accepted"));
        client.session.handle_connected(self.now);
    }

    fn disconnect(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(connection) = client.connection.take() {
            self.broker.handle_closed(self.now, connection);
            client.session.handle_disconnected();
            client.input.clear();
        }
    }

    /// Carries at most `limit` bytes in each direction, then polls.
    fn carry(&mut self, at: usize, limit: usize) {
        let now = self.now;
        let client = &mut self.clients[at];
        let Some(connection) = client.connection else { return };
        let bytes: Vec<_> = client.session.chunks().flatten().copied().take(limit).collect();
        client.session.written(now, bytes.len());
        self.broker.handle_bytes(now, connection, &bytes);
        let output = self.broker.poll_output(now, connection, &mut client.input);
        assert_ne!(output, Output::Close, "the broker closes the connection: {:?}", client.session);
        client.session.handle_bytes(now, &mut client.input);
        while let Some(event) = client.session.poll_event() {
            match event {
                Event::Message(message) => {
                    let number = u64::from_be_bytes(message.payload().try_into().expect("8 bytes"));
                    client.received.entry(message.qos() as u8).or_default().push(number);
                }
                Event::Published { .. } | Event::Lost { .. } => {
                    client.outcomes.extend(outcome(&event));
                }
                Event::Disconnected(error) => assert_eq!(error, Error::ConnectionLost),
                _ => {}
            }
        }
    }

    fn subscribe(&mut self, at: usize) {
        let options =
            SubscriptionOptions { qos: Qos::ExactlyOnce, ..SubscriptionOptions::default() };
        let filter = format!("to/{at}/#");
        let subscription = Subscription { filter: &filter, options };
        let client = &mut self.clients[at];
        client.session.subscribe(&[subscription], (), u64::MAX).expect("connected");
        self.carry_all();
    }

    fn publish(&mut self, from: usize, to: usize, qos: Qos) {
        let client = &mut self.clients[from];
        client.sent += 1;
        let number = client.sent;
        let publish = session::Publish {
            topic: &format!("to/{to}/topic"),
            payload: Bytes::copy_from_slice(&number.to_be_bytes()),
            qos,
            retain: false,
            properties: (),
            token: number,
        };
        client.session.publish(publish).expect("accepted");
    }

    fn carry_all(&mut self) {
        for _ in 0..60 {
            (0..self.clients.len()).for_each(|at| self.carry(at, usize::MAX));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish(Qos),
    Carry(usize, usize),
    Reconnect(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Publish(Qos::AtLeastOnce)),
        3 => Just(Step::Publish(Qos::ExactlyOnce)),
        6 => (0..2_usize, prop_oneof![0..40_usize, Just(usize::MAX)])
            .prop_map(|(at, limit)| Step::Carry(at, limit)),
        2 => (0..2_usize).prop_map(Step::Reconnect),
    ];
    prop::collection::vec(step, 0..60)
}

fn numbers(world: &World, qos: Qos) -> Vec<u64> {
    world.clients[1].received.get(&(qos as u8)).cloned().unwrap_or_default()
}

/// Runs the steps between two clients and checks deliveries and outcomes.
fn run(steps: &[Step]) {
    let mut world = World::new(2);
    world.connect(0);
    world.connect(1);
    world.carry_all();
    world.subscribe(1);
    let mut expected = BTreeMap::<u8, Vec<u64>>::new();
    for step in steps {
        match *step {
            Step::Publish(qos) => {
                world.publish(0, 1, qos);
                expected.entry(qos as u8).or_default().push(world.clients[0].sent);
            }
            Step::Carry(at, limit) => world.carry(at, limit),
            Step::Reconnect(at) => world.connect(at),
        }
    }
    world.connect(0);
    world.connect(1);
    world.carry_all();
    let exact = expected.remove(&2).unwrap_or_default();
    assert_eq!(numbers(&world, Qos::ExactlyOnce), exact, "QoS 2: each message once and in order");
    let all = expected.remove(&1).unwrap_or_default();
    let mut received = numbers(&world, Qos::AtLeastOnce);
    received.sort_unstable();
    received.dedup();
    assert_eq!(received, all, "QoS 1: each message at least once");
    let mut tokens: Vec<_> = world.clients[0].outcomes.iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    assert_eq!(
        tokens,
        (1..=world.clients[0].sent).collect::<Vec<_>>(),
        "each publish has exactly one outcome"
    );
    assert!(world.clients[0].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(
        (world.clients[0].session.publishes(), world.clients[1].session.unacknowledged()),
        (0, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_over_connections_that_break(steps in steps()) {
        run(&steps);
    }
}

/// Every sequence of five steps from an alphabet that covers both sides.
#[test]
fn all_short_histories_deliver() {
    let alphabet = [
        Step::Publish(Qos::ExactlyOnce),
        Step::Carry(0, usize::MAX),
        Step::Carry(0, 25),
        Step::Carry(1, usize::MAX),
        Step::Reconnect(0),
        Step::Reconnect(1),
    ];
    let count = alphabet.len();
    for number in 0..count.pow(5) {
        let digit = |at: u32| alphabet[number / count.pow(at) % count];
        let mut steps = vec![Step::Publish(Qos::ExactlyOnce)];
        steps.extend((0..5).map(digit));
        run(&steps);
    }
}

#[test]
fn session_that_expired_at_the_broker_is_reported_as_lost() {
    let mut world = World::new(2);
    world.connect(0);
    world.carry_all();
    world.publish(0, 1, Qos::AtLeastOnce);
    // The PUBLISH is sent, and the acknowledgement is lost.
    let client = &mut world.clients[0];
    client.session.written(world.now, client.session.output_len());
    world.disconnect(0);
    world.now += seconds(100_000);
    while world.broker.poll_timeout().is_some_and(|due| due <= world.now) {
        world.broker.handle_timeout(world.now);
    }
    world.connect(0);
    world.carry_all();
    assert_eq!(world.clients[0].outcomes, [(1, Err(Lost::SessionLost))]);
}

/// The outcome of a publish, if the event is one.
fn outcome(event: &Event) -> Option<(u64, Result<Reason, Lost>)> {
    match event {
        Event::Published { token, reason, .. } => Some((*token, Ok(*reason))),
        Event::Lost { token, cause } => Some((*token, Err(*cause))),
        _ => None,
    }
}
