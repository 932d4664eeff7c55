//! Tables of connections and sessions.

use alloc::boxed::Box;
use core::marker::PhantomData;

use slab::Slab;

/// Key of a value in a [`Table`]: a number that is never reused, and the place of the value, which
/// is. Keys are ordered by age, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableKey {
    number: u64,
    at: usize,
}

#[cfg(test)]
impl TableKey {
    /// The first place, with this number.
    pub(crate) const fn numbered(number: u64) -> Self {
        Self { number, at: 0 }
    }
}

/// A table that finds a value by its place, in constant time. The number detects a key whose value
/// was removed.
#[derive(Debug)]
pub(crate) struct Table<I, T> {
    /// Boxed, since the table never frees a place that was used once.
    values: Slab<(u64, Box<T>)>,
    id: PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { values: Slab::new(), id: PhantomData }
    }
}

impl<I: Copy + From<TableKey> + Into<TableKey>, T> Table<I, T> {
    /// Adds a value. The number must be greater than that of each value before.
    pub(crate) fn insert(&mut self, number: u64, value: T) -> I {
        let at = self.values.insert((number, Box::new(value)));
        I::from(TableKey { number, at })
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let TableKey { number, at } = id.into();
        self.values.get(at).filter(|(found, _)| *found == number).map(|(_, value)| &**value)
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let TableKey { number, at } = id.into();
        let found = self.values.get_mut(at).filter(|(found, _)| *found == number);
        found.map(|(_, value)| &mut **value)
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        self.get(id)?;
        self.values.try_remove(id.into().at).map(|(_, value)| *value)
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Iterates over all values in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let values = self.values.iter();
        values.map(|(at, (number, value))| (I::from(TableKey { number: *number, at }), &**value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    #[test]
    fn id_of_a_removed_value_finds_no_later_value_in_its_place() {
        let mut table = Table::<SessionId, &str>::default();
        let first = table.insert(1, "first");
        assert_eq!(table.get(first), Some(&"first"));
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert(2, "second");
        assert_eq!(TableKey::from(second).at, TableKey::from(first).at);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!((table.get(second), table.len()), (Some(&"second"), 1));
        assert!(second > first);
    }
}
