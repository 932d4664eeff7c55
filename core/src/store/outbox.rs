//! What waits to be sent, in order, held back until what it tells of is durable.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::record::{Batch, BatchId, Record};
use super::watches::Watch;
use crate::hlc::Hlc;
use crate::mqtt::Transmit;

/// The queue of a store. Records of writes go out in batches; whatever was queued after a record waits for its batch,
/// so nothing that depends on a write is seen before the write is safe, and order is kept.
///
/// Requests fill it, through their answers, notifications and records; `Store::has_room` says when no more may come.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The SUBSCRIBE of the present connection. It tells of no write, so it waits for none.
    subscribe: Option<Transmit>,
    queue: VecDeque<Waiting>,
    records: Vec<Record>,
    record_bytes: usize,
    /// Of what waits in the queue.
    bytes: usize,
    /// Batches that were persisted, counted.
    persisted: u64,
    /// Batches that were handed out, counted.
    handed_out: u64,
}

/// A packet, and what it waits for.
#[derive(Debug)]
struct Waiting {
    batch: u64,
    bytes: usize,
    packet: Packet,
}

#[derive(Debug)]
enum Packet {
    Ready(Transmit),
    /// A notification whose topic, which is twice as long as its key, is written only when it is sent.
    Notification {
        watch: Arc<Watch>,
        payload: Bytes,
        version: Hlc,
    },
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self {
            subscribe: None,
            queue: VecDeque::new(),
            records: Vec::new(),
            record_bytes: 0,
            bytes: 0,
            persisted: 0,
            handed_out: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len().max(self.records.len())
    }

    /// Bytes of payloads, topics, keys and values in the queue and in the records not handed out yet.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.record_bytes
    }

    /// Replaces a SUBSCRIBE that no connection has taken.
    pub(super) fn subscribe(&mut self, subscribe: Transmit) {
        self.subscribe = Some(subscribe);
    }

    pub(super) fn push(&mut self, transmit: Transmit) {
        let bytes = match &transmit {
            Transmit::Publish(publish) => {
                let correlation = publish.correlation_data.as_ref();
                publish.topic.len()
                    + publish.payload.len()
                    + correlation.map_or(0, |data| data.as_bytes().len())
            }
            Transmit::Disconnect { client_id } => client_id.len(),
            Transmit::Subscribe { .. } | Transmit::Acknowledge(_) => 0,
        };
        self.wait(bytes, Packet::Ready(transmit));
    }

    /// Queues a notification; `bytes` is what this one of a fan-out holds in memory beside the others.
    pub(super) fn notify(&mut self, watch: Arc<Watch>, payload: Bytes, version: Hlc, bytes: usize) {
        self.wait(bytes, Packet::Notification { watch, payload, version });
    }

    fn wait(&mut self, bytes: usize, packet: Packet) {
        let batch = self.handed_out + u64::from(!self.records.is_empty());
        self.bytes += bytes;
        self.queue.push_back(Waiting { batch, bytes, packet });
    }

    pub(super) fn pop(&mut self) -> Option<Transmit> {
        if let Some(subscribe) = self.subscribe.take() {
            return Some(subscribe);
        }
        if self.queue.front()?.batch > self.persisted {
            return None;
        }
        let Waiting { bytes, packet, .. } = self.queue.pop_front()?;
        self.bytes -= bytes;
        Some(match packet {
            Packet::Ready(transmit) => transmit,
            Packet::Notification { watch, payload, version } => {
                Transmit::Publish(watch.notification(payload, version))
            }
        })
    }

    pub(super) fn record(&mut self, record: Record) {
        self.record_bytes += record.len();
        self.records.push(record);
    }

    pub(super) fn take_records(&mut self) -> Option<Batch> {
        if self.records.is_empty() {
            return None;
        }
        self.handed_out += 1;
        self.record_bytes = 0;
        Some(Batch { id: BatchId(self.handed_out), records: core::mem::take(&mut self.records) })
    }

    /// Batches are persisted in order, so this one says it of all before it.
    pub(super) fn persisted(&mut self, id: BatchId) {
        self.persisted = self.persisted.max(id.0.min(self.handed_out));
    }
}
