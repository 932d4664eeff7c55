//! Simulation of elections and fencing. The real store machine and chain run over a modelled etcd,
//! with pauses longer than the lease. Transactions and replies arrive late, twice or never.

mod check;
mod etcd;
mod member;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fastrand::Rng;
use statestore_models::machines::request::{Sent as StorePacket, StoreRequest};
use statestore_proto::message::{Command, Condition, Expiry};
use statestore_proto::time::{Instant, Now, UnixTime};

use self::check::{Kind, Op};
use self::etcd::{Etcd, Txn};
use self::member::Member;
use crate::chain::Outcome;

const EPOCH: u64 = 1_696_374_425_000;

/// Lease in milliseconds.
const LEASE: u64 = 2_000;

/// Length of a run in milliseconds.
const END: u64 = 40_000;

/// Milliseconds after which a client sends its request again, and after which it gives up.
const RESEND_AFTER: u64 = 150;
const GIVE_UP_AFTER: u64 = 1_900;

/// Message expiry of requests in seconds. Stores retain responses for twice this time.
const EXPIRY: u32 = 2;

/// Variant of the system: the sound one, or one with a defect that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    Sound,
    /// Transactions take effect without comparing the head.
    NoCompare,
    /// Reads do not wait for a transaction.
    NoBarrier,
    /// A leader does not restore the clock of its predecessor.
    NoClock,
    /// Standbys do not restore responses.
    NoResponses,
}

/// A message in transit or a timer.
#[derive(Debug)]
enum Event {
    /// A transaction sent to etcd. `turn` is the number of the member's term.
    Txn { member: usize, turn: u64, txn: Txn },
    /// The outcome of a transaction, sent to a member.
    Outcome { member: usize, turn: u64, number: u64, outcome: Outcome },
    /// A request sent to a member.
    Request { member: usize, op: usize },
    /// A response sent to a client.
    Response { op: usize, payload: String, version: Option<String> },
    /// Step of a member.
    Member(usize),
    /// Step of a client.
    Client(usize),
}

/// Events in the order of their times.
#[derive(Default)]
struct Net {
    order: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
}

impl Net {
    fn send(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order)));
        self.events.insert(self.order, event);
    }

    fn next(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, order)) = self.queue.pop()?;
        self.events.remove(&order).map(|event| (at, event))
    }
}

struct Simulation {
    rng: Rng,
    twin: Twin,
    /// Percentage of transactions and replies that are lost, and of transactions that arrive twice.
    loss: u8,
    delay: u64,
    /// Number of keys.
    keys: u8,
    /// Percentage of requests that remove a key.
    removals: u8,
    /// Clients send no requests for long periods, in which recorded responses expire.
    is_quiet: bool,
    net: Net,
    etcd: Etcd,
    members: Vec<Member>,
    ops: Vec<Op>,
    /// Current request of each client.
    current: Vec<Option<usize>>,
}

fn now(millis: u64, offset: i64) -> Now {
    let unix = (EPOCH + millis).saturating_add_signed(offset);
    Now::new(Instant::from_millis(millis), UnixTime::from_millis(unix))
}

