//! The broker: listeners, and one connection after the other to its router.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqtt5::broker::client_handler::ClientHandler;
use mqtt5::broker::router::MessageRouter;
use mqtt5::broker::storage::{QueueLimits, StorageBackend};
use mqtt5::broker::sys_topics::BrokerStats;
use mqtt5::broker::tls_acceptor::TlsStreamWrapper;
use mqtt5::broker::transport::BrokerTransport;
use mqtt5::broker::{
    AuthProvider, BrokerConfig, BrokerEventHandler, DynamicStorage, MemoryBackend, ResourceLimits,
    ResourceMonitor,
};
use statestore_tokio::LinkError;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::access::{Access, Presence};
use crate::options::Options;
use crate::store_route::StoreRoute;

/// Messages and bytes that wait for one client that does not read, beyond its lane; then the oldest are dropped.
const UNREAD_MAX: QueueLimits = QueueLimits { max_messages: 10_000, max_bytes: 16 << 20 };

/// Messages on their way to the writer of one client. What exceeds it counts against the limits above.
const LANE_MAX: usize = 256;

/// Sessions of clients that are away are kept no longer.
const SESSION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How often what has expired is thrown away.
const SWEEP: Duration = Duration::from_secs(60);

/// How long a client may take for its TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long connections may take to end.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Before the next try when the system has no socket to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An MQTT 5 broker in this process. Dropping it ends all connections.
#[derive(Debug)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
}

/// Why a broker does not listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Something listens there already.
    #[error("{0} is in use, perhaps by another broker; stop that one or listen on another port")]
    InUse(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// What the broker and its links share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Outlives a stop, so that a store hears of the clients that have gone with it.
    pub(crate) store_route: Arc<StoreRoute>,
    options: Mutex<Options>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running(Arc<Running>),
    Stopped,
    /// Dropped: it will never run again.
    Gone,
}

/// The broker from a start to the next stop.
pub(crate) struct Running {
    pub(crate) router: Arc<MessageRouter>,
    pub(crate) store_route: Arc<StoreRoute>,
    pub(crate) queue: usize,
    pub(crate) stopped: watch::Sender<bool>,
    config: Arc<BrokerConfig>,
    access: Arc<dyn AuthProvider>,
    storage: Arc<DynamicStorage>,
    stats: Arc<BrokerStats>,
    monitor: Arc<ResourceMonitor>,
    shutdown: broadcast::Sender<()>,
    tls: Option<TlsAcceptor>,
    slots: Arc<Semaphore>,
    accepting: Mutex<Vec<JoinHandle<()>>>,
}

impl Broker {
    /// Listens, on this runtime.
    ///
    /// # Errors
    /// [`BindError`] when it cannot; nothing listens then.
    pub async fn bind(options: Options) -> Result<Self, BindError> {
        let shared = Shared {
            store_route: Arc::default(),
            options: Mutex::new(options),
            state: Mutex::new(State::Stopped),
        };
        let broker = Self { shared: Arc::new(shared) };
        broker.start().await?;
        Ok(broker)
    }

    /// The first address that it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        let addresses = lock(&self.shared.options).addresses.clone();
        addresses.first().copied().unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
    }

    /// Ends all connections, and listens no more until it is [started](Self::start) again. Retained messages and
    /// sessions are forgotten. Returns when the connections have ended, or after two seconds.
    pub async fn stop(&self) {
        let state = std::mem::replace(&mut *lock(&self.shared.state), State::Stopped);
        let State::Running(running) = state else { return };
        running.stop();
        let accepting = std::mem::take(&mut *lock(&running.accepting));
        for task in accepting {
            let _ = task.await;
        }
        let all = running.slots.acquire_many(lock(&self.shared.options).connections_max);
        let _ = tokio::time::timeout(GOODBYE_MAX, all).await;
    }

    /// Listens again where it did before. Links that were connected connect again by themselves.
    ///
    /// # Errors
    /// [`BindError`] when it cannot.
    pub async fn start(&self) -> Result<(), BindError> {
        self.stop().await;
        let mut options = lock(&self.shared.options).clone();
        let mut listeners = Vec::new();
        for address in &mut options.addresses {
            let (listener, bound) = bind(*address).await?;
            *address = bound;
            listeners.push(listener);
        }
        let running = Arc::new(Running::new(&options, Arc::clone(&self.shared.store_route)));
        let accept = |listener| tokio::spawn(Arc::clone(&running).accept(listener));
        *lock(&running.accepting) = listeners.into_iter().map(accept).collect();
        tokio::spawn(Arc::clone(&running).sweep());
        *lock(&self.shared.options) = options;
        *lock(&self.shared.state) = State::Running(running);
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *lock(&self.shared.state), State::Gone);
        if let State::Running(running) = state {
            running.stop();
        }
    }
}

