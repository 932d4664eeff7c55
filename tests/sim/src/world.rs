//! Clients, a store and a broker in one process, in simulated time, each with a separate clock.

mod clock;
mod journal;
mod node;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use statestore_proto::client::{Client, ClientConfig, Event};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Record, Store, StoreConfig};
use statestore_proto::time::{Instant, Now};
use statestore_proto::transport::{PublishToken, Transmit};

pub use self::clock::Clock;
use self::journal::Journal;
use self::node::{ClientNode, StoreNode};
use crate::Message;
use crate::broker::{Broker, Faults, Interceptor, MessageDelay, Output};
use crate::error::Error;

/// The MQTT client id of the store.
const STORE: &str = "statestore";

/// Identifies a client of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientIndex(pub usize);

/// An event that a [`World`] with tracing records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// A message reached the store or a client.
    Message(Message),
    /// The store sent a packet.
    Sent(Transmit),
    /// The store learned that this client has disconnected.
    ClientGone(Arc<str>),
    /// The store learned that the notification with this token reached no client.
    Undeliverable(PublishToken),
    /// A store started and restored the journal, if it has one.
    StoreStarted,
}

/// Configuration of the store's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverConfig {
    /// Maximum time until a batch of records is durable; zero for immediately. One batch is written
    /// at a time.
    pub persist_max: Duration,
    /// Number of records after which a snapshot replaces the log, zero for never. The snapshot is
    /// taken in parts while the store runs.
    pub snapshot_every: usize,
    /// A deliberate bug, to prove that a check detects it.
    pub bug: Option<DriverBug>,
}

/// A deliberate bug of the store's driver or its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverBug {
    /// The driver reports records as durable while they are still being written.
    RepliesBeforeDurable,
    /// The driver submits requests although the store cannot receive them.
    IgnoresBackPressure,
    /// The driver omits the time of arrival of requests that waited.
    LosesArrivalTimes,
    /// The journal loses responses.
    LosesResponses,
    /// The journal loses registrations.
    LosesRegistrations,
    /// The journal loses versions except those of existing values.
    LosesVersions,
}

/// A store, clients, and the network between them.
///
/// Time advances only in [`step`](Self::step), to the next deadline. Equal seeds and equal calls
/// give equal worlds, byte for byte.
#[derive(Debug)]
pub struct World {
    now: Instant,
    broker: Broker,
    store: StoreNode,
    clients: Vec<ClientNode>,
    by_id: BTreeMap<Arc<str>, ClientIndex>,
    reconnect_after: Duration,
    trace: Vec<TraceEvent>,
    tracing: bool,
    journal: Journal,
    driver: DriverConfig,
    hosted: bool,
    /// Used only when a pause ends, so that worlds without pauses do not depend on it.
    rng: fastrand::Rng,
}

impl World {
    /// Creates a store and a network without clients. Each store gets a new incarnation unless its
    /// configuration has one; equal worlds have equal incarnations.
    #[must_use]
    pub fn new(seed: u64, faults: Faults, store: StoreConfig) -> Self {
        Self::with_broker(seed, Broker::new(seed, faults), store)
    }

