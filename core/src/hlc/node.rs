//! Node ids: stored in place when short, shared when long, so that cloning a version never allocates.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::limits::NODE_ID_BYTES_MAX;

/// Why a text is not a node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeIdError {
    /// A node id has at least one byte.
    #[error("the node id is empty")]
    Empty,
    /// A colon ends the part before it in the text form, so a node id holds none.
    #[error("the node id contains a colon")]
    Colon,
    /// Longer than [`NODE_ID_BYTES_MAX`], or than [`NodeId::INLINE_MAX`] in a build without the feature `alloc`.
    #[error("the node id is too long")]
    TooLong,
}

/// A node id that someone else holds.
///
/// ```
/// use statestore_proto::hlc::{NodeIdError, NodeIdRef};
///
/// assert_eq!(NodeIdRef::new("CLIENT")?.as_str(), "CLIENT");
/// assert_eq!(NodeIdRef::new("a:b").unwrap_err(), NodeIdError::Colon);
/// # Ok::<(), NodeIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIdRef<'a>(&'a str);

impl NodeIdRef<'static> {
    /// `StateStore`: what a store calls itself unless told otherwise.
    pub const STATE_STORE: Self = Self("StateStore");
}

impl<'a> NodeIdRef<'a> {
    /// Checks `id`.
    ///
    /// # Errors
    /// [`NodeIdError::Empty`], [`NodeIdError::TooLong`] for more than [`NODE_ID_BYTES_MAX`] bytes, and
    /// [`NodeIdError::Colon`].
    pub fn new(id: &'a str) -> Result<Self, NodeIdError> {
        match id {
            "" => Err(NodeIdError::Empty),
            id if id.len() > NODE_ID_BYTES_MAX => Err(NodeIdError::TooLong),
            id if id.as_bytes().contains(&b':') => Err(NodeIdError::Colon),
            id => Ok(Self(id)),
        }
    }

    /// The text.
    #[must_use]
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

/// A node id of its own, of at most [`NODE_ID_BYTES_MAX`] bytes: up to [`INLINE_MAX`](Self::INLINE_MAX) bytes in place, longer ones shared between clones.
///
/// A million versions issued by `StateStore` hold no copy of that name on the heap.
///
/// ```
/// use statestore_proto::hlc::NodeId;
///
/// let node = NodeId::new("StateStore")?;
/// assert_eq!(node.clone().as_str(), "StateStore");
/// # Ok::<(), statestore_proto::hlc::NodeIdError>(())
/// ```
#[derive(Clone)]
pub struct NodeId(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; NodeId::INLINE_MAX],
    },
    #[cfg(feature = "alloc")]
    Shared(alloc::sync::Arc<str>),
}

impl NodeId {
    /// Bytes of a node id that is stored in place.
    pub const INLINE_MAX: usize = 22;

    /// Copies `id`.
    ///
    /// # Errors
    /// As [`NodeIdRef::new`]; without the feature `alloc` [`NodeIdError::TooLong`] for more than
    /// [`INLINE_MAX`](Self::INLINE_MAX) bytes.
    pub fn new(id: &str) -> Result<Self, NodeIdError> {
        let id = NodeIdRef::new(id)?;
        if let Some(inline) = Self::inline(id) {
            return Ok(inline);
        }
        #[cfg(feature = "alloc")]
        return Ok(Self(Repr::Shared(id.0.into())));
        #[cfg(not(feature = "alloc"))]
        Err(NodeIdError::TooLong)
    }

    /// The text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // The bytes were copied from a whole `str`, so the conversion cannot fail.
            Repr::Inline { len, bytes } => bytes
                .get(..usize::from(*len))
                .and_then(|id| core::str::from_utf8(id).ok())
                .unwrap_or_default(),
            #[cfg(feature = "alloc")]
            Repr::Shared(id) => id,
        }
    }

    fn inline(id: NodeIdRef<'_>) -> Option<Self> {
        let mut bytes = [0; Self::INLINE_MAX];
        bytes.get_mut(..id.0.len())?.copy_from_slice(id.0.as_bytes());
        Some(Self(Repr::Inline { len: u8::try_from(id.0.len()).ok()?, bytes }))
    }
}

#[cfg(feature = "alloc")]
impl From<NodeIdRef<'_>> for NodeId {
    fn from(id: NodeIdRef<'_>) -> Self {
        Self::inline(id).unwrap_or_else(|| Self(Repr::Shared(id.0.into())))
    }
}

/// A node id, owned or borrowed. Implemented by [`NodeId`] and [`NodeIdRef`] only.
pub trait Node: sealed::Sealed {
    /// The text: not empty, no colon.
    fn as_str(&self) -> &str;

    /// The same id, borrowed.
    fn as_node_ref(&self) -> NodeIdRef<'_> {
        NodeIdRef(self.as_str())
    }
}

impl Node for NodeId {
    #[inline]
    fn as_str(&self) -> &str {
        self.as_str()
    }
}

impl Node for NodeIdRef<'_> {
    #[inline]
    fn as_str(&self) -> &str {
        self.0
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NodeId {}
    impl Sealed for super::NodeIdRef<'_> {}
}

impl PartialEq for NodeId {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for NodeId {}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NodeId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for NodeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for NodeIdRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}
