//! Hybrid logical clocks: the versions, timestamps and fencing tokens of the protocol.
//!
//! An [`Hlc`] consists of a wall clock reading in milliseconds, a counter that orders events within
//! that millisecond, and the id of the node that issued it. Values are ordered by wall clock, then
//! by counter, then by the bytes of the node id; their text is never compared. A [`HybridClock`]
//! issues strictly increasing values, even if the wall clock steps back, and follows the values it
//! receives.
//!
//! # Guarantees
//!
//! * Values of one clock increase strictly, so they are unique. Values of clocks with different
//!   node ids differ.
//! * A value issued by [`receive`](HybridClock::receive) is greater than the received value.
//! * A value is ahead of the wall clock at its issue by at most the allowed drift.
//!
//! A greater value was not necessarily issued later, unless its clock had received the other value.

mod clock;
mod node;
mod text;

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

pub use clock::{ClockDriftError, HybridClock};
pub use node::{Node, NodeId, NodeIdError, NodeIdRef};
pub use text::{ParseHlcError, ParseHlcErrorKind};

use crate::time::UnixTime;

/// A hybrid logical clock value: `{wall ms}:{counter}:{node id}`.
///
/// The node id is owned ([`NodeId`]) or borrowed from the parsed text ([`NodeIdRef`], see
/// [`HlcRef`]). Owned and borrowed values can be compared with each other.
///
/// ```
/// use statestore_proto::hlc::{Hlc, HlcRef};
///
/// let padded = HlcRef::parse("001696374425000:00001:StateStore")?;
/// let bare: Hlc = "1696374425000:1:StateStore".parse()?;
/// assert_eq!(bare, padded);
/// assert_eq!((bare.wall().as_millis(), bare.counter()), (1696374425000, 1));
/// assert_eq!(bare.node().as_str(), "StateStore");
/// assert!(bare < "1696374425000:10:StateStore".parse()?); // by number, not by text
/// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Hlc<N = NodeId> {
    wall: u64,
    counter: u64,
    node: N,
}

/// An [`Hlc`] whose node id is borrowed.
pub type HlcRef<'a> = Hlc<NodeIdRef<'a>>;

impl<N: Node> Hlc<N> {
    /// Creates a value from its three parts.
    #[must_use]
    pub const fn new(wall: UnixTime, counter: u64, node: N) -> Self {
        Self { wall: wall.as_millis(), counter, node }
    }

    /// Wall clock part.
    #[must_use]
    pub const fn wall(&self) -> UnixTime {
        UnixTime::from_millis(self.wall)
    }

    /// Counter within the millisecond.
    #[must_use]
    pub const fn counter(&self) -> u64 {
        self.counter
    }

    /// Id of the node that issued the value.
    #[must_use]
    pub const fn node(&self) -> &N {
        &self.node
    }

    /// Borrows the node id.
    #[must_use]
    pub fn borrowed(&self) -> HlcRef<'_> {
        Hlc { wall: self.wall, counter: self.counter, node: self.node.as_node_ref() }
    }

    /// Wall clock and counter.
    const fn position(&self) -> (u64, u64) {
        (self.wall, self.counter)
    }

    #[inline]
    fn compare<M: Node>(&self, other: &Hlc<M>) -> Ordering {
        let by_node = || self.node.as_bytes().cmp(other.node.as_bytes());
        self.position().cmp(&other.position()).then_with(by_node)
    }
}

impl HlcRef<'_> {
    /// Copies the node id. One of more than [`NodeId::INLINE_MAX`] bytes takes one allocation.
    ///
    /// # Errors
    /// Without the feature `alloc`, [`NodeIdError::TooLong`] for a node id of more than
    /// [`NodeId::INLINE_MAX`] bytes. With that feature, never.
    pub fn try_into_owned(self) -> Result<Hlc, NodeIdError> {
        Ok(Hlc { wall: self.wall, counter: self.counter, node: NodeId::new(self.node.as_str())? })
    }
}

#[cfg(feature = "alloc")]
impl From<HlcRef<'_>> for Hlc {
    fn from(hlc: HlcRef<'_>) -> Self {
        Self { wall: hlc.wall, counter: hlc.counter, node: NodeId::from(hlc.node) }
    }
}

impl<N: Node, M: Node> PartialEq<Hlc<M>> for Hlc<N> {
    #[inline]
    fn eq(&self, other: &Hlc<M>) -> bool {
        self.position() == other.position() && self.node.as_bytes() == other.node.as_bytes()
    }
}

