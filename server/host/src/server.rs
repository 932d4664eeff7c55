//! A complete server from a configuration.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use statestore_proto::limits::StoreLimits;
use statestore_proto::store::Durability;
use statestore_tokio::adapter::Diagnosis;
use statestore_tokio::{Address, CloseReason, LinkError, Status, StoreClosed, StoreService};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

use crate::access::shared_policy::SharedPolicy;
use crate::broker::Broker;
use crate::capture::CaptureFile;
use crate::config::{CLIENT_ID, Config, ConfigError, Durable, Mode, Storage};
use crate::embedded;
use crate::event::{Event, Observer};
use crate::expiry::report_expiry;
use crate::files::permissions::warn_about_writers;
use crate::host::{Diagnose, Host, Hosted, Place, wait_stopped};
use crate::http::Exporter;
use crate::listener::Listener;
use crate::reload::{Reloaded, Reloader};
use crate::seed;
use crate::state::{ServerError, State};
use crate::storage::JournalWithProgress;
use crate::store::store_config;

/// A running server: a store in the embedded broker, with an external broker, or in a cluster.
///
/// ```
/// use statestore_server::Server;
/// use statestore_server::config::Config;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_toml("[listen]\nlisten = [\"127.0.0.1:0\"]")?;
/// let server = Server::builder(config).on_event(|event| println!("{event}")).start().await?;
/// server.wait_ready().await?;
/// assert!(server.broker().is_some());
/// server.stop().await?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping it stops the server without waiting for its pending output.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    state: watch::Receiver<State>,
    broker: Option<Arc<Broker>>,
    reloader: Arc<Reloader>,
    /// Background tasks: reload of changed files, and reports of the certificate's expiry.
    _tasks: Vec<AbortOnDrop>,
    task: JoinHandle<()>,
}

/// A task that ends when this is dropped.
#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Options of a server that are not part of its configuration.
#[derive(Default)]
#[must_use = "a server runs when it is started"]
pub struct ServerBuilder {
    config: Config,
    listeners: Vec<Listener>,
    shares_sessions: bool,
    observer: Observer,
    diagnose: Option<Diagnose>,
}

impl ServerBuilder {
    /// Calls a function for each [`Event`]. It must not block. By default events are logged.
    pub fn on_event(mut self, observe: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(observe);
        self
    }

    /// Adds a listener of the embedded broker, after those of the configuration. Without a listener
    /// in the configuration, only the added ones are opened. This way, listeners can have different
    /// certificates and logins. All listeners share their users: equal user names are one user, however
    /// it has logged in. Files of its [TLS](Listener::tls) are reloaded with those of the
    /// configuration.
    pub fn listener(mut self, listener: impl Into<Listener>) -> Self {
        self.listeners.push(listener.into());
        self
    }

    /// Lets clients with different logins continue each other's sessions, as if they were one user.
    /// By default the session of a user keeps its client id from all other users. For development:
    /// an application can try several logins with one client id. A policy still applies to the
    /// login of each client.
    pub fn share_sessions(mut self) -> Self {
        self.shares_sessions = true;
        self
    }

    /// Sets a hook that replaces the error of a failed attempt to connect to an external broker;
    /// see [`ManagedLink::diagnose`](statestore_client::ClientLink::diagnose).
    pub fn diagnose(
        mut self,
        diagnose: impl Fn(LinkError, Address) -> Diagnosis + Send + Sync + 'static,
    ) -> Self {
        self.diagnose = Some(Arc::new(diagnose));
        self
    }

    /// Opens all files and listeners, and starts the store on the current runtime.
    ///
    /// # Errors
    /// [`ServerError`] if the configuration or one of its files is invalid, an address is in use, or
    /// a [listener](Self::listener) was added to a server with an external broker. Nothing is left
    /// running then.
    pub async fn start(self) -> Result<Server, ServerError> {
        self.start_boxed().await
    }

    /// Boxes the start as a trait object, so that the code of listeners and connections belongs to
    /// this package. Otherwise the compiler adds the code of async functions to the package that
    /// polls them, and optimizes it as that package: the command is optimized for size.
    #[inline(never)]
    fn start_boxed(self) -> Pin<Box<dyn Future<Output = Result<Server, ServerError>> + Send>> {
        Box::pin(self.start_all())
    }

