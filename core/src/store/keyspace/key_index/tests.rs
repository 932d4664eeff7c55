use alloc::collections::BTreeMap;
use alloc::{format, vec};
use core::cell::Cell;

use super::*;
use crate::slab::Slab;

/// A deterministic pseudo-random generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// An index, the keys of its slots, and the model that it must agree with.
struct Both {
    index: KeyIndex,
    keys: Slab<Vec<u8>>,
    model: BTreeMap<Vec<u8>, Slot>,
    reads: Cell<usize>,
}

impl Both {
    fn new() -> Self {
        let (keys, model) = (Slab::new(), BTreeMap::new());
        Self { index: KeyIndex::new(), keys, model, reads: Cell::new(0) }
    }

    fn insert(&mut self, key: Vec<u8>) {
        let slot = self.keys.insert(key.clone()).unwrap();
        self.model.insert(key, slot);
        let Self { index, keys, reads, .. } = self;
        index.insert(slot, |slot| read(keys, reads, slot));
    }

    fn remove(&mut self, key: &[u8]) {
        let slot = self.model.remove(key).unwrap();
        let Self { index, keys, reads, .. } = self;
        index.remove(slot, |slot| read(keys, reads, slot));
        keys.remove(slot);
    }

    fn toggle(&mut self, key: Vec<u8>) {
        if self.model.contains_key(&key) { self.remove(&key) } else { self.insert(key) }
    }

    /// Removes the first, the last, or any key.
    fn remove_at(&mut self, at: usize) {
        let key = self.model.keys().nth(at).unwrap().clone();
        self.remove(&key);
    }

    /// Compares the range from a key with that of the model, over a few leaves.
    fn check_from(&self, key: &[u8]) {
        let found = self.index.range_from(key, |slot| read(&self.keys, &self.reads, slot));
        let expected = self.model.range(key.to_vec()..).map(|(_, slot)| *slot);
        assert!(found.take(150).eq(expected.take(150)), "{key:?}");
    }

    /// Checks the order, the critical bits, the prefixes and the fill of all nodes.
    fn check(&self) {
        let all = self.index.range_from(b"", |slot| read(&self.keys, &self.reads, slot));
        assert!(all.eq(self.model.values().copied()));
        assert_ne!(self.index.root.children.len(), 1, "a root with one child");
        self.check_node(&self.index.root);
    }

    fn check_node(&self, Node { items, children }: &Node) {
        let key = |slot: Slot| read(&self.keys, &self.reads, slot);
        assert!(items.len() < NODE_MAX);
        for (before, item) in items.iter().zip(items.iter().skip(1)) {
            assert_eq!(CriticalBit::of(key(before.slot), key(item.slot)), Some(item.critical_bit));
        }
        assert!(children.is_empty() || children.len() == items.len());
        for (item, Child { prefix, node }) in items.iter().zip(children) {
            assert_eq!(node.first(), Some(item.slot));
            let len = usize::from(prefix.len);
            assert_eq!(len, key(item.slot).len().min(KeyPrefix::MAX));
            assert!(key(item.slot).starts_with(&prefix.bytes[..len]));
            self.check_node(node);
        }
        for both in children.windows(2) {
            assert!(both.iter().map(|child| child.node.items.len()).sum::<usize>() > NODE_MAX / 2);
        }
    }

    fn height(&self) -> usize {
        let (mut height, mut node) = (1, &self.index.root);
        while let Some(child) = node.children.first() {
            (height, node) = (height + 1, &child.node);
        }
        height
    }
}

fn read<'a>(keys: &'a Slab<Vec<u8>>, reads: &Cell<usize>, slot: Slot) -> &'a [u8] {
    reads.set(reads.get() + 1);
    keys.get(slot).unwrap()
}

/// Generators of keys of different shapes.
fn kinds() -> [fn(&mut Numbers) -> Vec<u8>; 5] {
    [
        |any| (0..any.below(7)).map(|_| [0, 1, 127, 128, 255][any.below(5)]).collect(),
        |any| format!("rooms/{:06}", any.below(3_000)).into_bytes(),
        |any| format!("lines/{}/cells/{}/oven", any.below(60), any.below(60)).into_bytes(),
        // Each key is a prefix of another, also around the length of a stored prefix.
        |any| vec![0; any.below(200)],
        |any| {
            [
                vec![b'k'; [15, 16, 62, 63, 64, 900][any.below(6)]],
                vec![0, 0, 1][any.below(3)..].to_vec(),
                any.below(400).to_be_bytes().to_vec(),
            ]
            .concat()
        },
    ]
}

