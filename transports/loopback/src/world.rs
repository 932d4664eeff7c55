//! Clients, a store and a broker in one process, in simulated time, each with a clock of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use statestore_proto::client::{Client, ClientConfig, Event};
use statestore_proto::mqtt::{PublishToken, ReasonCode, Transmit};
use statestore_proto::store::{Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use crate::broker::{Broker, Faults, Output, Tamper};
use crate::message::Message;
use crate::session::Error;

/// The MQTT client id of the store.
const STORE: &str = "statestore";

/// When a world begins, by a wall clock that is right.
const EPOCH: u64 = 1_696_374_425_000;

/// How far the wall clock of a node is from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Ahead by so many milliseconds, or behind.
    pub offset_ms: i64,
    /// Gains so many milliseconds in a million, or loses.
    pub drift_ppm: i64,
}

impl Clock {
    /// What this clock shows.
    #[must_use]
    pub fn read(&self, now: Instant) -> UnixTime {
        let elapsed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let error =
            self.offset_ms.saturating_add(elapsed.saturating_mul(self.drift_ppm) / 1_000_000);
        UnixTime::from_millis((EPOCH + now.as_millis()).saturating_add_signed(error))
    }
}

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
}

#[derive(Debug)]
struct StoreNode {
    id: Arc<str>,
    store: Store,
    clock: Clock,
    reconnect_at: Option<Instant>,
}

#[derive(Debug)]
struct ClientNode {
    id: Arc<str>,
    client: Client,
    clock: Clock,
    /// When to connect, while there is no connection.
    reconnect_at: Option<Instant>,
}

impl World {
    /// A store on a network, and no clients yet.
    #[must_use]
    pub fn new(seed: u64, faults: Faults, store: StoreConfig) -> Self {
        let store = StoreNode {
            id: STORE.into(),
            store: Store::new(store),
            clock: Clock::default(),
            reconnect_at: Some(Instant::default()),
        };
        Self {
            now: Instant::default(),
            broker: Broker::new(seed, faults),
            store,
            clients: Vec::new(),
            by_id: BTreeMap::new(),
            reconnect_after: Duration::from_millis(50),
            trace: Vec::new(),
            tracing: false,
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
        Some((&mut node.client, Now::new(self.now, node.clock.read(self.now))))
    }

    /// The store and what its clocks show.
    #[must_use]
    pub fn store(&self) -> (&Store, Now) {
        (&self.store.store, self.store_now())
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

    /// Sets how long a client waits before it connects again.
    pub const fn set_reconnect_after(&mut self, reconnect_after: Duration) {
        self.reconnect_after = reconnect_after;
    }

    /// Other faults from now on.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.broker.set_faults(faults);
    }

    /// Has every message changed by `tamper` before the broker routes it.
    pub fn set_tamper(&mut self, tamper: Tamper) {
        self.broker.set_tamper(tamper);
    }

    /// Ends the store as a crash would and starts another, empty one in its place, which connects after a while.
    pub fn replace_store(&mut self, store: StoreConfig) {
        self.broker.handle_disconnect(&self.store.id);
        self.settle();
        self.store.store = Store::new(store);
        self.store.reconnect_at = Some(self.now + self.reconnect_after);
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
        let clients =
            self.clients.iter().flat_map(|node| [node.reconnect_at, node.client.poll_timeout()]);
        let store =
            [self.store.reconnect_at, self.store.store.poll_timeout(), self.broker.poll_timeout()];
        clients.chain(store).flatten().min()
    }

    /// Tells everybody what time it is.
    fn wake(&mut self) {
        let (now, store_now) = (self.now, self.store_now());
        self.broker.handle_timeout(now);
        self.store.store.handle_timeout(store_now);
        if self.store.reconnect_at.is_some_and(|at| at <= now) {
            self.store.reconnect_at = None;
            self.broker.handle_connect(&self.store.id);
            self.store.store.handle_connected();
        }
        for node in &mut self.clients {
            let node_now = Now::new(now, node.clock.read(now));
            node.client.handle_timeout(node_now);
            if node.reconnect_at.is_some_and(|at| at <= now) {
                node.reconnect_at = None;
                self.broker.handle_connect(&node.id);
                node.client.handle_connected(node_now, false);
            }
        }
    }

    /// Carries everything that is ready, until nothing is.
    fn settle(&mut self) {
        loop {
            let mut idle = true;
            while let Some(transmit) = self.store.store.poll_transmit() {
                self.trace(|| Traced::Sent(transmit.clone()));
                self.broker.handle_transmit(self.now, &self.store.id, transmit);
                idle = false;
            }
            for node in &mut self.clients {
                while let Some(transmit) = node.client.poll_transmit() {
                    self.broker.handle_transmit(self.now, &node.id, transmit);
                    idle = false;
                }
            }
            while let Some(output) = self.broker.poll_output() {
                self.take(output);
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    fn trace(&mut self, what: impl FnOnce() -> Traced) {
        if self.tracing {
            self.trace.push(what());
        }
    }

    fn take(&mut self, output: Output) {
        if let Output::Message { message, .. } = &output {
            self.trace(|| Traced::Message(message.clone()));
        }
        if *output.client_id() == self.store.id {
            self.take_for_store(output);
        } else {
            self.take_for_client(output);
        }
    }

    fn take_for_store(&mut self, output: Output) {
        let now = self.store_now();
        match output {
            Output::Message { message, .. } => {
                let from = Principal::verified(&message.sender);
                self.store.store.handle_publish(now, from, &message.as_incoming());
            }
            Output::Published { token, reason, .. } => {
                self.store.store.handle_published(token, reason);
                if reason == ReasonCode::NO_MATCHING_SUBSCRIBERS {
                    self.trace(|| Traced::Undeliverable(token));
                }
            }
            Output::Disconnected { .. } => {
                self.store.reconnect_at = Some(self.now + self.reconnect_after);
            }
            Output::Subscribed { .. } => {}
        }
    }

    fn take_for_client(&mut self, output: Output) {
        let Some(index) = self.by_id.get(output.client_id()).copied() else { return };
        let Some(node) = self.clients.get_mut(index.0) else { return };
        let now = Now::new(self.now, node.clock.read(self.now));
        match output {
            Output::Message { message, .. } => {
                node.client.handle_publish(now, &message.as_incoming());
            }
            Output::Published { token, reason, .. } => {
                node.client.handle_published(now, token, reason);
            }
            Output::Subscribed { token, reason, .. } => {
                node.client.handle_subscribed(now, token, reason);
            }
            Output::Disconnected { client_id } => {
                node.client.handle_disconnected(now);
                node.reconnect_at = Some(self.now + self.reconnect_after);
                // The broker tells the store, as one that hosts it would.
                self.store.store.handle_client_gone(&client_id);
                self.trace(|| Traced::Gone(client_id));
            }
        }
    }

    fn store_now(&self) -> Now {
        Now::new(self.now, self.store.clock.read(self.now))
    }
}
