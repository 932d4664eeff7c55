//! What an application has while it holds a lock.

use std::fmt;

use statestore_proto::client::{IntoBytes, Removal};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::lock::LossReason;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call::{Call, Set};
use crate::error::StoreClosed;
use crate::fence::{End, Fence};
use crate::handle::StateStore;
use crate::releases::Release;

/// Why a guard holds its lock no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockLost {
    /// The lock is held no longer.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The handle is closed, so that nothing renews the lock.
    #[error("the lock is lost: {0}")]
    Closed(StoreClosed),
}

/// A lock that is held. Dropping it releases the lock, as far as the store can be reached; otherwise the lease does.
///
/// The lock is renewed by itself. It is lost when that fails for too long, when another holder has it, when another store
/// answers than the one that it was acquired at, or when a guarded write is refused because a newer holder has written;
/// [`lost`](Self::lost) tells.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    store: StateStore,
    fence: Fence,
    stop: watch::Sender<Option<Release>>,
}

impl LockGuard {
    pub(crate) const fn new(
        store: StateStore,
        fence: Fence,
        stop: watch::Sender<Option<Release>>,
    ) -> Self {
        Self { store, fence, stop }
    }

    /// Whether the lock is held now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.fence.token().is_some()
    }

    /// Until when it is held unless it is renewed; `None` when it is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        self.fence.held_until()
    }

    /// The newest fencing token of this holding, greater than that of every holder before; `None` when the lock is lost.
    /// The writes of this guard carry it by themselves.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.fence.token()
    }

    /// Waits until the lock is lost. Cancel safe.
    pub async fn lost(&self) -> LockLost {
        match self.fence.ended().await {
            End::Lost(loss) => LockLost::Lost(loss),
            End::Closed(closed) => LockLost::Closed(closed),
            // Neither happens to a guard that is there.
            End::GaveUp(_) | End::Released { .. } => LockLost::Lost(LossReason::Expired),
        }
    }

    /// Stores a value under the lock. [`Error::LockLost`](crate::Error::LockLost) when the lock is held no longer, or the
    /// store refuses because a newer holder has written.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        self.store.set(key, value).guarded_by(self.fence.clone())
    }

    /// Removes a key under the lock, with errors as for [`set`](Self::set); whether it was there. The key's protection
    /// goes with it.
    pub fn del(&self, key: impl IntoBytes) -> Call<bool> {
        self.store.del(key).guarded_by(self.fence.clone())
    }

    /// Removes a key under the lock if its value is `value`, with errors as for [`set`](Self::set).
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal> {
        self.store.vdel(key, value).guarded_by(self.fence.clone())
    }

    /// Gives the lock back and waits for the store to say so, for the lease at most. Whether it did; otherwise the lease
    /// has run out, or will.
    ///
    /// # Errors
    /// [`LockLost`] when there was nothing left to give back.
    pub async fn release(self) -> Result<bool, LockLost> {
        self.stop();
        match self.fence.ended().await {
            End::Released { confirmed } => Ok(confirmed),
            End::Lost(loss) => Err(LockLost::Lost(loss)),
            End::Closed(closed) => Err(LockLost::Closed(closed)),
            End::GaveUp(_) => Ok(false),
        }
    }

    fn stop(&self) {
        let _ = self.stop.send(Some(self.store.shared.releases.begin()));
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("token", &self.token()).finish_non_exhaustive()
    }
}
