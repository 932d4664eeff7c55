//! The broker: its listeners and one task per connection.

mod authenticator;
mod connection;
mod convert;
mod driver;
mod incidents;
mod link;
mod meter;
mod quick_ack;
mod write_buffer;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_broker::{ConnectionId, Redirect, Stats};
use statestore_tokio::LinkError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
#[cfg(feature = "tls")]
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use self::authenticator::Authenticator;
use self::connection::serve;
pub use self::convert::Message;
use self::driver::BrokerDriver;
pub use self::link::EmbeddedLink;
use self::meter::{Meter, Metered};
use crate::listen::tls::ServerTls;
#[cfg(feature = "websocket")]
use crate::listen::websocket;
use crate::listener::{Listener, Protocol};
use crate::options::Options;
use crate::sync::lock;

/// Bytes that TLS buffers for a client that does not read. The rest of its output stays in the
/// broker, which counts it.
#[cfg(feature = "tls")]
const TLS_UNREAD_MAX: usize = 16 << 10;

/// Time that `stop` waits for connections to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections that wait to be accepted, at most. The operating system may have a smaller limit.
const BACKLOG: u32 = 4_096;

/// Pause after a failed accept. Without file descriptors, it ends when a connection has ended.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time that a client has at least to log in while file descriptors are exhausted.
const LOGIN_TIME: Duration = Duration::from_millis(500);

/// Pause between two warnings about failed accepts of one listener.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// An MQTT 5 broker in this process. Dropping it ends all connections.
#[derive(Debug)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
}

/// Bytes received and sent on the connections of a [`Broker`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes received from clients.
    pub received: u64,
    /// Bytes sent to clients.
    pub sent: u64,
}

