//! The broker's machine, its clock, and those who wait for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use statestore_mqtt::Reason;
use statestore_mqtt::broker::{self, Admission, ConnectionId, Event, LocalEvent, LocalId, Wake};
use statestore_proto::topic;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tracing::warn;

use crate::access::{FixedRules, STORE};
use crate::convert;
use crate::identities::{Claim, Identities};
use crate::identity::Identity;
use crate::incidents;
use crate::options::Options;
use crate::shared_policy::{Access, ClientRules, SharedPolicy};

/// Connections that wait for a turn before they end.
const ENDING_MAX: usize = 64;

/// The broker from a start to the next stop.
pub(crate) struct Running {
    begun: Instant,
    identities: Arc<Identities>,
    access: Access,
    /// Told when its next deadline is an earlier one.
    sooner: Notify,
    /// Whose turn it is among the connections that always have something to do.
    busy: Semaphore,
    /// Places for those who wait for that before they end, since they keep a connection's place meanwhile.
    ending: Semaphore,
    state: Mutex<State>,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

struct State {
    machine: broker::Broker,
    connections: BTreeMap<ConnectionId, Connected>,
    /// Who connections are by their certificates: none for one that has gone.
    certificates: BTreeMap<ConnectionId, Arc<Identity>>,
    locals: BTreeMap<LocalId, Arc<Notify>>,
    /// When the clock task wakes up.
    alarm: Option<Duration>,
    is_stopped: bool,
}

/// Who wants to connect.
struct Who {
    connection: ConnectionId,
    peer: SocketAddr,
    client_id: String,
    user_name: Option<String>,
    certificate: Option<Arc<Identity>>,
}

struct Connected {
    told: Arc<Notify>,
    peer: SocketAddr,
}

impl Running {
    pub(crate) fn new(options: &Options) -> Self {
        let assigned_prefix = format!("assigned-{:08x}-", fastrand::u32(..));
        let identities = Identities::new(options);
        let access = Access {
            policy: options.policy.clone(),
            users: options.users.clone(),
            any_client_id: options.any_client_id,
            has_accounts: identities.method().is_some(),
            assigned_prefix: assigned_prefix.as_str().into(),
        };
        let mut limits = options.limits.clone();
        let method = identities.method();
        limits.connect_bytes += method.map_or(0, |(_, bytes)| bytes);
        let config = broker::Config {
            limits,
            rules: Arc::new(FixedRules),
            asks_who: !identities.is_empty() || options.policy.is_some(),
            authentication_method: method.map(|(name, _)| name.into()),
            assigned_prefix,
        };
        let mut machine = broker::Broker::new(config);
        // What comes before the store does waits for it.
        let host = machine.attach_host(Duration::ZERO, STORE);
        machine.subscribe_local(host, &convert::subscription(topic::REQUEST));
        machine.detach(Duration::ZERO, host);
        let state = State {
            machine,
            connections: BTreeMap::new(),
            certificates: BTreeMap::new(),
            locals: BTreeMap::new(),
            alarm: None,
            is_stopped: false,
        };
        Self {
            begun: Instant::now(),
            identities: Arc::new(identities),
            access,
            sooner: Notify::new(),
            busy: Semaphore::new(1),
            ending: Semaphore::new(ENDING_MAX),
            state: Mutex::new(state),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Does something with the machine, at this time, and sees to what comes of it.
    pub(crate) fn with<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut broker::Broker, Duration) -> T,
    ) -> T {
        let (result, mut state) = self.act(act);
        let due = state.machine.poll_timeout();
        if due.is_some_and(|due| state.alarm.is_none_or(|alarm| due < alarm)) {
            state.alarm = due;
            self.sooner.notify_one();
        }
        result
    }

