//! A set of deadlines in order of time, with O(1) access to the earliest.

use alloc::collections::BTreeSet;

use crate::time::Instant;

/// A set of deadlines. Insertion and removal are O(log n), the earliest is O(1).
#[derive(Clone, Debug)]
pub(crate) struct Deadlines<T> {
    set: BTreeSet<(Instant, T)>,
    next: Option<Instant>,
}

impl<T: Ord + Copy> Deadlines<T> {
    pub(crate) const fn new() -> Self {
        Self { set: BTreeSet::new(), next: None }
    }

    /// Inserts a deadline. The last instant means never and is not inserted: a deadline that can
    /// only be set to the same time again would always be due.
    pub(crate) fn insert(&mut self, at: Instant, item: T) {
        if at == Instant::from_millis(u64::MAX) {
            return;
        }
        self.set.insert((at, item));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    pub(crate) fn remove(&mut self, at: Instant, item: T) {
        self.set.remove(&(at, item));
        self.refresh();
    }

    /// Removes one item that is due at `now`, the earliest first; equal times in order of the
    /// items.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next? > now {
            return None;
        }
        let (_, item) = self.set.pop_first()?;
        self.refresh();
        Some(item)
    }

    pub(crate) const fn next(&self) -> Option<Instant> {
        self.next
    }

    fn refresh(&mut self) {
        self.next = self.set.first().map(|(at, _)| *at);
    }
}
