//! How much is kept, in bytes.

use alloc::sync::Arc;

use super::message::Message;

/// What everything takes together. A message counts once, in however many queues it waits.
#[derive(Debug, Default)]
pub(super) struct Memory {
    total: usize,
}

impl Memory {
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) const fn add(&mut self, bytes: usize) {
        self.total = self.total.saturating_add(bytes);
    }

    pub(super) const fn remove(&mut self, bytes: usize) {
        self.total = self.total.saturating_sub(bytes);
    }

    /// Notes that a message is kept in one place more.
    pub(super) fn hold(&mut self, message: &Arc<Message>) {
        if message.hold() {
            self.add(message.size());
        }
    }

    /// Notes that a message is kept in one place less.
    pub(super) fn release(&mut self, message: &Arc<Message>) {
        if message.release() {
            self.remove(message.size());
        }
    }
}

/// What one party has of it, which is never forgotten on the way.
#[derive(Debug, Default)]
pub(super) struct Held(usize);

impl Held {
    pub(super) const fn bytes(&self) -> usize {
        self.0
    }

    /// Counts a message in full, however many others keep it too.
    pub(super) fn hold(&mut self, memory: &mut Memory, message: &Arc<Message>, beside: usize) {
        memory.hold(message);
        memory.add(beside);
        self.0 += message.size() + beside;
    }

    pub(super) fn release(&mut self, memory: &mut Memory, message: &Arc<Message>, beside: usize) {
        memory.release(message);
        memory.remove(beside);
        self.0 = self.0.saturating_sub(message.size() + beside);
    }

    pub(super) const fn add(&mut self, memory: &mut Memory, bytes: usize) {
        memory.add(bytes);
        self.0 += bytes;
    }

    pub(super) const fn remove(&mut self, memory: &mut Memory, bytes: usize) {
        memory.remove(bytes);
        self.0 = self.0.saturating_sub(bytes);
    }

    /// Other bytes than before.
    pub(super) const fn change(&mut self, memory: &mut Memory, before: usize, after: usize) {
        self.add(memory, after);
        self.remove(memory, before);
    }
}
