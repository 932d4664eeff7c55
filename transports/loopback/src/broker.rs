//! The broker and the network around it, as one state machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use statestore_mqtt::broker::{
    self, Busy, Config, ConnectionId, Limits, LocalEvent, LocalId, Wake,
};
use statestore_mqtt::packet::{Subscription, SubscriptionOptions};
use statestore_mqtt::{Qos, Reason};
use statestore_proto::mqtt::{
    Delivery, Publish, PublishToken, ReasonCode, SubscribeToken, Transmit,
};
use statestore_proto::time::Instant;

use crate::message::Message;

mod network;

use network::{Cargo, Kept, Lane, Leg};

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

/// A [broker](statestore_mqtt::broker), and the network that leads to it: clients with clean sessions, at QoS 1.
///
/// What the broker does is done by the same machine as in a broker on a network; this adds what may happen on the way there
/// and back. Messages of one connection arrive in order, unless reordering is asked for; those of one connection and one topic
/// always do. What is queued at most for one connection is bounded by [`Broker::QUEUE_MAX`]; a client that takes nothing
/// for longer is disconnected.
pub struct Broker {
    machine: broker::Broker,
    /// Connections of the machine that are not ours, for which there is something to do.
    woken: BTreeSet<ConnectionId>,
    rng: fastrand::Rng,
    faults: Faults,
    tamper: Option<Tamper>,
    detain: Option<Detain>,
    /// The client that is the store which this broker hosts.
    hosted: Option<Arc<str>>,
    kept: Option<Kept>,
    /// The latest time that it was told.
    now: Instant,
    connections: BTreeMap<Arc<str>, Connection>,
    /// By arrival and then by departure.
    in_flight: BTreeMap<(Instant, u64), Leg>,
    last_leg: u64,
    outputs: VecDeque<Output>,
    steps: u64,
}

#[derive(Debug)]
struct Connection {
    local: LocalId,
    /// Tells this connection from earlier ones of the same client.
    generation: u64,
    /// What the machine does not take yet: [`Broker::QUEUE_MAX`] at most.
    held_up: VecDeque<(Message, Option<PublishToken>)>,
    /// When the last message of each direction arrives.
    to_broker: Lane,
    from_broker: Lane,
    queued: usize,
    last_delivery: u64,
}

impl Broker {
    /// Packets on their way to one client at most.
    pub const QUEUE_MAX: usize = 65_536;

