//! The usage of each verified client: the keys that it wrote last, and their bytes.

use core::num::NonZeroU64;

use hashbrown::HashTable;

use crate::store::Principal;
use crate::store::keyed_hash::KeyedHash;

/// A verified client, identified by a seeded hash of its id. Each entry names its owner, and an id
/// may be 65,535 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Owner(NonZeroU64);

impl Owner {
    /// The owner for a principal; `None` for an unverified one.
    pub(super) fn of(principal: Principal<'_>, hash: &KeyedHash) -> Option<Self> {
        let client_id = principal.client_id().filter(|_| principal.is_verified())?;
        Some(Self(NonZeroU64::new(hash.hash_one(client_id)).unwrap_or(NonZeroU64::MIN)))
    }
}

/// A number of keys, and the bytes of these keys and their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct KeyUsage {
    pub(in crate::store) keys: usize,
    pub(in crate::store) bytes: usize,
}

/// The usage of each owner. Verified clients fill it, with one row of fixed size for each that owns
/// a key, so there are never more rows than keys.
#[derive(Debug)]
pub(super) struct UsageTable {
    rows: HashTable<(Owner, KeyUsage)>,
}

impl UsageTable {
    pub(super) const fn new() -> Self {
        Self { rows: HashTable::new() }
    }

    pub(super) fn get(&self, owner: Owner) -> KeyUsage {
        let found = self.rows.find(owner.0.get(), |(other, _)| *other == owner);
        found.map_or_else(KeyUsage::default, |(_, usage)| *usage)
    }

    /// Counts a value; `bytes` includes the key.
    pub(super) fn add(&mut self, owner: Option<Owner>, bytes: usize) {
        let Some(owner) = owner else { return };
        let hash = owner.0.get();
        let is_same = |(other, _): &(Owner, KeyUsage)| *other == owner;
        let entry = self.rows.entry(hash, is_same, |(other, _)| other.0.get());
        let mut entry = entry.or_insert((owner, KeyUsage::default()));
        let (_, usage) = entry.get_mut();
        usage.keys += 1;
        usage.bytes += bytes;
    }

    /// Subtracts a value that was counted before.
    pub(super) fn remove(&mut self, owner: Option<Owner>, bytes: usize) {
        let Some(owner) = owner else { return };
        let found = self.rows.find_entry(owner.0.get(), |(other, _)| *other == owner);
        let Ok(mut entry) = found else { return };
        let (_, usage) = entry.get_mut();
        usage.keys -= 1;
        usage.bytes -= bytes;
        if usage.keys == 0 {
            entry.remove();
        }
    }
}