    async fn start_all(self) -> Result<Server, ServerError> {
        let Self { config, listeners, shares_sessions, observer, diagnose } = self;
        let seeds = seed::load(&config)?;
        let (reloader, policy, tls, place, urls, access) = match config.mode()? {
            Mode::ExternalBroker(broker) | Mode::Cluster { broker: Some(broker), .. } => {
                if !listeners.is_empty() {
                    let reason = "an external broker has no listeners of this server";
                    return Err(ConfigError::setting("broker", reason).into());
                }
                let options = Box::new(broker.options(CLIENT_ID)?);
                let (reloader, policy) = embedded::external_files(&config, &observer)?;
                let access = external_access(&options.client_id, policy.is_some());
                let urls = broker.broker.clone();
                // etcd chooses the store of a cluster.
                let is_checked = !broker.take_over && config.etcd.etcd.is_empty();
                let place = Place::External { options, urls: urls.clone(), diagnose, is_checked };
                (reloader, policy, Vec::new(), place, urls, access)
            }
            _ => {
                let embedded =
                    embedded::start(&config, listeners, shares_sessions, &observer).await?;
                let place = Place::Embedded(Arc::clone(&embedded.broker));
                let embedded::Embedded { reloader, policy, tls, urls, access, .. } = embedded;
                (reloader, policy, tls, place, urls, access)
            }
        };
        let reloader = Arc::new(reloader);
        let exporter = match &config.http.metrics_listen {
            Some(address) => {
                let exporter = Exporter::start(address, &config.http).await?;
                observer.report(&Event::MetricsListening(exporter.address()));
                Some(exporter)
            }
            None => None,
        };
        let capture = CaptureFile::create(&config.capture).transpose().map_err(|source| {
            let path = config.capture.capture.clone().unwrap_or_default();
            ServerError::Capture { path, source }
        })?;
        let broker = match &place {
            Place::Embedded(broker) => Some(Arc::clone(broker)),
            Place::External { .. } => None,
        };
        if let Some(exporter) = &exporter {
            exporter.follow_files(&reloader, tls.first().cloned());
            broker.iter().for_each(|broker| exporter.follow_broker(broker));
        }
        let mut tasks = Vec::new();
        if let Some(interval) = config.reload.watch_files {
            let (reloader, broker, observer) =
                (Arc::clone(&reloader), broker.clone(), observer.clone());
            tasks.push(AbortOnDrop::spawn(async move {
                let report = |reloaded| observer.report(&Event::Reloaded(reloaded));
                reloader.watch(interval, broker.as_deref(), report).await;
            }));
        }
        let report = |tls| AbortOnDrop::spawn(report_expiry(tls, observer.clone()));
        tasks.extend(tls.into_iter().map(report));
        let is_traffic_counted = config.http.traffic;
        let host = Host { place, urls, access, exporter, capture, is_traffic_counted, observer };
        let (stop, stopped) = watch::channel(false);
        let (states, state) = watch::channel(State::Starting);
        let task = start_store(config, policy, seeds, host, states, stopped).await?;
        Ok(Server { stop, state, broker, reloader, _tasks: tasks, task })
    }
}

