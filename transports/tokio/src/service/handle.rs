//! The handle of a service and its builder.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use statestore_capture::CapturedStore;
use statestore_proto::client::IntoBytes;
use statestore_proto::limits::StoreLimits;
use statestore_proto::store::{Access, Authorizer, Durability, Principal, StoreConfig};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::closed::StoreClosed;
use crate::drive::Driver;
use crate::drive::backoff::Backoff;
use crate::drive::clock::Clock;
use crate::journal::{DynJournal, Journal};
use crate::link::Link;
use crate::metrics::stats::{StatsHandle, StoreStats, lock_mutex};
use crate::service::capture::Capture;
use crate::service::persistence::UnloadedJournal;
use crate::service::task::StoreTask;
use crate::service::traffic::TrafficHandle;
use crate::status::{Status, StatusWatch};

/// A running store. Dropping it stops the store.
#[derive(Debug)]
pub struct StoreService {
    stop: watch::Sender<bool>,
    status: StatusWatch,
    stats: Arc<Mutex<StoreStats>>,
    traffic: Option<TrafficHandle>,
    task: JoinHandle<()>,
    // Dropping it would end the drive loop.
    _commands: mpsc::Sender<Infallible>,
}

/// Builder of a [`StoreService`].
#[must_use = "nothing is served before `spawn`"]
pub struct ServiceBuilder {
    config: StoreConfig,
    limits: Option<StoreLimits>,
    authorizer: Option<Authorizer>,
    journal: Option<Box<dyn DynJournal>>,
    storage_reserve: u64,
    capture: Option<Capture>,
    traffic: bool,
    seeds: Vec<(Bytes, Bytes)>,
    backoff: Backoff,
    runtime: Option<Handle>,
}

/// Omits the values of the seed.
impl fmt::Debug for ServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceBuilder")
            .field("config", &self.config)
            .field("limits", &self.limits)
            .field("authorizer", &self.authorizer.is_some())
            .field("journal", &self.journal.is_some())
            .field("storage_reserve", &self.storage_reserve)
            .field("capture", &self.capture.is_some())
            .field("traffic", &self.traffic)
            .field("seeds", &self.seeds.len())
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// The configuration requires durability but the service has no journal, so responses would wait
/// for durable records forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a durable store needs a journal: set one first, or omit `StoreConfig::durability`")]
pub struct NotDurable;

impl ServiceBuilder {
    /// Sets the configuration of the store machine: limits, authorizer, dialect.
    ///
    /// A store without an incarnation gets a random one when it starts. With a
    /// [`journal`](Self::journal), a configuration without durability gets
    /// [`Durability::Requested`]. [`limits`](Self::limits) and [`authorizer`](Self::authorizer) of
    /// this builder replace those of the configuration, in any order of the calls.
    ///
    /// # Errors
    /// [`NotDurable`] if the configuration has [`StoreConfig::durability`] and no
    /// [`journal`](Self::journal) is set.
    pub fn config(mut self, config: StoreConfig) -> Result<Self, NotDurable> {
        self.config = match (config.is_durable(), &self.journal) {
            (true, None) => return Err(NotDurable),
            // Without durability, the store would issue versions again after a restart, and
            // deleted keys would reappear.
            (false, Some(_)) => config.durability(Durability::Requested),
            _ => config,
        };
        Ok(self)
    }

    /// Sets the journal that persists the state of the store. The store begins with the state in
    /// the journal.
    ///
    /// By default it persists the values whose requesters ask for that (`aio-persistence`), and the
    /// responses to these requests. A later [configuration](Self::config) may persist everything
    /// with its [durability](StoreConfig::durability).
    ///
    /// With an external broker, make [registrations](StoreConfig::durable_registrations) durable
    /// too.
    pub fn journal(mut self, journal: impl Journal) -> Self {
        self.config = self.config.durability(Durability::Requested);
        self.journal = Some(Box::new(journal));
        self
    }

    /// Sets how many bytes the storage of the [journal](Self::journal) must have left, besides twice
    /// the [space to remove everything](statestore_proto::store::Store::removal_bytes) and the space
    /// for the rest of a snapshot in progress. Default: 64 MiB. With 0, nothing is refused.
    ///
    /// While it has less, it is [full](statestore_proto::store::Store::set_storage_full): a SET of a
    /// durable key and a durable KEYNOTIFY get the quota error. The store continues to serve all other
    /// requests.
    ///
    /// The space is compared before a request, without the bytes of that request. If values may
    /// exceed 3 MiB, add twice the longest one to the reserve.
    ///
    /// The reserve has no effect with a journal that does not know its
    /// [free bytes](Journal::free_bytes).
    pub const fn storage_reserve(mut self, bytes: u64) -> Self {
        self.storage_reserve = bytes;
        self
    }

    /// Captures all inputs and outputs of the store, from its start on; see
    /// [`capture`](crate::service::capture()).
    pub fn capture(mut self, capture: Capture) -> Self {
        self.capture = Some(capture);
        self
    }