    /// The same, but for what is due.
    fn act<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut broker::Broker, Duration) -> T,
    ) -> (T, MutexGuard<'_, State>) {
        let now = self.begun.elapsed();
        let mut state = self.state();
        let result = act(&mut state.machine, now);
        while let Some(event) = state.machine.poll_event() {
            let (Event::Login { connection, .. } | Event::Reauthenticate { connection, .. }) =
                event;
            let Some(peer) = state.connections.get(&connection).map(|known| known.peer) else {
                continue;
            };
            match event {
                Event::Login { client_id, user_name, password, authentication_data, .. } => {
                    let certificate = state.certificates.get(&connection).cloned();
                    let who = Who { connection, peer, client_id, user_name, certificate };
                    match self.identities.is_empty() {
                        false => self.ask(who, password, authentication_data),
                        // Nobody says who it is.
                        true => self.admit(&mut state.machine, now, &who, None),
                    }
                }
                Event::Reauthenticate { client_id, authentication_data, .. } => {
                    self.ask_again(connection, peer, client_id, authentication_data);
                }
            }
        }
        while let Some(incident) = state.machine.poll_incident(now) {
            let known = incident.connection.and_then(|id| state.connections.get(&id));
            incidents::say(&incident, known.map(|known| known.peer));
        }
        state.settle();
        (result, state)
    }

    /// Finds out who somebody is.
    fn ask(self: &Arc<Self>, who: Who, password: Option<Vec<u8>>, token: Option<Vec<u8>>) {
        let running = Arc::clone(self);
        tokio::spawn(async move {
            let is_gone = || running.with(|machine, _| machine.is_closing(who.connection));
            let claim = Claim {
                address: who.peer.ip(),
                user_name: who.user_name.as_deref(),
                password,
                certificate: who.certificate.as_ref(),
                token,
            };
            let answer = running.identities.identify(claim, is_gone).await;
            if let Err(reason) = answer {
                let Who { peer, client_id, user_name, .. } = &who;
                warn!(%peer, client_id, user_name, "a client that logs in was refused: {reason}");
            }
            running.with(|machine, now| match answer {
                Ok(identity) => running.admit(machine, now, &who, Some(&identity)),
                Err(reason) => {
                    machine.handle_login(now, who.connection, Err(reason));
                }
            });
        });
    }

    /// Finds out whether somebody is still who it was. Each connection asks once at a time.
    fn ask_again(
        self: &Arc<Self>,
        connection: ConnectionId,
        peer: SocketAddr,
        client_id: String,
        token: Vec<u8>,
    ) {
        let running = Arc::clone(self);
        tokio::spawn(async move {
            let identity = running.identities.token(peer.ip(), &token);
            let is_same = running.with(|machine, now| {
                let rules = identity.and_then(|identity| {
                    let rules = running.access.admit(&client_id, Some(&identity))?;
                    Ok(admission(now, Some(&identity), rules))
                });
                machine.handle_reauthentication(now, connection, rules.ok())
            });
            if !is_same {
                warn!(%peer, client_id, "a client has not proved again who it is");
            }
        });
    }

    /// Lets a client do what it may, which may be nothing.
    fn admit(
        &self,
        machine: &mut broker::Broker,
        now: Duration,
        who: &Who,
        identity: Option<&Arc<Identity>>,
    ) {
        let (client_id, user) = (&*who.client_id, identity.map(|identity| &*identity.user));
        let admitted = self.access.admit(client_id, identity);
        if let Err(reason) = &admitted {
            warn!(peer = %who.peer, client_id, user, "a client was refused: {reason}");
        }
        let rights = admitted.as_ref().ok().and_then(|rules| rules.rights.clone());
        let answer = admitted.map(|rules| admission(now, identity, rules));
        // Nothing that it sends is taken by the store before both are done.
        let is_accepted = machine.handle_login(now, who.connection, answer);
        if let (true, Some(policy), Some(rights)) = (is_accepted, &self.access.policy, &rights) {
            policy.connected(client_id, rights, |other| machine.concerns_host(other));
        }
    }

    /// What the policy is to know of a client in this process, or of one that has gone.
    pub(crate) const fn policy(&self) -> Option<&SharedPolicy> {
        self.access.policy.as_ref()
    }

    /// Ends the sessions of those who may not do any more what they might, and gives their number.
    pub(crate) fn recheck(self: &Arc<Self>) -> usize {
        self.with(|machine, now| machine.recheck(now))
    }

    /// Who is told when there is something to do for this connection; nobody once everything has stopped.
    pub(crate) fn connected(&self, id: ConnectionId, peer: SocketAddr) -> Option<Arc<Notify>> {
        let mut state = self.state();
        let told = Arc::new(Notify::new());
        state.connections.insert(id, Connected { told: Arc::clone(&told), peer });
        (!state.is_stopped).then_some(told)
    }

    /// Keeps who a connection is by its certificate, if certificates are users.
    pub(crate) fn prove(&self, id: ConnectionId, peer: SocketAddr, chain: &[CertificateDer<'_>]) {
        match self.identities.certificate(chain) {
            None => {}
            Some(Ok(identity)) => {
                self.state().certificates.insert(id, Arc::new(identity));
            }
            Some(Err(error)) => warn!(%peer, "a certificate is no user's: {error}"),
        }
    }

    pub(crate) fn closed(self: &Arc<Self>, id: ConnectionId) {
        self.with(|machine, now| machine.handle_closed(now, id));
        let mut state = self.state();
        state.connections.remove(&id);
        state.certificates.remove(&id);
    }

    /// Who is told when there is something to do for this attachment.
    pub(crate) fn attached(&self, id: LocalId) -> Arc<Notify> {
        let told = Arc::new(Notify::new());
        self.state().locals.insert(id, Arc::clone(&told));
        told
    }

    pub(crate) fn detach(self: &Arc<Self>, id: LocalId) {
        self.with(|machine, now| machine.detach(now, id));
        self.state().locals.remove(&id);
    }

    /// Ends all connections and attachments, and gives the clients of whose end the store has not heard.
    pub(crate) fn stop(self: &Arc<Self>) -> Vec<Arc<str>> {
        // First, so that no link takes what follows for another store.
        self.state().is_stopped = true;
        let gone = self.with(|machine, now| {
            machine.disconnect_all(now, Reason::SERVER_SHUTTING_DOWN);
            let mut gone = Vec::new();
            let host = machine.attach_host(now, STORE);
            while let Some(event) = machine.poll_local(now, host) {
                if let LocalEvent::Gone(client_id) = event {
                    gone.push(client_id);
                }
            }
            gone
        });
        if let Some(policy) = self.policy() {
            policy.clear();
        }
        let state = self.state();
        let connections = state.connections.values().map(|known| &known.told);
        connections.chain(state.locals.values()).for_each(|told| told.notify_one());
        drop(state);
        self.sooner.notify_one();
        gone
    }

    /// Lets others go first: whoever has something to do now and has not been busy, and of those who are busy all that have
    /// waited longer. One of these has its turn, until it drops that, so that who has little to say waits for one of them and
    /// not for all.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        let turn = self.busy.acquire().await.ok();
        tokio::task::yield_now().await;
        turn
    }

    /// The same for one that has to end, unless many wait for that already.
    pub(crate) async fn last_turn(&self) -> Option<SemaphorePermit<'_>> {
        let _place = self.ending.try_acquire().ok()?;
        self.turn().await
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Rings when something is due, until everything has stopped.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        while !self.is_stopped() {
            // What others see of it is what this waits for, or they would not say that they need it sooner.
            let due = {
                let ((), mut state) = self.act(broker::Broker::handle_timeout);
                state.alarm = state.machine.poll_timeout();
                state.alarm
            };
            match due {
                // There is a slice of something long to do; others have their turn first.
                Some(due) if due <= self.begun.elapsed() => tokio::task::yield_now().await,
                Some(due) => {
                    let _ = tokio::time::timeout_at(self.begun + due, self.sooner.notified()).await;
                }
                None => self.sooner.notified().await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the machine is to know of a client that may do this.
fn admission(now: Duration, identity: Option<&Arc<Identity>>, rules: ClientRules) -> Admission {
    // The machine has a clock that nobody sets.
    let expires_at = identity.and_then(|identity| identity.expires).map(|expires| {
        let left = expires.as_secs().saturating_sub(UnixTime::now().as_secs());
        now.saturating_add(Duration::from_secs(left))
    });
    let user = identity.map(|identity| Arc::clone(&identity.user));
    Admission { user, rules: Some(Arc::new(rules)), expires_at }
}

impl State {
    /// Tells those for whom there is something to do.
    fn settle(&mut self) {
        while let Some(wake) = self.machine.poll_wake() {
            let told = match wake {
                Wake::Connection(id) => self.connections.get(&id).map(|known| &known.told),
                Wake::Local(id) => self.locals.get(&id),
            };
            if let Some(told) = told {
                told.notify_one();
            }
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}