/// Opens the storage, and starts the task that runs the store until it is stopped or fails.
async fn start_store(
    config: Config,
    policy: Option<SharedPolicy>,
    seeds: seed::Pairs,
    host: Host,
    states: watch::Sender<State>,
    stopped: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, ServerError> {
    #[cfg(feature = "etcd")]
    if !config.etcd.etcd.is_empty() {
        let cluster = crate::cluster::Cluster::new(config, policy, &host)?;
        return Ok(tokio::spawn(async move {
            let ended = cluster.run(&host, &states, stopped).await;
            host.close().await;
            states.send_replace(State::Ended(ended.err().map(Arc::new)));
        }));
    }
    #[cfg(not(feature = "etcd"))]
    if !config.etcd.etcd.is_empty() {
        let reason = "this build does not support it: build with the feature etcd";
        return Err(ConfigError::setting("etcd", reason).into());
    }
    let mut service = StoreService::builder().seed(seeds);
    let mut store = store_config(&config, policy.as_ref(), StoreLimits::default())?;
    let mut is_loaded = None;
    if let Some(directory) = &config.storage.data_dir {
        if let Some(text) = warn_about_writers(directory) {
            host.observer.report(&Event::FileWarning { path: directory.clone(), text });
        }
        let journal = JournalWithProgress::open(directory, &host.observer).await?;
        if let Some(text) = journal.warn_about_space(config.limits.max_bytes) {
            host.observer.report(&Event::FileWarning { path: directory.clone(), text });
        }
        is_loaded = Some(journal.is_loaded());
        service = service.journal(journal);
        if let Some(bytes) = config.storage.min_free_space {
            service = service.storage_reserve(bytes);
        }
        store = store
            .durability(match config.storage.durable.unwrap_or_default() {
                Durable::Requested => Durability::Requested,
                Durable::All => Durability::All,
            })
            // Sessions at an external broker survive the store, and their clients do not register
            // again.
            .durable_registrations(!config.broker.broker.is_empty());
    }
    let durability = durability(&config.storage);
    let service = service
        .config(store)
        .map_err(|error| ConfigError::setting("durable", error.to_string()))?;
    let hosted = host.spawn(service);
    Ok(tokio::spawn(async move {
        let ended = run(&host, hosted, durability, is_loaded.as_deref(), &states, stopped).await;
        host.close().await;
        states.send_replace(State::Ended(ended.err().map(Arc::new)));
    }))
}

/// Runs a store until it is stopped or fails.
async fn run(
    host: &Host,
    hosted: Hosted,
    durability: Option<String>,
    is_loaded: Option<&AtomicBool>,
    states: &watch::Sender<State>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ServerError> {
    host.report_if_slow(&hosted);
    let is_stopped = wait_stopped(&mut stopped, host);
    tokio::pin!(is_stopped);
    let mut was_ready = false;
    let ended = tokio::select! {
        ready = hosted.service.wait_connected() => match ready {
            Err(closed) => Some(closed),
            Ok(()) => {
                was_ready = true;
                host.report_ready(&hosted, durability);
                states.send_replace(State::Ready);
                tokio::select! {
                    closed = hosted.service.wait_closed() => Some(closed),
                    () = &mut is_stopped => None,
                }
            }
        },
        () = &mut is_stopped => None,
    };
    let closed = match ended {
        Some(closed) => closed,
        None => {
            let mut status = hosted.service.status();
            hosted.service.shutdown().await;
            match status.current() {
                // A commit failed meanwhile.
                Status::Failed(reason) if reason.is_journal() => {
                    StoreClosed { reason: Some(reason) }
                }
                _ => return Ok(()),
            }
        }
    };
    let is_loaded = is_loaded.is_none_or(|is_loaded| is_loaded.load(Ordering::Acquire));
    Err(match &closed.reason {
        Some(CloseReason::Journal(_)) if is_loaded => ServerError::NotDurable(closed),
        Some(CloseReason::Journal(_)) => ServerError::Load(closed),
        _ => ServerError::Disconnected(closed, was_ready),
    })
}

/// Which keys survive, and where.
fn durability(storage: &Storage) -> Option<String> {
    let directory = storage.data_dir.as_ref()?.display();
    let what = match storage.durable.unwrap_or_default() {
        Durable::Requested if storage.durable_keys.is_empty() => {
            "keys that clients persist survive"
        }
        Durable::Requested => "keys that clients persist and durable keys survive",
        Durable::All => "all keys survive",
    };
    Some(format!("{what} in {directory}"))
}

fn external_access(client_id: &str, has_policy: bool) -> String {
    let trust = match has_policy {
        false => {
            "client ids of requests are not verified, so the access rules of the broker decide \
             who may send requests"
        }
        true => "the policy trusts the client ids that requests claim",
    };
    format!("as client {client_id}; {trust}")
}

impl Server {
    /// Returns a builder for a server with this configuration.
    pub fn builder(config: Config) -> ServerBuilder {
        ServerBuilder { config, ..ServerBuilder::default() }
    }

    /// Starts a server with this configuration on the current runtime.
    ///
    /// # Errors
    /// As of [`ServerBuilder::start`].
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        Self::builder(config).start().await
    }

    /// Waits until requests reach the store. A standby waits here until it leads. Cancel safe.
    ///
    /// # Errors
    /// The error that has ended the server. `Ok` is also returned if it was stopped.
    pub async fn wait_ready(&self) -> Result<(), Arc<ServerError>> {
        self.wait(|state| !matches!(state, State::Starting)).await
    }

    /// Waits until the server has ended. Cancel safe.
    ///
    /// # Errors
    /// The error that has ended the server. `Ok` is returned if it was stopped.
    pub async fn wait_ended(&self) -> Result<(), Arc<ServerError>> {
        self.wait(|state| matches!(state, State::Ended(_))).await
    }

    async fn wait(&self, is_reached: impl Fn(&State) -> bool) -> Result<(), Arc<ServerError>> {
        let mut state = self.state.clone();
        match state.wait_for(|state| is_reached(state)).await.as_deref() {
            Ok(State::Ended(Some(error))) => Err(Arc::clone(error)),
            _ => Ok(()),
        }
    }

    /// Reads users, certificates, keys and policies again, outside of the event loop. A file that
    /// is invalid changes nothing; its [`Report`](crate::Report) has the error. Clients whose
    /// permissions have changed are disconnected.
    pub async fn reload(&self) -> Reloaded {
        self.reloader.reload_all(self.broker.as_deref()).await
    }

    /// Returns the embedded broker, for example for its addresses and for connections in this
    /// process. `None` with an external broker.
    #[must_use]
    pub fn broker(&self) -> Option<&Broker> {
        self.broker.as_deref()
    }

    /// Stops the server: the store makes its records durable, and a leader resigns. A client of the
    /// embedded broker gets the responses that fit into the buffer of its connection, 16 KiB.
    /// Returns when everything has stopped, which takes as long as the disk needs.
    ///
    /// # Errors
    /// The error that had ended the server, or a write that failed during the stop.
    pub async fn stop(self) -> Result<(), Arc<ServerError>> {
        let _ = self.stop.send(true);
        let ended = self.wait_ended().await;
        let _ = self.task.await;
        ended
    }
}