/// Error when a broker cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on this address.
    #[error("{0} is in use, perhaps by another broker; stop it or listen on another port")]
    InUse(SocketAddr),
    /// The name of the address cannot be resolved, perhaps not yet.
    #[error("cannot resolve {address}: {source}; check the name, or give an IP address")]
    Resolve {
        /// Address of the listener, as configured.
        address: String,
        /// Error of the name lookup.
        source: io::Error,
    },
    /// Listening on this address failed.
    #[error("cannot listen on {address}: {source}")]
    Address {
        /// Address of the listener.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// As many disconnections are reported to a store that connects later, as the broker itself
/// reports.
const UNREPORTED_MAX: usize = 10_000;

/// State shared between the broker and its links.
#[derive(Debug)]
pub(crate) struct Shared {
    options: Mutex<Options>,
    /// Clients that were disconnected by a stop, which the store does not know yet.
    unreported: Mutex<Vec<Arc<str>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Listening(Listening),
    Stopped,
    /// The broker was dropped and never runs again.
    Dropped,
}

/// A broker between start and stop, with its listeners.
#[derive(Debug)]
struct Listening {
    driver: Arc<BrokerDriver>,
    stopped: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Starts a broker on the current runtime.
    ///
    /// # Errors
    /// [`BindError`] if a listener fails; then the broker listens on no address.
    pub async fn bind(options: Options) -> Result<Self, BindError> {
        let shared = Shared {
            options: Mutex::new(options),
            unreported: Mutex::default(),
            state: Mutex::new(State::Stopped),
        };
        let broker = Self { shared: Arc::new(shared) };
        broker.start().await?;
        Ok(broker)
    }

    /// Returns the address of the first listener, with the port that the system has selected.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addrs().first().copied().unwrap_or_else(|| ([0, 0, 0, 0], 0).into())
    }

    /// Returns the addresses of all listeners, in the order of the [options](Options::listener).
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        lock(&self.shared.options).listeners.iter().map(|listener| listener.address).collect()
    }

    /// Returns the current usage, and counters since the last start. All are zero while the broker
    /// is stopped.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let driver = self.shared.driver();
        driver.map(|driver| driver.with_broker(|broker, _| broker.stats())).unwrap_or_default()
    }

    /// Returns the bytes of MQTT received and sent since the last start. Excluded are TLS and
    /// WebSocket framing, and the last packets of a connection that the broker ends.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let traffic = |driver: Arc<BrokerDriver>| Traffic {
            received: driver.received.load(Ordering::Relaxed),
            sent: driver.sent.load(Ordering::Relaxed),
        };
        self.shared.driver().map(traffic).unwrap_or_default()
    }

    /// Checks all sessions again, connected or not. The broker ends the session, with reason 0x87,
    /// of each client whose user was removed or has another password, whose certificate or
    /// token is no longer trusted, or whose permissions by the [policy](Options::policy) have
    /// changed since it connected. Returns the number of these clients.
    #[expect(clippy::must_use_candidate, reason = "callers need not report the number")]
    pub fn recheck(&self) -> usize {
        self.shared.driver().map(|driver| driver.recheck()).unwrap_or_default()
    }

    /// Redirects clients to another server, with reason *use another server* (0x9C). This applies
    /// to connected clients, and to new clients after they have logged in, until a call with
    /// [`Redirect::None`] or a stop of the broker. Meant for a standby: the link of its store to
    /// this broker stays connected.
    pub fn redirect(&self, to: Redirect<'_>) {
        if let Ok(driver) = self.shared.driver() {
            driver.with_broker(|broker, now| broker.redirect(now, to));
        }
    }

    /// Stops listening and ends all connections, until the next [start](Self::start). Retained
    /// messages and sessions are lost. Returns when the connections have ended, or after two
    /// seconds.
    pub async fn stop(&self) {
        let state = std::mem::replace(&mut *lock(&self.shared.state), State::Stopped);
        let State::Listening(listening) = state else { return };
        self.shared.add_unreported(listening.stop());
        let ended = async {
            for task in listening.accepting {
                let _ = task.await;
            }
        };
        let _ = timeout(STOP_TIMEOUT, ended).await;
    }

    /// Restarts the broker on the same addresses. Links that were connected reconnect
    /// automatically.
    ///
    /// # Errors
    /// [`BindError`] if a listener fails.
    pub async fn start(&self) -> Result<(), BindError> {
        self.stop().await;
        let mut options = lock(&self.shared.options).clone();
        let mut listeners = Vec::new();
        for listener in &mut options.listeners {
            let (socket, bound) = bind(listener.address)?;
            listener.address = bound;
            listeners.push((socket, listener.clone()));
        }
        let driver = Arc::new(BrokerDriver::new(&options));
        let (stopped, stop) = watch::channel(false);
        let accept = |((socket, Listener { protocol, tls, .. }), authenticator)| {
            let authenticator = Arc::clone(authenticator);
            let port = Port { driver: Arc::clone(&driver), protocol, tls, authenticator };
            tokio::spawn(port.accept(socket, stop.clone()))
        };
        let accepting = listeners.into_iter().zip(&driver.authenticators).map(accept).collect();
        tokio::spawn(Arc::clone(&driver).run_timer());
        *lock(&self.shared.options) = options;
        *lock(&self.shared.state) = State::Listening(Listening { driver, stopped, accepting });
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *lock(&self.shared.state), State::Dropped);
        if let State::Listening(listening) = state {
            listening.stop();
        }
    }
}

impl Shared {
    /// Adds clients to those of earlier stops, since the store may not have connected in between.
    fn add_unreported(&self, clients: Vec<Arc<str>>) {
        let mut all = lock(&self.unreported);
        all.extend(clients);
        all.sort_unstable();
        all.dedup();
        all.truncate(UNREPORTED_MAX);
    }

    pub(crate) fn drain_unreported(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut lock(&self.unreported))
    }

    pub(crate) fn driver(&self) -> Result<Arc<BrokerDriver>, LinkError> {
        match &*lock(&self.state) {
            State::Listening(listening) => Ok(Arc::clone(&listening.driver)),
            State::Stopped => Err(LinkError::transient("the broker is stopped")),
            State::Dropped => Err(LinkError::fatal("the broker was dropped")),
        }
    }
}

impl Listening {
    fn stop(&self) -> Vec<Arc<str>> {
        self.stopped.send_replace(true);
        self.driver.stop()
    }
}

/// An accepted connection.
struct Accepted {
    id: ConnectionId,
    peer: SocketAddr,
    /// Notified when the broker has something for this connection, and when it closes it.
    wakeup: Arc<Notify>,
    /// Reads from its socket.
    meter: Arc<Meter>,
}

