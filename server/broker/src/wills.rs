//! Wills that are due.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::memory::Memory;
use crate::message::Message;

/// Wills that wait for their publication. They are no longer part of their sessions.
#[derive(Default)]
pub(crate) struct DueWills {
    queue: VecDeque<Arc<Message>>,
    bytes: usize,
    /// Set if the last turn left wills unpublished.
    has_backlog: bool,
}

impl DueWills {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of all waiting wills.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the last turn left wills unpublished.
    pub(crate) const fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    pub(crate) fn push(&mut self, memory: &mut Memory, will: Arc<Message>) {
        memory.hold(&will);
        self.bytes += will.size();
        self.queue.push_back(will);
    }

    /// Removes the next will. The caller releases it after its publication.
    pub(crate) fn pop(&mut self) -> Option<Arc<Message>> {
        let will = self.queue.pop_front()?;
        self.bytes -= will.size();
        Some(will)
    }

    /// Records whether the turn published all wills.
    pub(crate) fn end_turn(&mut self) {
        self.has_backlog = !self.queue.is_empty();
    }
}
