//! Locks and elections for applications. The lock machine of the core decides; a task per lock
//! drives it.

mod election;
mod guard;
mod holder_watch;
mod task;
mod update;

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{IntoBytes, Request, RequestError};
use statestore_proto::lock::{Holder, Lock, LockConfig, LockConfigError, NotAcquired};
use tokio::sync::{mpsc, watch};

use crate::client::call::value;
use crate::client::error::Error;
use crate::client::fence::{Fence, LockEnd, LockLost, LockStatus};
use crate::client::handle::StateStore;
use crate::drive::backoff::Backoff;
use crate::drive::clock::Clock;
use crate::status::Status;

pub use election::{Election, Leadership};
pub use guard::LockGuard;
pub use holder_watch::HolderWatch;
pub use update::Update;

use task::LockTask;

impl StateStore {
    /// A lock with this key. No request is sent before [`LeasedLock::acquire`].
    pub fn lock(&self, key: impl IntoBytes) -> LeasedLock {
        LeasedLock::new(self, key.into_bytes())
    }

    /// An election with this key. No request is sent before [`Election::campaign`].
    pub fn election(&self, key: impl IntoBytes) -> Election {
        Election::new(self, key.into_bytes())
    }
}

/// The default lease: short enough to wait for after a holder has died, long enough for renewals
/// over a bad connection.
const LEASE: Duration = Duration::from_secs(10);

/// Error of acquiring a lock, or of work under it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was not acquired. If an unanswered request acquired it nevertheless, it is
    /// released.
    #[error("the lock was not acquired: {0}")]
    NotAcquired(NotAcquired),
    /// The configuration is invalid. Nothing was sent.
    #[error("invalid lock configuration: {0}")]
    Config(LockConfigError),
    /// Clients that do not hold the lock changed the key of an edit in each of eight rounds.
    #[error("edit abandoned: clients that do not hold the lock kept changing the key")]
    EditContested,
    /// The lock was lost before the work under it was complete.
    #[error(transparent)]
    Lost(#[from] LockLost),
    /// A request under the lock failed, or the handle is closed.
    #[error(transparent)]
    Request(Error),
}

impl From<LockConfigError> for LockError {
    fn from(error: LockConfigError) -> Self {
        Self::Config(error)
    }
}

/// A write that failed because the lock was lost is [`LockError::Lost`].
impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        match error {
            Error::LockLost(lost) => Self::Lost(lost),
            error => Self::Request(error),
        }
    }
}

/// A lock of a store: a key that one holder at a time has for a lease. The lease is renewed until
/// the lock is released.
///
/// ```
/// # use statestore_loopback::Hub;
/// # use statestore_tokio::{StateStore, StoreService};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let broker = Hub::new();
/// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
/// # service.wait_connected().await?;
/// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
/// let guard = store.lock("locks/boiler").lease(Duration::from_secs(5)).acquire().await?;
/// guard.set("boiler", "on").await?; // refused if a newer holder has written the key
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees and limits of a lease
///
/// Writes through the guard are safe: they carry the fencing token. The store refuses the writes of
/// a holder that was suspended while another client acquired the lock. Effects outside of the store
/// are not protected: a process may be suspended for longer than the lease between a call of
/// [`LockGuard::is_held`] and the effect. On a machine that is suspended, the clock that counts the
/// lease may stop too.
///
/// A lock that has been held for a second watches its key. So it is lost at once if another client
/// deletes or overwrites the key. The watch needs a registration at the store. If the store refuses
/// it, a renewal notices only another holder, and sets a deleted key again.
///
/// A store in memory loses its locks and its fences when it restarts. If the store sends an
/// incarnation, as the stores of this project do, every lock of the handle is lost as soon as the
/// new store responds to any request. The deployed store sends none, and renews these locks without
/// an error.
#[derive(Clone, Debug)]
#[must_use = "call `acquire` to acquire the lock"]
pub struct LeasedLock {
    store: StateStore,
    key: Bytes,
    name: String,
    lease: Duration,
    acquire_timeout: Option<Duration>,
    renew_after: Option<Duration>,
    margin: Option<Duration>,
    max_lease: Option<Duration>,
    retry: Option<Backoff>,
}

impl LeasedLock {
    pub(crate) fn new(store: &StateStore, key: Bytes) -> Self {
        Self {
            store: store.clone(),
            key,
            name: store.client_id().to_owned(),
            lease: LEASE,
            acquire_timeout: None,
            renew_after: None,
            margin: None,
            max_lease: None,
            retry: None,
        }
    }