/// A listener and the settings of its connections.
#[derive(Clone)]
struct Port {
    driver: Arc<BrokerDriver>,
    protocol: Protocol,
    tls: Option<ServerTls>,
    authenticator: Arc<Authenticator>,
}

impl Port {
    /// Accepts connections until the broker stops, then waits until they have ended.
    async fn accept(self, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let mut warnings = AcceptWarnings::default();
        loop {
            // A listener that waits for a file descriptor comes first.
            drop(self.driver.accept_turn.lock().await);
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            let accepted = match accepted {
                Err(error) if is_out_of_descriptors(&error) => {
                    warnings.warn(&error);
                    match self.accept_in_turn(&listener).await {
                        Some(accepted) => Ok(accepted),
                        None => continue,
                    }
                }
                accepted => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let ip = Some(peer.ip());
                    match self.driver.with_broker(|broker, now| broker.handle_accept(now, ip)) {
                        // Without TLS and WebSocket the task of a connection is much smaller.
                        Ok(id) if self.is_plain() => {
                            let driver = Arc::clone(&self.driver);
                            let authenticator = Arc::clone(&self.authenticator);
                            connections.spawn(serve_plain(driver, authenticator, id, stream, peer));
                        }
                        Ok(id) => {
                            connections.spawn(self.clone().serve_accepted(id, stream, peer));
                        }
                        Err(refused) => warn!(%peer, "connection rejected: {refused}"),
                    }
                }
                Err(error) => {
                    warnings.warn(&error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// Returns whether connections have neither TLS nor WebSocket.
    const fn is_plain(&self) -> bool {
        self.tls.is_none() && matches!(self.protocol, Protocol::Mqtt)
    }

    /// Accepts a waiting connection after another one has ended, in the turn of this listener. Then
    /// connections without a login cannot exclude clients until their timeout, and the clients of
    /// one listener not those of another. Returns `None` if none has ended in time.
    async fn accept_in_turn(&self, listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
        let driver = &self.driver;
        let _turn = driver.accept_turn.lock().await;
        let mut closed = std::pin::pin!(driver.socket_closed.notified());
        closed.as_mut().enable();
        driver.with_broker(|broker, now| broker.displace_pending(now, LOGIN_TIME));
        let _ = timeout(ACCEPT_PAUSE, closed).await;
        // Only a connection that waits already, since other listeners wait for their turn.
        timeout(Duration::ZERO, listener.accept()).await.ok()?.ok()
    }

    /// Serves an accepted connection.
    async fn serve_accepted(self, id: ConnectionId, stream: TcpStream, peer: SocketAddr) {
        disable_delay(&stream);
        let Some(wakeup) = self.driver.register_connection(id, peer, &self.authenticator) else {
            return self.driver.unregister_connection(id);
        };
        let accepted = Accepted { id, peer, wakeup, meter: Arc::default() };
        let stream = Metered::new(stream, Arc::clone(&accepted.meter));
        match &self.tls {
            None => self.serve_protocol(accepted, stream).await,
            Some(tls) => self.serve_tls(tls, accepted, stream).await,
        }
        self.driver.socket_closed.notify_waiters();
    }

    /// Completes a handshake, with a turn for each read. Returns `None` if the broker closes the
    /// connection before its end, for example because the handshake takes too long.
    #[cfg(any(feature = "tls", feature = "websocket"))]
    async fn handshake<T>(
        &self,
        accepted: &Accepted,
        handshake: impl Future<Output = T>,
    ) -> Option<T> {
        let handshake = meter::run_in_turns(&self.driver, &accepted.meter, handshake);
        let closing = async {
            while !self.driver.with_broker(|broker, _| broker.is_closing(accepted.id)) {
                accepted.wakeup.notified().await;
            }
        };
        tokio::select! {
            outcome = handshake => Some(outcome),
            () = closing => None,
        }
    }

    #[cfg(feature = "tls")]
    async fn serve_tls(&self, tls: &ServerTls, accepted: Accepted, stream: Metered<TcpStream>) {
        let (id, peer) = (accepted.id, accepted.peer);
        // Read for each handshake, because a reload replaces it.
        let state = tls.state();
        let acceptor = TlsAcceptor::from(Arc::clone(&state.config));
        match self.handshake(&accepted, acceptor.accept(stream)).await {
            Some(Ok(mut stream)) => {
                stream.get_mut().1.set_buffer_limit(Some(TLS_UNREAD_MAX));
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                if self.driver.record_certificate(id, peer, tls, &state, chain) {
                    return self.serve_protocol(accepted, stream).await;
                }
                warn!(%peer, "client certificate chain rejected: it is too long");
            }
            // Port scanners and health checks do this.
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                tracing::debug!(%peer, "connection closed during the TLS handshake");
            }
            Some(Err(error)) => match crate::listen::tls::remedy(&error) {
                Some(remedy) => warn!(%peer, %error, remedy, "TLS handshake failed"),
                None => warn!(%peer, %error, "TLS handshake failed"),
            },
            // The broker has reported the reason.
            None => {}
        }
        self.driver.unregister_connection(id);
    }

    /// Never called: without the feature `tls` no listener has TLS.
    #[cfg(not(feature = "tls"))]
    async fn serve_tls(&self, tls: &ServerTls, _: Accepted, _: Metered<TcpStream>) {
        match *tls {}
    }

    async fn serve_protocol<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        accepted: Accepted,
        stream: S,
    ) {
        let Accepted { id, peer, ref wakeup, ref meter } = accepted;
        match &self.protocol {
            Protocol::Mqtt => serve(&self.driver, id, wakeup, peer, stream, meter).await,
            #[cfg(feature = "websocket")]
            Protocol::WebSocket(origins) => {
                match self.handshake(&accepted, websocket::accept(stream, origins)).await {
                    Some(Ok(stream)) => {
                        return serve(&self.driver, id, wakeup, peer, stream, meter).await;
                    }
                    Some(Err(refused)) => warn!(%peer, "WebSocket handshake failed: {refused}"),
                    // The broker has reported the reason.
                    None => {}
                }
                self.driver.unregister_connection(id);
            }
        }
    }
}

/// Serves an accepted connection without TLS and WebSocket.
async fn serve_plain(
    driver: Arc<BrokerDriver>,
    authenticator: Arc<Authenticator>,
    id: ConnectionId,
    stream: TcpStream,
    peer: SocketAddr,
) {
    disable_delay(&stream);
    match driver.register_connection(id, peer, &authenticator) {
        Some(wakeup) => {
            let meter = Arc::new(Meter::default());
            // A CONNECT costs less than the wait for a turn.
            meter.grant();
            let stream = Metered::new(stream, Arc::clone(&meter));
            serve(&driver, id, &wakeup, peer, stream, &meter).await;
        }
        None => driver.unregister_connection(id),
    }
    driver.socket_closed.notify_waiters();
}

/// Warnings of one listener, at an interval.
#[derive(Default)]
struct AcceptWarnings(Option<Instant>);

impl AcceptWarnings {
    fn warn(&mut self, error: &io::Error) {
        if self.0.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            self.0 = Some(Instant::now());
            if is_out_of_descriptors(error) {
                warn!(
                    %error,
                    "accept failed: raise the limit of open files (`ulimit -n`, LimitNOFILE), or \
                     lower max-connections"
                );
            } else {
                warn!(%error, "accept failed");
            }
        }
    }
}

/// Returns whether the process or the system has no file descriptor left.
#[cfg(unix)]
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(not(unix))]
const fn is_out_of_descriptors(_: &io::Error) -> bool {
    false
}

/// Disables Nagle's algorithm, which would delay each response by 40 ms.
fn disable_delay(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
}

/// Listens with a backlog for the clients of a site that reconnect all at once. A client that finds
/// the backlog full waits for a second.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // As `TcpListener::bind`: on Windows the option would share the port with other programs.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let listener = match listen(address) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Err(BindError::InUse(address));
        }
        Err(source) => return Err(BindError::Address { address, source }),
    };
    let bound = listener.local_addr().map_err(|source| BindError::Address { address, source })?;
    Ok((listener, bound))
}
