//! Hybrid logical clocks: the versions, timestamps and fencing tokens of the protocol.
//!
//! An [`Hlc`] is a wall clock reading in milliseconds, a counter that orders what happened within it, and the id of the
//! node that issued it. Order is wall, then counter, then node id bytewise; text is never compared. A [`HybridClock`]
//! issues values that only grow, whatever the wall clock does, and follows what it receives.
//!
//! # What a clock does and does not promise
//!
//! * Values of one clock are strictly increasing, so they are unique; values of clocks with different node ids differ.
//! * A value issued by [`receive`](HybridClock::receive) is greater than the value received.
//! * No value is further ahead of the wall clock reading it was issued at than the allowed drift.
//! * A greater value need not have been issued later, unless one saw the other.

mod clock;
mod node;
mod text;

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

pub use clock::{ClockDriftError, HybridClock};
pub use node::{Node, NodeId, NodeIdError, NodeIdRef};
pub use text::{ParseHlcError, ParseHlcErrorKind};

use crate::time::UnixTime;

/// A hybrid logical clock value: `{wall ms}:{counter}:{node id}`.
///
/// The node id is owned ([`NodeId`]) or borrowed from the text it was read from ([`NodeIdRef`], see [`HlcRef`]); values
/// of both kinds compare with each other.
///
/// ```
/// use statestore_proto::hlc::{Hlc, HlcRef};
///
/// let padded = HlcRef::parse("001696374425000:00001:StateStore")?;
/// let bare: Hlc = "1696374425000:1:StateStore".parse()?;
/// assert_eq!(bare, padded);
/// assert_eq!((bare.wall().as_millis(), bare.counter(), bare.node().as_str()), (1696374425000, 1, "StateStore"));
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
    /// The value with these three parts.
    #[must_use]
    pub const fn new(wall: UnixTime, counter: u64, node: N) -> Self {
        Self { wall: wall.as_millis(), counter, node }
    }

    /// The wall clock part.
    #[must_use]
    pub const fn wall(&self) -> UnixTime {
        UnixTime::from_millis(self.wall)
    }

    /// The counter within that wall clock part.
    #[must_use]
    pub const fn counter(&self) -> u64 {
        self.counter
    }

    /// Who issued the value.
    #[must_use]
    pub const fn node(&self) -> &N {
        &self.node
    }

    /// The same value with its node id borrowed; costs nothing.
    #[must_use]
    pub fn as_deref(&self) -> HlcRef<'_> {
        Hlc { wall: self.wall, counter: self.counter, node: self.node.as_node_ref() }
    }

    /// Wall and counter: what is left when the node is known.
    const fn position(&self) -> (u64, u64) {
        (self.wall, self.counter)
    }
}

impl HlcRef<'_> {
    /// The same value with a node id of its own.
    ///
    /// A node id of up to [`NodeId::INLINE_MAX`] bytes is stored in place; a longer one takes one allocation.
    ///
    /// # Errors
    /// Without the feature `alloc`, [`NodeIdError::TooLong`] for a node id that does not fit in place. With it, never.
    pub fn to_owned(&self) -> Result<Hlc, NodeIdError> {
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
        self.position() == other.position() && self.node.as_str() == other.node.as_str()
    }
}

impl<N: Node> Eq for Hlc<N> {}

impl<N: Node, M: Node> PartialOrd<Hlc<M>> for Hlc<N> {
    #[inline]
    fn partial_cmp(&self, other: &Hlc<M>) -> Option<Ordering> {
        let nodes = || self.node.as_str().as_bytes().cmp(other.node.as_str().as_bytes());
        Some(self.position().cmp(&other.position()).then_with(nodes))
    }
}

impl<N: Node> Ord for Hlc<N> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let nodes = || self.node.as_str().as_bytes().cmp(other.node.as_str().as_bytes());
        self.position().cmp(&other.position()).then_with(nodes)
    }
}

impl<N: Node> Hash for Hlc<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.position().hash(state);
        self.node.as_str().hash(state);
    }
}

impl<N: Node> fmt::Debug for Hlc<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Gives one role of an [`Hlc`] a type of its own.
macro_rules! role {
    ($(#[$doc:meta])* $name:ident, $refname:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<N = NodeId>(Hlc<N>);

        #[doc = concat!("A [`", stringify!($name), "`] whose node id is borrowed.")]
        pub type $refname<'a> = $name<NodeIdRef<'a>>;

        impl<N: Node> $name<N> {
            /// This value in its role.
            #[must_use]
            pub const fn new(hlc: Hlc<N>) -> Self {
                Self(hlc)
            }

            /// The clock value.
            #[must_use]
            pub const fn hlc(&self) -> &Hlc<N> {
                &self.0
            }

            /// The same value with its node id borrowed; costs nothing.
            #[must_use]
            pub fn as_deref(&self) -> $refname<'_> {
                $name(self.0.as_deref())
            }
        }

        impl $refname<'_> {
            /// The same value with a node id of its own; see [`Hlc::to_owned`].
            ///
            /// # Errors
            /// As [`Hlc::to_owned`].
            pub fn to_owned(&self) -> Result<$name, NodeIdError> {
                self.0.to_owned().map($name)
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
    /// The version of a stored value, issued by the store for the write that made it.
    Version, VersionRef
}

role! {
    /// What a write carries (`__ft`) to prove that its author still holds a lock.
    ///
    /// A key that was written with a token accepts no write without one, and none with a lower one.
    FencingToken, FencingTokenRef
}

role! {
    /// The time of a request by its sender's clock (`__ts`).
    Timestamp, TimestampRef
}

impl<N: Node> Version<N> {
    /// The lock recipe: the version of the write that took a lock is the token that fences with it, unmodified.
    ///
    /// ```
    /// use statestore_proto::hlc::{Hlc, Version};
    ///
    /// let taken = Version::new("1696374425000:1:StateStore".parse::<Hlc>()?);
    /// assert_eq!(taken.to_fencing_token().to_string(), "1696374425000:1:StateStore");
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
