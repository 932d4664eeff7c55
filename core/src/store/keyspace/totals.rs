//! The number and the bytes of keys, for the space that their records need.

/// The number and the bytes of some keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct KeyTotals {
    pub(in crate::store) count: usize,
    /// Bytes of keys, and of node ids of versions.
    pub(in crate::store) removal_bytes: usize,
    /// Bytes of keys, values, and node ids of versions and fences. The node id of the store does not
    /// count.
    pub(in crate::store) put_bytes: usize,
}

impl KeyTotals {
    pub(in crate::store) const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.removal_bytes += other.removal_bytes;
        self.put_bytes += other.put_bytes;
    }

    pub(in crate::store) const fn subtract(&mut self, other: Self) {
        self.count -= other.count;
        self.removal_bytes -= other.removal_bytes;
        self.put_bytes -= other.put_bytes;
    }
}
