//! The table of entries: a slab that iterates in a fixed order, a hash index that is never iterated, and the order of
//! keys.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::num::NonZeroU64;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use super::Principal;
use super::order::Order;
use super::shares::{Held, Owner, Shares};
use crate::hlc::{FencingToken, Hlc, NodeId, Version};
use crate::time::{Instant, UnixTime};

/// A stored value and what belongs to it, packed into less than a cache line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Key and value, in one allocation of exactly their size: one cache line fewer to touch, and nothing of the
    /// payload that they came in is kept alive.
    data: Box<[u8]>,
    key_len: u32,
    /// The version without its node id, which is nearly always the store's own. The highest bit is [`LEASE`].
    counter: u32,
    wall: u64,
    /// One more than the millisecond, so that zero says never.
    expires: Option<NonZeroU64>,
    /// The verified client that wrote it.
    owner: Option<Owner>,
    rare: Option<Box<Rare>>,
}

/// Of a counter: that the value was set on a condition. No clock of ours issues a counter with this bit.
const LEASE: u32 = 1 << 31;

/// What few entries have.
#[derive(Clone, Debug, Default)]
struct Rare {
    fence: Option<FencingToken>,
    persist: bool,
    /// The whole version, when another node issued it or its counter is too great.
    version: Option<Version>,
}

/// Everything of an entry but its bytes.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) version: Version,
    pub(super) persist: bool,
    pub(super) expires: Option<Instant>,
    /// Whether it was set on a condition, and expires, as locks do.
    pub(super) is_lease: bool,
    pub(super) fence: Option<FencingToken>,
    /// The verified client that writes it.
    pub(super) owner: Option<Owner>,
}

impl Entry {
    fn new(key: &[u8], value: &[u8]) -> Self {
        let mut data = Vec::with_capacity(key.len() + value.len());
        data.extend_from_slice(key);
        data.extend_from_slice(value);
        let key_len = u32::try_from(key.len()).unwrap_or(u32::MAX);
        Self {
            data: data.into_boxed_slice(),
            key_len,
            counter: 0,
            wall: 0,
            expires: None,
            owner: None,
            rare: None,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.data.get(..self.key_len as usize).unwrap_or_default()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.data.get(self.key_len as usize..).unwrap_or_default()
    }

    /// The version; `node` is the store's own.
    fn version(&self, node: &NodeId) -> Version {
        let own = || {
            let wall = UnixTime::from_millis(self.wall);
            Version::new(Hlc::new(wall, u64::from(self.counter & !LEASE), node.clone()))
        };
        self.rare.as_deref().and_then(|rare| rare.version.clone()).unwrap_or_else(own)
    }

    pub(super) fn fence(&self) -> Option<&FencingToken> {
        self.rare.as_deref()?.fence.as_ref()
    }

    pub(super) fn is_persistent(&self) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.persist)
    }

    pub(super) const fn is_lease(&self) -> bool {
        self.counter & LEASE != 0
    }

    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires.map(|after| Instant::from_millis(after.get() - 1))
    }

    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    pub(super) const fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Key and value, in bytes.
    pub(super) const fn len(&self) -> usize {
        self.data.len()
    }

    /// Replaces the value; in place when the new one is as long as the old.
    fn replace_value(&mut self, value: &[u8]) {
        match self.data.get_mut(self.key_len as usize..) {
            Some(room) if room.len() == value.len() => room.copy_from_slice(value),
            _ => *self = Self::new(self.key(), value),
        }
    }

    fn set_meta(&mut self, meta: Meta, node: &NodeId) {
        let Meta { version, persist, expires, is_lease, fence, owner } = meta;
        self.owner = owner;
        let hlc = version.hlc();
        self.wall = hlc.wall().as_millis();
        // The end of time never comes.
        self.expires =
            expires.and_then(|at| at.as_millis().checked_add(1)).and_then(NonZeroU64::new);
        let own = hlc.node() == node;
        let counter = u32::try_from(hlc.counter()).ok().filter(|counter| own && *counter < LEASE);
        self.counter = counter.unwrap_or_default() | if is_lease { LEASE } else { 0 };
        let version = counter.is_none().then_some(version);
        let is_rare = fence.is_some() || persist || version.is_some();
        self.rare = is_rare.then(|| Box::new(Rare { fence, persist, version }));
    }
}