#[test]
fn index_agrees_with_an_ordered_map() {
    for (seed, key) in (1..).zip(kinds()) {
        let mut any = Numbers(seed);
        let mut both = Both::new();
        for turn in 0..8_000 {
            both.toggle(key(&mut any));
            if turn % 50 == 0 {
                both.check_from(&key(&mut any));
            }
            if turn % 1_000 == 0 {
                both.check();
            }
        }
        while !both.model.is_empty() {
            both.remove_at(any.below(both.model.len().min(300)));
            if both.model.len() % 200 == 0 {
                both.check();
            }
        }
        assert!(both.index.root.items.is_empty() && both.index.root.children.is_empty());
    }
}

#[test]
fn keys_inserted_in_order_fill_nodes_and_empty_nodes_are_removed() {
    let key = |number: u32| number.to_be_bytes().to_vec();
    for is_up in [true, false] {
        for removes_first in [true, false] {
            let mut both = Both::new();
            (0..10_000).for_each(|turn| both.insert(key(if is_up { turn } else { 9_999 - turn })));
            both.check();
            let leaves: usize =
                both.index.root.children.iter().map(|child| child.node.items.len()).sum();
            assert_eq!((both.height(), leaves), (3, if is_up { 159 } else { 313 }));
            while let Some(last) = both.model.len().checked_sub(1) {
                both.remove_at(if removes_first { 0 } else { last });
                if last % 1_000 == 0 {
                    both.check();
                }
            }
            assert!(both.index.root.items.is_empty() && both.index.root.children.is_empty());
        }
    }
}

#[test]
fn operation_on_the_index_reads_few_keys() {
    for prefix in [0, 40, 2_000] {
        let key = |number| [vec![b'p'; prefix], format!("{number:08}").into_bytes()].concat();
        let mut any = Numbers(3);
        let mut both = Both::new();
        (0..20_000).for_each(|number| both.insert(key(number)));
        both.reads.set(0);
        for _ in 0..1_000 {
            let key = key(any.below(20_000));
            both.remove(&key);
            both.insert(key);
        }
        // A removal and an insertion each read their own key once per node, and one other key in
        // the leaf. The rest updates critical bits.
        let most = if prefix < KeyPrefix::MAX - 8 { 9_500 } else { 13_500 };
        assert!(both.reads.get() < most, "{prefix}: {}", both.reads.get());
    }
}

#[test]
fn removing_an_absent_slot_changes_nothing() {
    let mut keys = Slab::new();
    let (one, two) = (keys.insert("one").unwrap(), keys.insert("two").unwrap());
    let key_of = |slot| keys.get(slot).unwrap().as_bytes();
    let mut index = KeyIndex::new();
    index.remove(one, key_of);
    index.insert(one, key_of);
    index.remove(two, key_of);
    index.remove(two, |_| b"one");
    assert!(index.range_from(b"", key_of).eq([one]));
    index.insert(two, |_| b"one");
    assert!(index.range_from(b"", key_of).eq([one]), "one slot per key");
}

#[test]
fn critical_bit_is_set_in_the_greater_key() {
    let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\0a", b"a", b"a\0", b"a\xff", b"b"];
    for (at, less) in keys.iter().enumerate() {
        assert_eq!(CriticalBit::of(less, less), None);
        for greater in &keys[at + 1..] {
            let bit = CriticalBit::of(less, greater).unwrap();
            assert_eq!(CriticalBit::of(greater, less), Some(bit));
            assert!(bit.is_set_in(greater) && !bit.is_set_in(less));
        }
    }
    assert!(CriticalBit::of(b"ab", b"b") < CriticalBit::of(b"ab", b"ac"));
    assert!(CriticalBit::of(b"a", b"ab") < CriticalBit::of(b"aa", b"ab"));
}
