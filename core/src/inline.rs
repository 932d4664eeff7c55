//! Bytes stored in place when short and shared when long, so that a clone never allocates.

use core::cmp::Ordering;

/// Maximum number of bytes stored in place.
pub(crate) const INLINE_MAX: usize = 22;

/// Bytes of any length, up to [`INLINE_MAX`] of them in place.
///
/// Longer bytes are shared between clones, which takes the feature `alloc`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InlineBytes(Repr);

/// Only bytes that do not fit are shared, and unused bytes are zero, so equal bytes are stored in
/// the same way.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE_MAX],
    },
    #[cfg(feature = "alloc")]
    Shared(alloc::sync::Arc<[u8]>),
}

impl InlineBytes {
    /// Copies `bytes`; allocates if there are more than [`INLINE_MAX`].
    #[cfg(feature = "alloc")]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self::in_place(bytes).unwrap_or_else(|| Self(Repr::Shared(bytes.into())))
    }

    /// Copies `bytes` without an allocation; `None` if there are more than [`INLINE_MAX`].
    pub(crate) fn in_place(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let mut copy = [0; INLINE_MAX];
        copy.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(Repr::Inline { len, bytes: copy }))
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            #[cfg(feature = "alloc")]
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl core::borrow::Borrow<[u8]> for InlineBytes {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialOrd for InlineBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InlineBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Unused bytes are zero. Most keys are compared as two numbers, without a call.
            (Repr::Inline { len, bytes }, Repr::Inline { len: other_len, bytes: other }) => {
                numbers(bytes).cmp(&numbers(other)).then(len.cmp(other_len))
            }
            #[cfg(feature = "alloc")]
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// The first bytes and the last ones, as numbers in the order of the bytes.
fn numbers(bytes: &[u8; INLINE_MAX]) -> (Option<u128>, Option<u64>) {
    let first = bytes.first_chunk().map(|first| u128::from_be_bytes(*first));
    (first, bytes.last_chunk().map(|last| u64::from_be_bytes(*last)))
}
