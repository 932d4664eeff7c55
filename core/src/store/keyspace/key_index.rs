//! The order of keys: a B-tree of slots that stores critical bits instead of keys.
//!
//! The keys are in the entries. Reading one costs two or three cache misses, and a binary search
//! among a million keys reads twenty. This tree reads one key per node, so four among a million.
//! Above the leaves it reads a key only if many keys share a long prefix.
//!
//! For each two neighbours the tree stores their critical bit: the first bit in which they differ.
//! A search follows these bits to an item whose common prefix with the wanted key is as long as
//! that of any other item. A comparison with this one key gives the position. This is the Bit-Tree
//! of Ferguson (1992); the search within a node is that of a Patricia trie.
//!
//! An item takes eight bytes. A long common prefix of the keys costs one comparison per node.

use alloc::vec::Vec;
use core::{mem, slice};

use crate::slab::Slot;

/// A node with this many items is split. A search reads all items of a node: more items make that
/// slower, fewer make the tree higher. A power of two, like the capacity of a growing [`Vec`].
const NODE_MAX: usize = 64;

/// Slots in the order of their keys. Callers pass `key_of`, which returns the key of a slot.
#[derive(Debug)]
pub(super) struct KeyIndex {
    root: Node,
}

/// A leaf, or a node with children. Only the root can be empty.
#[derive(Debug)]
struct Node {
    /// In a leaf its slots, in the order of their keys; otherwise the first slot of each child.
    items: Vec<Item>,
    /// Empty in a leaf.
    children: Vec<Child>,
}

/// A slot in a node.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: Slot,
    /// The first bit in which its key differs from that of the previous item. Unused in the first
    /// item.
    critical_bit: CriticalBit,
}

/// A child of a node.
#[derive(Debug)]
struct Child {
    /// The prefix of its first key, which spares a search the access to the entry.
    prefix: KeyPrefix,
    node: Node,
}

/// The first bytes of a key, or the whole key if it is short. Longer than the common prefix of most
/// keys. Only the first key of a child has one: about one key in forty.
#[derive(Clone, Copy, Debug)]
struct KeyPrefix {
    bytes: [u8; Self::MAX],
    len: u8,
}

/// The first bit in which two keys differ. A smaller number is an earlier bit.
///
/// Each byte has sixteen numbers. The first is a bit that is set if the byte exists, the next eight
/// are its bits; so the end of a key is a difference like any other. 28 bits for the byte are
/// enough, since an MQTT packet is smaller than 2^28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CriticalBit(u32);

/// The position of a key in a node.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// The key of this item.
    At(usize),
    /// After this number of items, with the critical bit between the last of them and the key. The
    /// critical bit of the next item does not change.
    After(usize, CriticalBit),
    /// After this number of items, with the critical bit between the key and the next item. The key
    /// takes over the previous critical bit of that item.
    Before(usize, CriticalBit),
}

impl KeyIndex {
    pub(super) const fn new() -> Self {
        Self { root: Node::new() }
    }

    /// Inserts a slot whose key is not in the index.
    pub(super) fn insert<'a>(&mut self, slot: Slot, key_of: impl Fn(Slot) -> &'a [u8]) {
        if let Some(right) = self.root.insert(slot, true, &key_of) {
            let left = mem::replace(&mut self.root, Node::new());
            self.root.insert_child(0, left, &key_of);
            self.root.insert_child(1, right, &key_of);
        }
    }

    /// Removes a slot. `key_of` must still return its key.
    pub(super) fn remove<'a>(&mut self, slot: Slot, key_of: impl Fn(Slot) -> &'a [u8]) {
        self.root.remove(slot, &key_of);
        while self.root.children.len() == 1 {
            if let Some(only) = self.root.children.pop() {
                self.root = only.node;
            }
        }
    }

    /// The slots whose keys are not less than `key`, in order.
    pub(super) fn range_from<'a>(
        &self,
        key: &[u8],
        key_of: impl Fn(Slot) -> &'a [u8],
    ) -> impl Iterator<Item = Slot> {
        let mut node = &self.root;
        let mut following = Vec::new();
        loop {
            let position = node.find(key, &key_of);
            let at = position.child();
            let Some(child) = node.children.get(at) else {
                let items = node.items.get(position.lesser()..).unwrap_or_default().iter();
                return Slots { items, following };
            };
            following.push(node.children.get(at + 1..).unwrap_or_default().iter());
            node = &child.node;
        }
    }
}

/// Slots in the order of their keys.
struct Slots<'a> {
    /// The rest of a leaf.
    items: slice::Iter<'a, Item>,
    /// The nodes after it on each level, from the root down.
    following: Vec<slice::Iter<'a, Child>>,
}

impl Iterator for Slots<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        loop {
            if let Some(item) = self.items.next() {
                return Some(item.slot);
            }
            match self.following.last_mut()?.next() {
                None => _ = self.following.pop(),
                Some(Child { node, .. }) if node.children.is_empty() => {
                    self.items = node.items.iter()
                }
                Some(Child { node, .. }) => self.following.push(node.children.iter()),
            }
        }
    }
}