impl Simulation {
    fn new(seed: u64, twin: Twin) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut net = Net::default();
        let members = (0..rng.usize(2..=3))
            .map(|number| {
                net.send(rng.u64(1..50), Event::Member(number));
                let offset = if rng.bool() { 0 } else { rng.i64(-20_000..=20_000) };
                Member::new(number, offset, rng.bool(), twin)
            })
            .collect();
        let clients = rng.usize(2..=4);
        for client in 0..clients {
            net.send(rng.u64(100..200), Event::Client(client));
        }
        Self {
            twin,
            loss: rng.u8(0..20),
            delay: rng.u64(1..40),
            keys: rng.u8(1..=8),
            is_quiet: rng.u8(0..3) == 0,
            removals: if rng.bool() { 5 } else { 40 },
            net,
            etcd: Etcd::new(twin != Twin::NoCompare),
            members,
            ops: Vec::new(),
            current: vec![None; clients],
            rng,
        }
    }

    fn run(mut self) -> (Vec<Op>, Etcd) {
        while let Some((at, event)) = self.net.next() {
            // Requests that were sent before the end can still get their responses.
            if at > END + GIVE_UP_AFTER {
                break;
            }
            self.handle(at, event);
        }
        (self.ops, self.etcd)
    }

    fn handle(&mut self, at: u64, event: Event) {
        match event {
            Event::Txn { member, turn, txn } => {
                let outcome = self.etcd.transact(at, &txn);
                if self.rng.u8(0..100) >= self.loss {
                    let arrives = at + self.rng.u64(0..=self.delay);
                    let number = txn.number;
                    self.net.send(arrives, Event::Outcome { member, turn, number, outcome });
                }
            }
            Event::Outcome { member, turn, number, outcome } => {
                self.members[member].replies.push((turn, number, outcome));
            }
            Event::Request { member, op } => {
                // Brokers report how long a request has waited.
                let mut ask = self.ops[op].ask.clone();
                ask.arrived = Some(Instant::from_millis(at));
                self.members[member].inbox.push_back(ask);
            }
            Event::Response { op, payload, version } => self.receive(at, op, payload, version),
            Event::Member(number) => self.step_member(at, number),
            Event::Client(client) => self.step_client(at, client),
        }
    }

    /// Executes a step of a member and schedules the next one, sometimes after a long pause.
    fn step_member(&mut self, at: u64, number: usize) {
        let pause = match self.rng.u16(0..1_000) {
            0 => self.rng.u64(LEASE / 2..3 * LEASE),
            1..20 => self.rng.u64(50..400),
            _ => self.rng.u64(1..10),
        };
        self.net.send(at + pause, Event::Member(number));
        let member = &mut self.members[number];
        if at < END && self.rng.u16(0..2_000) == 0 {
            member.crash(self.twin);
            return;
        }
        let sent = member.step(at, &mut self.rng, &mut self.etcd);
        for (turn, txn) in sent.txns {
            let copies = 1 + u8::from(self.rng.u8(0..100) < self.loss);
            for _ in 0..copies {
                if self.rng.u8(0..100) >= self.loss {
                    // Some transactions arrive very late.
                    let late = if self.rng.u8(0..50) == 0 { 3 * LEASE } else { self.delay };
                    let arrives = at + self.rng.u64(0..=late);
                    self.net.send(arrives, Event::Txn { member: number, turn, txn: txn.clone() });
                }
            }
        }
        for packet in sent.packets {
            let StorePacket::Reply { correlation, payload, version, .. } = packet else { continue };
            let op = correlation.and_then(|data| <[u8; 16]>::try_from(data).ok());
            let op = op.map(u128::from_be_bytes).and_then(|op| usize::try_from(op).ok());
            let op = op.expect("the correlation data of a request");
            let arrives = at + self.rng.u64(0..=self.delay);
            self.net.send(arrives, Event::Response { op, payload, version });
        }
    }

    fn receive(&mut self, at: u64, op: usize, payload: String, version: Option<String>) {
        let op = &mut self.ops[op];
        op.responses.push((payload, version));
        op.responded.get_or_insert(at);
    }

    /// A client sends a new request, or its last one again, to any member that believes to lead.
    fn step_client(&mut self, at: u64, client: usize) {
        let open = self.current[client].filter(|op| self.ops[*op].responded.is_none());
        let op = match open {
            Some(op) if at < self.ops[op].invoked + GIVE_UP_AFTER => op,
            _ if at < END && !(self.is_quiet && at % 8_000 > 2_000) => {
                let op = self.ops.len();
                let request = self.new_request(at, client, op);
                self.ops.push(request);
                self.current[client] = Some(op);
                op
            }
            _ if at < END => {
                self.net.send(at + 10, Event::Client(client));
                return;
            }
            _ => return,
        };
        if open != Some(op) || self.ops[op].sent + RESEND_AFTER <= at {
            self.ops[op].sent = at;
            let leading =
                (0..self.members.len()).filter(|member| self.members[*member].is_leader());
            let leading: Vec<usize> = leading.collect();
            if let Some(member) = self.rng.choice(leading) {
                let arrives = at + self.rng.u64(0..=self.delay);
                self.net.send(arrives, Event::Request { member, op });
            }
        }
        let pause = self.rng.u64(5..60);
        self.net.send(at + pause, Event::Client(client));
    }

    fn new_request(&mut self, at: u64, client: usize, number: usize) -> Op {
        let key = format!("k{}", self.rng.u8(0..self.keys)).into_bytes();
        let key = key.as_slice();
        let value = format!("v{number}").into_bytes();
        let (condition, expiry) = match self.rng.u8(0..6) {
            0 => (Condition::IfAbsent, Expiry::from_millis(self.rng.u64(1..2_000))),
            1 => (Condition::Always, Expiry::from_millis(self.rng.u64(1..2_000))),
            2 => (Condition::IfAbsent, None),
            _ => (Condition::Always, None),
        };
        let (kind, command) = match self.rng.u8(0..100) {
            dice if dice < self.removals => (Kind::Del, Command::Del { key }),
            0..70 => (Kind::Get, Command::Get { key }),
            _ => {
                let kind = Kind::Set { value: value.clone() };
                (kind, Command::Set { key, value: &value[..], condition, expiry })
            }
        };
        let mut ask = StoreRequest::new(&format!("c{client}"), number as u64, &command);
        ask.expiry = Some(EXPIRY);
        Op {
            key: key.to_vec(),
            kind,
            ask,
            invoked: at,
            sent: at,
            responded: None,
            responses: Vec::new(),
        }
    }
}

/// Runs these seeds. Returns the violations, the number of terms, and the number of responses.
fn runs(seeds: std::ops::Range<u64>, twin: Twin) -> (Vec<String>, u64, usize) {
    let (mut violations, mut terms, mut responses) = (Vec::new(), 0, 0);
    for seed in seeds {
        let (ops, etcd) = Simulation::new(seed, twin).run();
        terms += etcd.head.epoch;
        responses += ops.iter().filter(|op| op.responded.is_some()).count();
        let found = check::violations(&ops, &etcd).into_iter();
        violations.extend(found.map(|violation| format!("seed {seed}: {violation}")));
    }
    (violations, terms, responses)
}

#[test]
fn responses_of_all_leaders_agree_with_one_log() {
    let (violations, terms, responses) = runs(0..500, Twin::Sound);
    assert_eq!(violations, Vec::<String>::new());
    assert!(terms > 1_500 && responses > 50_000, "{terms} terms and {responses} are too few");
}

#[test]
fn checks_find_each_defect() {
    for twin in [Twin::NoCompare, Twin::NoBarrier, Twin::NoClock, Twin::NoResponses] {
        let found = (0..400).position(|seed| !runs(seed..seed + 1, twin).0.is_empty());
        assert!(found.is_some(), "{twin:?}");
    }
}
