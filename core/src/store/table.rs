//! The table of entries: a slab that iterates in a fixed order, and a hash index that is never iterated.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::hlc::{FencingToken, Version};
use crate::time::{Instant, UnixTime};

/// A stored value and what belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Key and value, in one allocation of exactly their size: one cache line fewer to touch, and nothing of the
    /// payload that they came in is kept alive.
    data: Box<[u8]>,
    key_len: usize,
    pub(super) meta: Meta,
}

/// Everything of an entry but its bytes.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) version: Version,
    pub(super) persist: bool,
    pub(super) expires: Option<Expires>,
    /// Boxed, since few entries have one.
    pub(super) fence: Option<Box<FencingToken>>,
}

/// When a value expires, by both clocks: the first decides, the second goes into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expires {
    pub(super) at: Instant,
    pub(super) unix: UnixTime,
}

impl Entry {
    fn new(key: &[u8], value: &[u8], meta: Meta) -> Self {
        let mut data = Vec::with_capacity(key.len() + value.len());
        data.extend_from_slice(key);
        data.extend_from_slice(value);
        Self { data: data.into_boxed_slice(), key_len: key.len(), meta }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.data.get(..self.key_len).unwrap_or_default()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.data.get(self.key_len..).unwrap_or_default()
    }

    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.meta.expires.is_some_and(|expires| expires.at <= now)
    }

    /// Key and value, in bytes.
    pub(super) const fn len(&self) -> usize {
        self.data.len()
    }

    /// Replaces value and meta; in place when the new value is as long as the old.
    fn replace(&mut self, value: &[u8], meta: Meta) {
        match self.data.get_mut(self.key_len..) {
            Some(room) if room.len() == value.len() => {
                room.copy_from_slice(value);
                self.meta = meta;
            }
            _ => *self = Self::new(self.key(), value, meta),
        }
    }
}

/// Where an entry lives until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

/// All entries.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Option<Entry>>,
    free: Vec<Slot>,
    index: HashTable<Slot>,
    hash: FixedState,
    bytes: usize,
}

impl Table {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hash: FixedState::with_seed(seed),
            bytes: 0,
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
        let entry = Entry::new(key, value, meta);
        self.bytes += entry.len();
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
        Some(slot)
    }

    /// Replaces the value of an entry and everything that belongs to it.
    pub(super) fn replace(&mut self, slot: Slot, value: &[u8], meta: Meta) {
        if let Some(Some(entry)) = self.slots.get_mut(slot.0 as usize) {
            self.bytes -= entry.len();
            entry.replace(value, meta);
            self.bytes += entry.len();
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let key = key_at(&self.slots, slot);
        let found = self.index.find_entry(self.hash.hash_one(key), |other| *other == slot);
        found.ok()?.remove();
        let entry = self.slots.get_mut(slot.0 as usize)?.take()?;
        self.free.push(slot);
        self.bytes -= entry.len();
        Some(entry)
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
