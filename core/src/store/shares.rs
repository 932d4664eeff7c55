//! What each verified client holds of the stored values: the sum over the keys that it wrote last.
//!
//! Verified clients fill it, each with one entry of fixed size for as long as it holds a key, so there are never more
//! entries than keys.

use core::hash::BuildHasher;
use core::num::NonZeroU64;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use super::Principal;

/// A verified client, by the seeded hash of its id: a name may have 65,535 bytes, and each key names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(NonZeroU64);

impl Owner {
    /// `None` for a name that is only claimed.
    pub(super) fn of(from: Principal<'_>, hash: &FixedState) -> Option<Self> {
        let client_id = from.client_id().filter(|_| from.is_verified())?;
        Some(Self(NonZeroU64::new(hash.hash_one(client_id)).unwrap_or(NonZeroU64::MIN)))
    }
}

/// Keys, and the bytes of them and their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

/// What counts for one verified client, against its [share](crate::limits::StoreLimits::client_percent).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holding {
    /// Keys that it wrote last, those included that have expired and were not removed yet.
    pub keys: usize,
    /// Bytes of these keys and their values.
    pub bytes: usize,
    /// Registrations for notifications.
    pub watches: usize,
    /// Bytes of their keys and of its client id, once for each.
    pub watch_bytes: usize,
}

/// What each owner holds.
#[derive(Debug)]
pub(super) struct Shares {
    held: HashTable<(Owner, Held)>,
}

impl Shares {
    pub(super) const fn new() -> Self {
        Self { held: HashTable::new() }
    }

    /// What an owner holds.
    pub(super) fn of(&self, owner: Owner) -> Held {
        let found = self.held.find(owner.0.get(), |(other, _)| *other == owner);
        found.map_or_else(Held::default, |(_, held)| *held)
    }

    /// Counts a value of so many bytes, key included.
    pub(super) fn add(&mut self, owner: Option<Owner>, bytes: usize) {
        let Some(owner) = owner else { return };
        let hash = owner.0.get();
        let is_same = |(other, _): &(Owner, Held)| *other == owner;
        let entry = self.held.entry(hash, is_same, |(other, _)| other.0.get());
        let mut entry = entry.or_insert((owner, Held::default()));
        let (_, held) = entry.get_mut();
        held.keys += 1;
        held.bytes += bytes;
    }

    /// Counts it no more.
    pub(super) fn remove(&mut self, owner: Option<Owner>, bytes: usize) {
        let Some(owner) = owner else { return };
        let found = self.held.find_entry(owner.0.get(), |(other, _)| *other == owner);
        let Ok(mut entry) = found else { return };
        let (_, held) = entry.get_mut();
        held.keys -= 1;
        held.bytes -= bytes;
        if held.keys == 0 {
            entry.remove();
        }
    }
}
