//! Incidents for the operator's log: which clients were rejected, disconnected or limited, and why.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use crate::ids::ConnectionId;
use statestore_mqtt::Malformed;
use statestore_mqtt::Reason;

/// Maximum number of entries. An entry is a kind of incident and a client. Clients can cause any
/// number of incidents, so further ones share one entry.
const ENTRIES_MAX: usize = 64;

/// Maximum bytes of a stored name. All names together use about 30 KiB.
const NAME_MAX: usize = 128;

/// Time during which repeated incidents of a client are only counted.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Kind of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum IncidentKind {
    /// A client was rejected by the broker itself, not by
    /// [`handle_login`](crate::Broker::handle_login).
    Connect,
    /// A client was rejected because the limit of [connections](crate::Limits::connections) was
    /// reached.
    Connections,
    /// A client was disconnected because the limit of [connections](crate::Limits::connections)
    /// was reached, its user or address has the most connections, and another one needed a place.
    Displaced,
    /// A client was rejected because the limit of [connections per
    /// address](crate::Limits::connections_per_address) was reached.
    Address,
    /// A connection was closed before its client was accepted, because the limit of [pending
    /// connections](crate::Limits::pending_connections) was reached, or for
    /// [`displace_pending`](crate::Broker::displace_pending).
    Pending,
    /// A client was rejected because another user has a session with its client id.
    OtherUser,
    /// A client was rejected because its will is not allowed.
    Will,
    /// A client was rejected because the limit of [sessions](crate::Limits::sessions) was reached
    /// and no client is disconnected.
    Sessions,
    /// The first packet was not a CONNECT.
    NoConnect,
    /// No CONNECT arrived within [`Limits::connect_time`](crate::Limits::connect_time).
    ConnectTimeout,
    /// [`handle_login`](crate::Broker::handle_login) was not called within
    /// [`Limits::connect_time`](crate::Limits::connect_time).
    LoginTimeout,
    /// A client was disconnected because of a protocol violation.
    ProtocolViolation,
    /// A client was disconnected because nothing arrived for one and a half times its keep-alive.
    KeepAlive,
    /// A client was disconnected because its credentials [expired](crate::Admission::expires_at).
    Expired,
    /// A client was disconnected because another connection used its client id. A single incident
    /// is usually a client that reconnected before the broker noticed the loss of its old
    /// connection. [Repeated](Incident::is_repeated) incidents are probably two clients.
    TakenOver,
    /// A session was ended because it exceeded
    /// [`Limits::session_memory`](crate::Limits::session_memory).
    Share,
    /// A session or connection was ended because [`Limits::memory`](crate::Limits::memory) was
    /// exceeded and it used the most.
    Memory,
    /// The session of a disconnected client was evicted because the limit of
    /// [sessions](crate::Limits::sessions) was reached.
    SessionEvicted,
    /// A message was dropped because it exceeds the Maximum Packet Size of its receiver, which does
    /// not learn of the loss.
    TooLarge,
    /// A message was rejected because of its topic or response topic.
    Publish,
    /// A message was rejected because its client exceeded the [rate
    /// limit](crate::Limits::messages_per_second). At QoS 0 the client is not informed.
    Rate,
    /// A message was rejected because the [memory for retained
    /// messages](crate::Limits::retained_memory) is full.
    Retained,
    /// Retained messages of the user or address with the most of them were removed, because the
    /// [memory for retained messages](crate::Limits::retained_memory) is full.
    RetainedEvicted,
    /// A message at QoS 0 was dropped because the client's session uses half of its [memory
    /// limit](crate::Limits::session_memory).
    Dropped,
    /// A subscription was rejected because of its filter.
    Subscribe,
    /// A subscription was rejected because the limit of
    /// [subscriptions](crate::Limits::subscriptions) or the [memory
    /// limit](crate::Limits::session_memory) of its client was reached.
    Subscriptions,
    /// Incidents of further clients, which are not stored separately.
    Others,
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "client rejected",
            Self::Connections => "client rejected: connection limit reached",
            Self::Displaced => {
                "client disconnected: connection limit reached, and its user or address has the most"
            }
            Self::Address => "client rejected: connection limit of its address reached",
            Self::Pending => "connection closed: too many connections wait for their login",
            Self::OtherUser => "client rejected: another user has a session with its client id",
            Self::Will => "client rejected: its will is not allowed",
            Self::Sessions => "client rejected: session limit reached",
            Self::NoConnect => "connection closed: the first packet is not an MQTT CONNECT",
            Self::ConnectTimeout => "connection closed: no CONNECT arrived in time",
            Self::LoginTimeout => "connection closed: the login was not decided in time",
            Self::ProtocolViolation => "client disconnected: it violated the protocol",
            Self::KeepAlive => "client disconnected: nothing arrived for 1.5 times its keep-alive",
            Self::Expired => "client disconnected: its certificate or token expired",
            Self::TakenOver => "client disconnected: another connection uses its client id",
            Self::Share => "client disconnected: it exceeded the memory limit of a session",
            Self::Memory => "client disconnected: the memory limit is reached and it used the most",
            Self::SessionEvicted => "session of a disconnected client ended: session limit reached",
            Self::TooLarge => {
                "message dropped: it exceeds the Maximum Packet Size of its receiver"
            }
            Self::Publish => "message rejected",
            Self::Rate => "message rejected: its client exceeded the rate limit",
            Self::Retained => "message rejected: the memory for retained messages is full",
            Self::RetainedEvicted => {
                "retained messages removed: their memory is full, and their publisher has the most"
            }
            Self::Dropped => "message at QoS 0 dropped: its receiver reads too slowly",
            Self::Subscribe => "subscription rejected",
            Self::Subscriptions => "subscription rejected: its client reached a limit",
            Self::Others => "incidents of further clients",
        })
    }
}

