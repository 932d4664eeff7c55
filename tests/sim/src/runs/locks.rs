//! Locks on an unreliable network: contenders acquire, renew, write under the lock, sleep and
//! release, with separate clocks. Messages are late, lost, duplicated and reordered, and
//! connections break. With some seeds whole processes pause for longer than a lease, or a durable
//! store crashes.
//!
//! Checks one holder at a time, increasing tokens, and no write of an earlier holder after a later
//! one. Without further faults, every waiter gets the lock and no lock is left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ClientIndex, DriverConfig, Faults, World};
use bytes::Bytes;
use fastrand::Rng;
use statestore_proto::client::{ClientConfig, Event, Outcome, Request, RequestId, WatchId};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_proto::lock::{Lock, LockAction, LockConfig, LockEvent, LockRequestId, LockState};
use statestore_proto::message::{Command, Refusal, Reply, Response, ServiceError};
use statestore_proto::store::{Durability, StoreConfig};
use statestore_proto::time::Instant;

use super::scenario;

const LOCK: &[u8] = b"lock";
const DATA: &[u8] = b"data";

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTwin {
    /// Nothing.
    Sound,
    /// Guarded writes do not carry their token.
    NoToken,
    /// A holder trusts the last event and ignores time.
    NoClock,
    /// All contenders have the same name and nonce.
    SameSession,
    /// An abandoned lock is not removed, but its machine receives a successful reply.
    NoVdel,
}

/// Faults other than those of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockTrouble {
    /// Only applications pause; their clients continue.
    #[default]
    Network,
    /// A holder with its client, or the store, pauses for longer than the lease.
    Pauses,
    /// The store crashes and restores its records. No duplicates, because replies are not durable
    /// here.
    Crashes,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct LockReport {
    /// The seed.
    pub seed: u64,
    /// The kind of fault.
    pub trouble: LockTrouble,
    /// The first violation.
    pub wrong: Option<String>,
    /// Number of events, by name.
    pub events: BTreeMap<String, u32>,
}

struct Contender {
    lock: Lock,
    index: ClientIndex,
    tickets: BTreeMap<RequestId, LockRequestId>,
    writes: BTreeMap<RequestId, FencingToken>,
    watch: Option<WatchId>,
    /// End of its sleep, and its pending write.
    asleep: Option<(Instant, Option<Request>)>,
    /// Its monotonic clock: origin, and rate in parts per million.
    origin: u64,
    fast: u64,
}

impl Contender {
    /// Reading of its monotonic clock.
    fn local(&self, now: Instant) -> Instant {
        let now = now.as_millis();
        Instant::from_millis(self.origin + now + now * self.fast / 1_000_000)
    }

    /// Time of its next deadline in world time, rounded up.
    fn due(&self) -> Option<Instant> {
        if let Some((until, _)) = &self.asleep {
            return Some(*until);
        }
        let due = self.lock.poll_timeout()?.as_millis().saturating_sub(self.origin);
        Some(Instant::from_millis((due * 1_000_000).div_ceil(1_000_000 + self.fast)))
    }
}

struct Run {
    rng: Rng,
    twin: LockTwin,
    world: World,
    lease: Duration,
    contenders: Vec<Contender>,
    last_token: Option<FencingToken>,
    last_write: Option<Hlc>,
    /// The run is ending: a contender that gets the lock releases it.
    ending: bool,
    report: LockReport,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, twin: LockTwin) -> LockReport {
    let mut run = Run::new(seed, twin);
    // Long enough for a holder to pause, another to acquire the lock, and the first to resume.
    run.live(if run.report.trouble == LockTrouble::Pauses { 120 } else { 40 });
    run.end();
    run.report
}

