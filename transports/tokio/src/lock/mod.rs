//! Locks and elections for applications: what the machine of the core decides, a task of its own does.

mod election;
mod guard;
mod holder_watch;
mod task;
mod update;

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::IntoBytes;
use statestore_proto::lock::{Holder, LockConfig, NotAcquired};
use tokio::sync::{mpsc, watch};

use crate::call::value;
use crate::clock::Clock;
use crate::error::Error;
use crate::fence::{End, Fence, LockStatus};
use crate::handle::StateStore;

pub use election::{Election, Leadership};
pub use guard::{LockGuard, LockLost};
pub use holder_watch::HolderWatch;
pub use update::Update;

use task::LockTask;

impl StateStore {
    /// A lock with this key. Nothing is taken before [`LeasedLock::acquire`].
    pub fn lock(&self, key: impl IntoBytes) -> LeasedLock {
        LeasedLock::new(self, key.into_bytes())
    }

    /// An election with this key. Nobody stands before [`Election::campaign`].
    pub fn election(&self, key: impl IntoBytes) -> Election {
        Election::new(self, key.into_bytes())
    }
}

/// The lease when nothing else is said: short enough to wait for when a holder dies, long enough for renewals over a bad
/// connection.
const LEASE: Duration = Duration::from_secs(10);

/// Why a lock was not acquired, or why what was to be done under it was not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was not acquired. What an unanswered try may have taken all the same is given back.
    #[error("the lock was not acquired: {0}")]
    NotAcquired(NotAcquired),
    /// Others changed the key of an edit again and again, without holding the lock.
    #[error("the key was changed again and again by others who do not hold the lock")]
    Contested,
    /// The lock was lost before what was to be done under it was done.
    #[error(transparent)]
    Lost(#[from] LockLost),
    /// A request under the lock failed, or the handle is closed.
    #[error(transparent)]
    Request(#[from] Error),
}

/// A lock of a store: a key that one holder at a time has for a lease, which is renewed until it is released.
///
/// ```
/// # use statestore_loopback::Hub;
/// # use statestore_tokio::{StateStore, StoreService};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let broker = Hub::new();
/// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
/// # service.connected().await?;
/// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
/// let guard = store.lock("locks/boiler").lease(Duration::from_secs(5)).acquire().await?;
/// guard.set("boiler", "on").await?; // refused if somebody else has got the lock meanwhile
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # What a lease promises, and what not
///
/// Writes through the guard are safe: they carry the fencing token, and the store refuses those of a holder that was
/// asleep while another took over. What is done outside of the store is not protected: between asking
/// [`LockGuard::is_held`] and doing something a process may be stopped for longer than the lease. On a machine that is
/// suspended the clock that counts the lease may stand still too.
///
/// A store in memory that is started anew has forgotten its locks and what they guard. Where it says which one it is, as
/// those of this project do, every lock of the handle is lost as soon as any request of it is answered; the deployed store
/// renews them without a word.
#[derive(Clone, Debug)]
#[must_use = "a lock is taken when it is acquired"]
pub struct LeasedLock {
    store: StateStore,
    key: Bytes,
    name: String,
    lease: Duration,
    wait: Option<Duration>,
    renew_after: Option<Duration>,
    margin: Option<Duration>,
    longest_lease: Option<Duration>,
}

impl LeasedLock {
    pub(crate) fn new(store: &StateStore, key: Bytes) -> Self {
        Self {
            store: store.clone(),
            key,
            name: store.client_id().to_owned(),
            lease: LEASE,
            wait: None,
            renew_after: None,
            margin: None,
            longest_lease: None,
        }
    }

    /// The name under which others see the holder; the MQTT client id by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long the lock stays taken when its holder dies; ten seconds by default, a millisecond at least.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long to wait for a lock that another holds; for ever by default.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// When to renew, counted from the last success; a third of the lease by default.
    pub const fn renew_after(mut self, renew_after: Duration) -> Self {
        self.renew_after = Some(renew_after);
        self
    }

    /// How much earlier than the store this holder considers its lease over; a tenth of the lease by default.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// The longest lease that other holders of this lock take; that of this one by default. A waiter tries again at the
    /// latest when it has heard nothing for so long.
    pub const fn longest_lease(mut self, lease: Duration) -> Self {
        self.longest_lease = Some(lease);
        self
    }

    /// Takes the lock as soon as it is free. Dropping the future gives it up and leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError::NotAcquired`] when the [wait](Self::wait) is over or the store refuses; [`Error::Closed`] within
    /// [`LockError::Request`].
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.begin(false).await
    }

    /// Tries once to take the lock; `None` when another holds it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and when the store does not answer.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        match self.begin(true).await {
            Ok(guard) => Ok(Some(guard)),
            Err(LockError::NotAcquired(NotAcquired::Taken)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Who holds the lock now; `None` when nobody does.
    ///
    /// # Errors
    /// [`Error`], as any read.
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        let outcome = self.store.outcome(Holder::query(self.key.clone()), tracing::Span::none());
        Ok(value(outcome.await?)?.map(|found| Holder::new(found.value, found.version)))
    }

    /// Who holds the lock, as it changes.
    ///
    /// # Errors
    /// As [`StateStore::watch`].
    pub async fn watch(&self) -> Result<HolderWatch, Error> {
        Ok(HolderWatch::new(self.store.watch(self.key.clone()).await?))
    }

    async fn begin(&self, once: bool) -> Result<LockGuard, LockError> {
        let (stop, stopped) = watch::channel(None);
        let (status, status_of) = watch::channel(LockStatus::Waiting);
        let (fenced_out, fencings) = mpsc::channel(1);
        let clock = Clock::new();
        let nonce = fastrand::Rng::new().u64(..).to_be_bytes();
        let task = LockTask::new(self, self.config(nonce), clock, once);
        drop(self.store.shared.runtime.spawn(task.run(status, fencings, stopped)));
        let fence = Fence::new(status_of, fenced_out);
        // Dropped with the future it ends the try.
        let guard = LockGuard::new(self.store.clone(), fence.clone(), stop);
        match fence.decided().await {
            LockStatus::Over(End::GaveUp(reason)) => Err(LockError::NotAcquired(reason)),
            LockStatus::Over(End::Closed(closed)) => Err(Error::Closed(closed).into()),
            _ => Ok(guard),
        }
    }

    fn config(&self, nonce: [u8; 8]) -> LockConfig {
        let mut config = LockConfig::new(self.key.clone(), &self.name, nonce, self.lease);
        if let Some(renew_after) = self.renew_after {
            config = config.renew_after(renew_after);
        }
        if let Some(margin) = self.margin {
            config = config.margin(margin);
        }
        if let Some(longest_lease) = self.longest_lease {
            config = config.longest_lease(longest_lease);
        }
        config
    }
}