impl Node {
    const fn new() -> Self {
        Self { items: Vec::new(), children: Vec::new() }
    }

    fn first(&self) -> Option<Slot> {
        self.items.first().map(|item| item.slot)
    }

    /// Inserts a slot into this subtree. If the node is split, returns its right half. `is_last` is
    /// true for the last node of its level.
    fn insert<'a>(
        &mut self,
        slot: Slot,
        is_last: bool,
        key_of: &impl Fn(Slot) -> &'a [u8],
    ) -> Option<Self> {
        let position = self.find(key_of(slot), key_of);
        let (at, children) = (position.child(), self.children.len());
        if let Some(Child { node, .. }) = self.children.get_mut(at) {
            let right = node.insert(slot, is_last && at + 1 == children, key_of);
            self.update_first(at, key_of);
            if let Some(right) = right {
                self.insert_child(at + 1, right, key_of);
            }
        } else {
            self.insert_item(position, slot);
        }
        self.split(is_last)
    }

    /// Removes a slot from this subtree. Does nothing if it is not there.
    fn remove<'a>(&mut self, slot: Slot, key_of: &impl Fn(Slot) -> &'a [u8]) {
        let position = self.find(key_of(slot), key_of);
        let at = position.child();
        let Some(Child { node, .. }) = self.children.get_mut(at) else {
            if matches!(position, Position::At(_))
                && self.items.get(at).is_some_and(|item| item.slot == slot)
            {
                self.remove_item(at);
            }
            return;
        };
        node.remove(slot, key_of);
        let left = node.items.len();
        if left == 0 {
            self.children.remove(at);
            self.remove_item(at);
        } else {
            self.update_first(at, key_of);
        }
        // A node that is more than half full is never merged, so its neighbours need not be read.
        if left <= NODE_MAX / 2 {
            self.merge_with_next(at, key_of);
            if let Some(before) = at.checked_sub(1) {
                self.merge_with_next(before, key_of);
            }
        }
    }

    /// Inserts an item into a leaf.
    fn insert_item(&mut self, position: Position, slot: Slot) {
        let (at, critical_bit) = match position {
            Position::At(_) => return,
            Position::After(at, bit) => (at, bit),
            Position::Before(at, bit) => {
                let next = self.items.get_mut(at).map(|next| &mut next.critical_bit);
                (at, next.map_or(bit, |next| mem::replace(next, bit)))
            }
        };
        self.items.insert(at, Item { slot, critical_bit });
    }

    /// Removes an item, but not its child.
    fn remove_item(&mut self, at: usize) {
        let removed = self.items.remove(at);
        // The critical bit of its two neighbours is the earlier one of theirs with the item.
        if let Some(next) = self.items.get_mut(at) {
            next.critical_bit = next.critical_bit.min(removed.critical_bit);
        }
    }

    /// Inserts a child, which must not be empty.
    fn insert_child<'a>(&mut self, at: usize, node: Self, key_of: &impl Fn(Slot) -> &'a [u8]) {
        let Some(slot) = node.first() else { return };
        self.items.insert(at, Item { slot, critical_bit: CriticalBit(0) });
        self.children.insert(at, Child { prefix: KeyPrefix::of(key_of(slot)), node });
        self.update_critical_bit(at, key_of);
        self.update_critical_bit(at + 1, key_of);
    }

    /// Updates the item and prefix of a child after the first slot of the child changed.
    fn update_first<'a>(&mut self, at: usize, key_of: &impl Fn(Slot) -> &'a [u8]) {
        let both = self.children.get_mut(at).zip(self.items.get_mut(at));
        let Some((Child { prefix, node }, item)) = both else { return };
        let Some(first) = node.first().filter(|first| *first != item.slot) else { return };
        item.slot = first;
        *prefix = KeyPrefix::of(key_of(first));
        self.update_critical_bit(at, key_of);
        self.update_critical_bit(at + 1, key_of);
    }

    /// Computes the critical bit of an item again.
    fn update_critical_bit<'a>(&mut self, at: usize, key_of: &impl Fn(Slot) -> &'a [u8]) {
        let before = at.checked_sub(1).and_then(|before| self.items.get(before)).copied();
        if let Some((before, item)) = before.zip(self.items.get_mut(at)) {
            let bit = CriticalBit::of(key_of(before.slot), key_of(item.slot));
            item.critical_bit = bit.unwrap_or(item.critical_bit);
        }
    }

    /// Splits a full node and returns its right half.
    fn split(&mut self, is_last: bool) -> Option<Self> {
        if self.items.len() < NODE_MAX {
            return None;
        }
        // Keys that are inserted in order fill their nodes.
        let kept = if is_last { NODE_MAX - 1 } else { NODE_MAX / 2 };
        Some(Self {
            items: self.items.split_off(kept),
            children: self.children.split_off(kept.min(self.children.len())),
        })
    }

    /// Merges a child with the next one if both fit into half a node. So children are on average at
    /// least a quarter full, and a key that is inserted and removed repeatedly does not split and
    /// merge nodes each time.
    fn merge_with_next<'a>(&mut self, at: usize, key_of: &impl Fn(Slot) -> &'a [u8]) {
        let len = |at: usize| Some(self.children.get(at)?.node.items.len());
        let (Some(len), Some(next_len)) = (len(at), len(at + 1)) else { return };
        if len + next_len > NODE_MAX / 2 {
            return;
        }
        self.remove_item(at + 1);
        let next = self.children.remove(at + 1).node;
        if let Some(Child { node, .. }) = self.children.get_mut(at) {
            node.items.extend(next.items);
            node.children.extend(next.children);
            node.update_critical_bit(len, key_of);
        }
    }

    /// Finds the position of a key. Reads the key of one item.
    fn find<'a>(&self, key: &[u8], key_of: &impl Fn(Slot) -> &'a [u8]) -> Position {
        let nearest = self.nearest(key);
        let Some(item) = self.items.get(nearest) else {
            return Position::After(0, CriticalBit(0));
        };
        let prefix = self.children.get(nearest).and_then(|child| child.prefix.instead_of(key));
        let other = prefix.unwrap_or_else(|| key_of(item.slot));
        let Some(bit) = CriticalBit::of(other, key) else { return Position::At(nearest) };
        // Neighbours that differ only in a later bit are all on the same side of the key.
        let is_later = |item: &&Item| item.critical_bit > bit;
        if bit.is_set_in(key) {
            let next = self.items.get(nearest + 1..).unwrap_or_default();
            let lesser = next.iter().take_while(is_later).count();
            Position::After(nearest + 1 + lesser, bit)
        } else {
            let before = self.items.get(1..=nearest).unwrap_or_default();
            let greater = before.iter().rev().take_while(is_later).count();
            Position::Before(nearest - greater, bit)
        }
    }

    /// Finds an item whose common prefix with a key is as long as that of any other. Reads only
    /// critical bits.
    fn nearest(&self, key: &[u8]) -> usize {
        let (mut nearest, mut unset) = (0, CriticalBit(u32::MAX));
        for (at, item) in self.items.iter().enumerate().skip(1) {
            // The bit `unset` is set in the previous items, but not in the key. Items whose
            // critical bit is a later one have it too, so they are not nearer.
            if item.critical_bit <= unset {
                if item.critical_bit.is_set_in(key) {
                    (nearest, unset) = (at, CriticalBit(u32::MAX));
                } else {
                    unset = item.critical_bit;
                }
            }
        }
        nearest
    }
}

