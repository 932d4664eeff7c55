//! Drives the sans-I/O broker: its clock, its events, and the tasks that wait for it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use statestore_broker::{Admission, ConnectionId, Event, LocalEvent, LocalId, Wake};
use statestore_mqtt::packet::Subscription;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::topic;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
#[cfg(feature = "tls")]
use tokio_rustls::rustls::pki_types::CertificateDer;
use tracing::warn;

use crate::access::fixed_rules::{FixedRules, STORE_CLIENT_ID};
use crate::access::shared_policy::{Access, ClientRules};
use crate::broker::authenticator::{Authenticator, ConnectionCertificate, Credentials};
use crate::broker::incidents;
use crate::clock::unix_now;
#[cfg(feature = "tls")]
use crate::listen::tls::{ServerTls, TlsState};
use crate::login::identity::Identity;
use crate::options::Options;

/// Maximum number of connections that wait for a turn before they end.
const CLOSING_MAX: usize = 64;

/// Maximum number of closed connections whose clients may still read their last packets.
const LINGERING_MAX: usize = 64;

/// Drives a broker from one start to the next stop.
pub(crate) struct BrokerDriver {
    started: Instant,
    /// The logins of each listener, in the order of the options.
    pub(crate) authenticators: Vec<Arc<Authenticator>>,
    access: Access,
    /// Notified when the next deadline becomes earlier.
    timer_changed: Notify,
    /// The turn of connections that always have work.
    turns: Semaphore,
    /// The place in the queue for a turn of connections whose client is not accepted.
    pending_turns: Semaphore,
    /// Permits to wait for a turn before a connection ends. While it waits it occupies a connection
    /// slot.
    closing_turns: Semaphore,
    /// Permits to keep a socket open after the last packet, until the client has read it.
    lingering: Semaphore,
    /// The turn of a listener that needs a file descriptor. Listeners wait in order, at most one
    /// entry for each.
    pub(crate) accept_turn: tokio::sync::Mutex<()>,
    /// Notified when the socket of a connection was closed.
    pub(crate) socket_closed: Notify,
    is_stopped: AtomicBool,
    state: Mutex<State>,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

struct State {
    broker: statestore_broker::Broker,
    connections: HashMap<ConnectionId, ConnectionEntry>,
    /// Client certificates. Removed when the connection closes.
    certificates: BTreeMap<ConnectionId, ConnectionCertificate>,
    locals: BTreeMap<LocalId, Arc<Notify>>,
    /// Time when the timer task wakes up.
    alarm: Option<Duration>,
}

/// Queue for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// The client of the connection is not accepted yet.
    Pending,
    Accepted,
}

/// A client that wants to connect.
struct LoginAttempt {
    connection: ConnectionId,
    peer: SocketAddr,
    client_id: String,
    user_name: Option<String>,
    certificate: Option<ConnectionCertificate>,
}

#[derive(Clone)]
struct ConnectionEntry {
    wakeup: Arc<Notify>,
    peer: SocketAddr,
    /// The logins of its listener.
    authenticator: Arc<Authenticator>,
}

impl BrokerDriver {
    pub(crate) fn new(options: &Options) -> Self {
        let assigned_prefix = format!("assigned-{:08x}-", fastrand::u32(..));
        let authenticators = Authenticator::for_listeners(options);
        // The broker has one method for all listeners. Each listener checks whether it is its own.
        let method = authenticators.iter().find_map(|one| one.method());
        let access = Access {
            policy: options.policy.clone(),
            users: options.users.clone(),
            any_client_id: options.any_client_id,
            shares_sessions: options.shares_sessions,
            has_accounts: method.is_some(),
            assigned_prefix: assigned_prefix.as_str().into(),
        };
        // A client with a certificate logs in, so that the certificate can be checked again.
        let has_tls = options.listeners.iter().any(|listener| listener.tls.is_some());
        let mut limits = options.limits.clone();
        let has_login = authenticators.iter().any(|one| !one.is_empty());
        limits.connect_bytes += method.map_or(0, |(_, bytes)| bytes);
        let config = statestore_broker::Config {
            limits,
            acl: Arc::new(FixedRules),
            requires_login: has_login || options.policy.is_some() || has_tls,
            authentication_method: method.map(|(name, _)| name.into()),
            assigned_prefix,
            hash_seed: fastrand::u64(..),
        };
        let mut broker = statestore_broker::Broker::new(config);
        // Requests that arrive before the store connects wait for it.
        let host = broker.attach_host(Duration::ZERO, STORE_CLIENT_ID);
        broker.subscribe_local(host, &Subscription::new(topic::REQUEST, Qos::AtLeastOnce));
        broker.detach(Duration::ZERO, host);
        let state = State {
            broker,
            connections: HashMap::new(),
            certificates: BTreeMap::new(),
            locals: BTreeMap::new(),
            alarm: None,
        };
        Self {
            started: Instant::now(),
            authenticators,
            access,
            timer_changed: Notify::new(),
            turns: Semaphore::new(1),
            pending_turns: Semaphore::new(1),
            closing_turns: Semaphore::new(CLOSING_MAX),
            lingering: Semaphore::new(LINGERING_MAX),
            accept_turn: tokio::sync::Mutex::new(()),
            socket_closed: Notify::new(),
            is_stopped: AtomicBool::new(false),
            state: Mutex::new(state),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Calls `act` with the broker and the current time, then wakes connections and sets the timer.
    pub(crate) fn with_broker<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut statestore_broker::Broker, Duration) -> T,
    ) -> T {
        let (result, mut state) = self.apply(act);
        state.notify_woken();
        self.set_alarm(&mut state);
        result
    }