    /// Creates a world with this broker.
    #[must_use]
    pub fn with_broker(seed: u64, broker: Broker, store: StoreConfig) -> Self {
        let reconnect_after = Duration::from_millis(50);
        let store = StoreNode {
            id: STORE.into(),
            store: Store::new(numbered(store, 1)),
            clock: Clock::default(),
            reconnect_at: Some(Instant::default()),
            reconnect_after,
            made: 1,
            next: None,
            paused_until: None,
            inbox: VecDeque::new(),
        };
        Self {
            now: Instant::default(),
            broker,
            store,
            clients: Vec::new(),
            by_id: BTreeMap::new(),
            reconnect_after,
            trace: Vec::new(),
            tracing: false,
            journal: Journal::new(seed),
            driver: DriverConfig::default(),
            hosted: false,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Adds a client, which connects in the next step.
    ///
    /// # Errors
    /// [`Error::Config`] if the client id is invalid, [`Error::Taken`] if it is in use.
    pub fn add_client(&mut self, client_id: &str, clock: Clock) -> Result<ClientIndex, Error> {
        let nonce = (self.clients.len() as u64 + 1).to_be_bytes();
        self.add_configured(ClientConfig::new(client_id, nonce), clock)
    }

    /// Adds a client with this configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is invalid, [`Error::Taken`] if the client id is in
    /// use.
    pub fn add_configured(
        &mut self,
        config: ClientConfig,
        clock: Clock,
    ) -> Result<ClientIndex, Error> {
        let index = ClientIndex(self.clients.len());
        let id = Arc::clone(config.client_id());
        let client = Client::new(config)?;
        if id == self.store.id || self.by_id.insert(Arc::clone(&id), index).is_some() {
            return Err(Error::Taken);
        }
        self.clients.push(ClientNode {
            id,
            client,
            clock,
            reconnect_at: Some(self.now),
            reconnect_after: self.reconnect_after,
            paused_until: None,
            inbox: VecDeque::new(),
        });
        Ok(index)
    }

    /// Returns the time since the world began.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns a client and its current time.
    pub fn client(&mut self, index: ClientIndex) -> Option<(&mut Client, Now)> {
        let node = self.clients.get_mut(index.0)?;
        let now = node.now(self.now);
        Some((&mut node.client, now))
    }

    /// Returns the store and its current time; after a crash the crashed store until the next one
    /// starts.
    #[must_use]
    pub fn store(&self) -> (&Store, Now) {
        (&self.store.store, self.store.now(self.now))
    }

    /// Returns whether the store runs: it has neither crashed nor paused.
    #[must_use]
    pub const fn store_runs(&self) -> bool {
        self.store.runs()
    }

    /// Returns whether records are being written that are not durable yet.
    #[must_use]
    pub const fn is_writing(&self) -> bool {
        self.journal.due().is_some()
    }

    /// Returns the records that a store restores after a crash.
    pub fn persisted(&self) -> impl Iterator<Item = &Record> {
        self.journal.records()
    }

    /// Returns all records that ever became durable, in order, including those that a snapshot
    /// replaced.
    #[must_use]
    pub fn ever_persisted(&self) -> &[Record] {
        self.journal.history()
    }

    /// Returns the broker, for connections that are not part of this world.
    pub const fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    /// Sets the clock of the store.
    pub const fn set_store_clock(&mut self, clock: Clock) {
        self.store.clock = clock;
    }

    /// Sets the clock of a client.
    pub fn set_client_clock(&mut self, index: ClientIndex, clock: Clock) {
        if let Some(node) = self.clients.get_mut(index.0) {
            node.clock = clock;
        }
    }

    /// Sets the delay before clients and the store reconnect.
    pub fn set_reconnect_after(&mut self, reconnect_after: Duration) {
        self.reconnect_after = reconnect_after;
        self.store.reconnect_after = reconnect_after;
        self.clients.iter_mut().for_each(|node| node.reconnect_after = reconnect_after);
    }

    /// Sets the configuration of the store's driver.
    pub const fn set_driver_config(&mut self, driver: DriverConfig) {
        self.driver = driver;
        self.journal.set_driver_config(driver);
    }

    /// Makes the broker host the store; see [`Broker::set_hosted`].
    pub fn set_hosted(&mut self) {
        self.hosted = true;
        self.broker.set_hosted(&self.store.id);
    }

    /// Makes the store's session persistent; see [`Broker::set_persistent_session`].
    pub fn set_persistent_session(&mut self) {
        self.broker.set_persistent_session(&self.store.id);
    }

    /// Sets the faults of the network.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.broker.set_faults(faults);
    }

    /// Sets an interceptor, which may change each message before the broker routes it.
    pub fn set_interceptor(&mut self, interceptor: Interceptor) {
        self.broker.set_interceptor(interceptor);
    }

    /// Sets a delay of messages from the broker to their receivers.
    pub fn set_message_delay(&mut self, message_delay: MessageDelay) {
        self.broker.set_message_delay(message_delay);
    }

    /// Crashes the store. After the reconnect delay another store starts empty.
    pub fn replace_store(&mut self, store: StoreConfig) {
        self.end_store(store, false);
        self.store.reconnect_at = Some(self.now + self.reconnect_after);
    }

    /// Crashes the store. After the reconnect delay another store restores the journal.
    ///
    /// The batch being written becomes durable as a whole or not at all.
    pub fn crash_store(&mut self, store: StoreConfig) {
        self.end_store(store, true);
        self.store.reconnect_at = Some(self.now + self.reconnect_after);
    }

    /// Ends the store. Call [`take_over`](Self::take_over) next: it starts a store with this
    /// configuration. If `restored`, that store restores the journal, otherwise it starts empty. In
    /// between, the journal has no record of the next store.
    ///
    /// The ended store neither receives nor sends anything from then on.
    pub fn depose_store(&mut self, next: StoreConfig, restored: bool) {
        self.end_store(next, restored);
    }

    /// Starts the store that follows a [deposed](Self::depose_store) one, with its client id.
    pub fn take_over(&mut self) {
        self.start_store();
        self.settle();
    }

    /// Pauses the store: it reads no clock and receives nothing. Its messages wait.
    pub fn pause_store(&mut self, duration: Duration) {
        self.store.paused_until = Some(self.now + duration);
    }

    /// Pauses a client, as [`pause_store`](Self::pause_store) does.
    pub fn pause_client(&mut self, index: ClientIndex, duration: Duration) {
        if let Some(node) = self.clients.get_mut(index.0) {
            node.paused_until = Some(self.now + duration);
        }
    }

    /// Returns whether a client is paused.
    #[must_use]
    pub fn is_paused(&self, index: ClientIndex) -> bool {
        self.clients.get(index.0).is_some_and(|node| node.paused_until.is_some())
    }

    /// Ends all pauses.
    pub fn resume(&mut self) {
        let now = self.now;
        let paused = self.clients.iter_mut().map(|node| &mut node.paused_until);
        paused.chain([&mut self.store.paused_until]).flatten().for_each(|until| *until = now);
    }

    /// Closes the connection of a client. The client reconnects after the reconnect delay.
    pub fn disconnect(&mut self, index: ClientIndex) {
        if let Some(node) = self.clients.get(index.0) {
            self.broker.handle_disconnect(&node.id);
            self.settle();
        }
    }

    /// Starts or stops the recording of trace events.
    pub fn set_tracing(&mut self, tracing: bool) {
        self.tracing = tracing;
    }

    /// Removes and returns the recorded events.
    pub fn take_trace(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.trace)
    }

