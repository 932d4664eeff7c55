//! Bytes stored in place when short and shared when long, so that a clone never allocates.

use core::cmp::Ordering;

/// Bytes of any length, the first `N` of them in place.
///
/// Longer bytes are shared between clones, which takes the feature `alloc`.
#[derive(Clone)]
pub(crate) struct InlineBytes<const N: usize>(Repr<N>);

#[derive(Clone)]
enum Repr<const N: usize> {
    Inline {
        len: u8,
        bytes: [u8; N],
    },
    #[cfg(feature = "alloc")]
    Shared(alloc::sync::Arc<[u8]>),
}

impl<const N: usize> InlineBytes<N> {
    /// Copies `bytes`; allocates if there are more than `N`.
    #[cfg(feature = "alloc")]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self::in_place(bytes).unwrap_or_else(|| Self(Repr::Shared(bytes.into())))
    }

    /// Copies `bytes` without an allocation; `None` if there are more than `N`.
    pub(crate) fn in_place(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let mut copy = [0; N];
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

impl<const N: usize> core::borrow::Borrow<[u8]> for InlineBytes<N> {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<const N: usize> PartialEq for InlineBytes<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for InlineBytes<N> {}

impl<const N: usize> PartialOrd for InlineBytes<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for InlineBytes<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}
