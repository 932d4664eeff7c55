//! What whoever runs a broker is to know of, for a log: who was refused, disconnected or left without something, and why.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use super::connection::Connection;
use super::{Broker, ConnectionId};
use crate::error::Malformed;
use crate::reason::Reason;

/// Kinds of incidents times clients that are told apart. Every client can cause them, as many as it likes: beyond these they
/// are counted together.
const ENTRIES_MAX: usize = 64;

/// Bytes of a name that are kept, so that all of them together have some 30 KiB.
const NAME_MAX: usize = 128;

/// How long what happens again to the same client is counted before it is told again.
const SPELL: Duration = Duration::from_secs(10);

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum IncidentKind {
    /// A client was refused, without a question to the embedder or against its answer.
    Connect,
    /// A client was refused since there are as many [connections](super::Limits::connections) as are allowed.
    Connections,
    /// A client was refused since there are as many connections from its
    /// [address](super::Limits::connections_per_address) as are allowed.
    Address,
    /// A client was refused for its will.
    Will,
    /// A client was refused since there are as many [sessions](super::Limits::sessions) as are allowed, none of them of a
    /// client that is away.
    Sessions,
    /// What came first was no CONNECT.
    NoConnect,
    /// No CONNECT came in [time](super::Limits::connect_time).
    Silent,
    /// Whether a client may connect was not [answered](Broker::handle_login) within that time.
    Unanswered,
    /// A client was disconnected for what it had sent.
    Offence,
    /// A client was disconnected since nothing came for one and a half times its keep alive.
    KeepAlive,
    /// What a client had [proved](super::Admission::expires_at) is true no longer.
    Expired,
    /// Another connection came with the client id of one that was connected. Once is a client that was faster than the end of
    /// its old connection; [again](Incident::again) they are probably two.
    TakenOver,
    /// Who held more than its [share](super::Limits::share) was disconnected, and its session ended.
    Share,
    /// All [memory](super::Limits::memory) was taken, and who held most was disconnected, and its session ended.
    Memory,
    /// The session of a client that is away gave way to another one's, since there are as many
    /// [sessions](super::Limits::sessions) as are allowed.
    GaveWay,
    /// A client was disconnected since what the host had for it was out of date or larger than it takes.
    Missed,
    /// A message was refused, for its topic or for where its answer is to go.
    Publish,
    /// A message was refused that came beyond the [rate](super::Limits::messages_per_second); at QoS 0 nobody is told.
    Rate,
    /// A message was refused for lack of room among those that are [retained](super::Limits::retained).
    Retained,
    /// A message at QoS 0 was dropped for a client that has half of its [share](super::Limits::share) unread.
    Dropped,
    /// A subscription was refused for its filter.
    Subscribe,
    /// A subscription was refused since its client has as [many](super::Limits::subscriptions) as are allowed, or since they
    /// take its [share](super::Limits::share).
    Subscriptions,
    /// Something of these, to more clients than are told apart.
    Others,
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "a client was refused",
            Self::Connections => {
                "a client was refused, since there are as many connections as are allowed"
            }
            Self::Address => {
                "a client was refused, since there are as many connections from its address as are allowed"
            }
            Self::Will => "a client was refused for its will",
            Self::Sessions => "a client was refused, since there are as many sessions as are allowed",
            Self::NoConnect => "a connection was closed that began with no CONNECT of MQTT",
            Self::Silent => "a connection was closed that had sent no CONNECT in time",
            Self::Unanswered => {
                "a connection was closed, since it took too long to find out who its client is"
            }
            Self::Offence => "a client was disconnected for what it had sent",
            Self::KeepAlive => "a client was disconnected that had been silent for too long",
            Self::Expired => "a client was disconnected: its certificate or token has expired",
            Self::TakenOver => "a client was disconnected for another one with its client id",
            Self::Share => {
                "a client was disconnected that held more than the memory of one client"
            }
            Self::Memory => {
                "a client was disconnected that held most when the memory for all was taken"
            }
            Self::GaveWay => {
                "the session of a client that is away has ended, since there are as many sessions as are allowed"
            }
            Self::Missed => {
                "a client was disconnected, since it cannot be given what it would miss"
            }
            Self::Publish => "a message was refused",
            Self::Rate => "a message was refused, since its client is beyond the rate limit",
            Self::Retained => {
                "a message was refused, since the memory for retained messages is taken"
            }
            Self::Dropped => {
                "a message at QoS 0 was dropped, since its reader is far behind"
            }
            Self::Subscribe => "a subscription was refused",
            Self::Subscriptions => {
                "a subscription was refused, since its client has as many as are allowed"
            }
            Self::Others => "more clients were refused or disconnected than are named",
        })
    }
}

