//! An MQTT 5 broker as a state machine: bytes in, bytes out, and the time as an argument.
//!
//! It knows sessions, QoS 0 to 2, flow control, retained messages, wills, shared subscriptions, subscription options and
//! identifiers, topic aliases in both directions, keep alive, expiry of messages and sessions, and takeover. It forwards
//! properties as they came and in their order, and adds those that belong to a connection: identifiers and an alias.
//!
//! # Driving it
//!
//! For each connection [`handle_accept`](Broker::handle_accept), then
//! [`handle_bytes`](Broker::handle_bytes) for what was read while [`wants_input`](Broker::wants_input) says so, and
//! [`poll_output`](Broker::poll_output) for what is to be written; at its end
//! [`handle_closed`](Broker::handle_closed). [`poll_wake`](Broker::poll_wake) says for whom there is something to do,
//! [`poll_timeout`](Broker::poll_timeout) when to call [`handle_timeout`](Broker::handle_timeout) next.
//!
//! Calls may come in any order. None of them waits for anybody, and what takes long is done in slices: of what many
//! retained messages mean for a subscription, of wills and sessions' ends that are due together, one for each call of
//! `handle_timeout`; and of what came in one piece, filters of one packet included, as much as reaches some thousand
//! subscribers or makes some hundred levels of filters ([`rests`](Broker::rests)). Who has just connected, or was last given more
//! than that, waits for its turn with whatever it sends ([`Limits::probation`]), so that coming anew is no way around.
//!
//! What waits for the host has its turns by sender: who asks for one thing after the other goes before those who have
//! more waiting, of whom one has its turn after each round of the others, and one of those who have gone after each round of these.
//!
//! Four things are done whole, since at the default limits each takes a few milliseconds on a small server, apart from what
//! [`Rules`] take: one message goes to all who subscribe to it (10,000 that are connected: 4 ms, away: 2 ms), a session ends
//! with all of its subscriptions (3 ms for the 12,000 levels that its share has room for), those who hold most make room
//! for what came (300 of 10,000: 1 ms), and what an operator asks for goes over everybody
//! ([`recheck`](Broker::recheck) 1 ms, [`disconnect_all`](Broker::disconnect_all) and [`refer`](Broker::refer) 6 ms for
//! 10,000 connections).
//!
//! Times are since whatever moment the embedder chooses, and do not go back.
//!
//! # Example
//!
//! A client connects and is answered:
//!
//! ```
//! use core::time::Duration;
//! use bytes::BytesMut;
//! use statestore_mqtt::Reason;
//! use statestore_mqtt::broker::{Broker, Config, Output};
//! use statestore_mqtt::packet::{Connect, Packet};
//!
//! let mut broker = Broker::new(Config::default());
//! let now = Duration::ZERO;
//! let id = broker.handle_accept(now, None)?;
//!
//! // What a socket read ...
//! let mut hello = BytesMut::new();
//! Packet::Connect(Connect {
//!     client_id: "lamp",
//!     clean_start: true,
//!     keep_alive: 60,
//!     properties: (),
//!     will: None,
//!     user_name: None,
//!     password: None,
//! })
//! .encode(&mut hello)?;
//! broker.handle_bytes(now, id, &hello);
//!
//! // ... and what it is to write.
//! let mut out = BytesMut::new();
//! assert_eq!(broker.poll_output(now, id, &mut out), Output::Idle);
//! let Packet::ConnAck(told) = Packet::decode(&out)? else { panic!("a CONNACK") };
//! assert_eq!(told.reason, Reason::SUCCESS);
//! assert!(broker.is_connected("lamp"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The host, and other clients in the same process
//!
//! A service that lives in the broker is its host: [`attach_host`](Broker::attach_host). It knows who sent a message and
//! hears which clients have gone, behind everything that these have sent; it
//! [delivers](Broker::deliver) to a client that does not subscribe. What clients send to it waits in a queue for each of them,
//! and these have their turns, so that nobody waits for another's burst; who has a quarter of its share unread has none. Other
//! clients in the process
//! [attach](Broker::attach) as well.
//!
//! # What is bounded by what
//!
//! Everything that somebody can make it keep is counted in bytes ([`Limits`]). Who goes beyond a share, or holds most when
//! all is taken, loses the session, and is told so if it reads: *quota exceeded*. A message at QoS 1 or 2 is never dropped behind the back
//! of a living session, apart from one that is out of date or larger than the client takes.
//!
//! # Its own choices
//!
//! * A client whose subscriptions overlap, shared ones included, gets a message once, with the greatest QoS and all
//!   identifiers.
//! * PUBACK and PUBREC say *no matching subscribers* when there are none.
//! * A session ends with its connection if that was ended for taking too much.
//! * Enhanced authentication is by [one method](Config::authentication_method) that takes one packet; others are refused with
//!   *bad authentication method*. Who proves itself anew is not read from until that is answered.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

