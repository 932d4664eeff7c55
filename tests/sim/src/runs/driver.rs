//! Runs a world: the requests of clients in each step, the faults, and the recording of events.

mod commands;
mod hostile;
mod tap;
mod trouble;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ClientIndex, DriverConfig, Faults, World};
use bytes::Bytes;
use fastrand::Rng;
use statestore_proto::client::{ClientConfig, RequestId, WatchId};
use statestore_proto::hlc::FencingToken;
use statestore_proto::limits::ClientLimits;
use statestore_proto::message::Command;
use statestore_proto::store::StoreConfig;
use statestore_proto::time::Instant;

use self::hostile::HostileClients;
use super::Violation;
use super::history::{History, Moment, Note, Op, Watched, What};
use super::scenario::{Mix, Scenario};
use super::truth::Truth;
use super::twin::Twin;
use super::wire::{Digest, RequestName, Wire};

/// Maximum advance of time in one step of waiting.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Time for the store to subscribe to requests. [`Mix::StoreLink`] explains why clients wait for
/// it.
const WARM_UP: Duration = Duration::from_secs(1);

/// Quiet time at the end: longer than every time-out and delay together.
const QUIET: Duration = Duration::from_secs(30);

/// One client and the state of its application.
pub(super) struct Actor {
    pub(super) index: ClientIndex,
    /// The value of this client's last attempt to acquire the lock.
    pub(super) holder: Option<Bytes>,
    /// Versions of the lock while this client held it, the latest last.
    pub(super) tokens: Vec<FencingToken>,
    /// The number of the store that replied to it last.
    contacted: u64,
    requests: BTreeMap<RequestId, usize>,
    watches: BTreeMap<WatchId, usize>,
    sleepy: bool,
    last_poll: u64,
}

/// A run in progress.
pub(super) struct Run {
    pub(super) rng: Rng,
    pub(super) keys: Vec<Bytes>,
    pub(super) actors: Vec<Actor>,
    pub(super) history: History,
    pub(super) truth: Truth,
    pub(super) wire: Wire,
    pub(super) violations: Vec<Violation>,
    pub(super) digest: Digest,
    scenario: Scenario,
    twin: Twin,
    world: World,
    hostile: Option<HostileClients>,
    order: u64,
    /// Number of stores so far.
    stores: u64,
    /// The store that received each request last.
    taken_by: BTreeMap<RequestName, u64>,
}

