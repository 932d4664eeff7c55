//! The broker and the network around it, as one state machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use statestore_mqtt::topic;
use statestore_proto::mqtt::{
    Delivery, Publish, PublishToken, ReasonCode, SubscribeToken, Transmit,
};
use statestore_proto::time::Instant;

use crate::message::Message;

/// What goes wrong, how often. Rates are per thousand messages; [`Faults::default`] is a network without faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Shortest delay of one leg, to or from the broker.
    pub delay_min: Duration,
    /// Longest delay of one leg.
    pub delay_max: Duration,
    /// Requests and replies that vanish although the connection lives, as from a full queue. Notifications are spared:
    /// a broker that drops one behind a living connection breaks QoS 1, and no client can know.
    pub loss: u16,
    /// Messages that are delivered twice.
    pub duplication: u16,
    /// Messages that may overtake earlier ones of other topics on the same connection.
    pub reordering: u16,
    /// Messages that take the connection of their sender or receiver with them.
    pub disconnects: u16,
}

/// A test's own fault: it may change any message before the broker routes it.
pub type Tamper = Box<dyn FnMut(&mut Message) + Send>;

/// A test's own fault: how long any message is kept back behind those that follow it to the same receiver.
pub type Detain = Box<dyn FnMut(&Message) -> Duration + Send>;

/// What the broker tells a client, or the one who watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The result of a SUBSCRIBE.
    Subscribed {
        /// To whom.
        client_id: Arc<str>,
        /// Of which SUBSCRIBE.
        token: SubscribeToken,
        /// The result.
        reason: ReasonCode,
    },
    /// The result of a PUBLISH.
    Published {
        /// To whom.
        client_id: Arc<str>,
        /// Of which PUBLISH.
        token: PublishToken,
        /// The result.
        reason: ReasonCode,
    },
    /// A message is delivered.
    Message {
        /// To whom.
        client_id: Arc<str>,
        /// The message.
        message: Message,
    },
    /// The connection of a client is gone; everything on its way on it is lost.
    Disconnected {
        /// Whose.
        client_id: Arc<str>,
    },
    /// The store that this broker hosts hears that the connection of a client is gone, behind everything of that client.
    Gone {
        /// The store's client id.
        client_id: Arc<str>,
        /// Whose connection it was.
        gone: Arc<str>,
    },
}

/// An in-memory MQTT 5 broker with QoS 1 and clean sessions, and the network that leads to it.
///
/// Messages of one connection arrive in order, unless reordering is asked for; those of one connection and one topic
/// always do. What is queued at most for one connection is bounded by [`Broker::QUEUE_MAX`]; a client that takes nothing
/// for longer is disconnected.
pub struct Broker {
    rng: fastrand::Rng,
    faults: Faults,
    tamper: Option<Tamper>,
    detain: Option<Detain>,
    /// The client that is the store which this broker hosts.
    hosted: Option<Arc<str>>,
    /// The latest time that it was told.
    now: Instant,
    connections: BTreeMap<Arc<str>, Connection>,
    /// By arrival and then by departure.
    in_flight: BTreeMap<(Instant, u64), Leg>,
    last_leg: u64,
    outputs: VecDeque<Output>,
    steps: u64,
}

#[derive(Debug, Default)]
struct Connection {
    /// Tells this connection from earlier ones of the same client.
    generation: u64,
    filters: BTreeSet<Arc<str>>,
    /// When the last message of each direction arrives.
    to_broker: Lane,
    from_broker: Lane,
    queued: usize,
    last_delivery: u64,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Lane {
    last: Instant,
    by_topic: BTreeMap<Arc<str>, Instant>,
}

/// Something on its way, and on which connection.
#[derive(Debug)]
struct Leg {
    client_id: Arc<str>,
    generation: u64,
    cargo: Cargo,
}

#[derive(Debug)]
enum Cargo {
    ToBroker(Box<Transmit>),
    FromBroker(Box<Output>),
}

impl Broker {
    /// Packets on their way to one client at most.
    pub const QUEUE_MAX: usize = 65_536;