mod aliases;
mod config;
mod connect;
mod connection;
mod evict;
mod inbound;
mod inbox;
mod incidents;
mod local;
mod memory;
mod message;
mod output;
mod retained;
mod route;
mod session;
mod subscribe;
mod timers;
mod tree;

pub use config::{Admission, AllowAll, Config, Limits, Rules};
pub use incidents::{Incident, IncidentKind};
pub use local::{Busy, LocalEvent, LocalId};
pub use message::Message;
pub use output::Output;

use connection::Connection;
use inbox::Inbox;
use incidents::Incidents;
use memory::Memory;
use retained::Retained;
use session::{Route, Session};
use timers::Timer;
use tree::{Match, Tree};

use crate::reason::Reason;

/// Bytes that a session takes by itself, in all tables together.
const SESSION_BYTES: usize = 1_024;

/// Bytes that a connection takes by itself, in all tables together.
const CONNECTION_BYTES: usize = 1_024;

/// One connection, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// One session, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SessionId(u64);

/// Somebody for whom there is something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Call [`Broker::poll_output`].
    Connection(ConnectionId),
    /// Call [`Broker::poll_local`], or publish again what was [`Busy`].
    Local(LocalId),
}

/// A question to the embedder.
#[derive(Clone, PartialEq, Eq)]
pub enum Event {
    /// Whether a client may connect; to be answered with [`Broker::handle_login`]. There is one for each connection at most.
    Login {
        /// The connection.
        connection: ConnectionId,
        /// Client id; one that the broker has assigned if the client has none.
        client_id: String,
        /// User name.
        user_name: Option<String>,
        /// Password.
        password: Option<Vec<u8>>,
        /// What a client has that has chosen the [method](Config::authentication_method); 64 KiB at most.
        authentication_data: Option<Vec<u8>>,
    },
    /// Whether a client is still who it was, which proves that anew; to be answered with
    /// [`Broker::handle_reauthentication`]. There is one for each connection at a time.
    Reauthenticate {
        /// The connection.
        connection: ConnectionId,
        /// Client id.
        client_id: String,
        /// What it has by the [method](Config::authentication_method); 64 KiB at most.
        authentication_data: Vec<u8>,
    },
}

/// Without passwords and what else proves something.
impl core::fmt::Debug for Event {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (name, connection, client_id) = match self {
            Self::Login { connection, client_id, .. } => ("Login", connection, client_id),
            Self::Reauthenticate { connection, client_id, .. } => {
                ("Reauthenticate", connection, client_id)
            }
        };
        let mut f = f.debug_struct(name);
        f.field("connection", connection).field("client_id", client_id).finish_non_exhaustive()
    }
}

/// Why a connection was not accepted; to be closed without a word, since it has not said anything. As many as may be
/// [turned away](Limits::turned_away) at a time are accepted to be told so, instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many [connections](Limits::connections) as are allowed.
    Connections,
    /// As many [from this address](Limits::connections_per_address) as are allowed.
    Address,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Connections => "as many connections as are allowed",
            Self::Address => "as many connections from this address as are allowed",
        })
    }
}

impl core::error::Error for Refused {}

/// Where clients are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Referral<'a> {
    /// Here.
    #[default]
    Here,
    /// By another server; which one is not known.
    Elsewhere,
    /// By this server, as `HOST:PORT` or whatever its clients know (Server Reference, 3.2.2.3.16).
    Server(&'a str),
}

