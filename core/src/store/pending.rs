//! Which keys have been written and are not durable yet.

use alloc::collections::VecDeque;
use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

/// The last unit of records that wrote each key, until that is durable. There are no more of them than there are records
/// in the batch that is being written and in the one that waits.
///
/// Keys are known by their hash: two keys with one hash only wait for each other.
#[derive(Debug)]
pub(super) struct Pending {
    hash: FixedState,
    /// The hash of a key, and its unit.
    keys: HashTable<(u64, u64)>,
    /// Everything that was put there, in order: a unit, and the hash of a key.
    order: VecDeque<(u64, u64)>,
}

impl Pending {
    pub(super) const fn new(seed: u64) -> Self {
        Self { hash: FixedState::with_seed(seed), keys: HashTable::new(), order: VecDeque::new() }
    }

    /// What says something of this key waits for this unit.
    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> Option<u64> {
        if self.keys.is_empty() {
            return None;
        }
        let hash = self.hash.hash_one(key);
        self.keys.find(hash, |(other, _)| *other == hash).map(|(_, unit)| *unit)
    }

    /// What says something of everything waits for this unit.
    pub(super) fn last(&self) -> Option<u64> {
        self.order.back().map(|(unit, _)| *unit)
    }

    pub(super) fn insert(&mut self, unit: u64, key: &[u8]) {
        let hash = self.hash.hash_one(key);
        let is_same = |(other, _): &(u64, u64)| *other == hash;
        let mut entry = self.keys.entry(hash, is_same, |(other, _)| *other).or_insert((hash, unit));
        entry.get_mut().1 = unit;
        if self.order.back() != Some(&(unit, hash)) {
            self.order.push_back((unit, hash));
        }
    }

    /// Forgets what is durable now.
    pub(super) fn persisted(&mut self, persisted: u64) {
        while let Some((unit, hash)) = self.order.front().copied() {
            if unit > persisted {
                return;
            }
            self.order.pop_front();
            match self.keys.find_entry(hash, |(other, _)| *other == hash) {
                Ok(entry) if entry.get().1 <= persisted => _ = entry.remove(),
                _ => {}
            }
        }
    }
}
