//! Events that were not polled yet.

use alloc::collections::VecDeque;

use super::Event;
use crate::limits::ClientLimits;

/// A queue in which completions always fit, since their number is limited elsewhere.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    max: usize,
}

impl EventQueue {
    /// A queue for at least one event.
    pub(super) fn new(limits: &ClientLimits) -> Self {
        let max = limits.events_max.saturating_add(limits.pending_max).max(1);
        Self { events: VecDeque::new(), max }
    }

    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= self.max
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Appends the event unless the queue is full; returns whether it was appended.
    pub(super) fn try_push(&mut self, event: Event) -> bool {
        let has_capacity = !self.is_full();
        if has_capacity {
            self.push(event);
        }
        has_capacity
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
