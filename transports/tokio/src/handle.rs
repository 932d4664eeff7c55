//! The handle of an application: cloneable, one method for each command.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use statestore_proto::client::{
    Client, ClientConfig, ConfigError, IntoBytes, Outcome, Removal, Request, VersionedValue,
};
use statestore_proto::hlc::Version;
use statestore_proto::limits::ClientLimits;
use statestore_proto::message::Incarnation;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Span;

use crate::backoff::{Backoff, Pauses};
use crate::call::{self, Call, Set};
use crate::client_task::{ClientTask, Op};
use crate::clock::Clock;
use crate::drive::Driver;
use crate::error::Error;
use crate::link::Link;
use crate::lock::{Election, LeasedLock};
use crate::status::{Status, StatusWatch};
use crate::watch::Watch;

/// How often watches renew their registration: rarely enough to cost nothing, and often enough that nobody waits long for
/// the news that a store was started anew.
const RENEWAL: Duration = Duration::from_secs(30);

/// Commands that wait for the drive loop; past that, callers wait.
const COMMANDS_MAX: usize = 256;

/// A state store, as an application sees it. Clones share one connection.
///
/// When the last clone and the last [`Watch`] are gone the connection is closed.
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
    last_key: AtomicU64,
    client_id: Arc<str>,
}

/// Makes a [`StateStore`].
#[derive(Clone, Debug)]
pub struct Builder {
    client_id: String,
    config: Option<ClientConfig>,
    timeout: Option<Duration>,
    limits: Option<ClientLimits>,
    backoff: Backoff,
}

impl Builder {
    /// How long a request may take unless it says otherwise; ten seconds by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Other limits.
    #[must_use]
    pub const fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Other pauses between tries to connect.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Another configuration of the client machine; timeout and limits given here still count. Its watches renew their
    /// registration only if it says so; without one they do every 30 seconds.
    #[must_use]
    pub fn config(mut self, config: ClientConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Starts the drive loop on this runtime. It connects at once, and again whenever the connection is lost.
    ///
    /// The link must use the client id that this was built for.
    ///
    /// # Errors
    /// [`ConfigError`] when the client id cannot be one.
    pub fn spawn(self, link: impl Link) -> Result<StateStore, ConfigError> {
        let mut rng = fastrand::Rng::new();
        let mut config = match self.config {
            Some(config) => config,
            None => ClientConfig::new(&self.client_id, rng.u64(..).to_be_bytes())?
                .renew_watches(Some(RENEWAL)),
        };
        if let Some(timeout) = self.timeout {
            config = config.timeout(timeout);
        }
        if let Some(limits) = self.limits {
            config = config.limits(limits);
        }
        let client_id = Arc::clone(config.client_id());
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = watch::channel(false);
        let (status, status_of) = watch::channel(Status::Offline { reason: None });
        let (replaced, replaced_by) = watch::channel(None);
        let driver = Driver {
            task: ClientTask::new(Client::new(config), replaced),
            link,
            commands: receiver,
            stop: stopped,
            status,
            pauses: Pauses::new(self.backoff, rng),
            clock: Clock::new(),
        };
        // It ends when it is told to, or when the last handle is gone.
        drop(tokio::spawn(driver.run()));
        let shared = Shared {
            commands,
            stop,
            status: StatusWatch::new(status_of),
            replaced: replaced_by,
            last_key: AtomicU64::new(0),
            client_id,
        };
        Ok(StateStore { shared: Arc::new(shared) })
    }
}

impl StateStore {
    /// A handle for the client with this MQTT client id.
    #[must_use]
    pub fn builder(client_id: impl Into<String>) -> Builder {
        Builder {
            client_id: client_id.into(),
            config: None,
            timeout: None,
            limits: None,
            backoff: Backoff::default(),
        }
    }

    /// The MQTT client id.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.shared.client_id
    }

    /// Reads a value; `None` when there is none.
    pub fn get(&self, key: impl IntoBytes) -> Call<Option<VersionedValue>> {
        Call::new(self, Request::get(key), call::value)
    }

    /// Stores a value, whatever is stored, and gives its version. The options of the call make it conditional, or let
    /// the value expire.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        Set::new(self, Request::set(key, value))
    }

    /// Removes a key; whether it was there.
    pub fn del(&self, key: impl IntoBytes) -> Call<bool> {
        Call::new(self, Request::del(key), call::was_removed)
    }

    /// Removes a key if its value is `value`.
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal> {
        Call::new(self, Request::vdel(key, value), call::removal)
    }

    /// Watches a key: its value now, and every change from then on. A key may be watched more than once.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the key cannot be watched, [`Error::Closed`].
    pub async fn watch(&self, key: impl IntoBytes) -> Result<Watch, Error> {
        let (answer, started) = oneshot::channel();
        self.ask(Op::Watch { key: key.into_bytes(), answer }).await?;
        let started = started.await.map_err(|_| self.closed())?.map_err(Error::Invalid)?;
        Ok(Watch::new(started, self.clone()))
    }

    /// A lock with this key. Nothing is taken before [`LeasedLock::acquire`].
    pub fn lock(&self, key: impl IntoBytes) -> LeasedLock {
        LeasedLock::new(self, key.into_bytes())
    }

    /// An election with this key. Nobody stands before [`Election::campaign`].
    pub fn election(&self, key: impl IntoBytes) -> Election {
        Election::new(self, key.into_bytes())
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
    #[must_use]
    pub fn status(&self) -> StatusWatch {
        self.shared.status.clone()
    }

    /// Ends the connection; requests without an answer fail. Returns when the drive loop has ended.
    pub async fn shutdown(self) {
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

    async fn ask(&self, ask: Op) -> Result<(), Error> {
        self.shared.commands.send(ask).await.map_err(|_| self.closed())
    }

    fn closed(&self) -> Error {
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

/// Tells the drive loop when the future of a request is dropped.
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
