//! The keys of a store: values, expiries, the order of keys, and what each client uses.

mod entry;
mod stored;
mod totals;

use alloc::collections::BTreeMap;
use core::ops::Bound;

use entry::Key;
pub(super) use entry::{Entry, Meta};
use hashbrown::HashTable;
pub use stored::StoredEntry;
pub(super) use totals::KeyTotals;

use super::keyed_hash::KeyedHash;
use super::usage::{Owner, Usage, UsageTable};
use super::{Durability, Principal};
use crate::deadlines::Deadlines;
use crate::hlc::{Hlc, NodeId};
use crate::invariant::invariant;
use crate::limits::StoreLimits;
use crate::rules::{Exceeded, Limit};
use crate::slab::{Slab, Slot};
use crate::time::Instant;

/// All keys. Writers fill it, up to the limits that [`check_quota`](Self::check_quota) compares.
pub(super) struct Keyspace {
    /// The node id under which the store issues versions.
    node: NodeId,
    entries: Slab<Entry>,
    /// The entries by the hash of their keys. Never iterated.
    by_hash: HashTable<Slot>,
    /// The entries in the order of their keys. A long key shares its memory with its entry.
    by_key: BTreeMap<Key, Slot>,
    expiries: Deadlines<Slot>,
    hash: KeyedHash,
    bytes: usize,
    /// True if only the keys whose value asks for durability have records.
    records_requested_only: bool,
    /// The keys with a record.
    recorded: KeyTotals,
    usage: UsageTable,
}

impl Keyspace {
    pub(super) fn new(seed: u64, node: NodeId, durability: Durability) -> Self {
        Self {
            node,
            entries: Slab::new(),
            by_hash: HashTable::new(),
            by_key: BTreeMap::new(),
            expiries: Deadlines::new(),
            hash: KeyedHash::new(seed),
            bytes: 0,
            records_requested_only: durability == Durability::Requested,
            recorded: KeyTotals::default(),
            usage: UsageTable::new(),
        }
    }

    /// The number of keys, including expired ones that were not removed yet.
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Bytes of all keys and values.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The keys with a record, which are those of a snapshot. A store without records has snapshots
    /// of all keys.
    pub(super) const fn recorded(&self) -> KeyTotals {
        self.recorded
    }

    /// The owner for whom a value of this principal counts; `None` for an unverified principal.
    pub(super) fn owner_of(&self, principal: Principal<'_>) -> Option<Owner> {
        Owner::of(principal, &self.hash)
    }

    /// The keys and bytes that count for an owner.
    pub(super) fn usage_of(&self, owner: Option<Owner>) -> Usage {
        owner.map(|owner| self.usage.get(owner)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        let is_same = |slot: &Slot| key_at(&self.entries, *slot) == key;
        self.by_hash.find(self.hash.hash_one(key), is_same).copied()
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot)
    }

