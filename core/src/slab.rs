//! A slab: items at stable places, without an allocation for each.

use alloc::vec::Vec;

/// The place of an item in a [`Slab`], valid until the item is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

/// Items at stable places. A removed item's place is reused for a later one.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    /// Stores an item; `None` when all of the 2^32 places are taken.
    pub(crate) fn insert(&mut self, item: T) -> Option<Slot> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = Slot(u32::try_from(self.items.len()).ok()?);
                self.items.push(None);
                slot
            }
        };
        *self.items.get_mut(slot.0 as usize)? = Some(item);
        Some(slot)
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.items.get(slot.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.items.get_mut(slot.0 as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let item = self.items.get_mut(slot.0 as usize)?.take()?;
        self.free.push(slot);
        Some(item)
    }

    /// Drops an item in place, which costs less than to [remove](Self::remove) a large one.
    pub(crate) fn clear(&mut self, slot: Slot) {
        let Some(item) = self.items.get_mut(slot.0 as usize) else { return };
        if item.is_some() {
            *item = None;
            self.free.push(slot);
        }
    }

    /// The items in the order of their places, which depends only on the calls made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flatten()
    }
}