impl Shared {
    pub(crate) fn running(&self) -> Result<Arc<Running>, LinkError> {
        match &*lock(&self.state) {
            State::Running(running) => Ok(Arc::clone(running)),
            State::Stopped => Err(LinkError::transient("the broker has stopped")),
            State::Gone => Err(LinkError::fatal("the broker is gone")),
        }
    }
}

impl Running {
    fn new(options: &Options, store_route: Arc<StoreRoute>) -> Self {
        let storage = MemoryBackend::with_queue_limits(UNREAD_MAX);
        let storage = Arc::new(DynamicStorage::Memory(storage));
        let presence: Arc<dyn BrokerEventHandler> = Arc::new(Presence(Arc::clone(&store_route)));
        let router = MessageRouter::with_storage(Arc::clone(&storage));
        let limits = ResourceLimits {
            // Counted here, those included that have not said who they are.
            max_connections: usize::MAX,
            max_connections_per_ip: usize::MAX,
            max_message_rate_per_client: options.rate_max,
            max_bandwidth_per_client: 0,
            max_connection_rate: u32::MAX,
            rate_limit_window: Duration::from_secs(1),
        };
        let config = BrokerConfig {
            max_packet_size: options.packet_bytes_max,
            max_outbound_inflight: options.in_flight,
            client_channel_capacity: LANE_MAX,
            session_expiry_interval: SESSION_MAX,
            event_handler: Some(presence),
            ..BrokerConfig::default()
        };
        Self {
            router: Arc::new(router),
            queue: options.queue,
            stopped: watch::Sender::new(false),
            config: Arc::new(config),
            access: Arc::new(Access::new(options.users.clone(), Arc::clone(&store_route))),
            store_route,
            storage,
            stats: Arc::new(BrokerStats::new()),
            monitor: Arc::new(ResourceMonitor::new(limits)),
            shutdown: broadcast::Sender::new(1),
            tls: options.tls.clone().map(TlsAcceptor::from),
            slots: Arc::new(Semaphore::new(options.slots())),
            accepting: Mutex::default(),
        }
    }

    fn stop(&self) {
        self.store_route.close();
        self.stopped.send_replace(true);
        let _ = self.shutdown.send(());
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut stopped = self.stopped.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
            match accepted {
                Ok((stream, peer)) => match Arc::clone(&self.slots).try_acquire_owned() {
                    Ok(slot) => {
                        let running = Arc::clone(&self);
                        tokio::spawn(async move {
                            running.serve(stream, peer).await;
                            drop(slot);
                        });
                    }
                    Err(_) => warn!(%peer, "closed at once: as many connections as are allowed"),
                },
                Err(error) => {
                    warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// One connection from its first byte to its last.
    async fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let shutdown = self.shutdown.subscribe();
        if *self.stopped.borrow() {
            return;
        }
        // Or every answer takes 40 ms.
        let _ = stream.set_nodelay(true);
        let transport = match &self.tls {
            None => BrokerTransport::tcp(stream),
            Some(tls) => match tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
                Ok(Ok(stream)) => BrokerTransport::tls(TlsStreamWrapper::new(stream)),
                Ok(Err(error)) => return warn!(%peer, %error, "no TLS"),
                Err(_) => return warn!(%peer, "no TLS handshake in time"),
            },
        };
        let handler = ClientHandler::new(
            transport,
            peer,
            Arc::clone(&self.config),
            Arc::clone(&self.router),
            Arc::clone(&self.access),
            Some(Arc::clone(&self.storage)),
            Arc::clone(&self.stats),
            Arc::clone(&self.monitor),
            shutdown,
        );
        if let Err(error) = handler.run().await {
            debug!(%peer, %error, "a connection ended");
        }
    }

    async fn sweep(self: Arc<Self>) {
        let mut stopped = self.stopped.subscribe();
        while tokio::time::timeout(SWEEP, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            let _ = self.storage.cleanup_expired().await;
            self.router.sweep_sessions().await;
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Err(BindError::InUse(address));
        }
        Err(source) => return Err(BindError::Address { address, source }),
    };
    let bound = listener.local_addr().map_err(|source| BindError::Address { address, source })?;
    Ok((listener, bound))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
