//! What waits to be sent, in order, held back until what it tells of is durable.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::pending::Pending;
use super::record::{Batch, BatchId, Record};
use super::unacknowledged::{Notice, Unacknowledged};
use crate::limits::StoreLimits;
use crate::mqtt::{PublishToken, Transmit};

/// The queue of a store.
///
/// Records of one request, or of one expiry, are a *unit*: they become durable together. What tells of a key waits for
/// the last unit that wrote it, and so does everything about that key that comes later; what tells of no write waits for
/// nothing. So packets about one key stay in order, and nobody waits for the disk on account of another key.
///
/// With linearizable reads, what tells of anything stored waits at least for the next unit to be handed out; where no
/// request has written one, it is a unit without records.
///
/// Requests fill it, through their answers, notifications and records; `Store::has_room` says when no more may come.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The SUBSCRIBE of the present connection. It tells of no write, so it waits for none.
    subscribe: Option<Transmit>,
    /// What waits for nothing.
    ready: VecDeque<Waiting>,
    unacknowledged: Unacknowledged,
    /// What waits for a unit, by unit.
    held: VecDeque<Held>,
    held_count: usize,
    /// Records that were not handed out yet, each with its unit.
    records: VecDeque<(u64, Record)>,
    record_bytes: usize,
    reads_are_linearizable: bool,
    /// Whether something waits for the next unit to be handed out, though it may have no records.
    is_barrier_wanted: bool,
    /// Of what waits in the queue.
    bytes: usize,
    /// Units that are complete, counted.
    units: u64,
    /// The last unit that was handed out, and the last that is durable.
    handed_out: u64,
    persisted: u64,
    pending: Pending,
}

/// What waits for one unit.
#[derive(Debug)]
struct Held {
    unit: u64,
    packets: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: usize,
    packet: Packet,
}

#[derive(Debug)]
enum Packet {
    Ready(Transmit),
    /// Its topic, which is twice as long as its key, is written only when it is sent.
    Notification(Notice),
}

/// What a packet tells of, which decides what it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    /// Of nothing that is written.
    Nothing,
    /// Of one key.
    Key(&'a [u8]),
    /// Of everything until now.
    Everything,
}

impl Outbox {
    pub(super) const fn new(seed: u64, reads_are_linearizable: bool, limits: &StoreLimits) -> Self {
        Self {
            subscribe: None,
            ready: VecDeque::new(),
            unacknowledged: Unacknowledged::new(limits.outgoing_max, limits.outgoing_bytes_max),
            held: VecDeque::new(),
            held_count: 0,
            records: VecDeque::new(),
            record_bytes: 0,
            reads_are_linearizable,
            is_barrier_wanted: false,
            bytes: 0,
            units: 0,
            handed_out: 0,
            persisted: 0,
            pending: Pending::new(seed),
        }
    }

    pub(super) fn len(&self) -> usize {
        (self.ready.len() + self.held_count).max(self.records.len())
    }

