//! The order of keys: slots sorted by key, in runs short enough that one more costs little.
//!
//! A tree of keys would keep each of them a second time; a slot takes four bytes, and its key is in the table.

use alloc::vec::Vec;

use super::table::Slot;

/// Slots in a run. Twice as long, and an insertion moves twice as much; half as long, and there are twice as many runs.
const RUN_MAX: usize = 512;

/// Slots in the order of their keys.
#[derive(Debug)]
pub(super) struct Order {
    /// None of them empty.
    runs: Vec<Vec<Slot>>,
}

/// Where a slot is, or would be.
#[derive(Clone, Copy, Debug)]
struct Place {
    run: usize,
    at: usize,
}

impl Order {
    pub(super) const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Adds a slot that is not there yet. `key_of` knows it and all others.
    pub(super) fn insert<'a>(&mut self, slot: Slot, key_of: impl Fn(Slot) -> &'a [u8]) {
        if self.runs.is_empty() {
            self.runs.push(Vec::new());
        }
        let Place { mut run, mut at } = self.place(key_of(slot), key_of);
        let is_last = run + 1 == self.runs.len();
        let Some(slots) = self.runs.get_mut(run) else { return };
        if slots.len() == RUN_MAX {
            // Keys that come in order leave full runs behind.
            let half = if is_last && at == RUN_MAX { RUN_MAX } else { RUN_MAX / 2 };
            let behind = slots.split_off(half);
            self.runs.insert(run + 1, behind);
            if at >= half {
                (run, at) = (run + 1, at - half);
            }
        }
        if let Some(slots) = self.runs.get_mut(run) {
            slots.insert(at, slot);
        }
    }

    /// Removes a slot, whose key `key_of` still knows.
    pub(super) fn remove<'a>(&mut self, slot: Slot, key_of: impl Fn(Slot) -> &'a [u8]) {
        let Place { run, at } = self.place(key_of(slot), key_of);
        let Some(slots) = self.runs.get_mut(run).filter(|slots| slots.get(at) == Some(&slot))
        else {
            return;
        };
        slots.remove(at);
        if slots.is_empty() {
            self.runs.remove(run);
        } else {
            self.join(run);
        }
        if let Some(before) = run.checked_sub(1) {
            self.join(before);
        }
    }

    /// Makes one of a run and the next, if they fit into half a run. So runs are a quarter full on the average, at least.
    fn join(&mut self, run: usize) {
        let both = || Some(self.runs.get(run)?.len() + self.runs.get(run + 1)?.len());
        if both().is_some_and(|both| both <= RUN_MAX / 2) {
            let behind = self.runs.remove(run + 1);
            if let Some(slots) = self.runs.get_mut(run) {
                slots.extend(behind);
            }
        }
    }

    /// The slots whose keys are not less than `key`, in order.
    pub(super) fn from<'a>(
        &self,
        key: &[u8],
        key_of: impl Fn(Slot) -> &'a [u8],
    ) -> impl Iterator<Item = Slot> {
        let Place { run, at } = self.place(key, key_of);
        let first = self.runs.get(run).and_then(|slots| slots.get(at..)).unwrap_or_default();
        let rest = self.runs.get(run + 1..).unwrap_or_default();
        first.iter().chain(rest.iter().flatten()).copied()
    }

    /// The first place whose key is not less than `key`. Past the last key it is the end of the last run.
    fn place<'a>(&self, key: &[u8], key_of: impl Fn(Slot) -> &'a [u8]) -> Place {
        let is_less = |slot: &Slot| key_of(*slot) < key;
        let run = self.runs.partition_point(|slots| slots.last().is_some_and(is_less));
        let run = run.min(self.runs.len().saturating_sub(1));
        let at = self.runs.get(run).map_or(0, |slots| slots.partition_point(is_less));
        Place { run, at }
    }
}
