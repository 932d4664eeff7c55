//! A heap from which any item can be removed.

use alloc::vec::Vec;

use crate::slab::Slot;

/// The number of items below each item. With four, a heap has half as many levels as with two.
const FAN_OUT: usize = 4;

/// Slots in the order of their keys, the greatest first.
///
/// Insertion, change and removal are O(log n), the first one is O(1). They call `moved` with each
/// slot whose place in the heap has changed, and with its new place; the caller stores it for the
/// next change or removal.
#[derive(Debug)]
pub(super) struct Heap<K> {
    items: Vec<(K, Slot)>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// The item with the greatest key.
    pub(super) fn first(&self) -> Option<(K, Slot)> {
        self.items.first().copied()
    }

    pub(super) fn insert(&mut self, key: K, slot: Slot, moved: impl FnMut(Slot, usize)) {
        self.items.push((key, slot));
        self.settle(self.items.len() - 1, moved);
    }

    /// Changes the key of the item at a place.
    pub(super) fn change(&mut self, place: usize, key: K, moved: impl FnMut(Slot, usize)) {
        if let Some(item) = self.items.get_mut(place) {
            item.0 = key;
            self.settle(place, moved);
        }
    }

    /// Removes the item at a place.
    pub(super) fn remove(&mut self, place: usize, moved: impl FnMut(Slot, usize)) {
        if place < self.items.len() {
            self.items.swap_remove(place);
            self.settle(place, moved);
        }
    }

    /// Moves the item at a place, whose key may be new, to its new place.
    fn settle(&mut self, mut place: usize, mut moved: impl FnMut(Slot, usize)) {
        let Some(&item) = self.items.get(place) else { return };
        while let Some(above) = place.checked_sub(1).map(|before| before / FAN_OUT) {
            let Some(&other) = self.items.get(above).filter(|(key, _)| *key < item.0) else {
                break;
            };
            self.put(place, other, &mut moved);
            place = above;
        }
        while let Some((below, other)) = self.greatest_below(place) {
            if other.0 <= item.0 {
                break;
            }
            self.put(place, other, &mut moved);
            place = below;
        }
        self.put(place, item, &mut moved);
    }

    /// The greatest one of the items below a place.
    fn greatest_below(&self, place: usize) -> Option<(usize, (K, Slot))> {
        let from = FAN_OUT * place + 1;
        let mut greatest = (from, *self.items.get(from)?);
        for (at, item) in (from..).zip(self.items.iter().skip(from).take(FAN_OUT)) {
            if item.0 > greatest.1.0 {
                greatest = (at, *item);
            }
        }
        Some(greatest)
    }

    fn put(&mut self, place: usize, item: (K, Slot), moved: &mut impl FnMut(Slot, usize)) {
        if let Some(at) = self.items.get_mut(place) {
            *at = item;
            moved(item.1, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::slab::Slab;

    /// The first item is always the greatest of a model, and each place is the last one reported.
    #[test]
    fn first_item_is_the_greatest_after_any_change() {
        let (mut heap, mut slots) = (Heap::new(), Slab::new());
        let slots: Vec<Slot> = (0..50).filter_map(|_| slots.insert(())).collect();
        let (mut keys, mut places) = (BTreeMap::new(), BTreeMap::new());
        let mut random = 1_u64;
        for turn in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (slot, key) = (slots[(random >> 33) as usize % slots.len()], (random >> 50) % 90);
            let place = places.get(&slot).copied().unwrap_or_default();
            let moved = |slot, place| _ = places.insert(slot, place);
            match keys.remove(&slot) {
                None => heap.insert((key, turn), slot, moved),
                Some(_) if random >> 63 == 0 => heap.change(place, (key, turn), moved),
                Some(_) => {
                    heap.remove(place, moved);
                    places.remove(&slot);
                    assert_eq!(heap.first().map(|(key, _)| key), keys.values().max().copied());
                    continue;
                }
            }
            keys.insert(slot, (key, turn));
            assert_eq!(heap.first().map(|(key, _)| key), keys.values().max().copied());
            assert!(places.iter().all(|(slot, place)| heap.items[*place] == (keys[slot], *slot)));
        }
    }
}