    /// Bytes of payloads, topics, keys and values in the queue and in the records not handed out yet.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.record_bytes
    }

    /// Replaces a SUBSCRIBE that no connection has taken.
    pub(super) fn subscribe(&mut self, subscribe: Transmit) {
        self.subscribe = Some(subscribe);
    }

    pub(super) fn push(&mut self, about: About<'_>, transmit: Transmit) {
        let bytes = match &transmit {
            Transmit::Publish(publish) => {
                let correlation = publish.correlation_data.as_ref();
                publish.topic.len()
                    + publish.payload.len()
                    + correlation.map_or(0, |data| data.as_bytes().len())
            }
            Transmit::Disconnect { client_id, response_topic, .. } => {
                client_id.len() + response_topic.len()
            }
            Transmit::Subscribe { .. } | Transmit::Acknowledge(_) => 0,
        };
        self.wait(about, Waiting { bytes, packet: Packet::Ready(transmit) });
    }

    /// Queues a notification about a key; `bytes` is what this one of a fan-out holds in memory beside the others.
    pub(super) fn notify(&mut self, key: &[u8], notice: Notice, bytes: usize) {
        let packet = Packet::Notification(notice);
        self.wait(About::Key(key), Waiting { bytes, packet });
    }

    /// Queues the notifications again, before anything else, of which nobody said that they have arrived.
    pub(super) fn again(&mut self) {
        for (notice, bytes) in self.unacknowledged.drain_newest_first() {
            self.bytes += bytes;
            self.ready.push_front(Waiting { bytes, packet: Packet::Notification(notice) });
        }
    }

    /// A notification has arrived, or never will.
    pub(super) fn settled(&mut self, token: PublishToken) {
        self.unacknowledged.settled(token);
    }

    fn wait(&mut self, about: About<'_>, waiting: Waiting) {
        self.bytes += waiting.bytes;
        let unit = match about {
            About::Nothing => None,
            About::Key(key) => self.pending.of(key),
            About::Everything => self.pending.last(),
        };
        let barrier = match about {
            About::Key(_) | About::Everything if self.reads_are_linearizable => {
                self.is_barrier_wanted = true;
                Some(self.handed_out + 1)
            }
            _ => None,
        };
        let Some(unit) = unit.max(barrier) else { return self.ready.push_back(waiting) };
        self.held_count += 1;
        // Mostly it is the last one.
        let at = self.held.partition_point(|held| held.unit < unit);
        match self.held.get_mut(at) {
            Some(held) if held.unit == unit => held.packets.push(waiting),
            _ => self.held.insert(at, Held { unit, packets: Vec::from([waiting]) }),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Transmit> {
        if let Some(subscribe) = self.subscribe.take() {
            return Some(subscribe);
        }
        let Waiting { bytes, packet } = self.ready.pop_front()?;
        self.bytes -= bytes;
        Some(match packet {
            Packet::Ready(transmit) => transmit,
            Packet::Notification(notice) => {
                let publish = notice.to_publish();
                self.unacknowledged.push(notice, bytes);
                Transmit::Publish(publish)
            }
        })
    }

    /// Adds a record to the unit that is open. What is said about this key from now on waits for it.
    pub(super) fn record(&mut self, key: &[u8], record: Record) {
        let unit = self.units + 1;
        self.record_bytes += record.len();
        self.pending.insert(unit, key);
        self.records.push_back((unit, record));
    }

    /// Ends the unit that is open, if there is anything in it.
    pub(super) fn close_unit(&mut self) {
        let has_records = self.records.back().is_some_and(|(unit, _)| *unit > self.units);
        if has_records || (self.is_barrier_wanted && self.units == self.handed_out) {
            self.units += 1;
        }
    }

    /// The oldest units whose records are no more than `count` together; one at least, which may be without records.
    pub(super) fn take_records(&mut self, count: usize) -> Option<Batch> {
        self.close_unit();
        let mut records = Vec::new();
        while let Some((first, _)) = self.records.front() {
            let first = *first;
            let len = self.records.iter().take_while(|(unit, _)| *unit == first).count();
            if !records.is_empty() && records.len().saturating_add(len) > count {
                break;
            }
            self.handed_out = first;
            records.extend(self.records.drain(..len).map(|(_, record)| record));
        }
        if records.is_empty() {
            if self.units == self.handed_out {
                return None;
            }
            self.handed_out = self.units;
        }
        self.is_barrier_wanted = false;
        self.record_bytes -= records.iter().map(Record::len).sum::<usize>();
        Some(Batch { id: BatchId(self.handed_out), records })
    }

    /// Batches are persisted in order, so this one says it of all before it.
    pub(super) fn persisted(&mut self, id: BatchId) {
        self.persisted = self.persisted.max(id.0.min(self.handed_out));
        self.pending.persisted(self.persisted);
        while self.held.front().is_some_and(|held| held.unit <= self.persisted) {
            let Some(held) = self.held.pop_front() else { return };
            self.held_count -= held.packets.len();
            self.ready.extend(held.packets);
        }
    }
}