/// Something that whoever runs the broker is to know of. Names are shortened to their first 128 bytes; payloads are not here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// What has happened.
    pub kind: IncidentKind,
    /// The client id of whom it has happened to, if that is known.
    pub client_id: Option<String>,
    /// Its connection, which may be gone.
    pub connection: Option<ConnectionId>,
    /// Where that came from, if it is known.
    pub peer: Option<IpAddr>,
    /// The topic, or the topic filter, if it is about one.
    pub topic: Option<String>,
    /// Where the answer was to go, if there was to be one.
    pub response_topic: Option<String>,
    /// What the client was told, if there was a way to tell it.
    pub reason: Option<Reason>,
    /// What was wrong with a packet.
    pub error: Option<Malformed>,
    /// How many times it has happened since it was told last, the others perhaps with other topics and reasons.
    pub times: u64,
    /// Whether it was told of the same client some seconds ago.
    pub again: bool,
}

impl fmt::Display for Incident {
    /// In words, without names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        // The kind says as much.
        if let Some(reason) = self.reason.filter(|_| self.kind != IncidentKind::Expired) {
            write!(f, ": {reason}")?;
        }
        match self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// An incident with borrowed names.
#[derive(Clone, Copy)]
pub(super) struct Note<'a> {
    pub(super) kind: IncidentKind,
    pub(super) client_id: Option<&'a str>,
    pub(super) connection: Option<ConnectionId>,
    pub(super) peer: Option<IpAddr>,
    pub(super) topic: Option<&'a str>,
    pub(super) response_topic: Option<&'a str>,
    pub(super) reason: Option<Reason>,
    pub(super) error: Option<Malformed>,
}

impl<'a> Note<'a> {
    pub(super) const fn new(kind: IncidentKind, reason: Option<Reason>) -> Self {
        Self {
            kind,
            client_id: None,
            connection: None,
            peer: None,
            topic: None,
            response_topic: None,
            reason,
            error: None,
        }
    }

    /// About a message or a subscription of a client.
    pub(super) const fn about(
        kind: IncidentKind,
        client_id: &'a str,
        topic: &'a str,
        reason: Option<Reason>,
    ) -> Self {
        Self { client_id: Some(client_id), topic: Some(topic), ..Self::new(kind, reason) }
    }

    fn is_of(&self, other: &Incident) -> bool {
        self.kind == other.kind
            && match (self.client_id, &other.client_id) {
                (Some(own), Some(other)) => shortened(own) == other,
                (None, None) => self.peer == other.peer,
                _ => false,
            }
    }

    fn incident(&self, again: bool) -> Incident {
        let name = |name: Option<&str>| name.map(|name| shortened(name).to_owned());
        Incident {
            kind: self.kind,
            client_id: name(self.client_id),
            connection: self.connection,
            peer: self.peer,
            topic: name(self.topic),
            response_topic: name(self.response_topic),
            reason: self.reason,
            error: self.error,
            times: 1,
            again,
        }
    }
}

fn shortened(name: &str) -> &str {
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    end.and_then(|end| name.get(..end)).unwrap_or_default()
}

/// What happened to one client, of one kind.
#[derive(Debug)]
struct Entry {
    /// With how many times it happened since it was told.
    incident: Incident,
    /// Until when it is counted, once it was told; `None` for one that is to be told.
    counted_until: Option<Duration>,
}

/// What has happened lately: something that happens over and over costs no more than to be counted.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    entries: Vec<Entry>,
    /// How many of them are to be told.
    due: usize,
    /// How many were told and have happened again.
    counting: usize,
    /// The latest time that is known here.
    pub(super) now: Duration,
}

