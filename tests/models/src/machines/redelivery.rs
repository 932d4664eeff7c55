//! Redelivery over many crashes: a durable store with a small deduplication cache, and clients of
//! one user that come and go.
//!
//! Each request has a unique key, so its reply is known in advance: `SET key NX` gets `+OK`, and a
//! DEL of an existing key gets `:1`. A second execution would get `:-1` or `:0`.

use std::collections::VecDeque;

use fastrand::Rng;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition};
use statestore_proto::store::{Durability, Record, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use crate::machines::request::{Sent, StoreRequest};

/// Maximum number of requests in flight per client.
const WINDOW: usize = 8;

/// Number of clients connected at a time.
const CLIENTS: usize = 3;

/// Entries of a deduplication cache that holds all requests of one life of a store, and far fewer
/// than those of a run.
pub const ENTRIES: usize = 160;

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Requests with a reply.
    pub answered: u64,
    /// Requests that were delivered to a second store after the first had executed them.
    pub redelivered: u64,
    /// Crashes of the store.
    pub crashes: u64,
    /// Replies that only a second execution explains.
    pub executed_twice: u64,
}

struct Client {
    id: String,
    /// Requests without an acknowledgement, the oldest first, each with its only correct reply.
    in_flight: VecDeque<(StoreRequest, &'static str)>,
    /// Keys that were set and can be deleted.
    set: Vec<String>,
}

struct World {
    rng: Rng,
    store: Store,
    entries: usize,
    disk: Vec<Record>,
    clients: Vec<Client>,
    millis: u64,
    requests: u64,
    names: u64,
    report: Report,
}

/// Runs `cycles` lives of a store, each ended by a crash, with `entries` entries in its cache.
///
/// # Panics
/// If a request gets no reply, which is an error in the test itself.
#[must_use]
pub fn run(seed: u64, cycles: usize, entries: usize) -> Report {
    let mut world = World {
        rng: Rng::with_seed(seed),
        store: Store::new(config(entries)),
        entries,
        disk: Vec::new(),
        clients: Vec::new(),
        millis: 0,
        requests: 0,
        names: 0,
        report: Report::default(),
    };
    for _ in 0..cycles {
        world.live();
        world.crash();
    }
    world.report
}

fn config(entries: usize) -> StoreConfig {
    let limits = StoreLimits { dedup_entries_max: entries, ..StoreLimits::default() };
    StoreConfig::new(7).limits(limits).durability(Durability::All)
}

impl World {
    fn now(&self) -> Now {
        Now::new(
            Instant::from_millis(self.millis),
            UnixTime::from_millis(1_700_000_000_000 + self.millis),
        )
    }

    /// A store lives for some 1,500 ms: its clients redeliver what was in flight, then go on.
    fn live(&mut self) {
        while self.clients.len() < CLIENTS {
            self.names += 1;
            let id = format!("client-{}", self.names);
            self.clients.push(Client { id, in_flight: VecDeque::new(), set: Vec::new() });
        }
        for client in 0..CLIENTS {
            for (request, reply) in std::mem::take(&mut self.clients[client].in_flight) {
                self.report.redelivered += 1;
                self.deliver(client, request, reply, false);
            }
        }
        for _ in 0..self.rng.usize(60..120) {
            self.millis += self.rng.u64(5..25);
            let client = self.rng.usize(0..CLIENTS);
            if self.clients[client].in_flight.len() < WINDOW {
                let (request, reply) = self.request(client);
                let loses_ack = self.rng.u8(0..4) == 0;
                self.deliver(client, request, reply, loses_ack);
            }
        }
    }

    /// A request of a client, with its only correct reply.
    fn request(&mut self, client: usize) -> (StoreRequest, &'static str) {
        self.requests += 1;
        let (number, now) = (self.requests, self.now());
        let Client { id, set, .. } = &mut self.clients[client];
        let deletes = self.rng.u8(0..3) == 0;
        let (key, deleted) = match set.pop().filter(|_| deletes) {
            Some(key) => (key, true),
            None => (format!("key-{number}"), false),
        };
        let key_bytes = key.as_bytes();
        let command = match deleted {
            true => Command::Del { key: key_bytes },
            false => Command::Set {
                key: key_bytes,
                value: b"v".as_slice(),
                condition: Condition::IfAbsent,
                expiry: None,
            },
        };
        let mut request = StoreRequest::new(id, number, &command);
        request.owner = Some("user".into());
        request.timestamp = Some(format!("{}:0:{id}", now.unix.as_millis()));
        (request, if deleted { r":1\r\n" } else { r"+OK\r\n" })
    }

    /// Delivers a request and persists its records; one without an acknowledgement stays in flight.
    fn deliver(
        &mut self,
        client: usize,
        request: StoreRequest,
        reply: &'static str,
        loses_ack: bool,
    ) {
        let now = self.now();
        request.submit_to(now, &mut self.store);
        while let Some(batch) = self.store.poll_records() {
            self.disk.extend(batch.records);
            self.store.handle_persisted(batch.id);
        }
        let sent = Sent::drain(&mut self.store);
        let answered = sent.iter().find_map(|sent| match sent {
            Sent::Reply { payload, .. } => Some(payload),
            _ => None,
        });
        let answered = answered.unwrap_or_else(|| panic!("no reply to {request:?}: {sent:?}"));
        self.report.answered += 1;
        self.report.executed_twice += u64::from(answered != reply);
        let Client { in_flight, set, .. } = &mut self.clients[client];
        if loses_ack {
            in_flight.push_back((request, reply));
        } else if reply == r"+OK\r\n" {
            let key = String::from_utf8_lossy(&request.payload).into_owned();
            set.extend(key.split("\r\n").nth(4).map(str::to_owned));
        }
    }

    /// The next store restores the records; some clients never return.
    fn crash(&mut self) {
        self.report.crashes += 1;
        self.millis += self.rng.u64(50..400);
        let gone = self.rng.usize(1..CLIENTS);
        self.clients.drain(..gone);
        self.store = Store::new(config(self.entries));
        let now = self.now();
        let (store, disk) = (&mut self.store, &self.disk);
        disk.iter().for_each(|record| store.restore(now, record));
        self.millis += 20;
    }
}
