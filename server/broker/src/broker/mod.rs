//! The broker: one file per operation.
//!
//! The [`Broker`] only connects the parts that own the state: [`Connections`], [`Sessions`] with
//! the subscriptions, [`Attachments`], the [`Inbox`] of the host, [`Retained`] messages,
//! [`DueWills`], [`Timers`] and [`Wakes`]. The parts do not know the broker. They receive
//! [`Memory`] and [`Budget`] as arguments, since all parts count in the same ones.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::{Arc, Weak};
use core::time::Duration;

mod accept;
mod connect;
mod evict;
mod inbound;
mod lifecycle;
mod local;
mod output;
mod publish;
mod replay;
mod route;
mod subscribe;
mod timeouts;
mod wills;

pub use local::{Busy, LocalEvent};
pub use output::Output;

use crate::attachments::Attachments;
use crate::budget::Budget;
use crate::config::Config;
use crate::connection::Connection;
use crate::connections::Connections;
use crate::event::{Event, Wake};
use crate::ids::{ConnectionId, SessionId};
use crate::inbox::Inbox;
use crate::incidents::{Incident, IncidentKind, IncidentRef, Incidents};
use crate::memory::Memory;
use crate::message::SharedPayload;
use crate::names::KeyedHash;
use crate::owner::Owners;
use crate::retained::Retained;
use crate::session::{Route, Session};
use crate::sessions::Sessions;
use crate::stats::Stats;
use crate::timers::Timers;
use crate::wakes::Wakes;
use crate::wills::DueWills;
use statestore_mqtt::{Malformed, Reason};

/// An MQTT 5 broker. See the [crate documentation](crate).
pub struct Broker {
    config: Config,
    memory: Memory,
    budget: Budget,
    connections: Connections,
    sessions: Sessions,
    attachments: Attachments,
    /// Messages that wait for the host.
    inbox: Inbox,
    /// Connections whose only message the host has not processed: at most one entry for each.
    awaiting_host: BTreeSet<ConnectionId>,
    /// Connection that sent the last message the host received.
    served: Option<ConnectionId>,
    /// Set while the host takes no messages.
    host_is_paused: bool,
    owners: Owners,
    retained: Retained,
    wills: DueWills,
    timers: Timers,
    wakes: Wakes,
    events: VecDeque<Event>,
    incidents: Incidents,
    stats: Stats,
    /// Server that clients are redirected to, or empty if it is unknown. `None` without a
    /// redirection.
    redirect: Option<Arc<str>>,
    last_number: u64,
    /// The last long payload of the host. A message owns it; without messages it is freed.
    last_payload: Weak<SharedPayload>,
}