    /// Sets whether requests are counted by client and by key for [`StoreService::traffic`]; off by
    /// default. Counting parses each timestamp a second time, and needs about 200 KiB.
    pub const fn traffic(mut self, is_counted: bool) -> Self {
        self.traffic = is_counted;
        self
    }

    /// Sets keys and values with which the store starts. A key that the [journal](Self::journal)
    /// contains keeps its value. Give them at each start: they become durable with the next snapshot
    /// of the journal at the earliest.
    ///
    /// The limits of the store do not apply to them, as for restored values. Nor do
    /// [policy of expiries](StoreConfig::expiry_policy): seeded keys remain until a client writes or
    /// deletes them.
    pub fn seed<K: IntoBytes, V: IntoBytes>(
        mut self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let pairs = pairs.into_iter();
        self.seeds.extend(pairs.map(|(key, value)| (key.into_bytes(), value.into_bytes())));
        self
    }

    /// Sets the function that authorizes every request; see [`StoreConfig::authorizer`].
    pub fn authorizer(
        mut self,
        authorizer: impl Fn(&Principal<'_>, Access, &[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.authorizer = Some(Box::new(authorizer));
        self
    }

    /// Sets the limits of the store.
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets the pauses between attempts to connect.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the runtime of the drive loop; by default the one that [`spawn`](Self::spawn) is called
    /// on.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Starts the drive loop. It loads the [journal](Self::journal), if any, and connects. It
    /// reconnects whenever the connection is lost, and the store retains its values until then.
    ///
    /// # Panics
    /// If called outside of a runtime, unless [`runtime`](Self::runtime) was set.
    #[track_caller]
    pub fn spawn(self, link: impl Link) -> StoreService {
        #[cfg(feature = "metrics")]
        crate::metrics::recorder::describe();
        let (commands, receiver) = mpsc::channel(1);
        let (stop, stopped) = watch::channel(false);
        let (status, status_receiver) = watch::channel(Status::Offline { last_error: None });
        let stats = Arc::new(Mutex::new(StoreStats::default()));
        let traffic = self.traffic.then(|| TrafficHandle::new(Instant::now()));
        let mut rng = fastrand::Rng::new();
        let mut config = self.config;
        if let Some(limits) = self.limits {
            config = config.limits(limits);
        }
        if let Some(authorizer) = self.authorizer {
            config = config.authorizer(authorizer);
        }
        if config.incarnation.is_none() {
            config = config.incarnation(rng.u64(..));
        }
        let store = match &self.capture {
            Some(capture) => CapturedStore::capturing(config, capture.redaction()),
            None => CapturedStore::new(config),
        };
        let driver = Driver {
            task: StoreTask::new(
                store,
                self.journal
                    .map(|journal| UnloadedJournal { journal, reserve: self.storage_reserve }),
                self.capture,
                Arc::clone(&stats),
                traffic.clone(),
            )
            .seed(self.seeds),
            link,
            commands: receiver,
            stop: stopped,
            status,
            backoff: self.backoff.pauses(rng.u64(..)),
            pause: std::time::Duration::ZERO,
            clock: Clock::new(),
        };
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::current(),
        };
        let task = runtime.spawn(driver.run());
        let status = StatusWatch::new(status_receiver);
        StoreService { stop, status, stats, traffic, task, _commands: commands }
    }
}

impl StoreService {
    /// A store with the default configuration, and a random hash seed and incarnation.
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder {
            config: StoreConfig::new(fastrand::Rng::new().u64(..)),
            limits: None,
            authorizer: None,
            journal: None,
            storage_reserve: 64 << 20,
            capture: None,
            traffic: false,
            seeds: Vec::new(),
            backoff: Backoff::default(),
            runtime: None,
        }
    }

    /// Waits until the store is connected and subscribed to requests. Cancel safe.
    ///
    /// # Errors
    /// [`StoreClosed`] if the service ends before that.
    pub async fn wait_connected(&self) -> Result<(), StoreClosed> {
        self.status.clone().wait_connected().await
    }

    /// Returns a watch of the connection's state.
    #[must_use]
    pub fn status(&self) -> StatusWatch {
        self.status.clone()
    }

    /// Statistics of the store. They contain the effects of all requests that it has responded to.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        *lock_mutex(&self.stats)
    }

    /// Returns a handle for the statistics that can be used elsewhere, and after the service has
    /// ended.
    #[must_use]
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle(Arc::clone(&self.stats))
    }

    /// Returns a handle for the traffic by client and by key; `None` unless it is
    /// [counted](ServiceBuilder::traffic).
    #[must_use]
    pub fn traffic(&self) -> Option<TrafficHandle> {
        self.traffic.clone()
    }

    /// Waits until the store has ended because of a permanent error of its link or its journal, or
    /// because its runtime ended. Cancel safe.
    pub async fn wait_closed(&self) -> StoreClosed {
        self.status.clone().wait_closed().await
    }

    /// Stops the store after it has sent its queued packets and persisted its records. Returns when
    /// the store has stopped, which takes as long as the journal needs.
    pub async fn shutdown(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}