    /// Returns the next event of a client.
    pub fn poll_event(&mut self, index: ClientIndex) -> Option<Event> {
        self.clients.get_mut(index.0)?.client.poll_event()
    }

    /// Returns the number of packets delivered so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.broker.steps()
    }

    /// Does all work that is possible now, advances time to the next deadline, and handles it. Time
    /// does not pass `limit`. Returns `false` if no deadline is at or before `limit`.
    pub fn step(&mut self, limit: Instant) -> bool {
        self.settle();
        let Some(next) = self.next_deadline().filter(|next| *next <= limit) else {
            self.now = self.now.max(limit);
            return false;
        };
        self.now = self.now.max(next);
        self.wake();
        self.settle();
        true
    }

    /// Advances time by `duration`.
    pub fn run_for(&mut self, duration: Duration) {
        let limit = self.now + duration;
        while self.step(limit) {}
    }

    fn next_deadline(&self) -> Option<Instant> {
        let clients = self.clients.iter().flat_map(ClientNode::deadlines);
        let written = self.journal.due().filter(|_| self.store.runs());
        let others = [written, self.broker.poll_timeout()];
        clients.chain(self.store.deadlines()).chain(others).flatten().min()
    }

    /// Handles all timers that are due.
    fn wake(&mut self) {
        let now = self.now;
        self.broker.handle_timeout(now);
        self.wake_store();
        for index in 0..self.clients.len() {
            self.wake_client(index);
        }
    }

    fn wake_store(&mut self) {
        let now = self.now;
        if self.store.paused_until.take_if(|until| *until <= now).is_some() && self.rng.bool() {
            // A resumed process may read its clock or its messages first.
            self.hand_to_store();
        }
        if self.store.runs() {
            self.store.store.handle(self.store.now(now), Input::Timeout);
        }
        let runs = self.store.paused_until.is_none();
        if runs && self.store.reconnect_at.is_some_and(|at| at <= now) {
            self.start_store();
        }
    }

    fn wake_client(&mut self, index: usize) {
        let now = self.now;
        let Some(node) = self.clients.get_mut(index) else { return };
        if node.paused_until.take_if(|until| *until <= now).is_some() && self.rng.bool() {
            let taken = node.receive_all(now);
            self.trace(taken);
        }
        let Some(node) = self.clients.get_mut(index) else { return };
        if node.paused_until.is_some() {
            return;
        }
        let node_now = node.now(now);
        node.client.handle(node_now, Input::Timeout);
        if node.reconnect_at.is_some_and(|at| at <= now) {
            node.reconnect_at = None;
            self.broker.handle_connect(&node.id);
            node.client.handle(node_now, Input::Connected { session_present: false });
        }
    }

    /// Removes the store, its connection and everything that is not durable.
    fn end_store(&mut self, next: StoreConfig, restored: bool) {
        self.store.next = Some((next, restored));
        self.store.paused_until = None;
        self.store.inbox.clear();
        self.journal.crash();
        if !restored {
            self.journal.erase();
        }
        self.broker.handle_disconnect(&self.store.id);
        self.settle();
    }

    /// Starts the next store if this one has crashed, and connects.
    fn start_store(&mut self) {
        let store_now = self.store.now(self.now);
        self.store.reconnect_at = None;
        if let Some((config, restored)) = self.store.next.take() {
            self.store.made += 1;
            self.store.store = Store::new(numbered(config, self.store.made));
            if restored {
                self.journal.load(store_now, &mut self.store.store);
            }
            self.trace(vec![TraceEvent::StoreStarted]);
        }
        self.broker.handle_connect(&self.store.id);
        self.store.store.handle(store_now, Input::Connected { session_present: false });
    }

    /// Carries packets between the machines and the broker until no packet is ready.
    fn settle(&mut self) {
        loop {
            let mut idle = !self.drive_store();
            for node in &mut self.clients {
                let taken = node.receive_all(self.now);
                idle &= taken.is_empty();
                if self.tracing {
                    self.trace.extend(taken);
                }
                while let Some(transmit) =
                    node.paused_until.is_none().then(|| node.client.poll_transmit()).flatten()
                {
                    self.broker.handle_transmit(self.now, &node.id, transmit);
                    idle = false;
                }
            }
            while let Some(output) = self.broker.poll_output() {
                self.arrive(output);
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    /// Returns whether the store did anything.
    fn drive_store(&mut self) -> bool {
        if !self.store.runs() {
            return false;
        }
        let mut busy = self.hand_to_store();
        busy |= self.journal.drive(self.store.now(self.now), &mut self.store.store);
        while let Some(transmit) = self.store.store.poll_transmit() {
            self.trace(vec![TraceEvent::Sent(transmit.clone())]);
            self.broker.handle_transmit(self.now, &self.store.id, transmit);
            busy = true;
        }
        busy
    }

    fn hand_to_store(&mut self) -> bool {
        let before = self.store.inbox.len();
        let taken = self.store.receive_all(self.now, self.driver.bug);
        self.trace(taken);
        self.store.inbox.len() < before
    }

    fn trace(&mut self, traced: Vec<TraceEvent>) {
        if self.tracing {
            self.trace.extend(traced);
        }
    }

    /// Handles an output of the broker at its receiver.
    fn arrive(&mut self, mut output: Output) {
        if let Output::Message { message, .. } = &mut output {
            message.arrived = Some(self.now);
        }
        if let Output::Disconnected { client_id } = &output
            && !self.hosted
            && *client_id != self.store.id
        {
            // The broker reports this to the store, as a broker that hosts the store does.
            let (client_id, gone) = (Arc::clone(&self.store.id), Arc::clone(client_id));
            self.deliver(Output::Gone { client_id, gone });
        }
        self.deliver(output);
    }

    fn deliver(&mut self, output: Output) {
        let inbox = if *output.client_id() == self.store.id {
            // Output for a crashed store is lost.
            if self.store.next.is_some() {
                return;
            }
            &mut self.store.inbox
        } else {
            let index = self.by_id.get(output.client_id());
            let Some(node) = index.and_then(|index| self.clients.get_mut(index.0)) else { return };
            &mut node.inbox
        };
        if inbox.len() < Broker::QUEUE_MAX || matches!(output, Output::Disconnected { .. }) {
            inbox.push_back(output);
        } else {
            inbox.clear();
            let client_id = Arc::clone(output.client_id());
            self.broker.handle_disconnect(&client_id);
        }
    }
}

/// Sets the incarnation of the store with this number, unless the configuration has one.
fn numbered(store: StoreConfig, number: u64) -> StoreConfig {
    if store.incarnation.is_some() { store } else { store.incarnation(number) }
}
