//! Packet identifiers and what each of them is in use for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;

/// Number of free identifiers below which a new one is preferred, so that an identifier is not
/// reused at once.
const SPARE: usize = 16;

/// A table from packet identifier to its use. An identifier in use is never given out again.
#[derive(Debug)]
pub(super) struct PacketIds<T> {
    /// The entry of identifier `n` is at `n - 1`.
    entries: Vec<Option<T>>,
    /// Unused places of `entries`, the longest unused first.
    free: VecDeque<NonZeroU16>,
}

impl<T> Default for PacketIds<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> PacketIds<T> {
    /// Number of identifiers in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Takes an unused identifier; `None` when all 65,535 are in use.
    pub(super) fn insert(&mut self, entry: T) -> Option<NonZeroU16> {
        let next = u16::try_from(self.entries.len() + 1).ok().and_then(NonZeroU16::new);
        let id = match next.filter(|_| self.free.len() < SPARE) {
            Some(next) => {
                self.entries.push(None);
                next
            }
            None => self.free.pop_front()?,
        };
        *self.entries.get_mut(place(id))? = Some(entry);
        Some(id)
    }

    /// Replaces the entry of an identifier in use.
    pub(super) fn replace(&mut self, id: NonZeroU16, entry: T) {
        if let Some(place) = self.entries.get_mut(place(id)).filter(|place| place.is_some()) {
            *place = Some(entry);
        }
    }

    pub(super) fn get_mut(&mut self, id: NonZeroU16) -> Option<&mut T> {
        self.entries.get_mut(place(id))?.as_mut()
    }

    pub(super) fn get(&self, id: NonZeroU16) -> Option<&T> {
        self.entries.get(place(id))?.as_ref()
    }

    pub(super) fn remove(&mut self, id: NonZeroU16) -> Option<T> {
        let entry = self.entries.get_mut(place(id))?.take()?;
        self.free.push_back(id);
        Some(entry)
    }

    /// All entries, ordered by identifier.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (NonZeroU16, &mut T)> {
        (1..=u16::MAX)
            .filter_map(NonZeroU16::new)
            .zip(&mut self.entries)
            .filter_map(|(id, entry)| entry.as_mut().map(|entry| (id, entry)))
    }
}

fn place(id: NonZeroU16) -> usize {
    usize::from(id.get()) - 1
}
