//! The output queue: packets in order, each held until the records that it depends on are
//! persisted.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::effects::Recording;
use super::notifications::{Notification, Notifications};
use super::persist::{Batch, BatchId, Record};
use super::registrations::Registration;
use super::unpersisted::UnpersistedKeys;
use crate::hlc::Hlc;
use crate::invariant::invariant;
use crate::limits::StoreLimits;
use crate::message::Notification as Change;
use crate::slab::{Slab, Slot};
use crate::topic;
use crate::transport::{PublishToken, SubscribeToken, Transmit};

/// The output queue of a store.
///
/// The records of one request, or of one expiry, are a *unit*: they are persisted together. A
/// packet about a key waits for the last unit that wrote the key, and so do later packets about it;
/// a packet that depends on no write does not wait. So packets about one key stay in order, and no
/// packet waits for the records of another key.
///
/// With linearizable reads, a packet that depends on stored data waits at least for the next unit
/// that is handed out. That unit may be empty.
///
/// The queue does not enforce its limit: the store checks its length before a request or an expiry.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The SUBSCRIBE of the current connection, which is sent first.
    subscribe: Option<SubscribeToken>,
    /// Packets that can be sent.
    ready: VecDeque<Packet>,
    /// The queued packets that are not notifications.
    others: Slab<Transmit>,
    notifications: Notifications,
    /// Packets that wait for a unit, ordered by unit.
    held: VecDeque<Held>,
    held_count: usize,
    /// Records that were not handed out yet, each with its unit number.
    records: VecDeque<(u64, Record)>,
    record_bytes: usize,
    /// The unit of the last record that reserves versions.
    reservation: u64,
    reads_are_linearizable: bool,
    /// Bytes of the queued packets, except the payloads of notifications.
    bytes: usize,
    /// The number of the last complete unit.
    units: u64,
    /// The number of the last unit that was handed out.
    handed_out: u64,
    /// The number of the last unit that was persisted.
    persisted: u64,
    unpersisted: UnpersistedKeys,
}

/// The packets that wait for one unit.
#[derive(Debug)]
struct Held {
    unit: u64,
    packets: Vec<Packet>,
}

/// A queued packet. Small, because it is moved between queues.
#[derive(Debug)]
enum Packet {
    /// The PUBLISH is built when it is sent.
    Notification(Notification),
    /// A packet in [`Outbox::others`].
    Other(Slot),
}

/// The stored data that a packet depends on, which decides the unit that it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum DependsOn<'a> {
    /// No stored data.
    Nothing,
    /// One key.
    Key(&'a [u8]),
    /// All keys.
    Everything,
}

impl Outbox {
    pub(super) fn new(seed: u64, reads_are_linearizable: bool, limits: &StoreLimits) -> Self {
        Self {
            subscribe: None,
            ready: VecDeque::new(),
            others: Slab::new(),
            notifications: Notifications::new(limits),
            held: VecDeque::new(),
            held_count: 0,
            records: VecDeque::new(),
            record_bytes: 0,
            reservation: 0,
            reads_are_linearizable,
            bytes: 0,
            units: 0,
            handed_out: 0,
            persisted: 0,
            unpersisted: UnpersistedKeys::new(seed),
        }
    }

    pub(super) fn len(&self) -> usize {
        (self.ready.len() + self.held_count).max(self.records.len())
    }