impl Run {
    fn new(seed: u64, twin: LockTwin) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x10c5);
        let millis = Duration::from_millis;
        let trouble = match rng.u8(0..4) {
            0 => LockTrouble::Pauses,
            1 => LockTrouble::Crashes,
            _ => LockTrouble::Network,
        };
        let crashes = trouble == LockTrouble::Crashes;
        let links_break = rng.u8(0..3) == 0;
        let faults = Faults {
            delay_min: millis(rng.u64(0..=2)),
            delay_max: millis(rng.u64(3..=80)),
            loss: rng.u16(0..=80),
            duplication: if links_break || crashes { 0 } else { rng.u16(0..=150) },
            reordering: rng.u16(0..=300),
            disconnects: if links_break { rng.u16(1..=10) } else { 0 },
        };
        let mut world = World::new(rng.u64(..), faults, store_config(&mut rng, trouble));
        let persist_max = millis(if crashes { rng.u64(0..=30) } else { 0 });
        world.set_driver_config(DriverConfig { persist_max, ..DriverConfig::default() });
        world.set_reconnect_after(millis(rng.u64(1..=300)));
        let lease = millis(rng.u64(300..=1_500));
        let contenders = (0..rng.usize(2..=4)).map(|number| {
            let name = format!("c{number}");
            let nonce = [u8::try_from(number).unwrap_or_default() + 1; 8];
            let config = ClientConfig::new(&name, nonce);
            // Within the drift limit: refused clocks are tested elsewhere.
            let mut clock = scenario::clock(&mut rng, true);
            clock.offset_ms = clock.offset_ms.clamp(-50_000, 50_000);
            let index = world.add_configured(config, clock).expect("another name");
            let same = twin == LockTwin::SameSession;
            let (name, nonce) = if same { ("c", [0; 8]) } else { (name.as_str(), nonce) };
            let config = LockConfig::new(LOCK, name, nonce, lease).watch_holder(rng.bool());
            Contender {
                lock: Lock::new(config).expect("a valid configuration"),
                index,
                tickets: BTreeMap::new(),
                writes: BTreeMap::new(),
                watch: None,
                asleep: None,
                origin: rng.u64(0..100_000),
                fast: rng.u64(0..=1_000),
            }
        });
        let contenders = contenders.collect();
        let report = LockReport { seed, trouble, ..LockReport::default() };
        let (last_token, last_write) = (None, None);
        let ending = false;
        Self { rng, twin, world, lease, contenders, last_token, last_write, ending, report }
    }

    fn live(&mut self, doings: u32) {
        self.wait(Duration::from_millis(300));
        for _ in 0..doings {
            let who = self.rng.usize(0..self.contenders.len());
            self.doing(who);
            let pause = self.rng.u64(0..=120);
            self.wait(Duration::from_millis(pause));
        }
    }

    /// Ends the faults: waiters get the lock, and no lock is left behind.
    fn end(&mut self) {
        self.world.set_faults(Faults::default());
        self.world.resume();
        self.ending = true;
        for one in &mut self.contenders {
            if let Some((until, _)) = &mut one.asleep {
                *until = self.world.now();
            }
        }
        // Each turn may begin with the lease of a contender that could not release the lock.
        let turns = u32::try_from(self.contenders.len()).unwrap_or(u32::MAX) + 3;
        self.wait(self.lease * 2 * turns);
        let states: Vec<_> = self.contenders.iter().map(|one| one.lock.state()).collect();
        if states.iter().any(|state| matches!(state, LockState::Waiting | LockState::Held)) {
            self.wrong(format!("at the end the locks are {states:?}"));
        }
        let (store, now) = self.world.store();
        let left = store.get(now, LOCK).map(|stored| format!("{stored:?}"));
        if let Some(left) = left {
            self.wrong(format!("{left} is left behind"));
        }
    }

    /// A contender that reported its release has left nothing in the store.
    fn check_left(&mut self, who: usize) {
        let (store, now) = self.world.store();
        let session = format!("c{who}/");
        let stored = store.get(now, LOCK);
        if stored.is_some_and(|stored| stored.value.starts_with(session.as_bytes())) {
            self.wrong(format!("c{who} has left the lock behind at {:?}", now.instant));
        }
    }

    /// One action of a contender.
    fn doing(&mut self, who: usize) {
        if self.rng.u8(0..10) == 0 {
            self.trouble(who);
        }
        let now = self.world.now();
        let one = &mut self.contenders[who];
        let local = one.local(now);
        if one.asleep.is_some() {
            return;
        }
        match (one.lock.state(), self.rng.u8(0..20)) {
            (_, 0) => self.world.disconnect(one.index),
            (LockState::Held, 1..=6) => _ = one.lock.release(local),
            (LockState::Held, 7..=12) => self.write(who),
            (LockState::Held | LockState::Waiting, 13..=15) => {
                let until = now + self.lease.mul_f64(self.rng.f64() * 2.5);
                let write = self.guarded(who);
                self.contenders[who].asleep = Some((until, write));
            }
            (LockState::Waiting, 1) => _ = one.lock.release(local),
            (LockState::Free | LockState::Lost | LockState::Released, 1..=3) => {
                let accepted = one.lock.try_acquire(local).is_ok();
                self.count("tried", u32::from(accepted));
            }
            (LockState::Free | LockState::Lost | LockState::Released, dice) => {
                let deadline =
                    (dice < 10).then(|| local + self.lease.mul_f64(self.rng.f64() * 2.0));
                let accepted = self.contenders[who].lock.acquire(local, deadline).is_ok();
                self.count("acquired", u32::from(accepted));
            }
            _ => {}
        }
        self.drive();
    }

    fn trouble(&mut self, who: usize) {
        let duration = self.lease.mul_f64(0.5 + self.rng.f64() * 2.0);
        match self.report.trouble {
            LockTrouble::Network => {}
            LockTrouble::Pauses if self.rng.u8(0..3) == 0 => self.world.pause_store(duration),
            LockTrouble::Pauses => {
                // A holder with a pending write is the most likely to misbehave.
                let awake = |one: &Contender| one.asleep.is_none();
                let holds = |one: &Contender| awake(one) && one.lock.state() == LockState::Held;
                let who = self.contenders.iter().position(holds).unwrap_or(who);
                let one = &self.contenders[who];
                if awake(one) {
                    let (index, write) = (one.index, self.guarded(who));
                    self.contenders[who].asleep = Some((self.world.now() + duration, write));
                    self.world.pause_client(index, duration);
                }
            }
            LockTrouble::Crashes => {
                let config = store_config(&mut self.rng, LockTrouble::Crashes);
                self.world.crash_store(config);
                // A write that was not persisted is lost, and never confirmed.
                self.last_write = None;
            }
        }
    }

    /// A write under the lock, whose value identifies the turn.
    fn guarded(&self, who: usize) -> Option<Request> {
        let one = &self.contenders[who];
        let local = one.local(self.world.now());
        let token = one.lock.token(local)?.to_string();
        let (key, value) = (Bytes::from_static(DATA), Bytes::from(token));
        let write = Request::set(key, value);
        let fenced = one.lock.fence(local, write.clone());
        if self.twin == LockTwin::NoToken { Some(write) } else { fenced }.map(Into::into)
    }

    fn write(&mut self, who: usize) {
        let write = self.guarded(who);
        self.send(who, write);
    }

    fn send(&mut self, who: usize, write: Option<Request>) {
        let Some(request) = write else { return };
        let one = &mut self.contenders[who];
        let Some((client, now)) = self.world.client(one.index) else { return };
        let token = request.fencing_token().cloned();
        if let (Ok(id), Some(token)) = (client.submit(now, request), token) {
            one.writes.insert(id, token);
        }
    }

    fn wait(&mut self, duration: Duration) {
        let limit = self.world.now() + duration;
        self.drive();
        while self.world.now() < limit && self.report.wrong.is_none() {
            let due = self.contenders.iter().filter_map(Contender::due).min();
            let due = due.map_or(limit, |due| due.max(self.world.now() + Duration::from_millis(1)));
            self.world.step(due.min(limit));
            self.drive();
        }
    }

    /// Delivers events, performs the locks' requests, and checks.
    fn drive(&mut self) {
        for who in 0..self.contenders.len() {
            let now = self.world.now();
            let write = match &mut self.contenders[who].asleep {
                Some((until, _)) if *until > now => continue,
                asleep => asleep.take().and_then(|(_, write)| write),
            };
            // Pending writes precede the delivery of new events.
            self.send(who, write);
            self.receive(who);
            self.act(who);
            self.check_events(who);
        }
        self.check();
    }

    fn receive(&mut self, who: usize) {
        let now = self.world.now();
        let one = &mut self.contenders[who];
        let local = one.local(now);
        while let Some(event) = self.world.poll_event(one.index) {
            match event {
                Event::Completed { id, outcome } => {
                    if let Some(ticket) = one.tickets.remove(&id) {
                        one.lock.handle_outcome(local, ticket, Ok(outcome));
                    } else if let Some(token) = one.writes.remove(&id)
                        && is_fenced_out(&outcome)
                    {
                        one.lock.handle_fenced_out(local, &token);
                    }
                }
                Event::Watch { id, event } if Some(id) == one.watch => {
                    one.lock.handle_watch(local, &event);
                }
                // The others detect it by the replies.
                Event::StoreReplaced { incarnation } if who.is_multiple_of(2) => {
                    one.lock.handle_incarnation(local, incarnation);
                }
                _ => {}
            }
        }
    }

    fn act(&mut self, who: usize) {
        let one = &mut self.contenders[who];
        let local = one.local(self.world.now());
        let Some((client, now)) = self.world.client(one.index) else { return };
        while let Some(action) = one.lock.poll_action(local) {
            match action {
                LockAction::Submit { ticket, request } => {
                    let frees = matches!(request.command(), Some(Command::VDel { .. }));
                    if self.twin == LockTwin::NoVdel && frees {
                        let reply = Reply::Removed;
                        let outcome = Outcome::Responded {
                            response: Response::Reply(reply),
                            version: None,
                            incarnation: None,
                        };
                        one.lock.handle_outcome(local, ticket, Ok(outcome));
                        continue;
                    }
                    match client.submit(now, request) {
                        Ok(id) => _ = one.tickets.insert(id, ticket),
                        Err(error) => one.lock.handle_outcome(local, ticket, Err(error)),
                    }
                }
                LockAction::Watch(key) => one.watch = client.watch(now, key).ok(),
                _ => _ = one.watch.take().map(|id| client.unwatch(now, id)),
            }
        }
    }

    fn check_events(&mut self, who: usize) {
        let now = self.world.now();
        while let Some(event) = self.contenders[who].lock.poll_event() {
            let name: String =
                format!("{event:?}").split([' ', '{', '(']).next().unwrap_or_default().into();
            match &event {
                LockEvent::Acquired { token } | LockEvent::Renewed { token } => {
                    if self.last_token.as_ref().is_some_and(|last| last >= token) {
                        let text = format!("token {token} after {:?}", self.last_token);
                        self.report.wrong.get_or_insert(text);
                    }
                    self.last_token = Some(token.clone());
                }
                LockEvent::Lost(loss) => self.count(&format!("{loss:?}"), 1),
                LockEvent::AcquireFailed(why) => self.count(&format!("AcquireFailed {why:?}"), 1),
                LockEvent::Released { confirmed } => {
                    self.count(&format!("Released {confirmed}"), 1);
                    if *confirmed {
                        self.check_left(who);
                    }
                }
                _ => {}
            }
            self.count(&name, 1);
        }
        let one = &mut self.contenders[who];
        if self.ending && one.lock.state() == LockState::Held {
            let local = one.local(now);
            one.lock.release(local);
            self.act(who);
        }
    }

    fn check(&mut self) {
        let now = self.world.now();
        let holds = |one: &&Contender| match self.twin {
            LockTwin::NoClock => one.lock.state() == LockState::Held,
            _ => one.lock.is_held(one.local(now)),
        };
        let holders = self.contenders.iter().filter(holds).count();
        if holders > 1 {
            self.wrong(format!("{holders} hold the lock at {now:?}"));
        }
        let (store, at) = self.world.store();
        let stored = store.get(at, DATA).filter(|_| self.world.store_runs());
        let Some(stored) = stored else { return };
        let turn = std::str::from_utf8(stored.value).ok().and_then(|text| text.parse::<Hlc>().ok());
        if self.last_write > turn {
            let text = format!("a write of {turn:?} came after one of {:?}", self.last_write);
            return self.wrong(text);
        }
        self.last_write = turn;
    }

    fn count(&mut self, name: &str, by: u32) {
        *self.report.events.entry(name.into()).or_default() += by;
    }

    fn wrong(&mut self, text: String) {
        self.report.wrong.get_or_insert(text);
    }
}

fn store_config(rng: &mut Rng, trouble: LockTrouble) -> StoreConfig {
    let durable = trouble == LockTrouble::Crashes;
    let durability = if durable { Durability::All } else { Durability::None };
    StoreConfig::new(rng.u64(..)).durability(durability)
}

fn is_fenced_out(outcome: &Outcome) -> bool {
    let lower = ServiceError::Known(Refusal::FencingTokenLower);
    matches!(outcome, Outcome::Responded { response: Response::Reply(Reply::Error(error)), .. } if *error == lower)
}
