//! Memory accounting in bytes.

use alloc::sync::Arc;

use crate::message::Message;

/// Memory of the whole broker. A message counts once, however many queues contain it. A payload
/// counts once, however many messages share it.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    total: usize,
}

impl Memory {
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    pub(crate) const fn add(&mut self, bytes: usize) {
        self.total = self.total.saturating_add(bytes);
    }

    pub(crate) const fn remove(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.total, "more memory is freed than was counted");
        self.total = self.total.saturating_sub(bytes);
    }

    /// Adds a reference to a message.
    pub(crate) fn hold(&mut self, message: &Arc<Message>) {
        if !message.holds().add() {
            return;
        }
        self.add(message.own_size());
        if let Some(payload) = message.shared_payload().filter(|payload| payload.holds().add()) {
            self.add(payload.bytes().len());
        }
    }

    /// Removes a reference to a message.
    pub(crate) fn release(&mut self, message: &Arc<Message>) {
        if !message.holds().remove() {
            return;
        }
        self.remove(message.own_size());
        if let Some(payload) = message.shared_payload().filter(|payload| payload.holds().remove()) {
            self.remove(payload.bytes().len());
        }
    }
}

/// Memory of one connection, session or queue. It is part of the broker's memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryAccount(usize);

impl MemoryAccount {
    pub(crate) const fn bytes(&self) -> usize {
        self.0
    }

    /// Adds a message in full, even if other accounts contain it too.
    pub(crate) fn hold(&mut self, memory: &mut Memory, message: &Arc<Message>, overhead: usize) {
        memory.hold(message);
        memory.add(overhead);
        self.0 += message.size() + overhead;
    }

    pub(crate) fn release(&mut self, memory: &mut Memory, message: &Arc<Message>, overhead: usize) {
        memory.release(message);
        memory.remove(overhead);
        self.subtract(message.size() + overhead);
    }

    pub(crate) const fn add(&mut self, memory: &mut Memory, bytes: usize) {
        memory.add(bytes);
        self.0 += bytes;
    }

    pub(crate) const fn remove(&mut self, memory: &mut Memory, bytes: usize) {
        memory.remove(bytes);
        self.subtract(bytes);
    }

    const fn subtract(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.0, "an account frees more memory than it counted");
        self.0 = self.0.saturating_sub(bytes);
    }

    /// Replaces an amount.
    pub(crate) const fn change(&mut self, memory: &mut Memory, before: usize, after: usize) {
        self.add(memory, after);
        self.remove(memory, before);
    }
}