impl Run {
    pub(super) fn new(scenario: Scenario, twin: Twin) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let config = store_config(&scenario, twin, rng.u64(..));
        let seed = rng.u64(..);
        let hostile = (scenario.mix == Mix::Hostile).then(|| HostileClients::new(seed));
        let mut world = match hostile {
            Some(_) => {
                World::with_broker(seed, hostile::broker(seed, scenario.faults, twin), config)
            }
            None => World::new(seed, scenario.faults, config),
        };
        world.set_tracing(true);
        world.set_driver_config(DriverConfig {
            persist_max: scenario.persist_max,
            snapshot_every: scenario.snapshot_every,
            bug: twin.bug(),
        });
        if scenario.mix == Mix::Durable {
            world.set_persistent_session();
        }
        if matches!(scenario.mix, Mix::Direct | Mix::Hostile) {
            world.set_hosted();
        }
        world.set_reconnect_after(scenario.reconnect_after);
        world.set_store_clock(scenario.store_clock);
        if let Some(interceptor) = twin.interceptor() {
            world.set_interceptor(interceptor);
        }
        if let Some(message_delay) = twin.message_delay() {
            world.set_message_delay(message_delay);
        }
        let mut actors = Vec::new();
        for (number, setup) in scenario.clients.iter().enumerate() {
            let events_max = if setup.sleepy { 2 } else { 4_096 };
            let pending_max = if setup.sleepy { 4 } else { 1_024 };
            let limits = ClientLimits { events_max, pending_max, ..ClientLimits::default() };
            let config = ClientConfig::new(&format!("c{number}"), RequestName::nonce(number))
                .timeout(setup.timeout)
                .limits(limits)
                .renew_watches(setup.renewal);
            let index = world.add_configured(config, setup.clock).ok();
            actors.extend(index.map(|index| Actor {
                index,
                holder: None,
                tokens: Vec::new(),
                contacted: 0,
                requests: BTreeMap::new(),
                watches: BTreeMap::new(),
                sleepy: setup.sleepy,
                last_poll: 0,
            }));
        }
        Self {
            rng,
            keys: commands::keys(scenario.plain_keys),
            actors,
            history: History::default(),
            truth: Truth::new(scenario.limits),
            wire: Wire::default(),
            violations: Vec::new(),
            digest: Digest::default(),
            scenario,
            twin,
            world,
            hostile,
            order: 0,
            stores: 1,
            taken_by: BTreeMap::new(),
        }
    }

    /// Connects all machines and starts watches of some keys.
    pub(super) fn begin(&mut self) {
        self.wait(WARM_UP);
        for actor in 0..self.actors.len() {
            for key in self.keys.clone() {
                if self.rng.bool() {
                    self.watch(actor, key);
                }
            }
        }
    }

    /// One step: a request, a fault, or one event of the world.
    pub(super) fn step(&mut self) {
        self.attack();
        let actor = self.rng.usize(0..self.actors.len());
        let things_go_wrong = self.scenario.mix != Mix::Faultless;
        let (churn, trouble) = (self.scenario.churn, 375 + self.scenario.trouble);
        // A paused application makes no requests.
        let first = if self.world.is_paused(self.actors[actor].index) { 360 } else { 0 };
        let dice = self.rng.u16(first..1_000);
        match dice {
            0..350 => {
                let (command, token) = commands::choose(self, actor);
                self.submit(actor, command, token);
            }
            350..360 => self.cancel(actor),
            360..370 => {
                let duration = Duration::from_millis(self.rng.u64(1..=1_500));
                self.wait(duration);
            }
            370..375 if things_go_wrong => self.jump(actor),
            375.. if dice < trouble => self.trouble(actor),
            400.. if self.rng.u16(0..1_000) < churn => match self.rng.u8(0..3) {
                0 if first == 0 => self.watch_any(actor),
                1 if first == 0 => self.unwatch(actor),
                _ if things_go_wrong => self.disconnect(actor),
                _ => {}
            },
            _ => {
                let limit = self.world.now() + WAIT_MAX;
                self.world.step(limit);
                self.tap();
            }
        }
    }

    /// Stops requests and faults, lets every client poll, and delivers everything.
    pub(super) fn end(&mut self) {
        self.world.set_faults(Faults::default());
        self.world.resume();
        self.actors.iter_mut().for_each(|actor| actor.sleepy = false);
        // First of all: a watch that was refused for a quota catches up only once it was polled.
        self.tap();
        self.wait(QUIET);
        for watched in &mut self.history.watches {
            watched.outdated = self.actors[watched.client].contacted < self.stores;
        }
    }

    pub(super) const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub(super) fn now(&self) -> u64 {
        self.world.now().as_millis()
    }

    fn wait(&mut self, duration: Duration) {
        let limit: Instant = self.world.now() + duration;
        while self.world.step(limit) {
            self.tap();
        }
        self.tap();
    }

    fn moment(&mut self) -> Moment {
        self.order += 1;
        Moment { order: self.order, at: self.now() }
    }

    fn submit(&mut self, actor: usize, command: Command<Bytes>, token: Option<FencingToken>) {
        let index = self.actors[actor].index;
        let Some((client, now)) = self.world.client(index) else { return };
        let token = token.filter(|_| command.kind().is_write());
        let mut request = statestore_proto::client::Request::new(command.clone());
        if let Some(token) = &token {
            request = request.with_fencing_token(token.clone());
        }
        if self.rng.u8(0..8) == 0 {
            request = request.with_timeout(Duration::from_millis(self.rng.u64(1..=200)));
        }
        // A full queue and a clock too far behind are legal outcomes.
        let Ok(id) = client.submit(now, request) else { return };
        let invoked = self.moment();
        self.actors[actor].requests.insert(id, self.history.ops.len());
        self.history.ops.push(Op {
            name: RequestName::new(actor, id),
            command,
            token,
            invoked,
            completed: None,
            completions: 0,
        });
    }

    fn watch(&mut self, actor: usize, key: Bytes) {
        let Some((client, now)) = self.world.client(self.actors[actor].index) else { return };
        if let Ok(id) = client.watch(now, key.clone()) {
            self.actors[actor].watches.insert(id, self.history.watches.len());
            self.history.watches.push(Watched {
                client: actor,
                key,
                notes: Vec::new(),
                outdated: false,
            });
        }
    }

    fn watch_any(&mut self, actor: usize) {
        let key = self.keys[self.rng.usize(0..self.keys.len())].clone();
        self.watch(actor, key);
    }

    fn unwatch(&mut self, actor: usize) {
        let open: Vec<(WatchId, usize)> =
            self.actors[actor].watches.iter().map(|(id, watch)| (*id, *watch)).collect();
        let Some((id, watch)) = self.rng.choice(open) else { return };
        let Some((client, now)) = self.world.client(self.actors[actor].index) else { return };
        if client.unwatch(now, id) {
            let (moment, after) = (self.moment(), self.actors[actor].last_poll);
            let what = What::Unwatched;
            self.history.watches[watch].notes.push(Note { moment, after, what });
        }
    }

    fn cancel(&mut self, actor: usize) {
        let open: Vec<RequestId> = self.actors[actor].requests.keys().copied().collect();
        let Some(id) = self.rng.choice(open) else { return };
        if let Some((client, _)) = self.world.client(self.actors[actor].index) {
            client.cancel(id);
        }
    }

    fn disconnect(&mut self, actor: usize) {
        // Earlier events are polled first, so that all later ones are known to follow the loss.
        if !self.actors[actor].sleepy && !self.world.is_paused(self.actors[actor].index) {
            self.poll(actor);
        }
        self.world.disconnect(self.actors[actor].index);
        self.tap();
    }
}

fn store_config(scenario: &Scenario, twin: Twin, hash_seed: u64) -> StoreConfig {
    let mut limits = scenario.limits;
    twin.limit(&mut limits);
    StoreConfig::new(hash_seed)
        .limits(limits)
        .durability(scenario.durability)
        .durable_registrations(scenario.durable_registrations)
}