    /// Bytes of payloads, topics, keys and values in queued packets, and of the records that were
    /// not handed out. A response with a record counts twice.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.notifications.queued_bytes() + self.record_bytes
    }

    /// Bytes of the records that were not handed out.
    pub(super) const fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Queues the SUBSCRIBE of a connection. It replaces one that was not sent.
    pub(super) const fn subscribe(&mut self, token: SubscribeToken) {
        self.subscribe = Some(token);
    }

    pub(super) fn push(&mut self, depends_on: DependsOn<'_>, transmit: Transmit) {
        let bytes = queued_bytes(&transmit);
        let unit = self.unit_to_wait_for(depends_on);
        // `None` with 2^32 queued packets, which the limit of the queue excludes.
        if let Some(slot) = invariant(self.others.insert(transmit)) {
            self.bytes += bytes;
            self.enqueue(unit, Packet::Other(slot));
        }
    }

    /// Queues a notification for each registration that is not silenced, in its dialect. Returns
    /// their number.
    pub(super) fn notify(
        &mut self,
        key: &[u8],
        change: &Change<&[u8]>,
        version: &Hlc,
        registrations: &[Arc<Registration>],
    ) -> u64 {
        let mut registrations = registrations.iter().filter(|it| !it.is_silenced()).peekable();
        if registrations.peek().is_none() {
            return 0;
        }
        let unit = self.unit_to_wait_for(DependsOn::Key(key));
        let mut count = 0;
        // One fan-out for each dialect.
        let mut fan_outs: [Option<Slot>; 2] = [None, None];
        for registration in registrations {
            let Some(fan_out) = fan_outs.get_mut(registration.dialect as usize) else { continue };
            if fan_out.is_none() {
                let payload = change.encode(registration.dialect).into();
                *fan_out = self.notifications.add_fan_out(payload, version.clone(), key);
            }
            let Some(fan_out) = invariant(*fan_out) else { continue };
            let notification = self.notifications.queue(Arc::clone(registration), fan_out);
            self.enqueue(unit, Packet::Notification(notification));
            count += 1;
        }
        count
    }

    /// Queues the unacknowledged notifications again, before all other packets.
    pub(super) fn requeue_unacknowledged(&mut self) {
        while let Some(notification) = self.notifications.requeue_newest() {
            self.ready.push_front(Packet::Notification(notification));
        }
    }

    /// Removes a notification that has its PUBACK.
    pub(super) fn acknowledge(&mut self, token: PublishToken) {
        self.notifications.acknowledge(token);
    }

    /// The unit that a packet waits for; `None` if it can be sent. With linearizable reads, this is
    /// at least the next one that is handed out.
    fn unit_to_wait_for(&self, depends_on: DependsOn<'_>) -> Option<u64> {
        let unit = match depends_on {
            DependsOn::Nothing => return None,
            DependsOn::Key(key) => self.unpersisted.unit_of(key),
            DependsOn::Everything => self.unpersisted.last(),
        };
        unit.max(self.reads_are_linearizable.then_some(self.handed_out + 1))
    }

    fn enqueue(&mut self, unit: Option<u64>, packet: Packet) {
        let Some(unit) = unit else { return self.ready.push_back(packet) };
        self.held_count += 1;
        // Nearly always the last one.
        let at = self.held.partition_point(|held| held.unit < unit);
        match self.held.get_mut(at) {
            Some(held) if held.unit == unit => held.packets.push(packet),
            _ => self.held.insert(at, Held { unit, packets: Vec::from([packet]) }),
        }
    }

    /// The next packet to send. Notifications whose registration was silenced since are dropped.
    pub(super) fn pop(&mut self) -> Option<Transmit> {
        if let Some(token) = self.subscribe.take() {
            return Some(Transmit::Subscribe { filter: topic::REQUEST.into(), token });
        }
        loop {
            match self.ready.pop_front()? {
                Packet::Other(slot) => {
                    let transmit = invariant(self.others.remove(slot))?;
                    self.bytes -= queued_bytes(&transmit);
                    return Some(transmit);
                }
                Packet::Notification(notification) => {
                    if let Some(transmit) = self.notifications.send(notification) {
                        return Some(transmit);
                    }
                }
            }
        }
    }

    /// Adds a record to the current unit. Later packets about this key wait for what is recorded.
    pub(super) fn record(&mut self, key: &[u8], recording: Recording) {
        let unit = self.units + 1;
        let record = match recording {
            Recording::LastReservation => {
                // Uses the last unit, not that of the reservation: `unpersisted` must stay sorted
                // by unit.
                let last = self.unpersisted.last().filter(|_| self.reservation > self.persisted);
                if let Some(unit) = last {
                    self.unpersisted.insert(unit, key);
                }
                return;
            }
            Recording::Record(record) => record,
            Recording::Reservation(record) => {
                self.reservation = unit;
                record
            }
        };
        self.record_bytes += record.len();
        self.unpersisted.insert(unit, key);
        self.records.push_back((unit, record));
    }

    /// Closes the current unit, unless it is empty and no packet waits for it.
    pub(super) fn close_unit(&mut self) {
        let has_records = self.records.back().is_some_and(|(unit, _)| *unit > self.units);
        let next = self.units + 1;
        let is_barrier =
            self.units == self.handed_out && self.held.back().is_some_and(|held| held.unit == next);
        if has_records || is_barrier {
            self.units += 1;
        }
    }

    /// Takes whole units, the oldest first, within both limits; the first one even if it exceeds
    /// them. That one may be empty.
    pub(super) fn take_records(&mut self, count: usize, bytes_max: usize) -> Option<Batch> {
        self.close_unit();
        let mut records = Vec::new();
        let mut bytes = 0_usize;
        while let Some((first, _)) = self.records.front() {
            let first = *first;
            let unit = self.records.iter().take_while(|(unit, _)| *unit == first);
            let (len, unit_bytes) =
                unit.fold((0, 0), |(len, bytes), (_, record)| (len + 1, bytes + record.len()));
            let exceeds = records.len().saturating_add(len) > count
                || bytes.saturating_add(unit_bytes) > bytes_max;
            if !records.is_empty() && exceeds {
                break;
            }
            self.handed_out = first;
            bytes += unit_bytes;
            records.extend(self.records.drain(..len).map(|(_, record)| record));
        }
        if records.is_empty() {
            if self.units == self.handed_out {
                return None;
            }
            self.handed_out = self.units;
        }
        self.record_bytes -= bytes;
        Some(Batch { id: BatchId(self.handed_out), records, bytes })
    }

    /// Releases the packets that waited for a batch or for any batch before it.
    pub(super) fn release(&mut self, id: BatchId) {
        self.persisted = self.persisted.max(id.0.min(self.handed_out));
        self.unpersisted.remove_through(self.persisted);
        while self.held.front().is_some_and(|held| held.unit <= self.persisted) {
            let Some(held) = self.held.pop_front() else { return };
            self.held_count -= held.packets.len();
            self.ready.extend(held.packets);
        }
    }
}

/// Bytes of the payload and the texts of a packet.
fn queued_bytes(transmit: &Transmit) -> usize {
    match transmit {
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
    }
}
