//! The guard of a lock that is held.

use std::fmt;

use statestore_proto::client::{DelRequest, IntoBytes, Removal};
use statestore_proto::hlc::{FencingToken, Version};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::call::{Call, Set};
use crate::client::fence::{Fence, LockEnd, LockLost};
use crate::client::handle::StateStore;
use crate::client::releases::Release;

/// A lock that is held. Dropping the guard releases the lock if the store can be reached; otherwise
/// the lease runs out.
///
/// The lock is renewed automatically. It is lost in these cases, which
/// [`wait_lost`](Self::wait_lost) reports:
///
/// * the lease runs out before a renewal succeeds;
/// * another holder has the lock, or its key was deleted;
/// * the store was restarted or replaced;
/// * a guarded write is refused because a newer holder has written.
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

    /// Returns whether the lock is held now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.fence.token().is_some()
    }

    /// The end of the lease unless it is renewed; `None` if the lock is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        self.fence.held_until()
    }

    /// The newest fencing token of this holding, greater than that of every previous holder; `None`
    /// if the lock is lost. The writes of this guard carry it automatically.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.fence.token()
    }

    /// Waits until the lock is lost. Cancel safe.
    pub async fn wait_lost(&self) -> LockLost {
        self.fence.wait_lost().await
    }

    /// Stores a value under the lock.
    ///
    /// Fails with [`Error::LockLost`](crate::Error::LockLost) if the lock is no longer held, or if
    /// the store refuses the write because a newer holder has written the key.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        self.store.set(key, value).guarded_by(self.fence.clone())
    }

    /// Removes a key under the lock, with errors as for [`set`](Self::set). Returns whether the key
    /// existed. A removed key loses its fence.
    pub fn del(&self, key: impl IntoBytes) -> Call<bool, DelRequest> {
        self.store.del(key).guarded_by(self.fence.clone())
    }

    /// Removes a key under the lock if its value is `value`, with errors as for [`set`](Self::set).
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal, DelRequest> {
        self.store.vdel(key, value).guarded_by(self.fence.clone())
    }

    /// Releases the lock, and waits for the store to confirm that, for the lease at most. Returns
    /// whether the store has confirmed it; otherwise the lease has run out or will.
    ///
    /// # Errors
    /// [`LockLost`] if the lock was lost before.
    pub async fn release(self) -> Result<bool, LockLost> {
        self.stop();
        match self.fence.wait_over().await {
            LockEnd::Released { confirmed } => Ok(confirmed),
            LockEnd::Lost(loss) => Err(LockLost::Lost(loss)),
            LockEnd::Closed(closed) => Err(LockLost::Closed(closed)),
            LockEnd::AcquireFailed(_) => Ok(false),
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
