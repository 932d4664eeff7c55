//! The handle of an application: how it is made, what it shares, how it ends. What it asks for stands with what that
//! gives: requests in `call`, watches in `watch`, locks and elections in `lock`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_proto::client::{Client, ClientConfig, ConfigError, Outcome, Request};
use statestore_proto::limits::ClientLimits;
use statestore_proto::message::Incarnation;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Span;

use crate::backoff::{Backoff, Pauses};
use crate::client_task::{ClientTask, Op, Reason};
use crate::clock::Clock;
use crate::drive::Driver;
use crate::error::Error;
use crate::link::Link;
use crate::releases::Releases;
use crate::stats::{ClientStats, lock};
use crate::status::{Status, StatusWatch};

/// How often watches renew their registration: rarely enough to cost nothing, and often enough that nobody waits long for
/// the notice that a store was started anew.
const RENEWAL: Duration = Duration::from_secs(30);

/// Commands that wait for the drive loop; past that, callers wait.
const COMMANDS_MAX: usize = 256;

/// A state store, as an application sees it. Clones share one connection.
///
/// When the last clone and the last [`Watch`](crate::Watch) are gone the connection is closed.
#[derive(Clone)]
pub struct StateStore {
    pub(crate) shared: Arc<Shared>,
}

/// What clones of a handle share.
pub(crate) struct Shared {
    pub(crate) commands: mpsc::Sender<Op>,
    stop: watch::Sender<bool>,
    status: StatusWatch,
    replaced: watch::Receiver<Option<Incarnation>>,
    /// The locks that are being given back.
    pub(crate) releases: Releases,
    last_key: AtomicU64,
    client_id: Arc<str>,
    stats: Arc<Mutex<ClientStats>>,
    reason: Reason,
    /// The runtime of lock tasks.
    pub(crate) runtime: Handle,
}

/// Makes a [`StateStore`].
#[derive(Default)]
#[must_use = "nothing is connected before `spawn`"]
pub struct Builder {
    configure: Vec<Configure>,
    runtime: Option<Handle>,
    backoff: Backoff,
}

type Configure = Box<dyn FnOnce(ClientConfig) -> ClientConfig + Send>;

impl Builder {
    /// How long a request may take unless it says otherwise; ten seconds by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.configure(move |config| config.timeout(timeout))
    }

    /// How often watches renew their registration, every 30 seconds by default; `None` is never. See
    /// [`ClientConfig::renew_watches`] for what that is good for.
    pub fn renew_watches(self, interval: Option<Duration>) -> Self {
        self.configure(move |config| config.renew_watches(interval))
    }

    /// Other limits.
    pub fn limits(self, limits: ClientLimits) -> Self {
        self.configure(move |config| config.limits(limits))
    }

    /// Other pauses between tries to connect.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The runtime that the drive loop and the tasks of locks run on; by default the one that [`spawn`](Self::spawn) is
    /// called on.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Changes whatever else the configuration of the client machine has.
    pub fn configure(
        mut self,
        change: impl FnOnce(ClientConfig) -> ClientConfig + Send + 'static,
    ) -> Self {
        self.configure.push(Box::new(change));
        self
    }

    /// Starts the drive loop. It connects at once, and again whenever the connection is lost.
    ///
    /// # Errors
    /// [`ConfigError`] when the client id of the link cannot be one.
    ///
    /// # Panics
    /// When there is no [`runtime`](Self::runtime): called outside of one, and without having been given one.
    #[track_caller]
    pub fn spawn(self, link: impl Link) -> Result<StateStore, ConfigError> {
        let mut rng = fastrand::Rng::new();
        let config = ClientConfig::new(link.client_id(), rng.u64(..).to_be_bytes())?;
        let config = config.renew_watches(Some(RENEWAL));
        let config = self.configure.into_iter().fold(config, |config, change| change(config));
        let client_id = Arc::clone(config.client_id());
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = watch::channel(false);
        let (status, status_of) = watch::channel(Status::Offline { reason: None });
        let (replaced, replaced_by) = watch::channel(None);
        let stats = Arc::default();
        let reason = Reason::default();
        let driver = Driver {
            task: ClientTask::new(
                Client::new(config),
                replaced,
                Arc::clone(&stats),
                Arc::clone(&reason),
            ),
            link,
            commands: receiver,
            stop: stopped,
            status,
            pauses: Pauses::new(self.backoff, rng),
            clock: Clock::new(),
        };
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::current(),
        };
        // It ends when it is told to, or when the last handle is gone.
        drop(runtime.spawn(driver.run()));
        let shared = Shared {
            commands,
            stop,
            status: StatusWatch::new(status_of),
            stats,
            reason,
            replaced: replaced_by,
            releases: Releases::default(),
            last_key: AtomicU64::new(0),
            client_id,
            runtime,
        };
        Ok(StateStore { shared: Arc::new(shared) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("backoff", &self.backoff).finish_non_exhaustive()
    }
}