    /// Sets the name of the holder that other clients see; the MQTT client id by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the lease: how long the lock stays held after its holder has died; ten seconds by
    /// default.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the time limit of [`acquire`](Self::acquire), which waits for another holder; unlimited
    /// by default.
    pub const fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = Some(timeout);
        self
    }

    /// Sets the time from the last successful request to the next renewal; a third of the lease by
    /// default.
    pub const fn renew_after(mut self, renew_after: Duration) -> Self {
        self.renew_after = Some(renew_after);
        self
    }

    /// Sets the time by which this holder considers its lease over before the store does; a tenth
    /// of the lease by default.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets the longest lease of other holders of this lock; the lease of this one by default.
    /// After this time without a notification, a waiter tries again.
    pub const fn max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = Some(lease);
        self
    }

    /// Sets the pauses of a waiter after a request that failed: no response, no store, or no
    /// connection. By default they begin with a fiftieth of the lease and end with a quarter of it.
    /// A holder renews its lock with the same pauses.
    ///
    /// They do not apply to a lock that another holder has: a waiter is notified of its release, and
    /// tries again after the [longest lease](Self::max_lease) without a notification. The number of
    /// attempts is not limited; [`acquire_timeout`](Self::acquire_timeout) limits their time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use statestore_tokio::{Backoff, LeasedLock, StateStore};
    ///
    /// /// A lock for a slow network: few requests while no store responds.
    /// fn patient(store: &StateStore) -> LeasedLock {
    ///     let pauses =
    ///         Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
    ///     let lease = Duration::from_secs(120);
    ///     store.lock("locks/boiler").lease(lease).retry(pauses).acquire_timeout(5 * lease)
    /// }
    /// ```
    pub const fn retry(mut self, pauses: Backoff) -> Self {
        self.retry = Some(pauses);
        self
    }

    /// Acquires the lock as soon as it is free. Dropping the future cancels the attempt, and
    /// releases the lock if a request in flight acquires it.
    ///
    /// # Errors
    /// * [`LockError::Config`] if a duration is invalid;
    /// * [`LockError::NotAcquired`] if the [time limit](Self::acquire_timeout) passes or the store
    ///   refuses;
    /// * [`Error::Closed`] within [`LockError::Request`] if the handle ends.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.begin(false).await
    }

    /// Tries once to acquire the lock; `None` if another holder has it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and if the store does not respond.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        match self.begin(true).await {
            Ok(guard) => Ok(Some(guard)),
            Err(LockError::NotAcquired(NotAcquired::Taken)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The current holder of the lock; `None` if the lock is free.
    ///
    /// # Errors
    /// [`Error`], as for any read.
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        let outcome = self.store.outcome(Request::get(&self.key).into(), tracing::Span::none());
        Ok(value(outcome.await?)?.map(|found| Holder::new(found.value, found.version)))
    }

    /// Watches the holder of the lock.
    ///
    /// # Errors
    /// As [`StateStore::watch`].
    pub async fn watch(&self) -> Result<HolderWatch, Error> {
        Ok(HolderWatch::new(self.store.watch(self.key.clone()).await?))
    }

    async fn begin(&self, once: bool) -> Result<LockGuard, LockError> {
        let (stop, stopped) = watch::channel(None);
        let (status, status_receiver) = watch::channel(LockStatus::Waiting);
        let (fenced_out, fencings) = mpsc::channel(1);
        let clock = Clock::new();
        let nonce = fastrand::Rng::new().u64(..).to_be_bytes();
        let lock = Lock::new(self.config(nonce))?;
        let task = LockTask::new(self, lock, clock, once);
        drop(self.store.shared.runtime.spawn(task.run(status, fencings, stopped)));
        let fence = Fence::new(status_receiver, fenced_out);
        // Dropping the future drops the guard, which ends the attempt.
        let guard = LockGuard::new(self.store.clone(), fence.clone(), stop);
        match fence.wait_decided().await {
            LockStatus::Over(LockEnd::AcquireFailed(reason)) => {
                let is_offline = matches!(self.store.status().current(), Status::Offline { .. });
                Err(LockError::NotAcquired(match reason {
                    NotAcquired::Deadline | NotAcquired::NoAnswer if is_offline => {
                        NotAcquired::Unreachable(RequestError::NotSent)
                    }
                    reason => reason,
                }))
            }
            LockStatus::Over(LockEnd::Closed(closed)) => Err(Error::Closed(closed).into()),
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
        if let Some(max_lease) = self.max_lease {
            config = config.max_lease(max_lease);
        }
        if let Some(Backoff { first, longest }) = self.retry {
            config = config.retry(first, longest);
        }
        config
    }
}