    /// A broker without clients.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            faults,
            tamper: None,
            detain: None,
            hosted: None,
            now: Instant::default(),
            connections: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            last_leg: 0,
            outputs: VecDeque::new(),
            steps: 0,
        }
    }

    /// Other faults from now on.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Has every message changed by `tamper` before it is routed: to show that a check notices what it must.
    pub fn set_tamper(&mut self, tamper: Tamper) {
        self.tamper = Some(tamper);
    }

    /// Has messages kept back on their way from the broker: to show that a check notices what it must.
    pub fn set_detain(&mut self, detain: Detain) {
        self.detain = Some(detain);
    }

    /// Makes a client the store that this broker hosts: its notifications go to their recipients whether or not these
    /// subscribe, in one order with its replies, and it is told who has disconnected, in one order with the requests.
    pub fn set_hosted(&mut self, client_id: &Arc<str>) {
        self.hosted = Some(Arc::clone(client_id));
    }

    /// Connects a client with a clean session. One that is connected already loses its earlier connection.
    pub fn handle_connect(&mut self, client_id: &Arc<str>) {
        self.handle_disconnect(client_id);
        self.last_leg += 1;
        let connection = Connection { generation: self.last_leg, ..Connection::default() };
        self.connections.insert(Arc::clone(client_id), connection);
    }

    /// Ends the connection of a client, if it has one, and with it everything on its way on it.
    pub fn handle_disconnect(&mut self, client_id: &str) {
        if let Some((client_id, _)) = self.connections.remove_entry(client_id) {
            self.in_flight.retain(|_, leg| leg.client_id != client_id);
            let hosted = self.hosted.clone().filter(|hosted| *hosted != client_id);
            self.outputs.push_back(Output::Disconnected { client_id: Arc::clone(&client_id) });
            if let Some(hosted) = hosted {
                self.reply(self.now, Output::Gone { client_id: hosted, gone: client_id });
            }
        }
    }

    /// Accepts a packet from a client. Without a connection it is lost.
    pub fn handle_transmit(&mut self, now: Instant, client_id: &str, transmit: Transmit) {
        self.now = self.now.max(now);
        let Some((id, _)) = self.connections.get_key_value(client_id) else { return };
        let client_id = Arc::clone(id);
        let copies = self.copies(matches!(transmit, Transmit::Publish(_)));
        for _ in 0..copies {
            self.depart(now, &client_id, Cargo::ToBroker(Box::new(transmit.clone())));
        }
    }

    /// Moves what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(leg) = self.in_flight.first_entry().filter(|leg| leg.key().0 <= now) {
            let leg = leg.remove();
            self.arrive(now, leg);
        }
    }

    /// The next thing to tell a client.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When something is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a client is connected.
    #[must_use]
    pub fn is_connected(&self, client_id: &str) -> bool {
        self.connections.contains_key(client_id)
    }

    /// Packets that have arrived anywhere so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    fn arrive(&mut self, now: Instant, leg: Leg) {
        let Leg { client_id, generation, cargo } = leg;
        let Some(connection) = self.connections.get_mut(&client_id) else { return };
        if connection.generation != generation {
            return;
        }
        self.steps += 1;
        match cargo {
            Cargo::FromBroker(output) => {
                connection.queued -= 1;
                self.outputs.push_back(*output);
            }
            Cargo::ToBroker(transmit) => self.route(now, &client_id, *transmit),
        }
        if self.happens(self.faults.disconnects) {
            self.handle_disconnect(&client_id);
        }
    }

    /// Does what an arrived packet asks.
    fn route(&mut self, now: Instant, client_id: &Arc<str>, transmit: Transmit) {
        let Some(connection) = self.connections.get_mut(client_id) else { return };
        match transmit {
            Transmit::Subscribe { filter, token } => {
                connection.filters.insert(filter);
                let client_id = Arc::clone(client_id);
                self.reply(
                    now,
                    Output::Subscribed { client_id, token, reason: ReasonCode::GRANTED_QOS_1 },
                );
            }
            Transmit::Publish(publish) => self.publish(now, client_id, publish),
            // With clean sessions nothing is ever delivered again, so nothing waits for this.
            Transmit::Acknowledge(_) => {}
            Transmit::Disconnect { client_id } => self.handle_disconnect(&client_id),
        }
    }

    /// Subscribes for a client that is connected, at once.
    pub fn handle_subscribe(&mut self, client_id: &str, filter: &str) {
        if let Some(connection) = self.connections.get_mut(client_id) {
            connection.filters.insert(filter.into());
        }
    }

    /// Accepts any message at all from the client that it says sent it, at once; what is on its way to others afterwards is
    /// on its way as any other. Without a connection it is lost.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        self.now = self.now.max(now);
        if self.connections.contains_key(&message.sender) {
            self.forward(now, message, None);
        }
    }

    fn publish(&mut self, now: Instant, sender: &Arc<str>, publish: Publish) {
        let token = publish.token;
        let hosts = self.hosted.as_ref() == Some(sender);
        let recipient: Option<Arc<str>> = publish.recipient().filter(|_| hosts).cloned();
        let reason = self.forward(now, Message::new(Arc::clone(sender), publish), recipient);
        if let Some(token) = token {
            self.reply(now, Output::Published { client_id: Arc::clone(sender), token, reason });
        }
    }

    /// Passes a message on to those who subscribe to its topic, or to its recipient alone.
    fn forward(
        &mut self,
        now: Instant,
        mut message: Message,
        recipient: Option<Arc<str>>,
    ) -> ReasonCode {
        if let Some(tamper) = &mut self.tamper {
            tamper(&mut message);
        }
        let is_for = |(client_id, connection): &(&Arc<str>, &Connection)| match &recipient {
            Some(recipient) => recipient == *client_id,
            None => connection.filters.iter().any(|filter| topic::matches(filter, &message.topic)),
        };
        let receivers: Vec<Arc<str>> = self
            .connections
            .iter()
            .filter(is_for)
            .map(|(client_id, _)| Arc::clone(client_id))
            .collect();
        let reason = match receivers.is_empty() {
            true => ReasonCode::NO_MATCHING_SUBSCRIBERS,
            false => ReasonCode::SUCCESS,
        };
        let may_be_lost = message.correlation_data.is_some();
        for client_id in receivers {
            if may_be_lost && self.happens(self.faults.loss) {
                continue;
            }
            for _ in 0..self.copies(true) {
                self.deliver(now, &client_id, message.clone());
            }
        }
        reason
    }

    fn deliver(&mut self, now: Instant, client_id: &Arc<str>, mut message: Message) {
        let Some(connection) = self.connections.get_mut(client_id) else { return };
        connection.last_delivery += 1;
        message.delivery = Some(Delivery(connection.last_delivery));
        self.reply(now, Output::Message { client_id: Arc::clone(client_id), message });
    }

    /// Sends something from the broker to a client, or gives the client up when it takes nothing.
    fn reply(&mut self, now: Instant, output: Output) {
        let client_id = Arc::clone(output.client_id());
        let Some(connection) = self.connections.get_mut(&client_id) else { return };
        connection.queued += 1;
        if connection.queued > Self::QUEUE_MAX {
            self.handle_disconnect(&client_id);
            return;
        }
        self.depart(now, &client_id, Cargo::FromBroker(Box::new(output)));
    }

    /// Puts something on its way.
    fn depart(&mut self, now: Instant, client_id: &Arc<str>, cargo: Cargo) {
        let arrival = now + self.delay();
        let overtakes = self.happens(self.faults.reordering);
        let detained = cargo.message().zip(self.detain.as_mut());
        let detained = detained.map(|(message, detain)| detain(message)).unwrap_or_default();
        let Some(connection) = self.connections.get_mut(client_id) else { return };
        let lane = match &cargo {
            Cargo::ToBroker(_) => &mut connection.to_broker,
            Cargo::FromBroker(_) => &mut connection.from_broker,
        };
        // Topics are told apart only where that matters, or the table would grow with them.
        let topic = cargo.topic().filter(|_| self.faults.reordering > 0);
        let arrival = lane.arrival(arrival, topic, overtakes);
        self.last_leg += 1;
        let leg =
            Leg { client_id: Arc::clone(client_id), generation: connection.generation, cargo };
        self.in_flight.insert((arrival + detained, self.last_leg), leg);
    }

    fn delay(&mut self) -> Duration {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (min, max) = (millis(self.faults.delay_min), millis(self.faults.delay_max));
        // No dice where there is nothing to choose: a network without faults is the same for every seed.
        Duration::from_millis(if min < max { self.rng.u64(min..=max) } else { min })
    }

    fn copies(&mut self, may_be_doubled: bool) -> usize {
        1 + usize::from(may_be_doubled && self.happens(self.faults.duplication))
    }

    fn happens(&mut self, per_thousand: u16) -> bool {
        per_thousand > 0 && self.rng.u16(0..1_000) < per_thousand
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("faults", &self.faults)
            .field("connections", &self.connections)
            .field("in_flight", &self.in_flight)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl Lane {
    /// When something that could arrive at `earliest` does: behind everything before it, or, when it overtakes, behind
    /// everything of its topic.
    fn arrival(&mut self, earliest: Instant, topic: Option<&Arc<str>>, overtakes: bool) -> Instant {
        let floor = match topic {
            Some(topic) if overtakes => self.by_topic.get(topic).copied().unwrap_or_default(),
            _ => self.last,
        };
        let arrival = earliest.max(floor);
        self.last = self.last.max(arrival);
        if let Some(topic) = topic {
            self.by_topic.insert(Arc::clone(topic), arrival);
        }
        arrival
    }
}

impl Cargo {
    /// What is delivered, if it is a message.
    fn message(&self) -> Option<&Message> {
        match self {
            Self::FromBroker(output) => match &**output {
                Output::Message { message, .. } => Some(message),
                _ => None,
            },
            Self::ToBroker(_) => None,
        }
    }

    fn topic(&self) -> Option<&Arc<str>> {
        match self {
            Self::ToBroker(transmit) => match &**transmit {
                Transmit::Publish(publish) => Some(&publish.topic),
                _ => None,
            },
            Self::FromBroker(_) => self.message().map(|message| &message.topic),
        }
    }
}

impl Output {
    /// The client that it concerns.
    #[must_use]
    pub const fn client_id(&self) -> &Arc<str> {
        match self {
            Self::Subscribed { client_id, .. }
            | Self::Published { client_id, .. }
            | Self::Message { client_id, .. }
            | Self::Disconnected { client_id }
            | Self::Gone { client_id, .. } => client_id,
        }
    }
}
