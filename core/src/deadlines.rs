//! A set of deadlines in order of time.

use alloc::collections::BTreeSet;

use crate::time::Instant;

/// A set of deadlines. Each call takes O(log n).
#[derive(Clone, Debug)]
pub(crate) struct Deadlines<T>(BTreeSet<(Instant, T)>);

impl<T: Ord + Copy> Deadlines<T> {
    pub(crate) const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Inserts a deadline. The last instant means never and is not inserted: a deadline that can
    /// only be set to the same time again would always be due.
    pub(crate) fn insert(&mut self, at: Instant, item: T) {
        if at != Instant::from_millis(u64::MAX) {
            self.0.insert((at, item));
        }
    }

    pub(crate) fn remove(&mut self, at: Instant, item: T) {
        self.0.remove(&(at, item));
    }

    /// Removes one item that is due at `now`, the earliest first; equal times in order of the
    /// items.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, item)| item)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }
}
