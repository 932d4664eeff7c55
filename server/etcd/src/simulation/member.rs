//! A store of the simulation: a standby that claims, leads and is deposed.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use statestore_models::machines::request::{Sent as StorePacket, StoreRequest};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{BatchId, Durability, Record, Store, StoreConfig};

use super::etcd::{Etcd, Txn};
use super::{EXPIRY, LEASE, Twin, now};
use crate::chain::{Chain, Outcome, Verdict};
use crate::head::later;

/// Milliseconds after which a transaction without an outcome is sent again.
const RESEND_AFTER: u64 = 200;

pub(super) struct Member {
    number: usize,
    /// Milliseconds by which its wall clock is ahead.
    offset: i64,
    /// Stops when its lease has expired. The chain must be safe without that.
    respects_lease: bool,
    twin: Twin,
    store: Store,
    /// Number of log entries that it has applied.
    applied: usize,
    writer: Option<Writer>,
    turns: u64,
    pub(super) inbox: VecDeque<StoreRequest>,
    pub(super) replies: Vec<(u64, u64, Outcome)>,
}

struct Writer {
    chain: Chain,
    lease: i64,
    held_until: u64,
    /// The claim has taken effect, and all entries before it are applied.
    leads: bool,
    sent: Option<Sent>,
    txns: u64,
}

struct Sent {
    txn: Txn,
    batch: Option<BatchId>,
    at: u64,
}

/// Messages of a step.
#[derive(Default)]
pub(super) struct Output {
    pub(super) txns: Vec<(u64, Txn)>,
    pub(super) packets: Vec<StorePacket>,
}

fn store(twin: Twin) -> Store {
    let config = StoreConfig::new(7).durability(Durability::All);
    Store::new(config.linearizable_reads(twin != Twin::NoBarrier))
}

