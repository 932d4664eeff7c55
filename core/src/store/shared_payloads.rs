//! The payloads of notifications, each shared by the notifications of one fan-out.

use bytes::Bytes;

use crate::slab::{Slab, Slot};

/// The payload of a notification.
#[derive(Clone, Debug)]
pub(super) struct SharedPayload {
    pub(super) bytes: Bytes,
    slot: Option<Slot>,
}

/// Counts the bytes of payloads: once for all queued notifications that share one, and once for all
/// sent ones.
///
/// A payload counts until the last notification that holds it is gone, whatever the order in which
/// they are acknowledged.
#[derive(Debug)]
pub(super) struct SharedPayloads {
    counts: Slab<Count>,
    queued_bytes: usize,
    sent_bytes: usize,
}

#[derive(Debug, Default)]
struct Count {
    bytes: usize,
    queued: usize,
    sent: usize,
}

impl SharedPayloads {
    pub(super) const fn new() -> Self {
        Self { counts: Slab::new(), queued_bytes: 0, sent_bytes: 0 }
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) const fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    /// A payload for notifications about a key. At least one must be queued.
    pub(super) fn insert(&mut self, bytes: Bytes, key: &[u8]) -> SharedPayload {
        let count = Count { bytes: bytes.len() + key.len(), ..Count::default() };
        SharedPayload { bytes, slot: self.counts.insert(count) }
    }

    pub(super) fn add_queued(&mut self, payload: &SharedPayload) {
        let Some(count) = payload.slot.and_then(|slot| self.counts.get_mut(slot)) else { return };
        if count.queued == 0 {
            self.queued_bytes += count.bytes;
        }
        count.queued += 1;
    }

    /// Moves a notification from the queued ones to the sent ones.
    pub(super) fn mark_sent(&mut self, payload: &SharedPayload) {
        let Some(count) = payload.slot.and_then(|slot| self.counts.get_mut(slot)) else { return };
        if count.sent == 0 {
            self.sent_bytes += count.bytes;
        }
        count.sent += 1;
        count.queued -= 1;
        if count.queued == 0 {
            self.queued_bytes -= count.bytes;
        }
    }

    /// Moves a notification from the sent ones to the queued ones.
    pub(super) fn requeue(&mut self, payload: &SharedPayload) {
        self.add_queued(payload);
        self.remove_sent(payload);
    }

    pub(super) fn remove_queued(&mut self, payload: &SharedPayload) {
        let Some(slot) = payload.slot else { return };
        let Some(count) = self.counts.get_mut(slot) else { return };
        count.queued -= 1;
        if count.queued == 0 {
            self.queued_bytes -= count.bytes;
            if count.sent == 0 {
                self.counts.remove(slot);
            }
        }
    }

    pub(super) fn remove_sent(&mut self, payload: &SharedPayload) {
        let Some(slot) = payload.slot else { return };
        let Some(count) = self.counts.get_mut(slot) else { return };
        count.sent -= 1;
        if count.sent == 0 {
            self.sent_bytes -= count.bytes;
            if count.queued == 0 {
                self.counts.remove(slot);
            }
        }
    }
}