    /// Like [`with_broker`](Self::with_broker), but wakes no connection until the next call of
    /// `with_broker` or [`wake`](Self::wake). So several messages for one connection are written
    /// together.
    pub(crate) fn with_broker_deferred<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut statestore_broker::Broker, Duration) -> T,
    ) -> T {
        let (result, mut state) = self.apply(act);
        self.set_alarm(&mut state);
        result
    }

    /// Wakes the connections that have work.
    pub(crate) fn wake(&self) {
        self.state().notify_woken();
    }

    fn set_alarm(&self, state: &mut State) {
        let due = state.broker.poll_timeout();
        if due.is_some_and(|due| state.alarm.is_none_or(|alarm| due < alarm)) {
            state.alarm = due;
            self.timer_changed.notify_one();
        }
    }

    /// Calls `act`, then handles the events and incidents of the broker. Does not wake connections
    /// and does not set the timer.
    fn apply<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut statestore_broker::Broker, Duration) -> T,
    ) -> (T, MutexGuard<'_, State>) {
        let now = self.started.elapsed();
        let mut state = self.state();
        let result = act(&mut state.broker, now);
        while let Some(event) = state.broker.poll_event() {
            let (Event::Login { connection, .. } | Event::Reauthenticate { connection, .. }) =
                event;
            let Some(entry) = state.connections.get(&connection).cloned() else { continue };
            let ConnectionEntry { peer, authenticator, .. } = entry;
            match event {
                Event::Login { client_id, user_name, password, authentication_data, .. } => {
                    let certificate = state.certificates.get(&connection).cloned();
                    let attempt =
                        LoginAttempt { connection, peer, client_id, user_name, certificate };
                    // Another listener may have a method of authentication that this one has not.
                    if authenticator.is_empty() && authentication_data.is_none() {
                        // No authentication is configured, so the client has no identity.
                        self.authorize(&mut state.broker, now, &attempt, None);
                    } else {
                        let token = authentication_data;
                        self.authenticate(authenticator, attempt, password, token);
                    }
                }
                Event::Reauthenticate { client_id, authentication_data, .. } => {
                    let token = authentication_data;
                    self.reauthenticate(authenticator, connection, peer, client_id, token);
                }
            }
        }
        while let Some(incident) = state.broker.poll_incident(now) {
            let entry = incident.connection.and_then(|id| state.connections.get(&id));
            incidents::log(&incident, entry.map(|entry| entry.peer));
        }
        (result, state)
    }

    /// Authenticates a client in a separate task.
    fn authenticate(
        self: &Arc<Self>,
        authenticator: Arc<Authenticator>,
        attempt: LoginAttempt,
        password: Option<Vec<u8>>,
        token: Option<Vec<u8>>,
    ) {
        let driver = Arc::clone(self);
        tokio::spawn(async move {
            let is_disconnected =
                || driver.with_broker(|broker, _| broker.is_closing(attempt.connection));
            let credentials = Credentials {
                address: attempt.peer.ip(),
                user_name: attempt.user_name.as_deref(),
                password,
                certificate: attempt.certificate.as_ref(),
                token,
            };
            // The signature of a token is checked in this task.
            let turn = match credentials.token.is_some() {
                true => driver.acquire_turn(Rank::Pending).await,
                false => None,
            };
            // While the task waited for the turn, the client may have disconnected.
            if turn.is_some() && is_disconnected() {
                return;
            }
            let outcome = authenticator.identify(credentials, is_disconnected).await;
            drop(turn);
            if let Err(reason) = outcome {
                let LoginAttempt { peer, client_id, user_name, .. } = &attempt;
                warn!(%peer, client_id, user_name, "login rejected: {reason}");
            }
            driver.with_broker(|broker, now| match outcome {
                Ok(identity) => driver.authorize(broker, now, &attempt, Some(&identity)),
                Err(reason) => {
                    broker.handle_login(now, attempt.connection, Err(reason));
                }
            });
        });
    }

    /// Reauthenticates a client in a separate task. A connection has at most one such task.
    fn reauthenticate(
        self: &Arc<Self>,
        authenticator: Arc<Authenticator>,
        connection: ConnectionId,
        peer: SocketAddr,
        client_id: String,
        token: Vec<u8>,
    ) {
        let driver = Arc::clone(self);
        tokio::spawn(async move {
            let certificate = driver.state().certificates.get(&connection).cloned();
            let certificate = certificate.map(|certificate| certificate.certificate);
            let turn = driver.acquire_turn(Rank::Accepted).await;
            let identity = authenticator.identify_token(peer.ip(), &token);
            drop(turn);
            let is_same = driver.with_broker(|broker, now| {
                let rules = identity.and_then(|identity| {
                    let certificate = certificate.as_ref();
                    let rules = driver.access.admit(&client_id, Some(&identity), certificate)?;
                    Ok(build_admission(now, Some(&identity), rules))
                });
                broker.handle_reauthentication(now, connection, rules.ok())
            });
            if !is_same {
                warn!(%peer, client_id, "reauthentication failed");
            }
        });
    }

    /// Authorizes a client that has proved its identity, and reports the result to the broker.
    fn authorize(
        &self,
        broker: &mut statestore_broker::Broker,
        now: Duration,
        attempt: &LoginAttempt,
        identity: Option<&Arc<Identity>>,
    ) {
        let (client_id, user) = (&*attempt.client_id, identity.map(|identity| &*identity.user));
        let certificate = attempt.certificate.as_ref().map(|certificate| &certificate.certificate);
        let admitted = self.access.admit(client_id, identity, certificate);
        if let Err(reason) = &admitted {
            let peer = attempt.peer;
            warn!(%peer, client_id, user, "client not allowed to connect: {reason}");
        }
        let outcome = admitted.map(|rules| build_admission(now, identity, rules));
        broker.handle_login(now, attempt.connection, outcome);
    }

    /// Ends the sessions of clients whose permissions have changed. Returns the number of these
    /// clients.
    pub(crate) fn recheck(self: &Arc<Self>) -> usize {
        self.with_broker(|broker, now| broker.recheck(now))
    }

    /// Registers a connection. Returns the `Notify` that wakes it, or `None` after a stop.
    pub(crate) fn register_connection(
        &self,
        id: ConnectionId,
        peer: SocketAddr,
        authenticator: &Arc<Authenticator>,
    ) -> Option<Arc<Notify>> {
        let mut state = self.state();
        let wakeup = Arc::new(Notify::new());
        let authenticator = Arc::clone(authenticator);
        let entry = ConnectionEntry { wakeup: Arc::clone(&wakeup), peer, authenticator };
        state.connections.insert(id, entry);
        (!self.is_stopped()).then_some(wakeup)
    }

    /// Stores the certificate chain of a client, with its user if certificates identify users.
    /// Returns false if the chain is too long.
    #[cfg(feature = "tls")]
    pub(crate) fn record_certificate(
        &self,
        id: ConnectionId,
        peer: SocketAddr,
        tls: &ServerTls,
        state: &TlsState,
        chain: &[CertificateDer<'_>],
    ) -> bool {
        let Some(trust) = state.trust.as_ref().filter(|_| !chain.is_empty()) else { return true };
        let Some(certificate) = tls.register_client(state, chain) else { return false };
        let authenticator =
            self.state().connections.get(&id).map(|entry| Arc::clone(&entry.authenticator));
        let identity = match authenticator.and_then(|one| one.identify_certificate(trust, chain)) {
            None => None,
            Some(Ok(identity)) => Some(Arc::new(identity)),
            Some(Err(error)) => {
                warn!(%peer, "no user in client certificate: {error}");
                None
            }
        };
        let entry = ConnectionCertificate { certificate, identity };
        self.state().certificates.insert(id, entry);
        true
    }

    pub(crate) fn unregister_connection(self: &Arc<Self>, id: ConnectionId) {
        self.with_broker(|broker, now| broker.handle_closed(now, id));
        let mut state = self.state();
        state.connections.remove(&id);
        state.certificates.remove(&id);
    }

    /// Registers an attachment. Returns the `Notify` that wakes it.
    pub(crate) fn register_local(&self, id: LocalId) -> Arc<Notify> {
        let wakeup = Arc::new(Notify::new());
        self.state().locals.insert(id, Arc::clone(&wakeup));
        wakeup
    }

    pub(crate) fn detach(self: &Arc<Self>, id: LocalId) {
        self.with_broker(|broker, now| broker.detach(now, id));
        self.state().locals.remove(&id);
    }

    /// Ends all connections and attachments. Returns the clients whose disconnection was not yet
    /// reported to the store.
    pub(crate) fn stop(self: &Arc<Self>) -> Vec<Arc<str>> {
        // Set first, so that a link does not mistake the next attachment of the host for another
        // store.
        self.is_stopped.store(true, Ordering::SeqCst);
        let attachments: Vec<LocalId> = self.state().locals.keys().copied().collect();
        let unreported = self.with_broker(|broker, now| {
            broker.disconnect_all(now, Reason::SERVER_SHUTTING_DOWN);
            let mut unreported = Vec::new();
            let host = broker.attach_host(now, STORE_CLIENT_ID);
            for id in attachments {
                broker.detach(now, id);
            }
            while let Some(event) = broker.poll_local(now, host) {
                if let LocalEvent::Gone(client_id) = event {
                    unreported.push(client_id);
                }
            }
            unreported
        });
        let state = self.state();
        #[expect(clippy::disallowed_methods, reason = "all connections are woken, in any order")]
        let connections = state.connections.values().map(|entry| &entry.wakeup);
        connections.chain(state.locals.values()).for_each(|wakeup| wakeup.notify_one());
        drop(state);
        self.timer_changed.notify_one();
        unreported
    }

    /// Waits for the turn of busy connections. The caller yields to connections that have been
    /// idle, and to busy connections that have waited longer. Only one busy connection has the
    /// turn, until it drops the permit. So a quiet client waits for one busy connection, not for
    /// all of them.
    ///
    /// Of all connections whose client is not accepted, only one waits together with accepted
    /// clients. So an accepted client waits for at most one of their turns.
    pub(crate) async fn acquire_turn(&self, rank: Rank) -> Option<SemaphorePermit<'_>> {
        // The semaphores are never closed.
        let place = match rank {
            Rank::Pending => self.pending_turns.acquire().await.ok(),
            Rank::Accepted => None,
        };
        let turn = self.turns.acquire().await.ok();
        drop(place);
        tokio::task::yield_now().await;
        turn
    }

    /// Like [`acquire_turn`](Self::acquire_turn), for an accepted connection that ends. Returns
    /// `None` if too many connections wait for that.
    pub(crate) async fn acquire_closing_turn(&self) -> Option<SemaphorePermit<'_>> {
        let _permit = self.closing_turns.try_acquire().ok()?;
        self.acquire_turn(Rank::Accepted).await
    }

    /// Returns a permit to keep a closed connection's socket open until its client has read the
    /// last packet, or `None` if there are too many.
    pub(crate) fn try_linger(&self) -> Option<SemaphorePermit<'_>> {
        self.lingering.try_acquire().ok()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Calls `handle_timeout` at each deadline, until the broker stops.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        while !self.is_stopped() {
            // Other tasks compare their deadlines with `alarm`, so it must be the deadline that
            // this task waits for.
            let due = {
                let ((), mut state) = self.apply(statestore_broker::Broker::handle_timeout);
                state.notify_woken();
                state.alarm = state.broker.poll_timeout();
                state.alarm
            };
            match due {
                // A long operation has another slice. Other tasks run first.
                Some(due) if due <= self.started.elapsed() => tokio::task::yield_now().await,
                Some(due) => {
                    let _ =
                        tokio::time::timeout_at(self.started + due, self.timer_changed.notified())
                            .await;
                }
                None => self.timer_changed.notified().await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes an authorized client to the broker.
fn build_admission(
    now: Duration,
    identity: Option<&Arc<Identity>>,
    rules: ClientRules,
) -> Admission {
    // The broker's clock is monotonic, so the expiry becomes a deadline on that clock.
    let expires_at = identity.and_then(|identity| identity.expires).map(|expires| {
        let left = expires.as_secs().saturating_sub(unix_now().as_secs());
        now.saturating_add(Duration::from_secs(left))
    });
    let user =
        identity.filter(|_| !rules.shares_sessions()).map(|identity| Arc::clone(&identity.user));
    Admission { user, acl: Some(Arc::new(rules)), expires_at }
}

impl State {
    /// Wakes the connections and attachments that have work.
    fn notify_woken(&mut self) {
        while let Some(wake) = self.broker.poll_wake() {
            let wakeup = match wake {
                Wake::Connection(id) => self.connections.get(&id).map(|entry| &entry.wakeup),
                Wake::Local(id) => self.locals.get(&id),
            };
            if let Some(wakeup) = wakeup {
                wakeup.notify_one();
            }
        }
    }
}

impl std::fmt::Debug for BrokerDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerDriver").finish_non_exhaustive()
    }
}
