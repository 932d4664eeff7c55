//! Eviction when memory is full.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use core::cmp::Reverse;
use core::time::Duration;

use super::Broker;
use crate::connection::Connection;
use crate::connections::Connections;
use crate::ids::{ConnectionId, SessionId};
use crate::inbox::Inbox;
use crate::incidents::{IncidentKind, IncidentRef};
use crate::session::{Route, Session};
use crate::sessions::Sessions;
use statestore_mqtt::Reason;

/// A client or sender whose memory can be freed.
enum Victim {
    /// A disconnected sender whose messages wait for the host.
    DepartedSender(Arc<str>),
    Connection(ConnectionId),
    /// A session without a connection.
    Session(SessionId),
}

/// All possible victims, by their memory. Many sessions may have to end, so the heaps are built
/// once.
///
/// The remaining memory belongs to retained messages, the host queue and output. These have their
/// own limits.
struct Candidates {
    /// Connections with their sessions, without those that are closing.
    connections: BinaryHeap<(usize, Reverse<ConnectionId>)>,
    /// Sessions of disconnected clients and of clients in this process.
    unconnected: BinaryHeap<(usize, Reverse<SessionId>)>,
    departed: BinaryHeap<(usize, Arc<str>)>,
    /// Bytes of all departed senders. Together they count as one candidate.
    departed_bytes: usize,
}

impl Candidates {
    fn new(connections: &Connections, sessions: &Sessions, inbox: &Inbox) -> Self {
        let total_bytes = |connection: &Connection| {
            let session = connection.session().and_then(|id| sessions.get(id));
            let session_bytes =
                session.map_or(0, |session| session.bytes() + inbox.bytes(&session.client_id));
            connection.account.bytes() + session_bytes
        };
        let open = connections.iter().filter(|(_, connection)| !connection.is_closing());
        let unconnected = sessions
            .iter_clients()
            .filter(|(_, session)| !matches!(session.route, Route::Connection(_)));
        let departed = inbox.departed().map(|(bytes, sender)| (bytes, Arc::clone(sender)));
        let departed: BinaryHeap<_> = departed.collect();
        Self {
            connections: open
                .map(|(id, connection)| (total_bytes(connection), Reverse(id)))
                .collect(),
            unconnected: unconnected.map(|(id, session)| (session.bytes(), Reverse(id))).collect(),
            departed_bytes: departed.iter().map(|(bytes, _)| *bytes).sum(),
            departed,
        }
    }

    /// Removes the candidate that is evicted next.
    ///
    /// Sessions without a connection come first unless a connection uses more than twice as much.
    /// Departed senders come first if together they use the most. Among equals, the older one is
    /// evicted.
    fn next_victim(&mut self) -> Option<Victim> {
        let connection = self.connections.peek().map(|(bytes, _)| *bytes);
        let unconnected = self.unconnected.peek().map(|(bytes, _)| *bytes);
        if self.departed_bytes >= connection.max(unconnected).unwrap_or_default() {
            if let Some((bytes, sender)) = self.departed.pop() {
                self.departed_bytes -= bytes;
                return Some(Victim::DepartedSender(sender));
            }
        }
        let is_first = |bytes: usize| unconnected.is_none_or(|other| bytes / 2 > other);
        if connection.is_some_and(is_first) {
            self.connections.pop().map(|(_, Reverse(id))| Victim::Connection(id))
        } else {
            self.unconnected.pop().map(|(_, Reverse(id))| Victim::Session(id))
        }
    }
}

impl Broker {
    /// Evicts until the broker is within its memory limit. See
    /// [`next_victim`](Candidates::next_victim) for the order.
    pub(super) fn evict_to_limit(&mut self, now: Duration) {
        let max = self.config.limits.memory;
        if self.memory.total() <= max {
            return;
        }
        // The memory of closing connections is freed anyway.
        let closing = self.connections.iter().filter(|(_, connection)| connection.is_closing());
        let mut closing: usize = closing.map(|(_, connection)| connection.account.bytes()).sum();
        if self.memory.total().saturating_sub(closing) <= max {
            return;
        }
        let mut candidates = Candidates::new(&self.connections, &self.sessions, &self.inbox);
        while self.memory.total().saturating_sub(closing) > max {
            match candidates.next_victim() {
                None => return,
                Some(Victim::DepartedSender(sender)) => {
                    let dropped = self.inbox.drop_departed_messages(&mut self.memory, &sender);
                    self.stats.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
                }
                Some(Victim::Connection(id)) => {
                    self.evict_connection(now, id);
                    let left = self.connections.get(id).filter(|left| left.is_closing());
                    closing += left.map_or(0, |left| left.account.bytes());
                }
                Some(Victim::Session(id)) => {
                    if self.sessions.get(id).is_some() {
                        self.evict_session(now, id, IncidentKind::Memory);
                    }
                }
            }
        }
    }

    /// Ends a connection and its session because of their memory use.
    fn evict_connection(&mut self, now: Duration, id: ConnectionId) {
        let session = self.connections.get(id).and_then(Connection::session);
        if let Some(client_id) = session
            .and_then(|id| self.sessions.get(id))
            .map(|session| Arc::clone(&session.client_id))
        {
            self.inbox.remove_sender(&mut self.memory, &client_id);
        }
        match session {
            Some(session) => self.evict_session(now, session, IncidentKind::Memory),
            None => {
                self.stats.evicted += 1;
                self.report_incident(id, IncidentKind::Memory, None, None);
                self.end_connection(now, id, None);
            }
        }
    }

    /// Ends a session because of its memory use.
    fn evict_session(&mut self, now: Duration, id: SessionId, kind: IncidentKind) {
        self.stats.evicted += 1;
        let reason = Some(Reason::QUOTA_EXCEEDED);
        match self.sessions.get(id) {
            Some(Session { route: Route::Connection(connection), .. }) => {
                self.report_incident(*connection, kind, reason, None);
            }
            Some(session) => {
                let client_id = Some(&*session.client_id);
                self.incidents.push(IncidentRef { client_id, ..IncidentRef::new(kind, None) });
            }
            None => {}
        }
        self.end_session(now, id, reason);
    }

    /// Ends a session that exceeds its memory limit.
    pub(super) fn check_session_memory(&mut self, now: Duration, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        if session.bytes() > self.config.limits.session_memory {
            self.evict_session(now, id, IncidentKind::Share);
        }
    }
}
