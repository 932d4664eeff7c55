//! The usage of each owner: the number of its keys or registrations, and their bytes.

use core::num::NonZeroU64;

use hashbrown::HashTable;

use super::Principal;
use super::keyed_hash::KeyedHash;
use crate::invariant::invariant;

/// A verified client, or the [owner](Principal::owner) that it belongs to, identified by a seeded
/// hash of its name: many entries have an owner, and a name may be 65,535 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(NonZeroU64);

impl Owner {
    /// The owner for a principal; `None` for an unverified one.
    pub(super) fn of(principal: Principal<'_>, hash: &KeyedHash) -> Option<Self> {
        let client_id = principal.client_id().filter(|_| principal.is_verified())?;
        // An owner and a client id with the same text are different owners.
        let hash = hash.hash_one(principal.owner().ok_or(client_id));
        Some(Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)))
    }
}

/// A number of keys or registrations, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// The usage of one verified client, which counts against its
/// [share](crate::limits::StoreLimits::client_percent).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientUsage {
    /// Keys that the client wrote last, including expired ones that were not removed yet.
    pub keys: usize,
    /// Bytes of these keys and their values.
    pub bytes: usize,
    /// Registrations.
    pub registrations: usize,
    /// Bytes of their keys and of the client id, which counts once for each.
    pub registration_bytes: usize,
}

/// The usage of each owner. Verified clients fill it, with one row of fixed size for each owner, so
/// there are never more rows than keys or registrations.
#[derive(Debug)]
pub(super) struct UsageTable {
    rows: HashTable<(Owner, Usage)>,
}

impl UsageTable {
    pub(super) const fn new() -> Self {
        Self { rows: HashTable::new() }
    }

    pub(super) fn get(&self, owner: Owner) -> Usage {
        let found = self.rows.find(owner.0.get(), |(other, _)| *other == owner);
        found.map_or_else(Usage::default, |(_, usage)| *usage)
    }

    /// Counts a value or a registration; `bytes` includes the key.
    pub(super) fn add(&mut self, owner: Option<Owner>, bytes: usize) {
        let Some(owner) = owner else { return };
        let hash = owner.0.get();
        let is_same = |(other, _): &(Owner, Usage)| *other == owner;
        let entry = self.rows.entry(hash, is_same, |(other, _)| other.0.get());
        let mut entry = entry.or_insert((owner, Usage::default()));
        let (_, usage) = entry.get_mut();
        usage.count += 1;
        usage.bytes += bytes;
    }

    /// Subtracts what was counted before.
    pub(super) fn remove(&mut self, owner: Option<Owner>, bytes: usize) {
        let Some(owner) = owner else { return };
        let found = self.rows.find_entry(owner.0.get(), |(other, _)| *other == owner);
        let Some(mut entry) = invariant(found.ok()) else { return };
        let (_, usage) = entry.get_mut();
        usage.count -= 1;
        usage.bytes -= bytes;
        if usage.count == 0 {
            entry.remove();
        }
    }
}