/// Where an entry lives until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

/// All entries.
#[derive(Debug)]
pub(super) struct Table {
    /// The store's own, under which it issues versions.
    node: NodeId,
    slots: Vec<Option<Entry>>,
    free: Vec<Slot>,
    index: HashTable<Slot>,
    order: Order,
    hash: FixedState,
    bytes: usize,
    shares: Shares,
}

impl Table {
    pub(super) const fn new(seed: u64, node: NodeId) -> Self {
        Self {
            node,
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            order: Order::new(),
            hash: FixedState::with_seed(seed),
            bytes: 0,
            shares: Shares::new(),
        }
    }

    /// How many entries there are, expired ones that no timer has removed yet included.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes of all keys and values.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whom a value that this client writes counts for.
    pub(super) fn owner_of(&self, from: Principal<'_>) -> Option<Owner> {
        Owner::of(from, &self.hash)
    }

    /// What is counted for an owner.
    pub(super) fn held_by(&self, owner: Owner) -> Held {
        self.shares.of(owner)
    }

    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        self.index.find(self.hash.hash_one(key), |slot| key_at(&self.slots, *slot) == key).copied()
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        entry_at(&self.slots, slot)
    }

    /// Stores a value under a key that `find` did not find.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Option<Slot> {
        let mut entry = Entry::new(key, value);
        entry.set_meta(meta, &self.node);
        let (owner, len) = (entry.owner, entry.len());
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                Slot(u32::try_from(self.slots.len() - 1).ok()?)
            }
        };
        *self.slots.get_mut(slot.0 as usize)? = Some(entry);
        let (slots, hash) = (&self.slots, &self.hash);
        self.index
            .insert_unique(hash.hash_one(key), slot, |slot| hash.hash_one(key_at(slots, *slot)));
        self.order.insert(slot, |slot| key_at(slots, slot));
        self.bytes += len;
        self.shares.add(owner, len);
        Some(slot)
    }

    /// Replaces the value of an entry and everything that belongs to it.
    pub(super) fn replace(&mut self, slot: Slot, value: &[u8], meta: Meta) {
        if let Some(Some(entry)) = self.slots.get_mut(slot.0 as usize) {
            self.bytes -= entry.len();
            self.shares.remove(entry.owner, entry.len());
            entry.replace_value(value);
            entry.set_meta(meta, &self.node);
            self.bytes += entry.len();
            self.shares.add(entry.owner, entry.len());
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let key = key_at(&self.slots, slot);
        let found = self.index.find_entry(self.hash.hash_one(key), |other| *other == slot);
        found.ok()?.remove();
        self.order.remove(slot, |slot| key_at(&self.slots, slot));
        let entry = self.slots.get_mut(slot.0 as usize)?.take()?;
        self.free.push(slot);
        self.bytes -= entry.len();
        self.shares.remove(entry.owner, entry.len());
        Some(entry)
    }

    /// The version of an entry.
    pub(super) fn version_of(&self, entry: &Entry) -> Version {
        entry.version(&self.node)
    }

    /// The entries whose keys are not less than `key`, in the order of their keys.
    pub(super) fn from(&self, key: &[u8]) -> impl Iterator<Item = &Entry> {
        self.order.from(key, |slot| key_at(&self.slots, slot)).filter_map(|slot| self.get(slot))
    }

    /// All entries, in an order that depends only on the calls that made the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten()
    }
}

fn entry_at(slots: &[Option<Entry>], slot: Slot) -> Option<&Entry> {
    slots.get(slot.0 as usize)?.as_ref()
}

fn key_at(slots: &[Option<Entry>], slot: Slot) -> &[u8] {
    entry_at(slots, slot).map_or(&[], Entry::key)
}