/// An event that the operator should know about. Names are truncated to 128 bytes. Payloads are not
/// included.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// Kind.
    pub kind: IncidentKind,
    /// Client id of the affected client, if known.
    pub client_id: Option<String>,
    /// Connection of the client. It may be closed.
    pub connection: Option<ConnectionId>,
    /// Address of the client, if known.
    pub peer: Option<IpAddr>,
    /// Topic or topic filter, if the incident concerns one.
    pub topic: Option<String>,
    /// Response topic, if the message contains one.
    pub response_topic: Option<String>,
    /// Reason code that the client received, or would have received if it could.
    pub reason: Option<Reason>,
    /// Error in a packet.
    pub error: Option<Malformed>,
    /// Number of incidents since the previous report. All fields describe the first of them; the
    /// others may have other topics and reasons.
    pub count: u64,
    /// Set if the first of them happened within ten seconds of a report of the same incident of
    /// the same client.
    pub is_repeated: bool,
}

impl fmt::Display for Incident {
    /// Writes kind, reason and error, but no names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        // The text of the kind implies the reason.
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
pub(crate) struct IncidentRef<'a> {
    pub(crate) kind: IncidentKind,
    pub(crate) client_id: Option<&'a str>,
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) peer: Option<IpAddr>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) response_topic: Option<&'a str>,
    pub(crate) reason: Option<Reason>,
    pub(crate) error: Option<Malformed>,
}

impl<'a> IncidentRef<'a> {
    pub(crate) const fn new(kind: IncidentKind, reason: Option<Reason>) -> Self {
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

    /// Creates an incident about a message or a subscription of a client.
    pub(crate) const fn about(
        kind: IncidentKind,
        client_id: &'a str,
        topic: &'a str,
        reason: Option<Reason>,
    ) -> Self {
        Self { client_id: Some(client_id), topic: Some(topic), ..Self::new(kind, reason) }
    }

    fn has_same_subject(&self, other: &Incident) -> bool {
        self.kind == other.kind
            && match (self.client_id, &other.client_id) {
                (Some(own), Some(other)) => shortened(own) == other,
                (None, None) => self.peer == other.peer,
                _ => false,
            }
    }

    fn to_incident(self, is_repeated: bool) -> Incident {
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
            count: 1,
            is_repeated,
        }
    }
}

fn shortened(name: &str) -> &str {
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    end.and_then(|end| name.get(..end)).unwrap_or_default()
}

/// Incidents of one kind from one client.
#[derive(Debug)]
struct Entry {
    /// The incident, with the count since the previous report.
    incident: Incident,
    /// Time until which further incidents are only counted; `None` if a report is due.
    suppressed_until: Option<Duration>,
}

/// Recent incidents, with bounded memory. Repeated incidents are only counted.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    entries: Vec<Entry>,
    /// Number of entries that are due.
    due: usize,
    /// Number of reported entries whose incident was repeated.
    counting: usize,
    /// Latest time that the broker has seen.
    pub(crate) now: Duration,
}

impl Incidents {
    pub(crate) fn push(&mut self, incident: IncidentRef<'_>) {
        let now = self.now;
        let known =
            self.entries.iter_mut().find(|entry| incident.has_same_subject(&entry.incident));
        let Some(entry) = known else { return self.add(incident) };
        if entry.incident.count > 0 {
            entry.incident.count += 1;
            return;
        }
        let is_repeated = entry.suppressed_until.is_some_and(|until| now < until);
        entry.incident = incident.to_incident(is_repeated);
        if is_repeated {
            self.counting += 1;
        } else {
            entry.suppressed_until = None;
            self.due += 1;
        }
    }

    fn add(&mut self, incident: IncidentRef<'_>) {
        let is_other = incident.kind == IncidentKind::Others;
        if self.entries.len() >= ENTRIES_MAX && !is_other {
            let now = self.now;
            let is_over = |until: Duration| until <= now;
            self.entries.retain(|entry| {
                entry.incident.count > 0 || !entry.suppressed_until.is_some_and(is_over)
            });
            if self.entries.len() >= ENTRIES_MAX {
                return self.push(IncidentRef::new(IncidentKind::Others, None));
            }
        }
        self.entries.push(Entry { incident: incident.to_incident(false), suppressed_until: None });
        self.due += 1;
    }

    /// Returns when the next repeated incident becomes due.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        if self.counting == 0 {
            return None;
        }
        let counting = self.entries.iter().filter(|entry| entry.incident.count > 0);
        counting.filter_map(|entry| entry.suppressed_until).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        self.now = now;
        if self.counting == 0 {
            return;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.incident.count > 0) {
            if entry.suppressed_until.is_some_and(|until| until <= now) {
                entry.suppressed_until = None;
                self.counting -= 1;
                self.due += 1;
            }
        }
    }

    pub(crate) fn poll(&mut self, now: Duration) -> Option<Incident> {
        self.handle_timeout(now);
        if self.due == 0 {
            return None;
        }
        let entry = self.entries.iter_mut().find(|entry| entry.suppressed_until.is_none())?;
        self.due -= 1;
        entry.suppressed_until = Some(now.saturating_add(REPORT_INTERVAL));
        let reported = entry.incident.clone();
        // The entry stays, to recognise a repeated incident.
        entry.incident.count = 0;
        Some(reported)
    }
}
