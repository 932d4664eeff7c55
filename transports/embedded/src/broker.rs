//! The broker: its listeners, and a task for each connection.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use statestore_mqtt::broker::{ConnectionId, Referral, Stats};
use statestore_tokio::LinkError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::connection::serve;
use crate::options::Options;
use crate::running::Running;
#[cfg(feature = "websocket")]
use crate::websocket;

/// How long a client may take for its handshakes, with TLS and as a WebSocket.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Bytes that TLS keeps for a client that does not read them; the rest waits where it is counted.
const TLS_UNREAD_MAX: usize = 16 << 10;

/// How long connections may take to end.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Before the next try when the system has no socket to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a port speaks.
#[derive(Clone, Debug)]
enum Speaks {
    Mqtt,
    /// MQTT over WebSocket, to web pages of these origins only.
    #[cfg(feature = "websocket")]
    WebSocket(Arc<[String]>),
}

/// An MQTT 5 broker in this process. Dropping it ends all connections.
#[derive(Debug)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
}

/// What has gone through the connections of a [`Broker`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes that came from clients.
    pub received: u64,
    /// Bytes that were written to clients.
    pub sent: u64,
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
    options: Mutex<Options>,
    /// Clients that went with a stop, of whose end the store has not heard.
    gone: Mutex<Vec<Arc<str>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Listening(Listening),
    Stopped,
    /// Dropped: it will never run again.
    Gone,
}

/// The broker from a start to the next stop, and what listens for it.
#[derive(Debug)]
struct Listening {
    running: Arc<Running>,
    stopped: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Listens, on this runtime.
    ///
    /// # Errors
    /// [`BindError`] when it cannot; nothing listens then.
    pub async fn bind(options: Options) -> Result<Self, BindError> {
        let shared = Shared {
            options: Mutex::new(options),
            gone: Mutex::default(),
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

    /// The address that it listens on for MQTT over WebSocket, if it does.
    #[cfg(feature = "websocket")]
    #[must_use]
    pub fn websocket_addr(&self) -> Option<SocketAddr> {
        lock(&self.shared.options).websocket
    }

    /// What it holds, and what has happened since it was started; nothing while it is stopped.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let running = self.shared.running();
        running.map(|running| running.with(|machine, _| machine.stats())).unwrap_or_default()
    }

    /// Bytes of MQTT that came from clients and that were written to them since it was started; without those of TLS and
    /// WebSocket, and of the last words to a connection that has to end.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let of = |running: Arc<Running>| Traffic {
            received: running.received.load(Ordering::Relaxed),
            sent: running.sent.load(Ordering::Relaxed),
        };
        self.shared.running().map(of).unwrap_or_default()
    }

    /// Looks again at who is connected, or has been and has a session: whoever is no [user](Options::users) any more, or has another password,
    /// or may do something else by the [policy](Options::policy) than when it connected, is disconnected, reason 0x87, and its session ends.
    /// Gives the number of such clients.
    #[expect(clippy::must_use_candidate, reason = "the number is for whoever wants to say it")]
    pub fn recheck(&self) -> usize {
        self.shared.running().map(|running| running.recheck()).unwrap_or_default()
    }

    /// Sends clients to another server, reason *use another server* (0x9C): those that are connected, and whoever connects
    /// from now on, until it is [`Referral::Here`] again or the broker is stopped. For a store that stands by for another; its
    /// link to this broker stays. A client is told only once it has logged in.
    pub fn refer(&self, to: Referral<'_>) {
        if let Ok(running) = self.shared.running() {
            running.with(|machine, now| machine.refer(now, to));
        }
    }

    /// Ends all connections, and listens no more until it is [started](Self::start) again. Retained messages and
    /// sessions are forgotten. Returns when the connections have ended, or after two seconds.
    pub async fn stop(&self) {
        let state = std::mem::replace(&mut *lock(&self.shared.state), State::Stopped);
        let State::Listening(listening) = state else { return };
        *lock(&self.shared.gone) = listening.stop();
        let ended = async {
            for task in listening.accepting {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(GOODBYE_MAX, ended).await;
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
            listeners.push((listener, Speaks::Mqtt));
        }
        #[cfg(feature = "websocket")]
        if let Some(address) = &mut options.websocket {
            let (listener, bound) = bind(*address).await?;
            *address = bound;
            listeners.push((listener, Speaks::WebSocket(options.origins.clone().into())));
        }
        let running = Arc::new(Running::new(&options));
        let (stopped, stop) = watch::channel(false);
        let accept = |(listener, speaks)| {
            let tls = options.tls.clone().map(TlsAcceptor::from);
            let port = Port { running: Arc::clone(&running), speaks, tls };
            tokio::spawn(port.accept(listener, stop.clone()))
        };
        let accepting = listeners.into_iter().map(accept).collect();
        tokio::spawn(Arc::clone(&running).keep_time());
        *lock(&self.shared.options) = options;
        *lock(&self.shared.state) = State::Listening(Listening { running, stopped, accepting });
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *lock(&self.shared.state), State::Gone);
        if let State::Listening(listening) = state {
            listening.stop();
        }
    }
}

