//! A whole world: clients, a broker with faults, and a store that is compared with its reference on
//! the requests that reached it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Event, Request, RequestId, WatchId};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition, Expiry};
use statestore_proto::store::StoreConfig;
use statestore_proto::time::Now;
use statestore_proto::topic;
use statestore_proto::transport::{PublishToken, Transmit};
use statestore_sim::{ClientIndex, Clock, Faults, TraceEvent, World};

use super::store::{CLIENTS, KEYS, assert_same, compare_contents};
use statestore_models::alphabet;
use statestore_models::machines::request::StoreRequest;
use statestore_models::machines::{Args, Reader, WatchLog};
use statestore_models::reference::{Counted, Out, ReferenceStore, counted};

alphabet! {
    /// An operation on a world.
    pub enum WorldOp {
        /// A client submits a request.
        Submit = b's', 8;
        /// A client cancels a request.
        Cancel = b'c', 1;
        /// A client watches a key.
        Watch = b'o', 3;
        /// A client ends a watch.
        Unwatch = b'u', 2;
        /// A client loses its connection.
        Disconnect = b'D', 1;
        /// Advances time.
        Pass = b'T', 5;
        /// Changes the faults of the network.
        Faults = b'F', 1;
        /// Steps the wall clock of a client.
        WallStep = b'W', 1;
    }
}

struct Watching {
    client: usize,
    id: WatchId,
    key: &'static str,
}

struct Run {
    world: World,
    reference: ReferenceStore,
    clients: Vec<ClientIndex>,
    accepted: BTreeSet<(usize, RequestId)>,
    requests: Vec<(usize, RequestId)>,
    watches: Vec<Watching>,
    logs: BTreeMap<usize, WatchLog>,
    /// Registrations of notifications: number at the reference, token at the store.
    numbers: Vec<(u64, PublishToken)>,
    /// Notifications that the store has sent.
    notified: Vec<Transmit>,
    /// Every packet sent on this connection may repeat one that was lost with the last.
    is_again: bool,
}

