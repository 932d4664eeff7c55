//! A SUBSCRIBE or UNSUBSCRIBE that is processed in several turns.

use alloc::vec::Vec;
use core::num::NonZeroU16;

/// The packet that contains the filters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilterOperation {
    /// SUBSCRIBE, with its subscription identifier.
    Subscribe(Option<u32>),
    /// UNSUBSCRIBE.
    Unsubscribe,
}

/// A SUBSCRIBE or UNSUBSCRIBE whose first filters are processed.
pub(crate) struct FilterBatch {
    /// Packet id.
    pub(crate) id: NonZeroU16,
    pub(crate) operation: FilterOperation,
    /// All filters in wire format.
    pub(crate) filters: Vec<u8>,
    /// Bytes of the processed filters.
    pub(crate) done: usize,
    /// Reason codes of the processed filters. Each takes fewer bytes than its filter, so it never
    /// exceeds them.
    pub(crate) reasons: Vec<u8>,
}

impl FilterBatch {
    /// Bytes to count in the memory account.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.filters.len()
    }
}
