//! The broker and the network around it, as one state machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use statestore_broker::{Busy, Config, ConnectionId, Limits, LocalEvent, LocalId, Wake};
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::time::Instant;
use statestore_proto::transport::{
    Delivery, Publish, PublishToken, ReasonCode, SubscribeToken, Transmit,
};

use crate::Message;

mod network;

use network::{Content, InTransit, Lane, Unacknowledged};

/// Faults of the network. Rates are per thousand messages. [`Faults::default`] is a perfect
/// network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Minimum delay to or from the broker.
    pub delay_min: Duration,
    /// Maximum delay to or from the broker.
    pub delay_max: Duration,
    /// Requests and replies lost on a live connection, as from a full queue. Notifications are not
    /// lost: that would violate QoS 1, and no client could detect it.
    pub loss: u16,
    /// Messages delivered twice.
    pub duplication: u16,
    /// Messages that may overtake earlier messages of other topics on the same connection.
    pub reordering: u16,
    /// Messages that end the connection of their sender or receiver.
    pub disconnects: u16,
}

/// Changes a message before the broker routes it.
pub type Interceptor = Box<dyn FnMut(&mut Message) + Send>;

/// Returns an additional delay of a message to its receiver. Later messages overtake it.
pub type MessageDelay = Box<dyn FnMut(&Message) -> Duration + Send>;

/// An output of the broker for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The result of a SUBSCRIBE.
    Subscribed {
        /// Receiver.
        client_id: Arc<str>,
        /// Token of the SUBSCRIBE.
        token: SubscribeToken,
        /// The result.
        reason: ReasonCode,
    },
    /// The result of a PUBLISH.
    Published {
        /// Receiver.
        client_id: Arc<str>,
        /// Token of the PUBLISH.
        token: PublishToken,
        /// The result.
        reason: ReasonCode,
    },
    /// A message is delivered.
    Message {
        /// Receiver.
        client_id: Arc<str>,
        /// The message.
        message: Message,
    },
    /// The connection of a client is closed. Its packets in transit are lost.
    Disconnected {
        /// Client id.
        client_id: Arc<str>,
    },
    /// Reports a disconnected client to the hosted store, after all messages of that client.
    Gone {
        /// The store's client id.
        client_id: Arc<str>,
        /// Client id of the disconnected client.
        gone: Arc<str>,
    },
}

/// A [broker](statestore_broker) and its network: clients with clean sessions, at QoS 1.
///
/// The broker is the same machine as in a real server; this type adds the faults of the network.
/// Messages of one connection arrive in order unless reordering is configured. Messages of one
/// connection and one topic always arrive in order. At most [`Broker::QUEUE_MAX`] packets are
/// queued for each connection; a client that exceeds the limit is disconnected.
pub struct Broker {
    machine: statestore_broker::Broker,
    /// Connections by bytes that have output.
    woken: BTreeSet<ConnectionId>,
    rng: fastrand::Rng,
    faults: Faults,
    interceptor: Option<Interceptor>,
    message_delay: Option<MessageDelay>,
    /// Client id of the hosted store.
    hosted: Option<Arc<str>>,
    /// Messages to redeliver in the persistent session.
    unacknowledged: Option<Unacknowledged>,
    /// The latest time of any input.
    now: Instant,
    connections: BTreeMap<Arc<str>, Connection>,
    /// Ordered by arrival, then by departure.
    in_flight: BTreeMap<(Instant, u64), InTransit>,
    last_departure: u64,
    outputs: VecDeque<Output>,
    steps: u64,
}

#[derive(Debug)]
struct Connection {
    local: LocalId,
    /// Distinguishes this connection from earlier ones of the same client.
    generation: u64,
    /// Messages that the machine cannot accept yet, [`Broker::QUEUE_MAX`] at most.
    held_up: VecDeque<(Message, Option<PublishToken>)>,
    /// Arrival of the last message in each direction.
    to_broker: Lane,
    from_broker: Lane,
    queued: usize,
    last_delivery: u64,
}

impl Broker {
    /// Maximum number of packets in transit to one client.
    pub const QUEUE_MAX: usize = 65_536;

