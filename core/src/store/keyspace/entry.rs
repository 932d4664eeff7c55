//! A stored value.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::KeyTotals;
use crate::hlc::{FencingToken, Hlc, NodeId, Version};
use crate::store::usage::Owner;
use crate::time::{Instant, UnixTime};

/// A stored value and its metadata, packed into less than a cache line.
#[derive(Clone, Debug)]
pub(in crate::store) struct Entry {
    /// Key and value in one allocation of their exact size: one cache line fewer to touch, and the
    /// payload that they came in is not kept alive.
    data: Box<[u8]>,
    key_len: u32,
    /// The counter of the version. The node id is nearly always the store's own and not stored
    /// here. The highest bit is [`LEASE`].
    counter: u32,
    wall: u64,
    /// The millisecond of the expiry plus one; `None` for never.
    expires: Option<NonZeroU64>,
    /// The verified client that wrote the value.
    owner: Option<Owner>,
    rare: Option<Box<Rare>>,
}

/// Flag in the counter: the value expires and was set on a condition. No clock of this crate issues
/// a counter with this bit.
const LEASE: u32 = 1 << 31;

/// Metadata that few entries have.
#[derive(Clone, Debug, Default)]
struct Rare {
    fence: Option<FencingToken>,
    persist: bool,
    /// The whole version, if another node issued it or its counter is too great for the entry.
    version: Option<Version>,
}

/// The metadata of an entry.
#[derive(Clone, Debug)]
pub(in crate::store) struct Meta {
    pub(in crate::store) version: Version,
    pub(in crate::store) persist: bool,
    pub(in crate::store) expires: Option<Instant>,
    /// True if the value expires and was set on a condition, as a lock is.
    pub(in crate::store) is_lease: bool,
    pub(in crate::store) fence: Option<FencingToken>,
    /// The verified client that writes the value.
    pub(in crate::store) owner: Option<Owner>,
}

impl Entry {
    pub(in crate::store) fn new(key: &[u8], value: &[u8]) -> Self {
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

    pub(in crate::store) fn key(&self) -> &[u8] {
        self.data.get(..self.key_len as usize).unwrap_or_default()
    }

    pub(in crate::store) fn value(&self) -> &[u8] {
        self.data.get(self.key_len as usize..).unwrap_or_default()
    }

    /// The version; `node` is the store's own node id.
    pub(in crate::store) fn version(&self, node: &NodeId) -> Version {
        let own = || {
            let wall = UnixTime::from_millis(self.wall);
            Version::new(Hlc::new(wall, u64::from(self.counter & !LEASE), node.clone()))
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
        self.counter & LEASE != 0
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
    pub(in crate::store) const fn len(&self) -> usize {
        self.data.len()
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
        let version = rare
            .and_then(|rare| rare.version.as_ref())
            .map_or(0, |version| node_len(version.hlc()));
        KeyTotals {
            count: 1,
            removal_bytes: self.key().len() + version,
            put_bytes: self.len() + fence + version,
        }
    }

    /// Replaces the value, in place if the new one is as long as the old one. The caller sets the
    /// metadata too, since a value of another length resets them.
    pub(in crate::store) fn replace_value(&mut self, value: &[u8]) {
        match self.data.get_mut(self.key_len as usize..) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            _ => *self = Self::new(self.key(), value),
        }
    }

    pub(in crate::store) fn set_meta(&mut self, meta: Meta, node: &NodeId) {
        let Meta { version, persist, expires, is_lease, fence, owner } = meta;
        self.owner = owner;
        let hlc = version.hlc();
        self.wall = hlc.wall().as_millis();
        // The last instant means never.
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
