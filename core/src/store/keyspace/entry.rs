//! A stored value.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use super::KeyTotals;
use crate::hlc::{FencingToken, Hlc, NodeId};
use crate::inline::InlineBytes;
use crate::store::usage::Owner;
use crate::time::{Instant, UnixTime};

/// A key. Most are short and take no allocation.
pub(super) type Key = InlineBytes;

/// A stored value and its metadata, packed into little more than a cache line.
#[derive(Clone)]
pub(in crate::store) struct Entry {
    key: Key,
    /// A copy of the exact size, so that the payload that it came in is not kept alive.
    value: Box<[u8]>,
    /// The version without its node id, which is nearly always the store's own: milliseconds, then
    /// [`COUNTER_BITS`] of the counter. The lowest bit is [`LEASE`].
    packed: u64,
    /// The millisecond of the expiry plus one; `None` for never.
    expires: Option<NonZeroU64>,
    /// The verified client that wrote the value.
    owner: Option<Owner>,
    rare: Option<Box<Rare>>,
}

/// Flag in the packed version: the value expires and was set on a condition.
const LEASE: u64 = 1;
const COUNTER_BITS: u32 = 20;
const WALL_BITS: u32 = u64::BITS - COUNTER_BITS - 1;

/// Metadata that few entries have.
#[derive(Clone, Debug, Default)]
struct Rare {
    fence: Option<FencingToken>,
    persist: bool,
    /// The whole version, if another node issued it or it is too great for the entry.
    version: Option<Hlc>,
}

/// The metadata of an entry.
pub(in crate::store) struct Meta<'a> {
    pub(in crate::store) version: &'a Hlc,
    pub(in crate::store) persist: bool,
    pub(in crate::store) expires: Option<Instant>,
    /// True if the value expires and was set on a condition, as a lock is.
    pub(in crate::store) is_lease: bool,
    pub(in crate::store) fence: Option<FencingToken>,
    /// The verified client that writes the value.
    pub(in crate::store) owner: Option<Owner>,
}

impl Entry {
    pub(super) fn new(key: Key, value: &[u8]) -> Self {
        Self { key, value: value.into(), packed: 0, expires: None, owner: None, rare: None }
    }

    pub(in crate::store) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// The key, which is compared faster than its bytes.
    pub(super) const fn ordered_key(&self) -> &Key {
        &self.key
    }

    pub(in crate::store) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The version; `node` is the store's own node id.
    pub(in crate::store) fn version(&self, node: &NodeId) -> Hlc {
        let own = || {
            let wall = UnixTime::from_millis(self.packed >> (COUNTER_BITS + 1));
            let counter = (self.packed >> 1) & ((1 << COUNTER_BITS) - 1);
            Hlc::new(wall, counter, node.clone())
        };
        self.rare.as_deref().and_then(|rare| rare.version.clone()).unwrap_or_else(own)
    }

    pub(in crate::store) fn fence(&self) -> Option<&FencingToken> {
        self.rare.as_deref()?.fence.as_ref()
    }

    pub(in crate::store) fn is_persistent(&self) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.persist)
    }

    pub(in crate::store) const fn is_lease(&self) -> bool {
        self.packed & LEASE != 0
    }

    pub(in crate::store) fn expires(&self) -> Option<Instant> {
        self.expires.map(|after| Instant::from_millis(after.get() - 1))
    }

    pub(in crate::store) fn is_expired(&self, now: Instant) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    pub(in crate::store) const fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Bytes of key and value.
    pub(in crate::store) fn len(&self) -> usize {
        self.key().len() + self.value.len()
    }

    /// What the entry adds to the totals of keys with a record. With `requested_only`, only a value
    /// that asks for durability has one.
    pub(in crate::store) fn totals(&self, requested_only: bool) -> KeyTotals {
        if requested_only && !self.is_persistent() {
            return KeyTotals::default();
        }
        let rare = self.rare.as_deref();
        let node_len = |hlc: &Hlc| hlc.node().as_str().len();
        let fence =
            rare.and_then(|rare| rare.fence.as_ref()).map_or(0, |fence| node_len(fence.hlc()));
        let version = rare.and_then(|rare| rare.version.as_ref()).map_or(0, node_len);
        KeyTotals {
            count: 1,
            removal_bytes: self.key().len() + version,
            put_bytes: self.len() + fence + version,
        }
    }

    /// Replaces the value, in place if the new one is as long as the old one.
    pub(in crate::store) fn replace_value(&mut self, value: &[u8]) {
        if self.value.len() == value.len() {
            self.value.copy_from_slice(value);
        } else {
            self.value = value.into();
        }
    }

    pub(in crate::store) fn set_meta(&mut self, meta: Meta<'_>, node: &NodeId) {
        let Meta { version, persist, expires, is_lease, fence, owner } = meta;
        self.owner = owner;
        // The last instant means no expiry.
        self.expires =
            expires.and_then(|at| at.as_millis().checked_add(1)).and_then(NonZeroU64::new);
        let (wall, counter) = (version.wall().as_millis(), version.counter());
        let fits = version.node() == node && wall >> WALL_BITS == 0 && counter >> COUNTER_BITS == 0;
        self.packed = if fits { wall << (COUNTER_BITS + 1) | counter << 1 } else { 0 };
        self.packed |= if is_lease { LEASE } else { 0 };
        let version = (!fits).then(|| version.clone());
        let is_rare = fence.is_some() || persist || version.is_some();
        self.rare = is_rare.then(|| Box::new(Rare { fence, persist, version }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlc::NodeIdRef;

    #[test]
    fn any_version_is_kept_next_to_the_flag_of_a_lease() {
        let own = NodeId::from(NodeIdRef::STATE_STORE);
        let other = NodeId::new("other").unwrap();
        let mut entry = Entry::new(Key::new(b"k"), b"v");
        let walls = [0, 1, (1 << WALL_BITS) - 1, 1 << WALL_BITS, u64::MAX];
        let counters = [0, 1, (1 << COUNTER_BITS) - 1, 1 << COUNTER_BITS, u64::MAX];
        for (wall, counter) in walls.iter().flat_map(|wall| counters.map(|it| (*wall, it))) {
            for (node, is_lease) in [(&own, false), (&own, true), (&other, true)] {
                let hlc = Hlc::new(UnixTime::from_millis(wall), counter, node.clone());
                let (persist, expires, fence, owner) = (false, None, None, None);
                let meta = Meta { version: &hlc, persist, expires, is_lease, fence, owner };
                entry.set_meta(meta, &own);
                assert_eq!((entry.version(&own), entry.is_lease()), (hlc, is_lease));
            }
        }
    }
}