    /// Creates a broker without clients and without limits.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with_config(seed, faults, Config { limits: Limits::unlimited(), ..Config::default() })
    }

    /// Creates a broker without clients, with these limits and rules.
    #[must_use]
    pub fn with_config(seed: u64, faults: Faults, config: Config) -> Self {
        Self {
            machine: statestore_broker::Broker::new(config),
            woken: BTreeSet::new(),
            rng: fastrand::Rng::with_seed(seed),
            faults,
            interceptor: None,
            message_delay: None,
            hosted: None,
            unacknowledged: None,
            now: Instant::default(),
            connections: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            last_departure: 0,
            outputs: VecDeque::new(),
            steps: 0,
        }
    }

    /// Sets the faults of the network.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Sets an interceptor, which may change each message before it is routed.
    pub fn set_interceptor(&mut self, interceptor: Interceptor) {
        self.interceptor = Some(interceptor);
    }

    /// Sets a delay of messages from the broker to their receivers.
    pub fn set_message_delay(&mut self, message_delay: MessageDelay) {
        self.message_delay = Some(message_delay);
    }

    /// Makes a client the hosted store, before it connects. Its notifications need no subscription
    /// and arrive in order with its replies. It receives reports of disconnected clients in order
    /// with their requests. While it is disconnected, requests wait for it.
    pub fn set_hosted(&mut self, client_id: &Arc<str>) {
        self.hosted = Some(Arc::clone(client_id));
    }

    /// Makes the session of a client persistent, before it connects: unacknowledged messages are
    /// redelivered in order on its next connection. Messages sent while it is away are lost.
    pub fn set_persistent_session(&mut self, client_id: &Arc<str>) {
        self.unacknowledged = Some(Unacknowledged::new(Arc::clone(client_id)));
    }

    /// Connects a client with a clean session. An earlier connection of the client is closed.
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
        self.last_departure += 1;
        let connection = Connection {
            local,
            generation: self.last_departure,
            held_up: VecDeque::new(),
            to_broker: Lane::default(),
            from_broker: Lane::default(),
            queued: 0,
            last_delivery: 0,
        };
        self.connections.insert(Arc::clone(client_id), connection);
        let again = self.unacknowledged.as_mut().and_then(|kept| kept.take(client_id));
        for message in again.into_iter().flatten() {
            self.deliver(self.now, client_id, message);
        }
        self.collect(self.now);
    }

    /// Closes the connection of a client, if it has one. Its packets in transit are lost.
    pub fn handle_disconnect(&mut self, client_id: &str) {
        if let Some((client_id, connection)) = self.connections.remove_entry(client_id) {
            self.in_flight.retain(|_, packet| packet.client_id != client_id);
            self.outputs.push_back(Output::Disconnected { client_id });
            self.machine.detach(since_start(self.now), connection.local);
            self.collect(self.now);
        }
    }

    /// Accesses the broker machine, for instance for a client connected by bytes. The output for
    /// other clients is in transit afterwards.
    pub fn with_machine<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut statestore_broker::Broker) -> R,
    ) -> R {
        self.now = self.now.max(now);
        let result = act(&mut self.machine);
        self.collect(self.now);
        result
    }

    /// Returns a connection by bytes that has output; see [`statestore_broker::Wake::Connection`].
    pub fn poll_woken(&mut self) -> Option<ConnectionId> {
        self.woken.pop_first()
    }

    /// Accepts a packet from a client. Without a connection the packet is lost.
    pub fn handle_transmit(&mut self, now: Instant, client_id: &str, transmit: Transmit) {
        self.now = self.now.max(now);
        let Some((id, _)) = self.connections.get_key_value(client_id) else { return };
        let client_id = Arc::clone(id);
        let copies = self.copies(matches!(transmit, Transmit::Publish(_)));
        for _ in 0..copies {
            self.depart(now, &client_id, Content::ToBroker(Box::new(transmit.clone())));
        }
    }

    /// Delivers all packets that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.machine.poll_timeout().is_some_and(|at| at <= since_start(now)) {
            self.machine.handle_timeout(since_start(now));
            self.collect(now);
        }
        while let Some(packet) = self.in_flight.first_entry().filter(|packet| packet.key().0 <= now)
        {
            let packet = packet.remove();
            self.arrive(now, packet);
        }
    }

    /// Returns the next output.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let machine = self.machine.poll_timeout().map(|at| Instant::default() + at);
        arrival.into_iter().chain(machine).min()
    }

    /// Returns whether a client is connected.
    #[must_use]
    pub fn is_connected(&self, client_id: &str) -> bool {
        self.connections.contains_key(client_id)
    }

    /// Returns the number of packets delivered so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    fn arrive(&mut self, now: Instant, packet: InTransit) {
        let InTransit { client_id, generation, content } = packet;
        let Some(connection) = self.connections.get_mut(&client_id) else { return };
        if connection.generation != generation {
            return;
        }
        self.steps += 1;
        match content {
            Content::FromBroker(output) => {
                connection.queued -= 1;
                self.outputs.push_back(*output);
            }
            Content::ToBroker(transmit) => self.route(now, &client_id, *transmit),
        }
        if self.happens(self.faults.disconnects) {
            self.handle_disconnect(&client_id);
        }
    }

    /// Handles a packet that arrived at the broker.
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
                self.unacknowledged
                    .iter_mut()
                    .for_each(|kept| kept.acknowledged(client_id, delivery));
            }
            Transmit::Disconnect { client_id, .. } => self.handle_disconnect(&client_id),
            unsupported => panic!("output of the machine not supported: {unsupported:?}"),
        }
    }

    /// Subscribes a connected client, without transit.
    pub fn handle_subscribe(&mut self, client_id: &str, filter: &str) {
        if let Some(connection) = self.connections.get(client_id) {
            let local = connection.local;
            self.subscribe(self.now, local, filter);
        }
    }

    fn subscribe(&mut self, now: Instant, local: LocalId, filter: &str) -> ReasonCode {
        let subscription = Subscription::new(filter, Qos::AtLeastOnce);
        let reason = self.machine.subscribe_local(local, &subscription);
        self.collect(now);
        ReasonCode(reason.0)
    }

    /// Accepts any message from its sender, without transit. Without a connection the message is
    /// lost.
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
                let message = self.intercepted(Message::new(Arc::clone(sender), publish));
                let reason = self.machine.deliver(since_start(now), &recipient, &message.packet());
                self.collect(now);
                self.published(now, sender, token, reason);
            }
            None => {
                self.accept(now, sender, Message::new(Arc::clone(sender), publish), token);
            }
        }
    }

    /// Publishes a message, after those that the machine could not accept before.
    fn accept(
        &mut self,
        now: Instant,
        sender: &Arc<str>,
        message: Message,
        token: Option<PublishToken>,
    ) {
        let message = self.intercepted(message);
        let Some(connection) = self.connections.get_mut(sender) else { return };
        connection.held_up.push_back((message, token));
        if connection.held_up.len() > Self::QUEUE_MAX {
            return self.handle_disconnect(sender);
        }
        self.resume(now, sender);
    }

    /// Publishes waiting messages of a client until the machine cannot accept more.
    fn resume(&mut self, now: Instant, sender: &Arc<str>) {
        let Some(connection) = self.connections.get_mut(sender) else { return };
        let local = connection.local;
        // Taken out, since publishing may call this function again.
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

    fn intercepted(&mut self, mut message: Message) -> Message {
        if let Some(interceptor) = &mut self.interceptor {
            interceptor(&mut message);
        }
        message
    }

    /// Puts the output of the machine in transit to its clients.
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
        // In order of client ids, so that equal seeds give equal random numbers.
        let woken = self.connections.iter().filter(|(_, one)| woken.contains(&one.local));
        let woken: Vec<(Arc<str>, LocalId)> =
            woken.map(|(client_id, one)| (Arc::clone(client_id), one.local)).collect();
        for (client_id, local) in woken {
            while let Some(event) = self.machine.poll_local(since_start(now), local) {
                match event {
                    LocalEvent::Message(message, _) => self.send(now, &client_id, &message),
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
            self.resume(now, &client_id);
        }
    }

    /// Sends a message to one client, unless the network loses it.
    fn send(&mut self, now: Instant, client_id: &Arc<str>, message: &statestore_broker::Message) {
        let Some(message) = Message::from_broker(message, since_start(now), self.hosted.as_ref())
        else {
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
        self.unacknowledged.iter_mut().for_each(|kept| kept.delivered(client_id, &message));
        self.reply(now, Output::Message { client_id: Arc::clone(client_id), message });
    }

    /// Sends an output to a client. Disconnects the client if its queue is full.
    fn reply(&mut self, now: Instant, output: Output) {
        let client_id = Arc::clone(output.client_id());
        let Some(connection) = self.connections.get_mut(&client_id) else { return };
        connection.queued += 1;
        if connection.queued > Self::QUEUE_MAX {
            self.handle_disconnect(&client_id);
            return;
        }
        self.depart(now, &client_id, Content::FromBroker(Box::new(output)));
    }

    /// Puts a packet in transit.
    fn depart(&mut self, now: Instant, client_id: &Arc<str>, content: Content) {
        let arrival = now + self.delay();
        let overtakes = self.happens(self.faults.reordering);
        let delay = content.message().zip(self.message_delay.as_mut());
        let delay = delay.map(|(message, delay)| delay(message)).unwrap_or_default();
        let Some(connection) = self.connections.get_mut(client_id) else { return };
        let lane = match &content {
            Content::ToBroker(_) => &mut connection.to_broker,
            Content::FromBroker(_) => &mut connection.from_broker,
        };
        // Without reordering topics do not matter, and the table would grow with them.
        let topic = content.topic().filter(|_| self.faults.reordering > 0);
        let arrival = lane.arrival(arrival, topic, overtakes);
        self.last_departure += 1;
        let packet = InTransit {
            client_id: Arc::clone(client_id),
            generation: connection.generation,
            content,
        };
        self.in_flight.insert((arrival + delay, self.last_departure), packet);
    }

    fn delay(&mut self) -> Duration {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (min, max) = (millis(self.faults.delay_min), millis(self.faults.delay_max));
        // No random number if the delay is fixed: a network without faults is equal for all seeds.
        Duration::from_millis(if min < max { self.rng.u64(min..=max) } else { min })
    }

    fn copies(&mut self, may_be_doubled: bool) -> usize {
        1 + usize::from(may_be_doubled && self.happens(self.faults.duplication))
    }

    fn happens(&mut self, per_thousand: u16) -> bool {
        per_thousand > 0 && self.rng.u16(0..1_000) < per_thousand
    }
}

/// Converts to the machine's time.
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
    /// Returns the receiver.
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