impl core::fmt::Debug for Broker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Broker").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Broker {
    /// Creates a broker without clients.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let hash = KeyedHash::new(config.hash_seed);
        Self {
            config,
            memory: Memory::default(),
            budget: Budget::default(),
            connections: Connections::default(),
            sessions: Sessions::new(hash),
            attachments: Attachments::default(),
            inbox: Inbox::new(hash),
            awaiting_host: BTreeSet::new(),
            served: None,
            host_is_paused: false,
            owners: Owners::default(),
            retained: Retained::default(),
            wills: DueWills::default(),
            timers: Timers::default(),
            wakes: Wakes::default(),
            events: VecDeque::new(),
            incidents: Incidents::default(),
            stats: Stats::default(),
            redirect: None,
            last_number: 0,
            last_payload: Weak::new(),
        }
    }

    /// Returns the current contents and the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            connections: self.connections.len(),
            sessions: self.sessions.len(),
            retained: self.retained.len(),
            bytes: self.memory.total(),
            ..self.stats
        }
    }

    /// Returns whether a client is connected or attached.
    #[must_use]
    pub fn is_connected(&self, client_id: &str) -> bool {
        let session = self.sessions.by_client(client_id);
        session.is_some_and(Session::is_connected)
    }

    /// Returns whether the client of a connection was accepted, and the connection is not closing.
    #[must_use]
    pub fn is_accepted(&self, id: ConnectionId) -> bool {
        self.connections.get(id).and_then(Connection::session).is_some()
    }

    /// Returns the Maximum Packet Size of a client in bytes. `None` if the client did not limit it
    /// or is not connected.
    #[must_use]
    pub fn packet_bytes_max(&self, client_id: &str) -> Option<usize> {
        let session = self.sessions.by_client(client_id)?;
        let Route::Connection(id) = session.route else { return None };
        let max = self.connections.get(id)?.window.packet_bytes;
        (max < usize::MAX).then_some(max)
    }

    /// Returns whether a connection must be closed after the output of
    /// [`poll_output`](Self::poll_output) is written.
    #[must_use]
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_none_or(Connection::is_closing)
    }

    /// Returns the next connection or attachment that must be polled.
    #[must_use]
    pub fn poll_wake(&mut self) -> Option<Wake> {
        let wake = self.wakes.pop()?;
        if let Wake::Connection(id) = wake {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.is_woken = false;
            }
        }
        Some(wake)
    }

    /// Cancels the wake of a connection if it was queued last. Call this only directly after
    /// [`poll_output`](Self::poll_output): the wake may be for output that was not polled, or for
    /// the end of the connection. The call is optional. Without it, a driver that polls after
    /// [`handle_bytes`](Self::handle_bytes) is woken once more than it needs to.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use bytes::BytesMut;
    /// # use statestore_mqtt::packet::{Connect, Packet};
    /// use statestore_broker::{Broker, Config, Output};
    ///
    /// let mut broker = Broker::new(Config::default());
    /// let now = Duration::ZERO;
    /// let lamp = broker.handle_accept(now, None)?;
    /// # let connect = Connect {
    /// #     client_id: "lamp", clean_start: true, keep_alive: 60, properties: (), will: None,
    /// #     user_name: None, password: None,
    /// # };
    /// # let (mut bytes, mut out) = (BytesMut::new(), BytesMut::new());
    /// # Packet::Connect(connect).encode(&mut bytes)?;
    /// broker.handle_bytes(now, lamp, &bytes); // CONNECT
    /// assert_eq!(broker.poll_output(now, lamp, &mut out), Output::Idle); // CONNACK
    /// broker.cancel_wake(lamp);
    /// assert_eq!(broker.poll_wake(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_wake(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.wakes.cancel_connection(id, connection);
        }
    }

    /// Returns the next request that the embedder must answer.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Queues a wake for a connection.
    fn wake(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.wakes.push_connection(id, connection);
        }
    }

    /// Queues a wake for the client of a session.
    fn wake_session(&mut self, id: SessionId) {
        if let Some(route) = self.sessions.route(id) {
            self.wake_route(route);
        }
    }

    fn wake_route(&mut self, route: Route) {
        match route {
            Route::Connection(connection) => self.wake(connection),
            Route::Local(id) => self.wakes.push_local(id),
            Route::Detached => {}
        }
    }

    fn wake_host(&mut self) {
        if let Some(host) = self.sessions.host() {
            self.wake_session(host);
        }
    }

    /// Returns the next incident for the operator's log.
    ///
    /// Repeated incidents of a client are counted, and reported again after ten seconds;
    /// [`poll_timeout`](Self::poll_timeout) includes this time. Calling this function is optional:
    /// the broker stores at most 64 incidents, and one for all others.
    ///
    /// Logins that the embedder refused with [`handle_login`](Self::handle_login) are not
    /// incidents. Neither are normal disconnections, lost connections and
    /// [redirects](Self::redirect).
    ///
    /// ```
    /// use core::time::Duration;
    /// use statestore_broker::{Broker, Config, IncidentKind};
    ///
    /// let mut broker = Broker::new(Config::default());
    /// let (now, peer) = (Duration::ZERO, "192.0.2.1".parse().ok());
    /// let id = broker.handle_accept(now, peer)?;
    /// broker.handle_bytes(now, id, b"GET / HTTP/1.1\r\n\r\n");
    /// let incident = broker.poll_incident(now).expect("an incident");
    /// assert_eq!(incident.kind, IncidentKind::NoConnect);
    /// assert_eq!((incident.peer, incident.count), (peer, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn poll_incident(&mut self, now: Duration) -> Option<Incident> {
        self.incidents.poll(now)
    }

    /// Records an incident of a connection, with its client if it has one.
    fn report_incident(
        &mut self,
        id: ConnectionId,
        kind: IncidentKind,
        reason: Option<Reason>,
        error: Option<Malformed>,
    ) {
        let connection = self.connections.get(id);
        let session = connection.and_then(Connection::session).and_then(|id| self.sessions.get(id));
        let client_id = session.map(|session| &*session.client_id);
        let peer = connection.and_then(|connection| connection.peer);
        let incident = IncidentRef::new(kind, reason);
        self.incidents.push(IncidentRef {
            client_id,
            connection: Some(id),
            peer,
            error,
            ..incident
        });
    }
}
