//! Clients, a store and a broker in one process, in simulated time, each with a clock of its own.

mod clock;
mod journal;
mod node;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use statestore_proto::client::{Client, ClientConfig, Event};
use statestore_proto::mqtt::{PublishToken, Transmit};
use statestore_proto::store::{Record, Store, StoreConfig};
use statestore_proto::time::{Instant, Now};

pub use self::clock::Clock;
use self::journal::Journal;
use self::node::{ClientNode, StoreNode};
use crate::broker::{Broker, Detain, Faults, Output, Tamper};
use crate::error::Error;
use crate::message::Message;

/// The MQTT client id of the store.
const STORE: &str = "statestore";

/// Names a client of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientIndex(pub usize);

/// What a [`World`] with tracing keeps, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Traced {
    /// A message reached the store or a client.
    Message(Message),
    /// The store sent this.
    Sent(Transmit),
    /// The store was told that this client has disconnected.
    Gone(Arc<str>),
    /// The store was told that the notification with this token reached nobody.
    Undeliverable(PublishToken),
    /// A store began, after it took back what was written, if it did.
    Started,
}

/// How a world drives its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// How long a batch of records takes at most until it is persisted; zero persists it at once. One is written at a
    /// time.
    pub persist_max: Duration,
    /// After how many records a snapshot takes the place of the log, made in parts while the store goes on; never, if
    /// zero.
    pub snapshot_every: usize,
    /// What is wrong with the driver: to show that a check notices what it must.
    pub flaw: Option<Flaw>,
}

/// What a driver of a store can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It says that records are persisted while they are still being written.
    ReleasesEarly,
    /// It hands requests over without asking whether the store is ready.
    NeverAsks,
    /// It does not say when a request that had to wait arrived.
    ForgetsArrival,
    /// Its journal keeps no answers.
    ForgetsAnswers,
    /// Its journal keeps no registrations.
    ForgetsWatches,
    /// Its journal keeps no versions but those of values that are there.
    ForgetsVersions,
}

/// A store, clients, and the network between them.
///
/// Time stands still until [`step`](Self::step) moves it to the next thing that is due. Equal seeds and equal calls give
/// equal worlds, byte for byte.
#[derive(Debug)]
pub struct World {
    now: Instant,
    broker: Broker,
    store: StoreNode,
    clients: Vec<ClientNode>,
    by_id: BTreeMap<Arc<str>, ClientIndex>,
    reconnect_after: Duration,
    trace: Vec<Traced>,
    tracing: bool,
    journal: Journal,
    driver: Driver,
    hosted: bool,
    /// Its dice are thrown only for those who were paused, so that no other world depends on them.
    rng: fastrand::Rng,
}

impl World {
    /// A store on a network, and no clients yet. It and every store after it gets an incarnation of its own, unless its
    /// configuration has one: equal worlds have equal ones.
    #[must_use]
    pub fn new(seed: u64, faults: Faults, store: StoreConfig) -> Self {
        Self::with_broker(seed, Broker::new(seed, faults), store)
    }

    /// A world around this broker.
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
            driver: Driver::default(),
            hosted: false,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Adds a client, which connects at the next step.
    ///
    /// # Errors
    /// [`Error::Config`] when the client id cannot be one, [`Error::Taken`] when it is another's.
    pub fn add_client(&mut self, client_id: &str, clock: Clock) -> Result<ClientIndex, Error> {
        let nonce = (self.clients.len() as u64 + 1).to_be_bytes();
        self.add_configured(ClientConfig::new(client_id, nonce)?, clock)
    }

    /// Adds a client with a configuration of its own.
    ///
    /// # Errors
    /// [`Error::Taken`] when the client id is another's.
    pub fn add_configured(
        &mut self,
        config: ClientConfig,
        clock: Clock,
    ) -> Result<ClientIndex, Error> {
        let index = ClientIndex(self.clients.len());
        let id = Arc::clone(config.client_id());
        if id == self.store.id || self.by_id.insert(Arc::clone(&id), index).is_some() {
            return Err(Error::Taken);
        }
        self.clients.push(ClientNode {
            id,
            client: Client::new(config),
            clock,
            reconnect_at: Some(self.now),
            reconnect_after: self.reconnect_after,
            paused_until: None,
            inbox: VecDeque::new(),
        });
        Ok(index)
    }