    /// A broker without clients, and without limits of its own.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with_config(seed, faults, Config { limits: unlimited(), ..Config::default() })
    }

    /// A broker without clients, with these limits and rules.
    #[must_use]
    pub fn with_config(seed: u64, faults: Faults, config: Config) -> Self {
        Self {
            machine: broker::Broker::new(config),
            woken: BTreeSet::new(),
            rng: fastrand::Rng::with_seed(seed),
            faults,
            tamper: None,
            detain: None,
            hosted: None,
            kept: None,
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

    /// Makes a client, before it connects, the store that this broker hosts: its notifications go to their recipients whether
    /// or not these subscribe, in one order with its replies, and it is told who has disconnected, in one order with the
    /// requests. While it is not connected requests wait for it.
    pub fn set_hosted(&mut self, client_id: &Arc<str>) {
        self.hosted = Some(Arc::clone(client_id));
    }

    /// Has a client, before it connects, have what it did not acknowledge delivered again, in order, on its next connection. What
    /// others send while it is away is lost.
    pub fn set_kept(&mut self, client_id: &Arc<str>) {
        self.kept = Some(Kept::new(Arc::clone(client_id)));
    }

    /// Connects a client with a clean session. One that is connected already loses its earlier connection.
    pub fn handle_connect(&mut self, client_id: &Arc<str>) {
        self.handle_disconnect(client_id);
        let at = since_start(self.now);
        let local = if self.hosted.as_ref() == Some(client_id) {
            self.machine.attach_host(at, client_id)
        } else {
            match self.machine.attach(at, client_id) {
                Ok(local) => local,
                Err(_) => {
                    let client_id = Arc::clone(client_id);
                    return self.outputs.push_back(Output::Disconnected { client_id });
                }
            }
        };
        self.last_leg += 1;
        let connection = Connection {
            local,
            generation: self.last_leg,
            held_up: VecDeque::new(),
            to_broker: Lane::default(),
            from_broker: Lane::default(),
            queued: 0,
            last_delivery: 0,
        };
        self.connections.insert(Arc::clone(client_id), connection);
        let again = self.kept.as_mut().and_then(|kept| kept.take(client_id));
        for message in again.into_iter().flatten() {
            self.deliver(self.now, client_id, message);
        }
        self.collect(self.now);
    }

    /// Ends the connection of a client, if it has one, and with it everything on its way on it.
    pub fn handle_disconnect(&mut self, client_id: &str) {
        if let Some((client_id, connection)) = self.connections.remove_entry(client_id) {
            self.in_flight.retain(|_, leg| leg.client_id != client_id);
            self.outputs.push_back(Output::Disconnected { client_id });
            self.machine.detach(since_start(self.now), connection.local);
            self.collect(self.now);
        }
    }

    /// Does something with the broker itself, for instance on behalf of a client that is connected to it by bytes; what comes
    /// of it for others is on its way to them afterwards as any other.
    pub fn with_machine<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut broker::Broker) -> R,
    ) -> R {
        self.now = self.now.max(now);
        let result = act(&mut self.machine);
        self.collect(self.now);
        result
    }

    /// A connection of the broker itself for which there is something to do, as [`broker::Wake::Connection`] says.
    pub fn poll_woken(&mut self) -> Option<ConnectionId> {
        self.woken.pop_first()
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
        if self.machine.poll_timeout().is_some_and(|at| at <= since_start(now)) {
            self.machine.handle_timeout(since_start(now));
            self.collect(now);
        }
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
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let machine = self.machine.poll_timeout().map(|at| Instant::default() + at);
        arrival.into_iter().chain(machine).min()
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
        let Some(connection) = self.connections.get(client_id) else { return };
        match transmit {
            Transmit::Subscribe { filter, token } => {
                let local = connection.local;
                let reason = self.subscribe(now, local, &filter);
                let client_id = Arc::clone(client_id);
                self.reply(now, Output::Subscribed { client_id, token, reason });
            }
            Transmit::Publish(publish) => self.publish(now, client_id, publish),
            Transmit::Acknowledge(delivery) => {
                self.kept.iter_mut().for_each(|kept| kept.acknowledged(client_id, delivery));
            }
            Transmit::Disconnect { client_id, .. } => self.handle_disconnect(&client_id),
        }
    }

    /// Subscribes for a client that is connected, at once.
    pub fn handle_subscribe(&mut self, client_id: &str, filter: &str) {
        if let Some(connection) = self.connections.get(client_id) {
            let local = connection.local;
            self.subscribe(self.now, local, filter);
        }
    }

    fn subscribe(&mut self, now: Instant, local: LocalId, filter: &str) -> ReasonCode {
        let options =
            SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        let reason = self.machine.subscribe_local(local, &Subscription { filter, options });
        self.collect(now);
        ReasonCode(reason.0)
    }

    /// Accepts any message at all from the client that it says sent it, at once; what is on its way to others afterwards is
    /// on its way as any other. Without a connection it is lost.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        self.now = self.now.max(now);
        let sender = Arc::clone(&message.sender);
        self.accept(now, &sender, message, None);
    }

    fn publish(&mut self, now: Instant, sender: &Arc<str>, publish: Publish) {
        let token = publish.token;
        let hosts = self.hosted.as_ref() == Some(sender);
        match publish.recipient().filter(|_| hosts).cloned() {
            Some(recipient) => {
                let message = self.tampered(Message::new(Arc::clone(sender), publish));
                let reason = self.machine.deliver(since_start(now), &recipient, &message.packet());
                self.collect(now);
                self.published(now, sender, token, reason);
            }
            None => {
                self.accept(now, sender, Message::new(Arc::clone(sender), publish), token);
            }
        }
    }

    /// Has the machine publish a message, behind what it did not take before.
    fn accept(
        &mut self,
        now: Instant,
        sender: &Arc<str>,
        message: Message,
        token: Option<PublishToken>,
    ) {
        let message = self.tampered(message);
        let Some(connection) = self.connections.get_mut(sender) else { return };
        connection.held_up.push_back((message, token));
        if connection.held_up.len() > Self::QUEUE_MAX {
            return self.handle_disconnect(sender);
        }
        self.go_on(now, sender);
    }

    /// Has the machine publish what a client has sent, as far as it takes it.
    fn go_on(&mut self, now: Instant, sender: &Arc<str>) {
        let Some(connection) = self.connections.get_mut(sender) else { return };
        let local = connection.local;
        // Taken out meanwhile, since what is published may come back here.
        let mut queue = std::mem::take(&mut connection.held_up);
        while let Some((message, token)) = queue.pop_front() {
            match self.machine.publish_local(since_start(now), local, &message.packet()) {
                Ok(reason) => {
                    self.collect(now);
                    self.published(now, sender, token, reason);
                }
                Err(Busy) => {
                    queue.push_front((message, token));
                    break;
                }
            }
        }
        if let Some(connection) = self.connections.get_mut(sender).filter(|one| one.local == local)
        {
            connection.held_up = queue;
        }
    }

    fn published(
        &mut self,
        now: Instant,
        sender: &Arc<str>,
        token: Option<PublishToken>,
        reason: Reason,
    ) {
        if let Some(token) = token {
            let (client_id, reason) = (Arc::clone(sender), ReasonCode(reason.0));
            self.reply(now, Output::Published { client_id, token, reason });
        }
    }

    fn tampered(&mut self, mut message: Message) -> Message {
        if let Some(tamper) = &mut self.tamper {
            tamper(&mut message);
        }
        message
    }

    /// Puts what the machine has for its clients on its way to them.
    fn collect(&mut self, now: Instant) {
        let mut woken = BTreeSet::new();
        while let Some(wake) = self.machine.poll_wake() {
            match wake {
                Wake::Connection(id) => _ = self.woken.insert(id),
                Wake::Local(id) => _ = woken.insert(id),
            }
        }
        if woken.is_empty() {
            return;
        }
        // In order of client ids, so that equal seeds throw equal dice.
        let woken = self.connections.iter().filter(|(_, one)| woken.contains(&one.local));
        let woken: Vec<(Arc<str>, LocalId)> =
            woken.map(|(client_id, one)| (Arc::clone(client_id), one.local)).collect();
        for (client_id, local) in woken {
            while let Some(event) = self.machine.poll_local(since_start(now), local) {
                match event {
                    LocalEvent::Message(message) => self.send(now, &client_id, &message),
                    LocalEvent::Gone(gone) => {
                        self.reply(now, Output::Gone { client_id: Arc::clone(&client_id), gone });
                    }
                    LocalEvent::Detached(_) => {
                        if self.connections.get(&client_id).is_some_and(|one| one.local == local) {
                            self.handle_disconnect(&client_id);
                        }
                        break;
                    }
                }
            }
            self.go_on(now, &client_id);
        }
    }

    /// Sends a message to one client, unless the network loses it.
    fn send(&mut self, now: Instant, client_id: &Arc<str>, message: &broker::Message) {
        let Some(message) = Message::of(message, since_start(now), self.hosted.as_ref()) else {
            return;
        };
        if message.correlation_data.is_some() && self.happens(self.faults.loss) {
            return;
        }
        for _ in 0..self.copies(true) {
            self.deliver(now, client_id, message.clone());
        }
    }

    fn deliver(&mut self, now: Instant, client_id: &Arc<str>, mut message: Message) {
        let Some(connection) = self.connections.get_mut(client_id) else { return };
        connection.last_delivery += 1;
        message.delivery = Some(Delivery(connection.last_delivery));
        self.kept.iter_mut().for_each(|kept| kept.delivered(client_id, &message));
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

/// No limits but those of the network.
fn unlimited() -> Limits {
    let mut limits = Limits::default();
    limits.memory = usize::MAX;
    limits.share = usize::MAX;
    limits.waiting = usize::MAX;
    limits.sessions = usize::MAX;
    limits.subscriptions = usize::MAX;
    limits.levels = usize::MAX;
    limits.retained = usize::MAX;
    limits
}

/// The machine's time.
fn since_start(now: Instant) -> Duration {
    now.duration_since(Instant::default())
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
