//! Stage 6: the fence of a key.

use crate::hlc::{FencingToken, FencingTokenRef, Node, NodeId, NodeIdRef};
use crate::message::Refusal;

/// The reason why the fence of a key rejects a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError<N: Node = NodeId> {
    /// The key is fenced and the request carries no fencing token.
    #[error("the key is fenced by {fence} and the request has no __ft")]
    TokenRequired {
        /// The fence of the key.
        fence: FencingToken<N>,
    },
    /// The fencing token of the request is lower than the fence.
    #[error("the key is fenced by {fence} and __ft is {token}")]
    TokenLower {
        /// The fence of the key.
        fence: FencingToken<N>,
        /// The fencing token of the request.
        token: FencingToken<N>,
    },
}

impl<N: Node> FenceError<N> {
    /// The error that the requester gets.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::TokenRequired { .. } => Refusal::FencingTokenRequired,
            Self::TokenLower { .. } => Refusal::FencingTokenLower,
        }
    }
}

#[cfg(feature = "alloc")]
impl From<FenceError<NodeIdRef<'_>>> for FenceError {
    fn from(error: FenceError<NodeIdRef<'_>>) -> Self {
        match error {
            FenceError::TokenRequired { fence } => Self::TokenRequired { fence: fence.into() },
            FenceError::TokenLower { fence, token } => {
                Self::TokenLower { fence: fence.into(), token: token.into() }
            }
        }
    }
}

/// Checks whether a write with this fencing token may change a key with this fence.
///
/// A key without a fence accepts any write. A fenced key accepts only a token that is at least its
/// fence.
///
/// # Errors
/// [`FenceError`]; the key must then stay as it is.
///
/// ```
/// use statestore_proto::hlc::{FencingToken, HlcRef};
/// use statestore_proto::rules::{FenceError, check_fence};
///
/// let older = FencingToken::new(HlcRef::parse("5:0:StateStore")?);
/// let newer = FencingToken::new(HlcRef::parse("7:0:StateStore")?);
/// assert_eq!(check_fence(Some(older), Some(newer)), Ok(()));
/// let lower = FenceError::TokenLower { fence: newer, token: older };
/// assert_eq!(check_fence(Some(newer), Some(older)), Err(lower));
/// let required = FenceError::TokenRequired { fence: newer };
/// assert_eq!(check_fence(Some(newer), None), Err(required));
/// # Ok::<(), statestore_proto::hlc::ParseHlcError>(())
/// ```
pub fn check_fence<'a>(
    fence: Option<FencingTokenRef<'a>>,
    token: Option<FencingTokenRef<'a>>,
) -> Result<(), FenceError<NodeIdRef<'a>>> {
    match (fence, token) {
        (None, _) => Ok(()),
        (Some(fence), None) => Err(FenceError::TokenRequired { fence }),
        (Some(fence), Some(token)) if token < fence => Err(FenceError::TokenLower { fence, token }),
        (Some(_), Some(_)) => Ok(()),
    }
}