    /// The entry of a key, whether it has expired or not.
    pub(super) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.get(self.find(key)?)
    }

    /// The version of an entry.
    pub(super) fn version_of(&self, entry: &Entry) -> Hlc {
        entry.version(&self.node)
    }

    /// Stores a value. `slot` is the result of [`find`](Self::find) for the key.
    pub(super) fn put(&mut self, slot: Option<Slot>, key: &[u8], value: &[u8], meta: Meta<'_>) {
        let expires = meta.expires;
        let slot = match slot {
            Some(slot) => {
                self.replace(slot, value, meta);
                Some(slot)
            }
            None => self.insert(key, value, meta),
        };
        if let Some((at, slot)) = expires.zip(slot) {
            self.expiries.insert(at, slot);
        }
    }

    fn insert(&mut self, key: &[u8], value: &[u8], meta: Meta<'_>) -> Option<Slot> {
        let key = Key::new(key);
        let mut entry = Entry::new(key.clone(), value);
        entry.set_meta(meta, &self.node);
        let (owner, len) = (entry.owner(), entry.len());
        self.recorded.add(entry.totals(self.records_requested_only));
        let slot = invariant(self.entries.insert(entry))?;
        let rehash = |slot: &Slot| self.hash.hash_one(key_at(&self.entries, *slot));
        self.by_hash.insert_unique(self.hash.hash_one(key.as_bytes()), slot, rehash);
        self.by_key.insert(key, slot);
        self.bytes += len;
        self.usage.add(owner, len);
        Some(slot)
    }

    fn replace(&mut self, slot: Slot, value: &[u8], meta: Meta<'_>) {
        self.remove_deadline(slot);
        let Some(entry) = invariant(self.entries.get_mut(slot)) else { return };
        self.bytes -= entry.len();
        self.usage.remove(entry.owner(), entry.len());
        self.recorded.subtract(entry.totals(self.records_requested_only));
        entry.replace_value(value);
        entry.set_meta(meta, &self.node);
        self.bytes += entry.len();
        self.usage.add(entry.owner(), entry.len());
        self.recorded.add(entry.totals(self.records_requested_only));
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        self.remove_deadline(slot);
        let key = key_at(&self.entries, slot);
        let found = self.by_hash.find_entry(self.hash.hash_one(key), |other| *other == slot);
        invariant(found.ok())?.remove();
        let entry = invariant(self.entries.remove(slot))?;
        self.by_key.remove(entry.ordered_key());
        self.bytes -= entry.len();
        self.recorded.subtract(entry.totals(self.records_requested_only));
        self.usage.remove(entry.owner(), entry.len());
        Some(entry)
    }

    fn remove_deadline(&mut self, slot: Slot) {
        if let Some(at) = self.entries.get(slot).and_then(Entry::expires) {
            self.expiries.remove(at, slot);
        }
    }

    /// When the next value expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.next()
    }

    /// The slot of a value that has expired at `now`, each one once and the earliest first.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Slot> {
        self.expiries.pop_due(now)
    }

    /// The entries whose keys are not less than `key`, in the order of their keys.
    pub(super) fn range_from(&self, key: &[u8]) -> impl Iterator<Item = &Entry> {
        let slots = self.by_key.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        slots.filter_map(|(_, slot)| self.get(*slot))
    }

    /// All entries, in an order that depends only on the calls made.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Checks the limits for a SET. `slot` is the entry that it replaces.
    pub(super) fn check_quota(
        &self,
        limits: &StoreLimits,
        owner: Option<Owner>,
        slot: Option<Slot>,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), Exceeded> {
        Exceeded::check(Limit::KeyBytes, key.len(), limits.key_bytes_max)?;
        Exceeded::check(Limit::ValueBytes, value.len(), limits.value_bytes_max)?;
        let replaced = slot.and_then(|slot| self.get(slot));
        let (len, replaced_len) = (key.len() + value.len(), replaced.map(Entry::len));
        if replaced_len.is_none() {
            Exceeded::check(Limit::Keys, self.len() + 1, limits.keys_max)?;
        }
        // A value that takes no more bytes than the replaced one is accepted even if the store is
        // over its limit, as a restored store may be.
        if replaced_len.is_none_or(|replaced_len| len > replaced_len) {
            let needed = self.bytes - replaced_len.unwrap_or(0) + len;
            Exceeded::check(Limit::Bytes, needed, limits.bytes_max)?;
        }
        self.check_client_quota(limits, owner, replaced, len)
    }

    /// Checks the share of a verified client. It may replace its own values, and values that count
    /// for no client as long as it needs no more bytes: those may be its own, restored.
    fn check_client_quota(
        &self,
        limits: &StoreLimits,
        owner: Option<Owner>,
        replaced: Option<&Entry>,
        len: usize,
    ) -> Result<(), Exceeded> {
        let Some(owner) = owner else { return Ok(()) };
        let used = self.usage.get(owner);
        let own = replaced.filter(|entry| entry.owner() == Some(owner));
        let own_or_unowned =
            replaced.filter(|entry| entry.owner().is_none_or(|other| other == owner));
        if own_or_unowned.is_none() {
            let max = limits.share_of(limits.keys_max);
            Exceeded::check(Limit::ClientKeys, used.count + 1, max)?;
        }
        if own_or_unowned.is_none_or(|entry| len > entry.len()) {
            let needed = used.bytes - own.map_or(0, Entry::len) + len;
            let max = limits.share_of(limits.bytes_max);
            Exceeded::check(Limit::ClientBytes, needed, max)?;
        }
        Ok(())
    }
}

fn key_at(entries: &Slab<Entry>, slot: Slot) -> &[u8] {
    entries.get(slot).map_or(&[], Entry::key)
}
