//! Leader election: a lock whose holder leads.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{IntoBytes, Removal};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::lock::Holder;

use super::guard::{LockGuard, LockLost};
use super::{HolderWatch, LeasedLock, LockError};
use crate::call::{Call, Set};
use crate::error::Error;
use crate::handle::StateStore;

/// An election of one leader among candidates: a [lock](LeasedLock) whose holder leads.
///
/// ```
/// # use statestore_loopback::Hub;
/// # use statestore_tokio::{StateStore, StoreService};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let broker = Hub::new();
/// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
/// # service.connected().await?;
/// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
/// let election = store.election("leaders/heating");
/// let leadership = election.campaign().await?;
/// assert_eq!(election.leader().await?.expect("there is one").name(), b"thermostat-7");
/// leadership.set("heating/plan", "night").await?; // refused if somebody else leads by now
/// leadership.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nobody stands for election before the campaign"]
pub struct Election {
    lock: LeasedLock,
}

impl Election {
    pub(crate) fn new(store: &StateStore, key: Bytes) -> Self {
        Self { lock: LeasedLock::new(store, key) }
    }

    /// The name under which others see the leader; the MQTT client id by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.lock = self.lock.name(name);
        self
    }

    /// How long a leader that dies is still the leader; ten seconds by default.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// How long a campaign may take; for ever by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.lock = self.lock.wait(wait);
        self
    }

    /// Stands for election until it is won. Dropping the future ends the campaign.
    ///
    /// # Errors
    /// As [`LeasedLock::acquire`].
    pub async fn campaign(&self) -> Result<Leadership, LockError> {
        Ok(Leadership { guard: self.lock.acquire().await? })
    }

    /// Who leads now; `None` when nobody does.
    ///
    /// # Errors
    /// As [`LeasedLock::holder`].
    pub async fn leader(&self) -> Result<Option<Holder>, Error> {
        self.lock.holder().await
    }

    /// Who leads, as it changes.
    ///
    /// # Errors
    /// As [`StateStore::watch`].
    pub async fn watch(&self) -> Result<HolderWatch, Error> {
        self.lock.watch().await
    }
}

/// An election that is won: the [guard](LockGuard) of its lock, in other words. Dropping it resigns.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// Whether this candidate leads now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// The term: the newest fencing token, greater than that of every leader before; `None` when another may lead by now.
    #[must_use]
    pub fn term(&self) -> Option<FencingToken> {
        self.guard.token()
    }

    /// Waits until the leadership is lost. Cancel safe.
    pub async fn lost(&self) -> LockLost {
        self.guard.lost().await
    }

    /// Stores a value as the leader, with errors as for [`LockGuard::set`].
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        self.guard.set(key, value)
    }

    /// Removes a key as the leader, with errors as for [`LockGuard::del`].
    pub fn del(&self, key: impl IntoBytes) -> Call<bool> {
        self.guard.del(key)
    }

    /// Removes a key as the leader if its value is `value`, with errors as for [`LockGuard::vdel`].
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal> {
        self.guard.vdel(key, value)
    }

    /// The guard of the lock underneath.
    pub const fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Makes way for another leader. Whether the store said so.
    ///
    /// # Errors
    /// [`LockLost`] when it was over already.
    pub async fn resign(self) -> Result<bool, LockLost> {
        self.guard.release().await
    }
}