impl Position {
    /// The number of items that are less than the key.
    const fn lesser(self) -> usize {
        match self {
            Self::At(lesser) | Self::After(lesser, _) | Self::Before(lesser, _) => lesser,
        }
    }

    /// The child for the key: the last one whose first key is not greater, or the first child.
    const fn child(self) -> usize {
        match self {
            Self::At(at) => at,
            Self::After(lesser, _) | Self::Before(lesser, _) => lesser.saturating_sub(1),
        }
    }
}

impl KeyPrefix {
    const MAX: usize = 63;

    fn of(key: &[u8]) -> Self {
        let mut prefix = Self { bytes: [0; Self::MAX], len: 0 };
        for (to, byte) in prefix.bytes.iter_mut().zip(key) {
            *to = *byte;
            prefix.len += 1;
        }
        prefix
    }

    /// The prefix, if its critical bit with another key is that of the whole key.
    fn instead_of(&self, key: &[u8]) -> Option<&[u8]> {
        let bytes = self.bytes.get(..usize::from(self.len))?;
        (bytes.len() < Self::MAX || !key.starts_with(bytes)).then_some(bytes)
    }
}

impl CriticalBit {
    /// The critical bit of two keys; `None` if they are equal.
    fn of(one: &[u8], other: &[u8]) -> Option<Self> {
        let byte = common_len(one, other);
        let bit = (bits(one, byte) ^ bits(other, byte)).checked_ilog2()?;
        let byte = u32::try_from(byte).unwrap_or(u32::MAX).min(u32::MAX >> 4);
        Some(Self(byte << 4 | (8 - bit)))
    }

    /// Returns whether the bit is set in a key.
    fn is_set_in(self, key: &[u8]) -> bool {
        bits(key, (self.0 >> 4) as usize) >> (8 - (self.0 & 15)) & 1 != 0
    }
}

/// A byte of a key with a set bit above it, or zero past the end of the key.
fn bits(key: &[u8], byte: usize) -> u32 {
    key.get(byte).map_or(0, |byte| 1 << 8 | u32::from(*byte))
}

/// The length of the common prefix of two keys. Compares in steps, since keys can be long.
fn common_len(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 16;
    let steps = one.chunks_exact(STEP).zip(other.chunks_exact(STEP));
    let whole = STEP * steps.take_while(|(one, other)| one == other).count();
    let rest = one.iter().zip(other).skip(whole);
    whole + rest.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests;