    /// The time since the world began.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A client and what its clocks show.
    pub fn client(&mut self, index: ClientIndex) -> Option<(&mut Client, Now)> {
        let node = self.clients.get_mut(index.0)?;
        let now = node.now(self.now);
        Some((&mut node.client, now))
    }

    /// The store and what its clocks show. While there is none, what the last one was.
    #[must_use]
    pub fn store(&self) -> (&Store, Now) {
        (&self.store.store, self.store.now(self.now))
    }

    /// Whether there is a store, and it does not stand still.
    #[must_use]
    pub const fn store_runs(&self) -> bool {
        self.store.runs()
    }

    /// Whether records are being written that are not persisted yet.
    #[must_use]
    pub const fn is_writing(&self) -> bool {
        self.journal.due().is_some()
    }

    /// What a store finds that is started after a crash.
    pub fn persisted(&self) -> impl Iterator<Item = &Record> {
        self.journal.records()
    }

    /// Everything that was ever persisted, in order, whether a snapshot says it now or not.
    #[must_use]
    pub fn ever_persisted(&self) -> &[Record] {
        self.journal.history()
    }

    /// The broker: for whoever is connected to it beside the parties of this world.
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

    /// Sets how long clients and the store wait before they connect again.
    pub fn set_reconnect_after(&mut self, reconnect_after: Duration) {
        self.reconnect_after = reconnect_after;
        self.store.reconnect_after = reconnect_after;
        self.clients.iter_mut().for_each(|node| node.reconnect_after = reconnect_after);
    }

    /// Drives the store in this way from now on.
    pub const fn set_driver(&mut self, driver: Driver) {
        self.driver = driver;
        self.journal.set_driver(driver);
    }

    /// From now on the broker hosts the store: see [`Broker::set_hosted`].
    pub fn set_hosted(&mut self) {
        self.hosted = true;
        self.broker.set_hosted(&self.store.id);
    }

    /// From now on the broker keeps the session of the store: see [`Broker::set_kept`].
    pub fn set_session_kept(&mut self) {
        self.broker.set_kept(&self.store.id);
    }