/// What a broker holds, and what has happened to it so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Connections, those without a CONNECT and those that are being [turned away](Limits::turned_away) included.
    pub connections: usize,
    /// Sessions, those of clients that are away and of clients in the process included.
    pub sessions: usize,
    /// Retained messages.
    pub retained: usize,
    /// Bytes of everything that [`Limits::memory`] counts.
    pub bytes: usize,
    /// Messages that were published so far.
    pub published: u64,
    /// Messages that were dropped: at QoS 0 for lack of room, out of date, or larger than the client takes.
    pub dropped: u64,
    /// Sessions that were ended for taking too much.
    pub evicted: u64,
    /// Connections that were ended because of what came from them.
    pub offenders: u64,
    /// Connections that were refused by [`handle_login`](Broker::handle_login), those that had gone by then included.
    pub refused_logins: u64,
    /// Messages, subscriptions and wills that the [`Rules`] did not allow.
    pub denied: u64,
}

/// An MQTT 5 broker. See the [module documentation](self).
pub struct Broker {
    config: Config,
    memory: Memory,
    connections: BTreeMap<ConnectionId, Connection>,
    addresses: BTreeMap<IpAddr, usize>,
    /// How many connections there are that are beyond a limit, to be told so.
    turned_away: usize,
    sessions: BTreeMap<SessionId, Session>,
    by_client: BTreeMap<Arc<str>, SessionId>,
    tree: Tree,
    retained: Retained,
    /// Sessions with retained messages still to come.
    replaying: VecDeque<SessionId>,
    host: Option<SessionId>,
    /// Where clients are to go, if not here; empty where that is not known.
    elsewhere: Option<Arc<str>>,
    inbox: Inbox,
    /// Whose session an attachment is, or why it is over.
    locals: BTreeMap<LocalId, Result<SessionId, Reason>>,
    /// Attachments for which there is a wake.
    woken: BTreeSet<LocalId>,
    timers: BTreeSet<(Duration, Timer)>,
    wakes: VecDeque<Wake>,
    events: VecDeque<Event>,
    incidents: Incidents,
    last_number: u64,
    stats: Stats,
    /// Wills that are due: each session has one, which is not among its own any more.
    wills: VecDeque<Arc<Message>>,
    /// Whether some were left at the end of a call.
    do_wills_wait: bool,
    will_bytes: usize,
    /// For the subscribers of one message; kept for its room.
    matches: Vec<Match>,
    /// What was done since somebody had a turn.
    work: usize,
}

