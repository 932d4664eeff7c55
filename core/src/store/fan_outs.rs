//! Fan-outs: all notifications of one change in one dialect, and what they share.

use alloc::string::String;

use bytes::Bytes;

use crate::hlc::Hlc;
use crate::slab::{Slab, Slot};
use crate::topic;

/// The payload, version and part of the topic that all notifications of one change in one dialect
/// share.
#[derive(Debug)]
pub(super) struct FanOut {
    pub(super) payload: Bytes,
    pub(super) version: Hlc,
    /// The part of the topic that depends on the key.
    pub(super) topic_tail: String,
    /// Bytes of `payload` and `topic_tail`.
    bytes: usize,
    queued: usize,
    sent: usize,
}

/// The fan-outs with queued or sent notifications. Counts their bytes: once for all queued
/// notifications of a fan-out, and once for all sent ones.
///
/// A fan-out is removed with the last of its notifications. The order of their acknowledgements does
/// not matter.
#[derive(Debug)]
pub(super) struct FanOuts {
    fan_outs: Slab<FanOut>,
    queued_bytes: usize,
    sent_bytes: usize,
}

impl FanOuts {
    pub(super) const fn new() -> Self {
        Self { fan_outs: Slab::new(), queued_bytes: 0, sent_bytes: 0 }
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) const fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    /// Adds a fan-out about a key. Queue at least one notification of it: the last one removes it.
    /// `None` when 2^32 fan-outs exist, which the limit of the queue excludes.
    pub(super) fn insert(&mut self, payload: Bytes, version: Hlc, key: &[u8]) -> Option<Slot> {
        let topic_tail = topic::notification_tail(key);
        let bytes = payload.len() + topic_tail.len();
        self.fan_outs.insert(FanOut { payload, version, topic_tail, bytes, queued: 0, sent: 0 })
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&FanOut> {
        self.fan_outs.get(slot)
    }

    pub(super) fn add_queued(&mut self, slot: Slot) {
        let Some(fan_out) = self.fan_outs.get_mut(slot) else { return };
        if fan_out.queued == 0 {
            self.queued_bytes += fan_out.bytes;
        }
        fan_out.queued += 1;
    }

    /// Moves a notification from the queued ones to the sent ones.
    pub(super) fn mark_sent(&mut self, slot: Slot) {
        let Some(fan_out) = self.fan_outs.get_mut(slot) else { return };
        if fan_out.sent == 0 {
            self.sent_bytes += fan_out.bytes;
        }
        fan_out.sent += 1;
        fan_out.queued -= 1;
        if fan_out.queued == 0 {
            self.queued_bytes -= fan_out.bytes;
        }
    }

    /// Moves a notification from the sent ones to the queued ones.
    pub(super) fn requeue(&mut self, slot: Slot) {
        // In this order, since a fan-out without notifications is removed.
        self.add_queued(slot);
        self.remove_sent(slot);
    }

    pub(super) fn remove_queued(&mut self, slot: Slot) {
        let Some(fan_out) = self.fan_outs.get_mut(slot) else { return };
        fan_out.queued -= 1;
        if fan_out.queued == 0 {
            self.queued_bytes -= fan_out.bytes;
            if fan_out.sent == 0 {
                self.fan_outs.clear(slot);
            }
        }
    }

    pub(super) fn remove_sent(&mut self, slot: Slot) {
        let Some(fan_out) = self.fan_outs.get_mut(slot) else { return };
        fan_out.sent -= 1;
        if fan_out.sent == 0 {
            self.sent_bytes -= fan_out.bytes;
            if fan_out.queued == 0 {
                self.fan_outs.clear(slot);
            }
        }
    }
}