impl Shared {
    pub(crate) fn take_gone(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut lock(&self.gone))
    }

    pub(crate) fn running(&self) -> Result<Arc<Running>, LinkError> {
        match &*lock(&self.state) {
            State::Listening(listening) => Ok(Arc::clone(&listening.running)),
            State::Stopped => Err(LinkError::transient("the broker has stopped")),
            State::Gone => Err(LinkError::fatal("the broker is gone")),
        }
    }
}

impl Listening {
    fn stop(&self) -> Vec<Arc<str>> {
        self.stopped.send_replace(true);
        self.running.stop()
    }
}

/// What everybody who comes to a port is met with.
#[derive(Clone)]
struct Port {
    running: Arc<Running>,
    speaks: Speaks,
    tls: Option<TlsAcceptor>,
}

impl Port {
    /// Accepts connections until it is stopped, and then waits until they have ended.
    async fn accept(self, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let ip = Some(peer.ip());
                    match self.running.with(|machine, now| machine.handle_accept(now, ip)) {
                        Ok(id) => {
                            connections.spawn(self.clone().connect(id, stream, peer));
                        }
                        Err(refused) => warn!(%peer, "closed at once: {refused}"),
                    }
                }
                Err(error) => {
                    warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// One connection that was accepted.
    async fn connect(self, id: ConnectionId, stream: TcpStream, peer: SocketAddr) {
        let deadline = Instant::now() + HANDSHAKE_MAX;
        // Or every answer takes 40 ms.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.speak(id, stream, peer, deadline).await };
        match timeout_at(deadline, tls.accept(stream)).await {
            Ok(Ok(mut stream)) => {
                stream.get_mut().1.set_buffer_limit(Some(TLS_UNREAD_MAX));
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                self.running.prove(id, peer, chain);
                return self.speak(id, stream, peer, deadline).await;
            }
            Ok(Err(error)) => warn!(%peer, %error, "no TLS"),
            Err(_) => warn!(%peer, "no TLS handshake in time"),
        }
        self.running.closed(id);
    }

    #[cfg_attr(
        not(feature = "websocket"),
        expect(unused_variables, reason = "nothing comes first")
    )]
    async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        id: ConnectionId,
        stream: S,
        peer: SocketAddr,
        deadline: Instant,
    ) {
        match &self.speaks {
            Speaks::Mqtt => serve(&self.running, id, peer, stream).await,
            #[cfg(feature = "websocket")]
            Speaks::WebSocket(origins) => {
                match timeout_at(deadline, websocket::accept(stream, origins)).await {
                    Ok(Ok(stream)) => return serve(&self.running, id, peer, stream).await,
                    Ok(Err(refused)) => warn!(%peer, "no WebSocket: {refused}"),
                    Err(_) => warn!(%peer, "no WebSocket handshake in time"),
                }
                self.running.closed(id);
            }
        }
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
