//! Back-pressure of a queue with a capacity.

/// Refuses packets at the capacity, and reports once that half of it is free. So a refused sender
/// is woken once for many packets.
#[derive(Debug)]
pub(super) struct Backpressure {
    capacity: usize,
    /// Set if a packet was returned to its sender, which waits for capacity.
    is_starved: bool,
}

impl Backpressure {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity, is_starved: false }
    }

    /// Returns whether another packet may be added to as many as `len`. If not, none is admitted
    /// until [`take_drained`](Self::take_drained) has reported.
    pub(super) const fn try_admit(&mut self, len: usize) -> bool {
        self.is_starved |= len >= self.capacity;
        !self.is_starved
    }

    pub(super) const fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Number of packets that must leave before half of the capacity is free.
    pub(super) const fn excess(&self, len: usize) -> usize {
        len.saturating_sub(self.capacity / 2)
    }

    /// Returns whether a refused sender may offer its packet again; returned once.
    pub(super) const fn take_drained(&mut self, len: usize) -> bool {
        let has_drained = self.is_starved && self.excess(len) == 0;
        self.is_starved &= !has_drained;
        has_drained
    }
}
