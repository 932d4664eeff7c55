//! Cached responses in their order.

use alloc::collections::VecDeque;

use super::Entry;
use crate::slab::{Slab, Slot};

/// Entries in the order of their request numbers, the oldest first.
///
/// An entry that is removed out of order stays until it is the oldest, or until such entries are
/// more than half.
#[derive(Debug, Default)]
pub(super) struct Queue {
    slots: VecDeque<(u64, Slot)>,
    /// The number of entries that were removed out of order.
    outdated: usize,
}

impl Queue {
    /// Adds an entry that is newer than all others.
    pub(super) fn push(&mut self, number: u64, slot: Slot) {
        self.slots.push_back((number, slot));
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        self.slots.front().map(|(_, slot)| *slot)
    }

    pub(super) fn oldest_number(&self) -> Option<u64> {
        self.slots.front().map(|(number, _)| *number)
    }

    /// Removes the entry with this number, which `entries` no longer contains.
    pub(super) fn remove(&mut self, number: u64, entries: &Slab<Entry>) {
        if self.slots.front().is_some_and(|(oldest, _)| *oldest == number) {
            self.slots.pop_front();
        } else {
            self.outdated += 1;
        }
        let is_current = |(number, slot): &(u64, Slot)| {
            entries.get(*slot).is_some_and(|entry| entry.number == *number)
        };
        while self.outdated > 0 && self.slots.front().is_some_and(|front| !is_current(front)) {
            self.slots.pop_front();
            self.outdated -= 1;
        }
        if self.outdated > self.slots.len() / 2 {
            self.slots.retain(is_current);
            self.outdated = 0;
        }
        if self.slots.capacity() > 4 * self.slots.len() + 64 {
            self.slots.shrink_to(2 * self.slots.len());
        }
    }
}