    /// Other faults from now on.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.broker.set_faults(faults);
    }

    /// Has every message changed by `tamper` before the broker routes it.
    pub fn set_tamper(&mut self, tamper: Tamper) {
        self.broker.set_tamper(tamper);
    }

    /// Has messages kept back on their way from the broker.
    pub fn set_detain(&mut self, detain: Detain) {
        self.broker.set_detain(detain);
    }

    /// Ends the store as a crash would and starts another, empty one in its place, which connects after a while.
    pub fn replace_store(&mut self, store: StoreConfig) {
        self.end_store(store, false);
        self.store.reconnect_at = Some(self.now + self.reconnect_after);
    }

    /// Ends the store as a crash would and starts another, after a while, that finds what was persisted.
    ///
    /// What was being written is persisted as a whole or not at all.
    pub fn crash_store(&mut self, store: StoreConfig) {
        self.end_store(store, true);
        self.store.reconnect_at = Some(self.now + self.reconnect_after);
    }

    /// Starts another store, which takes the client id of this one at once: `restored`, or with nothing.
    ///
    /// From there on nobody hears the one before, and it hears nobody.
    pub fn take_over(&mut self, store: StoreConfig, restored: bool) {
        self.end_store(store, restored);
        self.start_store();
        self.settle();
    }

    /// Has the store stand still for a while: it sees no clock and takes nothing, which waits for it.
    pub fn pause_store(&mut self, duration: Duration) {
        self.store.paused_until = Some(self.now + duration);
    }

    /// Has a client stand still for a while, as [`pause_store`](Self::pause_store) does.
    pub fn pause_client(&mut self, index: ClientIndex, duration: Duration) {
        if let Some(node) = self.clients.get_mut(index.0) {
            node.paused_until = Some(self.now + duration);
        }
    }

    /// Whether a client stands still.
    #[must_use]
    pub fn is_paused(&self, index: ClientIndex) -> bool {
        self.clients.get(index.0).is_some_and(|node| node.paused_until.is_some())
    }

    /// Nobody stands still any more.
    pub fn resume(&mut self) {
        let now = self.now;
        let paused = self.clients.iter_mut().map(|node| &mut node.paused_until);
        paused.chain([&mut self.store.paused_until]).flatten().for_each(|until| *until = now);
    }

    /// Ends the connection of a client; it connects again after a while.
    pub fn disconnect(&mut self, index: ClientIndex) {
        if let Some(node) = self.clients.get(index.0) {
            self.broker.handle_disconnect(&node.id);
            self.settle();
        }
    }

    /// Starts or stops keeping every delivered message, what the store sent, and what it was told of its clients.
    pub fn set_tracing(&mut self, tracing: bool) {
        self.tracing = tracing;
    }

    /// What was kept, which is forgotten here.
    pub fn take_trace(&mut self) -> Vec<Traced> {
        std::mem::take(&mut self.trace)
    }

    /// The next event of a client.
    pub fn poll_event(&mut self, index: ClientIndex) -> Option<Event> {
        self.clients.get_mut(index.0)?.client.poll_event()
    }

    /// Packets that have arrived anywhere so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.broker.steps()
    }

    /// Does all that can be done now, then moves time to the next thing that is due; `false` when there is none, or none
    /// before `limit`. Time does not pass `limit`.
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

    /// Steps until `duration` has passed.
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

    /// Fires every timer that is due.
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
            // A process that goes on may look at its clock first or at what has arrived.
            self.hand_to_store();
        }
        if self.store.runs() {
            self.store.store.handle_timeout(self.store.now(now));
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
            let taken = node.take_news(now);
            self.keep(taken);
        }
        let Some(node) = self.clients.get_mut(index) else { return };
        if node.paused_until.is_some() {
            return;
        }
        let node_now = node.now(now);
        node.client.handle_timeout(node_now);
        if node.reconnect_at.is_some_and(|at| at <= now) {
            node.reconnect_at = None;
            self.broker.handle_connect(&node.id);
            node.client.handle_connected(node_now, false);
        }
    }

    /// The store is gone, with its connection and whatever was not persisted.
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

    /// Begins the next store, if this one is gone, and connects.
    fn start_store(&mut self) {
        let store_now = self.store.now(self.now);
        self.store.reconnect_at = None;
        if let Some((config, restored)) = self.store.next.take() {
            self.store.made += 1;
            self.store.store = Store::new(numbered(config, self.store.made));
            if restored {
                self.journal.load(store_now, &mut self.store.store);
            }
            self.keep(vec![Traced::Started]);
        }
        self.broker.handle_connect(&self.store.id);
        self.store.store.handle_connected();
    }

    /// Carries everything that is ready, until nothing is.
    fn settle(&mut self) {
        loop {
            let mut idle = !self.drive_store();
            for node in &mut self.clients {
                let taken = node.take_news(self.now);
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

    /// Whether the store did anything.
    fn drive_store(&mut self) -> bool {
        if !self.store.runs() {
            return false;
        }
        let mut busy = self.hand_to_store();
        busy |= self.journal.drive(self.store.now(self.now), &mut self.store.store);
        while let Some(transmit) = self.store.store.poll_transmit() {
            self.keep(vec![Traced::Sent(transmit.clone())]);
            self.broker.handle_transmit(self.now, &self.store.id, transmit);
            busy = true;
        }
        busy
    }

    fn hand_to_store(&mut self) -> bool {
        let before = self.store.inbox.len();
        let taken = self.store.take_news(self.now, self.driver.flaw);
        self.keep(taken);
        self.store.inbox.len() < before
    }

    fn keep(&mut self, traced: Vec<Traced>) {
        if self.tracing {
            self.trace.extend(traced);
        }
    }

    /// Something has come to the one it is for.
    fn arrive(&mut self, mut output: Output) {
        if let Output::Message { message, .. } = &mut output {
            message.arrived = Some(self.now);
        }
        if let Output::Disconnected { client_id } = &output
            && !self.hosted
            && *client_id != self.store.id
        {
            // The broker tells the store, as one that hosts it would.
            let (client_id, gone) = (Arc::clone(&self.store.id), Arc::clone(client_id));
            self.put(Output::Gone { client_id, gone });
        }
        self.put(output);
    }

    fn put(&mut self, output: Output) {
        let inbox = if *output.client_id() == self.store.id {
            // What was for a store that is gone is lost with it.
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

/// The configuration of the store with this number.
const fn numbered(store: StoreConfig, number: u64) -> StoreConfig {
    if store.has_incarnation() { store } else { store.incarnation(number) }
}