/// Oracle: each request completes exactly once, the store and its reference are equal, and a watch
/// holds the store's state at rest.
///
/// Input: a seed, three bytes with the faults of the network, and operations ([`WorldOp`]).
///
/// # Panics
/// If one of these does not hold.
pub fn world(data: &[u8]) {
    let ([seed, delay, loss, other], reader) = Reader::<WorldOp>::new::<4>(data);
    let faults = Faults {
        delay_min: Duration::from_millis(u64::from(delay & 3)),
        delay_max: Duration::from_millis(u64::from(delay & 3) + u64::from(delay >> 2)),
        loss: u16::from(loss),
        duplication: u16::from(other & 15) * 20,
        reordering: u16::from(other >> 4 & 3) * 200,
        disconnects: u16::from(other >> 6) * 10,
    };
    let mut run = Run::new(seed.into(), faults);
    for op in reader {
        run.apply(op);
    }
    run.world.set_faults(Faults::default());
    run.pass(60_000);
    run.check();
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut world = World::new(seed, faults, StoreConfig::new(seed));
        world.set_tracing(true);
        let add = |id: &&str| world.add_client(id, Clock::default()).expect("a unique client id");
        let clients: Vec<ClientIndex> = CLIENTS[..3].iter().map(add).collect();
        Self {
            world,
            reference: ReferenceStore::new(StoreLimits::default()),
            clients,
            accepted: BTreeSet::new(),
            requests: Vec::new(),
            watches: Vec::new(),
            logs: BTreeMap::new(),
            numbers: Vec::new(),
            notified: Vec::new(),
            is_again: false,
        }
    }

    fn apply(&mut self, (op, args): (WorldOp, Args)) {
        let [a, b, c, ..] = args;
        let client = usize::from(a) % self.clients.len();
        let index = self.clients[client];
        match op {
            WorldOp::Submit => self.submit(client, args),
            WorldOp::Cancel => {
                if let Some((client, id)) = self.requests.iter().rev().nth(b.into()).copied() {
                    let index = self.clients[client];
                    if let Some((client, _)) = self.world.client(index) {
                        client.cancel(id);
                    }
                }
            }
            WorldOp::Watch => {
                let key = KEYS[usize::from(b) % KEYS.len()];
                let watched = self
                    .world
                    .client(index)
                    .map(|(client, now)| client.watch(now, Bytes::from_static(key.as_bytes())));
                if let Some(Ok(id)) = watched {
                    self.watches.push(Watching { client, id, key });
                }
            }
            WorldOp::Unwatch => {
                if let Some(watching) = self.watches.iter().rev().nth(b.into()) {
                    let (index, id) = (self.clients[watching.client], watching.id);
                    if let Some((client, now)) = self.world.client(index) {
                        client.unwatch(now, id);
                    }
                }
            }
            WorldOp::Disconnect => {
                self.world.disconnect(index);
                self.sync_reference();
            }
            WorldOp::Pass => self.pass(u64::from(b) * 4 + u64::from(c & 7) * 2_000),
            WorldOp::Faults => {
                let faults = Faults { loss: b.into(), duplication: c.into(), ..Faults::default() };
                self.world.set_faults(faults);
            }
            WorldOp::WallStep => {
                let offset_ms = (i64::from(b) - 128) * 1_000;
                self.world.set_client_clock(index, Clock { offset_ms, drift_ppm: 0 });
            }
        }
        self.collect();
    }

    fn submit(&mut self, client: usize, [_, kind, key, value, option]: Args) {
        let key = Bytes::from_static(KEYS[usize::from(key) % KEYS.len()].as_bytes());
        let value = Bytes::from(vec![value]);
        let condition = match option & 3 {
            1 => Condition::IfAbsent,
            2 => Condition::IfAbsentOrEqual,
            _ => Condition::Always,
        };
        let expiry = Expiry::from_millis(u64::from(option >> 5) * 300);
        let command = match kind & 7 {
            0 => Command::Get { key },
            1 => Command::Del { key },
            2 => Command::VDel { key, value },
            _ => Command::Set { key, value, condition, expiry },
        };
        let Some((machine, now)) = self.world.client(self.clients[client]) else { return };
        let timeout = Duration::from_millis(u64::from(option & 28) * 100 + 50);
        if let Ok(id) = machine.submit(now, Request::new(command).with_timeout(timeout)) {
            assert!(self.accepted.insert((client, id)));
            self.requests.push((client, id));
        }
    }

    /// Advances time step by step, so that the reference runs at the store's own time.
    fn pass(&mut self, millis: u64) {
        let limit = self.world.now() + Duration::from_millis(millis);
        loop {
            let more = self.world.step(limit);
            self.sync_reference();
            self.collect();
            if !more {
                return;
            }
        }
    }

    /// Passes the input of the store to the reference in order. The output of both must be equal.
    fn sync_reference(&mut self) {
        let now = self.store_now();
        // The timer of the store runs first in each step.
        let mut expected: Out = self.reference.expire(now);
        let mut sent = Vec::new();
        for traced in self.world.take_trace() {
            match traced {
                TraceEvent::Message(message) if *message.topic == *topic::REQUEST => {
                    expected.extend(
                        self.reference
                            .ask(now, &StoreRequest::from_incoming(&message.as_incoming())),
                    );
                }
                TraceEvent::Sent(Transmit::Subscribe { .. }) => self.is_again = true,
                TraceEvent::Sent(transmit)
                    if self.is_again && self.notified.contains(&transmit) => {}
                TraceEvent::Sent(transmit) => {
                    self.is_again = false;
                    if matches!(&transmit, Transmit::Publish(publish) if publish.token.is_some()) {
                        self.notified.push(transmit.clone());
                    }
                    sent.push(transmit);
                }
                TraceEvent::ClientGone(client) => self.reference.client_gone(&client),
                TraceEvent::Undeliverable(token) => {
                    let known = self.numbers.iter().find(|(_, other)| *other == token);
                    let (number, _) = known.expect("a token belongs to a notification");
                    self.reference.undeliverable(now, *number);
                }
                _ => {}
            }
        }
        assert_same(&sent, expected, &mut self.numbers);
    }

    fn store_now(&self) -> Now {
        self.world.store().1
    }

    fn collect(&mut self) {
        for (client, index) in self.clients.clone().into_iter().enumerate() {
            while let Some(event) = self.world.poll_event(index) {
                match event {
                    Event::Completed { id, .. } => {
                        assert!(self.accepted.remove(&(client, id)), "{id:?} of {client} again");
                    }
                    Event::Watch { id, event } => {
                        self.logs.entry(client).or_default().take(id, &event, true);
                    }
                    _ => {}
                }
            }
        }
    }

    fn check(&mut self) {
        assert!(self.accepted.is_empty(), "never completed: {:?}", self.accepted);
        let now = self.store_now();
        let (store, _) = self.world.store();
        compare_contents(store, &self.reference, now);
        // Clock skew and expired requests depend on the time of arrival.
        let of_requests = |(name, verb, _): &Counted, _: &mut u64| {
            verb.is_some()
                || matches!(*name, "refused" | "registrations_lost" | "registrations_silenced")
        };
        let mut seen = counted(store.counters().iter());
        let mut expected = self.reference.counters.clone();
        seen.retain(of_requests);
        expected.retain(of_requests);
        assert_eq!(seen, expected);
        assert_eq!((store.counters().overloaded, store.counters().not_requests), (0, 0));
        assert_eq!(store.registrations(), self.reference.watches());
        assert_eq!(store.silenced_registrations(), self.reference.silenced());
        for watching in &self.watches {
            let state = self.logs.entry(watching.client).or_default().state(watching.id);
            if !state.ended {
                let stored = store.get(now, watching.key.as_bytes());
                assert!(state.live, "{:?} of {} is not live at rest", watching.id, watching.key);
                assert_eq!(state.value.as_deref(), stored.map(|stored| stored.value));
            }
        }
    }
}
