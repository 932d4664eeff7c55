//! A binary heap from which any item can be removed.

use alloc::vec::Vec;

use crate::slab::Slot;

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
        while let Some(above) = place.checked_sub(1).map(|before| before / 2) {
            let Some(&other) = self.items.get(above).filter(|(key, _)| *key < item.0) else {
                break;
            };
            self.put(place, other, &mut moved);
            place = above;
        }
        while let Some((below, other)) = self.greater_below(place) {
            if other.0 <= item.0 {
                break;
            }
            self.put(place, other, &mut moved);
            place = below;
        }
        self.put(place, item, &mut moved);
    }

    /// The greater one of the two items below a place.
    fn greater_below(&self, place: usize) -> Option<(usize, (K, Slot))> {
        let left = 2 * place + 1;
        let below = self.items.get(left..)?;
        let (first, second) = (below.first()?, below.get(1));
        match second.filter(|second| second.0 > first.0) {
            Some(second) => Some((left + 1, *second)),
            None => Some((left, *first)),
        }
    }

    fn put(&mut self, place: usize, item: (K, Slot), moved: &mut impl FnMut(Slot, usize)) {
        if let Some(at) = self.items.get_mut(place) {
            *at = item;
            moved(item.1, place);
        }
    }
}
