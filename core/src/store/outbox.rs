//! What waits to be sent, in order, held back until what it tells of is durable.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::record::{Batch, BatchId, Record};
use crate::mqtt::Transmit;

/// The queue of a store. Records of writes go out in batches; whatever was queued after a record waits for its batch,
/// so nothing that depends on a write is seen before the write is safe, and order is kept.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: VecDeque<(u64, Transmit)>,
    records: Vec<Record>,
    /// Batches that were persisted, counted.
    persisted: u64,
    /// Batches that were handed out, counted.
    handed_out: u64,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), records: Vec::new(), persisted: 0, handed_out: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len().max(self.records.len())
    }

    pub(super) fn push(&mut self, transmit: Transmit) {
        let batch = self.handed_out + u64::from(!self.records.is_empty());
        self.queue.push_back((batch, transmit));
    }

    pub(super) fn pop(&mut self) -> Option<Transmit> {
        let (batch, _) = self.queue.front()?;
        if *batch > self.persisted {
            return None;
        }
        self.queue.pop_front().map(|(_, transmit)| transmit)
    }

    pub(super) fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    pub(super) fn take_records(&mut self) -> Option<Batch> {
        if self.records.is_empty() {
            return None;
        }
        self.handed_out += 1;
        Some(Batch { id: BatchId(self.handed_out), records: core::mem::take(&mut self.records) })
    }

    /// Batches are persisted in order, so this one says it of all before it.
    pub(super) fn persisted(&mut self, id: BatchId) {
        self.persisted = self.persisted.max(id.0.min(self.handed_out));
    }
}