impl StateStore {
    /// Makes a handle. Its MQTT client id is that of the link.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The MQTT client id.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.shared.client_id
    }

    /// Waits until requests go out: connected, and the response topic subscribed by the broker. Whether a store listens
    /// behind that broker, only an answer tells.
    ///
    /// # Errors
    /// [`Error::Closed`] when that will never be.
    pub async fn connected(&self) -> Result<(), Error> {
        self.shared.status.clone().online().await.map_err(Error::Closed)
    }

    /// How this handle stands with its broker, and what becomes of that: for an application that shows it, or that waits
    /// for a connection to come back.
    ///
    /// ```
    /// use statestore_tokio::{StateStore, Status};
    ///
    /// async fn show(store: StateStore) {
    ///     let mut status = store.status();
    ///     println!("{}", status.current());
    ///     while let Some(status) = status.changed().await {
    ///         println!("{status}"); // as "offline: I/O: Connection refused"
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn status(&self) -> StatusWatch {
        self.shared.status.clone()
    }

    /// What the client has outstanding and has done, as of its last step.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        *lock(&self.shared.stats)
    }

    /// Why the store has refused the request that it refused last, where it [says
    /// so](statestore_proto::store::StoreConfig::explain): a line for people, to be shown escaped, since it is text of the
    /// store. Of several requests at a time it is that of the one whose [`Error::Refused`] came last. What a watch is refused is
    /// not among them.
    #[must_use]
    pub fn last_reason(&self) -> Option<Arc<str>> {
        lock(&self.shared.reason).clone()
    }

    /// Ends the connection; requests without an answer fail. Locks whose guards were dropped are given back first, as far
    /// as the store answers within a second. Returns when the drive loop has ended.
    pub async fn shutdown(self) {
        self.shared.releases.done().await;
        let _ = self.shared.stop.send(true);
        self.shared.commands.closed().await;
    }

    /// Changes when another store has taken the place of the one before, from now on.
    pub(crate) fn replacements(&self) -> watch::Receiver<Option<Incarnation>> {
        let mut replacements = self.shared.replaced.clone();
        replacements.mark_unchanged();
        replacements
    }

    pub(crate) async fn outcome(&self, request: Request, span: Span) -> Result<Outcome, Error> {
        let key = self.shared.last_key.fetch_add(1, Ordering::Relaxed);
        let (answer, outcome) = oneshot::channel();
        self.ask(Op::Submit { key, request, span, answer }).await?;
        let mut given_up = CancelOnDrop { store: self, key: Some(key) };
        let outcome = outcome.await;
        given_up.key = None;
        outcome.map_err(|_| self.closed())?
    }

    pub(crate) async fn ask(&self, ask: Op) -> Result<(), Error> {
        self.shared.commands.send(ask).await.map_err(|_| self.closed())
    }

    pub(crate) fn closed(&self) -> Error {
        Error::Closed(self.shared.status.closed())
    }
}

impl fmt::Debug for StateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateStore")
            .field("client_id", &self.shared.client_id)
            .finish_non_exhaustive()
    }
}

/// Cancels a request when its future is dropped.
struct CancelOnDrop<'a> {
    store: &'a StateStore,
    key: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // When there is no room the request ends by its time-out.
            let _ = self.store.shared.commands.try_send(Op::Cancel { key });
        }
    }
}