impl core::fmt::Debug for Broker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Broker").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker without clients.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            memory: Memory::default(),
            connections: BTreeMap::new(),
            addresses: BTreeMap::new(),
            turned_away: 0,
            sessions: BTreeMap::new(),
            by_client: BTreeMap::new(),
            tree: Tree::default(),
            retained: Retained::default(),
            replaying: VecDeque::new(),
            host: None,
            elsewhere: None,
            inbox: Inbox::default(),
            locals: BTreeMap::new(),
            woken: BTreeSet::new(),
            timers: BTreeSet::new(),
            wakes: VecDeque::new(),
            events: VecDeque::new(),
            incidents: Incidents::default(),
            last_number: 0,
            stats: Stats::default(),
            wills: VecDeque::new(),
            do_wills_wait: false,
            will_bytes: 0,
            matches: Vec::new(),
            work: 0,
        }
    }

    /// What it holds, and what has happened so far.
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

    /// A new connection, from `peer` if that is known. One beyond a limit is told so in answer to its CONNECT: *server busy*, or
    /// *quota exceeded* where the limit is that of an address.
    ///
    /// # Errors
    /// [`Refused`] when as many as [may be](Limits::turned_away) are being turned away already; nothing has changed then.
    pub fn handle_accept(
        &mut self,
        now: Duration,
        peer: Option<IpAddr>,
    ) -> Result<ConnectionId, Refused> {
        let limits = &self.config.limits;
        let counted = peer.filter(connection::is_counted);
        let from_there = counted.and_then(|peer| self.addresses.get(&peer)).copied();
        let refused = if self.connections.len() - self.turned_away >= limits.connections {
            Some(Refused::Connections)
        } else if from_there.unwrap_or_default() >= limits.connections_per_address {
            Some(Refused::Address)
        } else {
            None
        };
        if let Some(refused) = refused.filter(|_| self.turned_away >= limits.turned_away) {
            return Err(refused);
        }
        let deadline = now.saturating_add(limits.connect_time);
        let trusted_at = now.saturating_add(limits.probation);
        let id = ConnectionId(self.number());
        let connection =
            Connection { trusted_at, ..Connection::new(now, peer, refused, &mut self.memory) };
        self.connections.insert(id, connection);
        self.set_deadline(id, Some(deadline));
        match (refused, counted) {
            (Some(_), _) => self.turned_away += 1,
            (None, Some(peer)) => *self.addresses.entry(peer).or_default() += 1,
            (None, None) => {}
        }
        self.settle(now);
        Ok(id)
    }

    /// A connection is gone, by whoever's will. Everything that it had is given back; unless its client said goodbye its will
    /// counts.
    pub fn handle_closed(&mut self, now: Duration, id: ConnectionId) {
        self.end_connection(now, id, None);
        self.set_deadline(id, None);
        self.set_expiry(id, None);
        let Some(mut connection) = self.connections.remove(&id) else { return };
        connection.clear(&mut self.memory);
        if connection.refused.is_some() {
            self.turned_away -= 1;
        } else if let Some(peer) = connection.peer.filter(connection::is_counted) {
            let count = self.addresses.get_mut(&peer);
            let is_last = count.is_none_or(|count| {
                *count -= 1;
                *count == 0
            });
            if is_last {
                self.addresses.remove(&peer);
            }
        }
        self.settle(now);
    }

    /// Ends the connection or attachment of a client, and says why; whether there was one. Its session goes on.
    pub fn disconnect(&mut self, now: Duration, client_id: &str, reason: Reason) -> bool {
        let Some(session) = self.by_client.get(client_id).copied() else { return false };
        match self.sessions.get(&session).map(|session| session.route) {
            Some(Route::Connection(id)) => self.end_connection(now, id, Some(reason)),
            Some(Route::Local(_)) => self.end_session(now, session, Some(reason)),
            Some(Route::Away) | None => return false,
        }
        self.settle(now);
        true
    }

    /// Ends the session of a client, with its connection or attachment if it has one; whether there was one.
    pub fn expel(&mut self, now: Duration, client_id: &str, reason: Reason) -> bool {
        let session = self.by_client.get(client_id).copied();
        let Some(session) = session.filter(|id| Some(*id) != self.host) else { return false };
        self.end_session(now, session, Some(reason));
        self.settle(now);
        true
    }

    /// Ends the sessions of those whose rules do not [hold any more](Rules::still_hold), with reason *not authorized*, and
    /// gives their number.
    pub fn recheck(&mut self, now: Duration) -> usize {
        let is_over = |session: &Session| !session.rules.still_hold(&session.client_id);
        let over = self.sessions.iter().filter(|(_, session)| is_over(session));
        let over: Vec<SessionId> = over.map(|(id, _)| *id).collect();
        for id in &over {
            self.end_session(now, *id, Some(Reason::NOT_AUTHORIZED));
        }
        self.settle(now);
        over.len()
    }

    /// Ends every connection, and says why.
    pub fn disconnect_all(&mut self, now: Duration, reason: Reason) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in all {
            self.end_connection(now, id, Some(reason));
        }
        self.settle(now);
    }

    /// Sends clients to another server, reason *use another server*: those that are connected, and whoever connects from now
    /// on, until it is [`Referral::Here`] again. Sessions stay, and so do clients in the process.
    pub fn refer(&mut self, now: Duration, to: Referral<'_>) {
        self.elsewhere = match to {
            Referral::Here => None,
            Referral::Elsewhere => Some(Arc::default()),
            Referral::Server(server) => Some(server.into()),
        };
        if self.elsewhere.is_none() {
            return;
        }
        // Who has not sent a CONNECT is told in answer to it.
        let open = self.connections.iter().filter(|(_, one)| one.session().is_some());
        let open: Vec<ConnectionId> = open.map(|(id, _)| *id).collect();
        for id in open {
            self.end_connection(now, id, Some(Reason::USE_ANOTHER_SERVER));
        }
        self.settle(now);
    }

    /// Whether a client is connected or attached.
    #[must_use]
    pub fn is_connected(&self, client_id: &str) -> bool {
        let session = self.by_client.get(client_id).and_then(|id| self.sessions.get(id));
        session.is_some_and(Session::is_connected)
    }

    /// Bytes of the largest packet that a client takes; `None` if it has not said, or is not connected.
    #[must_use]
    pub fn packet_bytes_max(&self, client_id: &str) -> Option<usize> {
        let session = self.by_client.get(client_id).and_then(|id| self.sessions.get(id))?;
        let Route::Connection(id) = session.route else { return None };
        let max = self.connections.get(&id)?.window.packet_bytes;
        (max < usize::MAX).then_some(max)
    }

    /// Whether a connection is to be closed when what [`poll_output`](Self::poll_output) gave is written.
    #[must_use]
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(Connection::is_closing)
    }

    /// Somebody for whom there is something to do.
    #[must_use]
    pub fn poll_wake(&mut self) -> Option<Wake> {
        let wake = self.wakes.pop_front()?;
        match wake {
            Wake::Connection(id) => {
                self.connections.entry(id).and_modify(|connection| connection.is_woken = false);
            }
            Wake::Local(id) => {
                self.woken.remove(&id);
            }
        }
        Some(wake)
    }

    /// A question to be answered.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    const fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Says that there is something to do for a connection.
    fn wake(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id).filter(|one| !one.is_woken) {
            connection.is_woken = true;
            self.wakes.push_back(Wake::Connection(id));
        }
    }

    /// The connection says nothing more: its session goes its own way.
    fn end_connection(&mut self, now: Duration, id: ConnectionId, reason: Option<Reason>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let session = connection.session();
        let elsewhere =
            reason.and_then(|reason| connect::elsewhere(reason, self.elsewhere.as_deref()));
        connection.close(&mut self.memory, reason, elsewhere.as_slice());
        self.wake(id);
        if let Some(session) = session {
            self.leave(now, session);
        }
    }

    /// The client of a session has gone.
    fn leave(&mut self, now: Duration, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let client_id = Arc::clone(&session.client_id);
        session.go_away();
        let ends_at = now.saturating_add(session.expiry);
        session.ends_at = Some(ends_at);
        let will_at = session.will.as_ref().map(|will| now.saturating_add(will.delay));
        session.will_at = will_at;
        let is_over = session.expiry.is_zero();
        self.tell_host(&client_id);
        if is_over {
            return self.end_session(now, id, None);
        }
        self.timers.insert((ends_at, Timer::Session(id)));
        match will_at {
            Some(at) if at <= now => self.publish_will(now, id),
            Some(at) => {
                self.timers.insert((at, Timer::Will(id)));
            }
            None => {}
        }
    }

    /// Ends a session, with its connection if it has one, and publishes the will that it may have left.
    fn end_session(&mut self, now: Duration, id: SessionId, reason: Option<Reason>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        match session.route {
            Route::Connection(connection) => {
                // Comes back here when the client has gone.
                session.expiry = Duration::ZERO;
                return self.end_connection(now, connection, reason);
            }
            Route::Local(_) => {
                session.expiry = Duration::ZERO;
                self.detached(id, reason);
                return self.leave(now, id);
            }
            Route::Away => {}
        }
        self.publish_will(now, id);
        self.stop_timers(id);
        let Some(mut session) = self.sessions.remove(&id) else { return };
        session.clear(&mut self.memory);
        for filter in &session.subscriptions {
            self.work += subscribe::work(filter);
            if let Some(filter) = crate::topic::Filter::parse(filter) {
                self.tree.remove(&filter, id);
            }
        }
        self.by_client.remove(&session.client_id);
    }
}
