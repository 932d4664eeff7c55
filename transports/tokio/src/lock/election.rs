//! Leader election: a lock whose holder leads.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{DelRequest, IntoBytes, Removal};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::lock::Holder;

use super::{HolderWatch, LeasedLock, LockError, LockGuard};
use crate::client::call::{Call, Set};
use crate::client::error::Error;
use crate::client::fence::LockLost;
use crate::client::handle::StateStore;

/// An election of one leader among candidates: a [lock](LeasedLock) whose holder leads.
///
/// ```
/// # use statestore_loopback::Hub;
/// # use statestore_tokio::{StateStore, StoreService};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let broker = Hub::new();
/// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
/// # service.wait_connected().await?;
/// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
/// let election = store.election("leaders/heating");
/// let leadership = election.campaign().await?;
/// assert_eq!(election.leader().await?.expect("a leader").name(), b"thermostat-7");
/// leadership.set("heating/plan", "night").await?; // refused if a newer leader has written the key
/// leadership.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `campaign` to stand for election"]
pub struct Election {
    lock: LeasedLock,
}

impl Election {
    pub(crate) fn new(store: &StateStore, key: Bytes) -> Self {
        Self { lock: LeasedLock::new(store, key) }
    }

    /// Sets the name of the leader that other clients see; the MQTT client id by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.lock = self.lock.name(name);
        self
    }

    /// Sets the lease: how long a leader stays the leader after it has died; ten seconds by
    /// default.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Sets the time limit of a campaign; unlimited by default.
    pub fn campaign_timeout(mut self, timeout: Duration) -> Self {
        self.lock = self.lock.acquire_timeout(timeout);
        self
    }

    /// Waits until this candidate is the leader. Dropping the future ends the campaign.
    ///
    /// # Errors
    /// As [`LeasedLock::acquire`].
    pub async fn campaign(&self) -> Result<Leadership, LockError> {
        Ok(Leadership { guard: self.lock.acquire().await? })
    }

    /// The current leader; `None` without a leader.
    ///
    /// # Errors
    /// As [`LeasedLock::holder`].
    pub async fn leader(&self) -> Result<Option<Holder>, Error> {
        self.lock.holder().await
    }

    /// Watches the leader.
    ///
    /// # Errors
    /// As [`StateStore::watch`].
    pub async fn watch(&self) -> Result<HolderWatch, Error> {
        self.lock.watch().await
    }
}

/// The leadership that a candidate has won: the [guard](LockGuard) of the lock of the election.
/// Dropping it resigns.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// Returns whether this candidate is the leader now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// The term: the newest fencing token, greater than that of every previous leader; `None` if
    /// another candidate may be the leader.
    #[must_use]
    pub fn term(&self) -> Option<FencingToken> {
        self.guard.token()
    }

    /// Waits until the leadership is lost. Cancel safe.
    pub async fn wait_lost(&self) -> LockLost {
        self.guard.wait_lost().await
    }

    /// Stores a value as the leader, with errors as for [`LockGuard::set`].
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        self.guard.set(key, value)
    }

    /// Removes a key as the leader, with errors as for [`LockGuard::del`].
    pub fn del(&self, key: impl IntoBytes) -> Call<bool, DelRequest> {
        self.guard.del(key)
    }

    /// Removes a key as the leader if its value is `value`, with errors as for [`LockGuard::vdel`].
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal, DelRequest> {
        self.guard.vdel(key, value)
    }

    /// The guard of the underlying lock.
    pub const fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Resigns, and waits for the store to confirm. Returns whether the store did.
    ///
    /// # Errors
    /// [`LockLost`] if the leadership was lost before.
    pub async fn resign(self) -> Result<bool, LockLost> {
        self.guard.release().await
    }
}
