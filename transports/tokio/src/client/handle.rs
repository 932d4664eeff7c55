//! The handle of an application: builder, shared state and shutdown. The operations are next to
//! their results: requests in `call`, watches in `watch`, locks and elections in `lock`.

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

use crate::client::error::Error;
use crate::client::releases::Releases;
use crate::client::task::{ClientTask, Command, Completion};
use crate::closed::StoreClosed;
use crate::drive::Driver;
use crate::drive::backoff::Backoff;
use crate::drive::clock::Clock;
use crate::link::Link;
use crate::metrics::stats::{ClientStats, lock_mutex};
use crate::status::{Status, StatusWatch};

/// Default interval at which watches renew their registration. It is long enough to cost little. It
/// bounds the time until an idle client detects a restarted store.
const RENEWAL: Duration = Duration::from_secs(30);

/// Capacity of the command queue. Callers wait while it is full.
const COMMANDS_MAX: usize = 256;

/// A state store, as an application uses it. Clones share one connection.
///
/// The connection is closed when the last clone and the last [`Watch`](crate::Watch) are dropped.
#[derive(Clone)]
pub struct StateStore {
    pub(crate) shared: Arc<Shared>,
}

/// State that the clones of a handle share.
pub(crate) struct Shared {
    pub(crate) commands: mpsc::Sender<Command>,
    stop: watch::Sender<bool>,
    status: StatusWatch,
    replaced: watch::Receiver<Option<Incarnation>>,
    /// Releases of locks in progress.
    pub(crate) releases: Releases,
    last_call: AtomicU64,
    client_id: Arc<str>,
    stats: Arc<Mutex<ClientStats>>,
    /// The runtime of lock tasks.
    pub(crate) runtime: Handle,
}

/// Builder of a [`StateStore`].
#[derive(Default)]
#[must_use = "nothing is connected before `spawn`"]
pub struct Builder {
    configure: Vec<Configure>,
    runtime: Option<Handle>,
    backoff: Backoff,
}

type Configure = Box<dyn FnOnce(ClientConfig) -> ClientConfig + Send>;

impl Builder {
    /// Sets the default time limit of a request; ten seconds by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.configure(move |config| config.timeout(timeout))
    }

    /// Sets the interval at which watches renew their registration, 30 seconds by default; `None`
    /// for never. [`ClientConfig::renew_watches`] describes the purpose.
    pub fn renew_watches(self, interval: Option<Duration>) -> Self {
        self.configure(move |config| config.renew_watches(interval))
    }

    /// Sets the limits of the client.
    pub fn limits(self, limits: ClientLimits) -> Self {
        self.configure(move |config| config.limits(limits))
    }

    /// Sets the pauses between attempts to connect.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the runtime of the drive loop and of the tasks of locks; by default the one that
    /// [`spawn`](Self::spawn) is called on.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Changes other parts of the configuration of the client machine.
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
    /// [`ConfigError`] if the client id of the link or a value of the configuration is invalid.
    ///
    /// # Panics
    /// If called outside of a runtime, unless [`runtime`](Self::runtime) was set.
    #[track_caller]
    pub fn spawn(self, link: impl Link) -> Result<StateStore, ConfigError> {
        let mut rng = fastrand::Rng::new();
        let config = ClientConfig::new(link.client_id(), rng.u64(..).to_be_bytes());
        let config = config.renew_watches(Some(RENEWAL));
        let config = self.configure.into_iter().fold(config, |config, change| change(config));
        let client_id = Arc::clone(config.client_id());
        let client = Client::new(config)?;
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = watch::channel(false);
        let (status, status_receiver) = watch::channel(Status::Offline { last_error: None });
        let (replaced, replaced_by) = watch::channel(None);
        let stats = Arc::default();
        let driver = Driver {
            task: ClientTask::new(client, replaced, Arc::clone(&stats)),
            link,
            commands: receiver,
            stop: stopped,
            status,
            backoff: self.backoff.pauses(rng.u64(..)),
            pause: Duration::ZERO,
            clock: Clock::new(),
        };
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::current(),
        };
        // It ends on shutdown, or when the last handle is dropped.
        drop(runtime.spawn(driver.run()));
        let shared = Shared {
            commands,
            stop,
            status: StatusWatch::new(status_receiver),
            stats,
            replaced: replaced_by,
            releases: Releases::default(),
            last_call: AtomicU64::new(0),
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
    /// Returns a builder. The MQTT client id of the handle is that of the link.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The MQTT client id.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.shared.client_id
    }

    /// Waits until the client is connected and subscribed to its response topic, so that requests
    /// are sent. This does not show whether a store is subscribed at the broker; only a response
    /// shows that. Without a time limit; each request has one. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Closed`] if the handle ends before that.
    pub async fn wait_connected(&self) -> Result<(), Error> {
        self.shared.status.clone().wait_connected().await.map_err(Error::Closed)
    }

    /// Waits until the handle has ended: after a [`shutdown`](Self::shutdown) of a clone, or
    /// because of a permanent error of its link. Cancel safe.
    pub async fn wait_closed(&self) -> StoreClosed {
        self.shared.status.clone().wait_closed().await
    }

    /// Returns a watch of the connection's state, for an application that displays it or waits for
    /// a reconnect.
    ///
    /// ```
    /// use statestore_tokio::{StateStore, Status};
    ///
    /// async fn show(store: StateStore) {
    ///     let mut status = store.status();
    ///     println!("{}", status.current());
    ///     while let Some(status) = status.changed().await {
    ///         println!("{status}"); // "offline: connection refused (at …)"
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn status(&self) -> StatusWatch {
        self.shared.status.clone()
    }

    /// Statistics of the client, as of the last turn of its drive loop.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        *lock_mutex(&self.shared.stats)
    }

    /// Closes the connection. Requests without a response fail. Locks whose guards were dropped are
    /// released first, if the store responds within a second. Returns when the drive loop has
    /// ended.
    pub async fn shutdown(self) {
        self.shared.releases.wait_done().await;
        let _ = self.shared.stop.send(true);
        self.shared.commands.closed().await;
    }

    /// Receives the incarnation of each store that replaces the previous one from now on.
    pub(crate) fn incarnations(&self) -> watch::Receiver<Option<Incarnation>> {
        let mut replacements = self.shared.replaced.clone();
        replacements.mark_unchanged();
        replacements
    }

    pub(crate) async fn outcome(&self, request: Request, span: Span) -> Result<Outcome, Error> {
        Ok(self.completion(request, span).await?.outcome)
    }

    pub(crate) async fn completion(
        &self,
        request: Request,
        span: Span,
    ) -> Result<Completion, Error> {
        let call = self.shared.last_call.fetch_add(1, Ordering::Relaxed);
        let (answer, completion) = oneshot::channel();
        self.send_command(Command::Submit { call, request, span, answer }).await?;
        let mut cancel = CancelOnDrop { store: self, call: Some(call) };
        let completion = completion.await;
        cancel.call = None;
        completion.map_err(|_| self.closed())?
    }

    pub(crate) async fn send_command(&self, command: Command) -> Result<(), Error> {
        self.shared.commands.send(command).await.map_err(|_| self.closed())
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
    call: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            // If the command queue is full, the request ends at its time limit.
            let _ = self.store.shared.commands.try_send(Command::Cancel { call });
        }
    }
}
