//! The keys whose records are not persisted yet.

use alloc::collections::VecDeque;
use hashbrown::HashTable;

use super::keyed_hash::KeyedHash;

/// The unit that packets about a key wait for, until it is persisted. There are at most as many
/// keys as records in the batches that are not persisted yet, and as writes without a record while
/// a reservation of versions is persisted. Each of these has a queued response.
///
/// Keys are identified by their hash. A collision only delays: packets about one key then also wait
/// for the records of the other.
#[derive(Debug)]
pub(super) struct UnpersistedKeys {
    hash: KeyedHash,
    /// The units by the hashes of their keys.
    units: HashTable<(u64, u64)>,
    /// Units and hashes of keys in the order in which they were inserted.
    order: VecDeque<(u64, u64)>,
}

impl UnpersistedKeys {
    pub(super) fn new(seed: u64) -> Self {
        Self { hash: KeyedHash::new(seed), units: HashTable::new(), order: VecDeque::new() }
    }

    /// The unit that an output about this key waits for.
    #[inline]
    pub(super) fn unit_of(&self, key: &[u8]) -> Option<u64> {
        if self.units.is_empty() {
            return None;
        }
        let hash = self.hash.hash_one(key);
        self.units.find(hash, |(other, _)| *other == hash).map(|(_, unit)| *unit)
    }

    /// The unit that an output about all keys waits for.
    pub(super) fn last(&self) -> Option<u64> {
        self.order.back().map(|(unit, _)| *unit)
    }

    pub(super) fn insert(&mut self, unit: u64, key: &[u8]) {
        let hash = self.hash.hash_one(key);
        let is_same = |(other, _): &(u64, u64)| *other == hash;
        let mut entry =
            self.units.entry(hash, is_same, |(other, _)| *other).or_insert((hash, unit));
        entry.get_mut().1 = unit;
        if self.order.back() != Some(&(unit, hash)) {
            self.order.push_back((unit, hash));
        }
    }

    /// Removes the units up to `persisted`.
    pub(super) fn remove_through(&mut self, persisted: u64) {
        while let Some((unit, hash)) = self.order.front().copied() {
            if unit > persisted {
                return;
            }
            self.order.pop_front();
            match self.units.find_entry(hash, |(other, _)| *other == hash) {
                Ok(entry) if entry.get().1 <= persisted => _ = entry.remove(),
                _ => {}
            }
        }
    }
}