impl Incidents {
    pub(super) fn push(&mut self, note: Note<'_>) {
        let now = self.now;
        let known = self.entries.iter_mut().find(|entry| note.is_of(&entry.incident));
        let Some(entry) = known else { return self.add(note) };
        if entry.incident.times > 0 {
            entry.incident.times += 1;
            return;
        }
        let again = entry.counted_until.is_some_and(|until| now < until);
        entry.incident = note.incident(again);
        if again {
            self.counting += 1;
        } else {
            entry.counted_until = None;
            self.due += 1;
        }
    }

    fn add(&mut self, note: Note<'_>) {
        let is_other = note.kind == IncidentKind::Others;
        if self.entries.len() >= ENTRIES_MAX && !is_other {
            let now = self.now;
            let is_over = |until: Duration| until <= now;
            self.entries.retain(|entry| {
                entry.incident.times > 0 || !entry.counted_until.is_some_and(is_over)
            });
            if self.entries.len() >= ENTRIES_MAX {
                return self.push(Note::new(IncidentKind::Others, None));
            }
        }
        self.entries.push(Entry { incident: note.incident(false), counted_until: None });
        self.due += 1;
    }

    /// When something is to be told again.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        if self.counting == 0 {
            return None;
        }
        let counting = self.entries.iter().filter(|entry| entry.incident.times > 0);
        counting.filter_map(|entry| entry.counted_until).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        self.now = now;
        if self.counting == 0 {
            return;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.incident.times > 0) {
            if entry.counted_until.is_some_and(|until| until <= now) {
                entry.counted_until = None;
                self.counting -= 1;
                self.due += 1;
            }
        }
    }

    fn poll(&mut self, now: Duration) -> Option<Incident> {
        self.handle_timeout(now);
        if self.due == 0 {
            return None;
        }
        let entry = self.entries.iter_mut().find(|entry| entry.counted_until.is_none())?;
        self.due -= 1;
        entry.counted_until = Some(now.saturating_add(SPELL));
        let told = entry.incident.clone();
        // By its name it is found when it happens again.
        entry.incident.times = 0;
        Some(told)
    }
}

impl Broker {
    /// The next thing that whoever runs the broker is to know of. What happens to the same client again is counted, and told
    /// again ten seconds later; [`poll_timeout`](Self::poll_timeout) says when. It need not be asked for: what is kept is no more
    /// than 64 of them, and one for all the others.
    ///
    /// What was refused by the embedder, in [`handle_login`](Self::handle_login) say, is not among it, nor is what belongs to the
    /// course of things: who says goodbye, loses its connection or is [referred](Self::refer).
    ///
    /// ```
    /// use core::time::Duration;
    /// use statestore_mqtt::broker::{Broker, Config, IncidentKind};
    ///
    /// let mut broker = Broker::new(Config::default());
    /// let (now, peer) = (Duration::ZERO, "192.0.2.1".parse().ok());
    /// let id = broker.handle_accept(now, peer)?;
    /// broker.handle_bytes(now, id, b"GET / HTTP/1.1\r\n\r\n");
    /// let told = broker.poll_incident(now).expect("it is told");
    /// assert_eq!((told.kind, told.peer, told.times), (IncidentKind::NoConnect, peer, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn poll_incident(&mut self, now: Duration) -> Option<Incident> {
        self.incidents.poll(now)
    }

    /// Tells of a connection, and of its client if it has one.
    pub(super) fn note(
        &mut self,
        id: ConnectionId,
        kind: IncidentKind,
        reason: Option<Reason>,
        error: Option<Malformed>,
    ) {
        let connection = self.connections.get(&id);
        let session =
            connection.and_then(Connection::session).and_then(|id| self.sessions.get(&id));
        let client_id = session.map(|session| &*session.client_id);
        let peer = connection.and_then(|connection| connection.peer);
        let note = Note::new(kind, reason);
        self.incidents.push(Note { client_id, connection: Some(id), peer, error, ..note });
    }
}
