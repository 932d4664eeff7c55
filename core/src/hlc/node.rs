//! Node ids.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

use crate::inline::{self, InlineBytes};
use crate::limits::NODE_ID_BYTES_MAX;

/// The text is not a node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeIdError {
    /// The text is empty.
    #[error("the node id is empty")]
    Empty,
    /// The text contains a colon, which separates the parts of a clock value.
    #[error("the node id contains a colon")]
    Colon,
    /// The text exceeds [`NODE_ID_BYTES_MAX`], or [`NodeId::INLINE_MAX`] without the feature
    /// `alloc`.
    #[error("the node id is too long")]
    TooLong,
}

/// A borrowed node id.
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
    /// `StateStore`, the default node id of a store.
    pub const STATE_STORE: Self = Self("StateStore");
}

impl<'a> NodeIdRef<'a> {
    /// Checks a node id.
    ///
    /// # Errors
    /// [`NodeIdError`] if `id` is empty, exceeds [`NODE_ID_BYTES_MAX`] or contains a colon.
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

/// An owned node id of at most [`NODE_ID_BYTES_MAX`] bytes.
///
/// Ids of up to [`INLINE_MAX`](Self::INLINE_MAX) bytes, such as `StateStore`, are stored in place;
/// longer ones are shared between clones. Cloning a version therefore never allocates.
///
/// ```
/// use statestore_proto::hlc::NodeId;
///
/// let node = NodeId::new("StateStore")?;
/// assert_eq!(node.clone().as_str(), "StateStore");
/// assert_eq!("StateStore".parse(), Ok(node));
/// # Ok::<(), statestore_proto::hlc::NodeIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(InlineBytes);

impl NodeId {
    /// Maximum number of bytes stored in place.
    pub const INLINE_MAX: usize = inline::INLINE_MAX;

    /// Checks and copies a node id.
    ///
    /// # Errors
    /// The same as [`NodeIdRef::new`]. Without the feature `alloc`, [`NodeIdError::TooLong`] for
    /// more than [`INLINE_MAX`](Self::INLINE_MAX) bytes.
    pub fn new(id: &str) -> Result<Self, NodeIdError> {
        let id = NodeIdRef::new(id)?;
        #[cfg(feature = "alloc")]
        return Ok(id.into());
        #[cfg(not(feature = "alloc"))]
        InlineBytes::in_place(id.0.as_bytes()).map(Self).ok_or(NodeIdError::TooLong)
    }

    /// The node id of a client: its client id, with underscores in place of colons. If it exceeds
    /// [`NODE_ID_BYTES_MAX`], its last bytes, because client ids of a fleet differ at the end.
    ///
    /// ```
    /// use statestore_proto::hlc::NodeId;
    ///
    /// assert_eq!(NodeId::from_client_id("thermostat-7").as_str(), "thermostat-7");
    /// assert_eq!(NodeId::from_client_id("urn:dev:7").as_str(), "urn_dev_7");
    /// ```
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn from_client_id(client_id: &str) -> Self {
        let skipped = client_id.len().saturating_sub(NODE_ID_BYTES_MAX);
        let mut ends = (skipped..=client_id.len()).filter_map(|at| client_id.get(at..));
        let end = ends.next().filter(|end| !end.is_empty()).unwrap_or("_");
        Self(InlineBytes::new(end.replace(':', "_").as_bytes()))
    }

    /// The text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        // The bytes were copied from a `str`, so the conversion cannot fail.
        core::str::from_utf8(self.0.as_bytes()).unwrap_or_default()
    }
}

#[cfg(feature = "alloc")]
impl From<NodeIdRef<'_>> for NodeId {
    fn from(id: NodeIdRef<'_>) -> Self {
        Self(InlineBytes::new(id.0.as_bytes()))
    }
}

/// A node id, owned or borrowed. Only [`NodeId`] and [`NodeIdRef`] implement it.
pub trait Node: sealed::Sealed {
    /// The text, which is not empty and contains no colon.
    fn as_str(&self) -> &str;

    /// Borrows the id.
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

/// The part of [`Node`] that is not public.
pub(super) mod sealed {
    pub trait Sealed {
        /// The bytes of the text, without the check that they are UTF-8.
        fn as_bytes(&self) -> &[u8];
    }

    impl Sealed for super::NodeId {
        #[inline]
        fn as_bytes(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }

    impl Sealed for super::NodeIdRef<'_> {
        #[inline]
        fn as_bytes(&self) -> &[u8] {
            self.0.as_bytes()
        }
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

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NodeIdRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(id: &str) -> Result<Self, NodeIdError> {
        Self::new(id)
    }
}