impl Member {
    pub(super) fn new(number: usize, offset: i64, respects_lease: bool, twin: Twin) -> Self {
        Self {
            number,
            offset,
            respects_lease,
            twin,
            store: store(twin),
            applied: 0,
            writer: None,
            turns: 0,
            inbox: VecDeque::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn is_leader(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.leads)
    }

    /// Loses its memory and becomes a standby.
    pub(super) fn crash(&mut self, twin: Twin) {
        self.store = store(twin);
        self.applied = 0;
        self.writer = None;
        self.inbox.clear();
        self.replies.clear();
    }

    pub(super) fn step(&mut self, at: u64, rng: &mut Rng, etcd: &mut Etcd) -> Output {
        let mut output = Output::default();
        if self.writer.is_none() {
            self.follow_and_campaign(at, rng, etcd);
        }
        self.handle_outcomes(at, etcd);
        self.renew_lease(at, etcd);
        if self.is_leader() {
            let now = now(at, self.offset);
            self.store.handle(now, Input::Timeout);
            while let Some(ask) = self.inbox.pop_front() {
                ask.submit_to(now, &mut self.store);
                if rng.u8(0..4) == 0 {
                    break;
                }
            }
        } else {
            self.inbox.clear();
        }
        self.write(at, &mut output);
        output.packets.extend(StorePacket::drain(&mut self.store));
        output
    }

    /// Follows the log, and tries to lead if no member does.
    fn follow_and_campaign(&mut self, at: u64, rng: &mut Rng, etcd: &mut Etcd) {
        let upto = rng.usize(self.applied..=etcd.log.len());
        self.follow(at, etcd, upto);
        let Some(lease) = etcd.campaign(at, LEASE) else { return };
        self.turns += 1;
        let written = now(at, self.offset).unix;
        self.writer = Some(Writer {
            chain: Chain::claim(etcd.head.clone(), lease, written),
            lease,
            held_until: at + LEASE * 4 / 5,
            leads: false,
            sent: None,
            txns: 0,
        });
    }

    fn follow(&mut self, at: u64, etcd: &Etcd, upto: usize) {
        let now = now(at, self.offset);
        let entries = etcd.log.get(self.applied..upto).unwrap_or_default();
        let is_first = self.applied == 0;
        let records = entries.iter().flat_map(|entry| {
            let is_old = is_first && entry.at + 2_000 * u64::from(EXPIRY) < at;
            let is_dropped = is_old || self.twin == Twin::NoResponses;
            let is_kept =
                move |record: &&Record| !is_dropped || !matches!(record, Record::Response(_));
            entry.records.iter().filter(is_kept)
        });
        if is_first {
            // A new standby reads the existing keys, without those that were removed.
            let mut values = BTreeMap::new();
            for record in records {
                match record {
                    Record::Put { key, .. } => _ = values.insert(key, record),
                    Record::Removed { key, .. } => _ = values.remove(key),
                    record => self.store.restore(now, record),
                }
            }
            values.values().for_each(|record| self.store.restore(now, record));
        } else {
            records.for_each(|record| self.store.restore(now, record));
        }
        self.applied = self.applied.max(upto);
    }

    /// Handles the outcomes of its transactions.
    fn handle_outcomes(&mut self, at: u64, etcd: &Etcd) {
        for (turn, number, outcome) in std::mem::take(&mut self.replies) {
            let Some(writer) = self.writer.as_mut().filter(|_| turn == self.turns) else {
                continue;
            };
            let Some(sent) = writer.sent.take_if(|sent| sent.txn.number == number) else {
                continue;
            };
            match writer.chain.outcome(outcome) {
                Verdict::Done if writer.leads => {
                    sent.batch.into_iter().for_each(|batch| self.store.handle_persisted(batch));
                }
                Verdict::Done => {
                    writer.leads = true;
                    let head = writer.chain.head().clone();
                    let claim = etcd.log.iter().position(|entry| entry.head == head);
                    let claim = claim.expect("the claim is in the log");
                    self.follow(at, etcd, claim + 1);
                    if let Some(version) = head.clock.filter(|_| self.twin != Twin::NoClock) {
                        let now = now(at, self.offset);
                        self.store.restore(now, &Record::Issued { version });
                    }
                }
                Verdict::Again => writer.sent = Some(sent),
                Verdict::Deposed { by } if !writer.leads && by.epoch == sent.txn.previous.epoch => {
                    let written = now(at, self.offset).unix;
                    writer.chain = Chain::claim(by, writer.lease, written);
                }
                Verdict::Deposed { .. } => self.crash(self.twin),
                Verdict::Broken { found } => {
                    assert_eq!(self.twin, Twin::NoCompare, "member {}: {found:?}", self.number);
                    self.crash(self.twin);
                }
            }
        }
    }

    /// Renews the lease. If it has expired, a standby or a member that minds its lease restarts.
    fn renew_lease(&mut self, at: u64, etcd: &mut Etcd) {
        let Some(writer) = &mut self.writer else { return };
        if etcd.renew(at, writer.lease, LEASE) {
            writer.held_until = at + LEASE * 4 / 5;
        } else if at >= writer.held_until && (self.respects_lease || !writer.leads) {
            self.crash(self.twin);
        }
    }

    /// Sends the next transaction, or the last one again.
    fn write(&mut self, at: u64, output: &mut Output) {
        let Some(writer) = &mut self.writer else { return };
        if let Some(sent) = &mut writer.sent {
            if sent.at + RESEND_AFTER <= at {
                assert_eq!(writer.chain.outcome(Outcome::NoReply), Verdict::Again);
                sent.at = at;
                output.txns.push((self.turns, sent.txn.clone()));
            }
            return;
        }
        let (mut records, mut batch) = (Vec::new(), None);
        if writer.leads {
            let Some(next) = self.store.poll_records() else { return };
            (records, batch) = (next.records, Some(next.id));
            if records.is_empty() {
                writer.chain.begin_barrier();
            } else {
                let versions = records.iter().filter_map(|record| match record {
                    Record::Put { version, .. }
                    | Record::Removed { version, .. }
                    | Record::Issued { version } => Some(version.clone()),
                    _ => None,
                });
                let clock = versions.fold(None, |last, version| later(last, Some(version)));
                writer.chain.begin(clock, now(at, self.offset).unix);
            }
        }
        writer.txns += 1;
        let txn = Txn {
            number: writer.txns,
            previous: writer.chain.head().clone(),
            next: writer.chain.next().cloned(),
            records,
        };
        output.txns.push((self.turns, txn.clone()));
        writer.sent = Some(Sent { txn, batch, at });
    }
}