impl<N: Node> Eq for Hlc<N> {}

impl<N: Node, M: Node> PartialOrd<Hlc<M>> for Hlc<N> {
    #[inline]
    fn partial_cmp(&self, other: &Hlc<M>) -> Option<Ordering> {
        Some(self.compare(other))
    }
}

impl<N: Node> Ord for Hlc<N> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(other)
    }
}

impl<N: Node> Hash for Hlc<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.position().hash(state);
        self.node.as_bytes().hash(state);
    }
}

impl<N: Node> fmt::Debug for Hlc<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Declares a separate type for one role of an [`Hlc`].
macro_rules! role {
    ($(#[$doc:meta])* $name:ident, $refname:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<N = NodeId>(Hlc<N>);

        #[doc = concat!("A [`", stringify!($name), "`] whose node id is borrowed.")]
        pub type $refname<'a> = $name<NodeIdRef<'a>>;

        impl<N: Node> $name<N> {
            /// Wraps a clock value.
            #[must_use]
            pub const fn new(hlc: Hlc<N>) -> Self {
                Self(hlc)
            }

            /// The clock value.
            #[must_use]
            pub const fn hlc(&self) -> &Hlc<N> {
                &self.0
            }

            /// Borrows the node id.
            #[must_use]
            pub fn borrowed(&self) -> $refname<'_> {
                $name(self.0.borrowed())
            }
        }

        impl<'a> $refname<'a> {
            /// Parses a clock value; see [`HlcRef::parse`]. Borrows the node id.
            ///
            /// # Errors
            /// The same as [`HlcRef::parse`].
            pub fn parse(text: &'a str) -> Result<Self, ParseHlcError> {
                HlcRef::parse(text).map(Self)
            }

            /// Copies the node id; see [`Hlc::try_into_owned`].
            ///
            /// # Errors
            /// The same as [`Hlc::try_into_owned`].
            pub fn try_into_owned(self) -> Result<$name, NodeIdError> {
                self.0.try_into_owned().map($name)
            }
        }

        #[cfg(feature = "alloc")]
        impl From<$refname<'_>> for $name {
            fn from(borrowed: $refname<'_>) -> Self {
                Self(borrowed.0.into())
            }
        }

        impl FromStr for $name {
            type Err = ParseHlcError;

            fn from_str(text: &str) -> Result<Self, ParseHlcError> {
                text.parse().map(Self)
            }
        }

        impl<N: Node, M: Node> PartialEq<$name<M>> for $name<N> {
            fn eq(&self, other: &$name<M>) -> bool {
                self.0 == other.0
            }
        }

        impl<N: Node> Eq for $name<N> {}

        impl<N: Node, M: Node> PartialOrd<$name<M>> for $name<N> {
            fn partial_cmp(&self, other: &$name<M>) -> Option<Ordering> {
                self.0.partial_cmp(&other.0)
            }
        }

        impl<N: Node> Ord for $name<N> {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.cmp(&other.0)
            }
        }

        impl<N: Node> Hash for $name<N> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl<N: Node> fmt::Debug for $name<N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl<N: Node> fmt::Display for $name<N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

role! {
    /// The version of a stored value: the store issues one per write.
    ///
    /// ```
    /// use statestore_proto::hlc::{Version, VersionRef};
    ///
    /// let borrowed = VersionRef::parse("1696374425000:1:StateStore")?;
    /// # #[cfg(feature = "alloc")] {
    /// let owned: Version = borrowed.into();
    /// assert_eq!(owned, borrowed);
    /// # }
    /// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
    /// ```
    Version, VersionRef
}

role! {
    /// The fencing token (`__ft`) of a write: proof that its author still holds a lock.
    ///
    /// After a write with a token, the key rejects writes without a token or with a lower one.
    FencingToken, FencingTokenRef
}

role! {
    /// The timestamp (`__ts`) of a request, from the clock of its sender.
    Timestamp, TimestampRef
}

impl<N: Node> Version<N> {
    /// Converts the version of the write that acquired a lock to the lock's fencing token, which is
    /// the same clock value.
    ///
    /// ```
    /// use statestore_proto::hlc::Version;
    ///
    /// let acquired: Version = "1696374425000:1:StateStore".parse()?;
    /// assert_eq!(acquired.to_fencing_token().to_string(), "1696374425000:1:StateStore");
    /// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
    /// ```
    #[must_use]
    pub fn to_fencing_token(&self) -> FencingToken<N>
    where
        N: Clone,
    {
        FencingToken(self.0.clone())
    }
}
