//! Who gives way when there is no more room.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use core::cmp::Reverse;
use core::time::Duration;

use super::connection::Connection;
use super::incidents::{IncidentKind, Note};
use super::session::{Route, Session};
use super::{Broker, ConnectionId, SessionId};
use crate::reason::Reason;

impl Broker {
    /// Whoever holds most loses it, until what is held is what may be. Of two that hold about as much it is the one without
    /// a connection, and then the older one.
    pub(super) fn relieve(&mut self, now: Duration) {
        let max = self.config.limits.memory;
        if self.memory.total() <= max {
            return;
        }
        // What a connection holds that is about to be closed will be gone whatever else is.
        let closing = self.connections.values().filter(|one| one.is_closing());
        let mut closing: usize = closing.map(|one| one.held.bytes()).sum();
        if self.memory.total().saturating_sub(closing) <= max {
            return;
        }
        let held = |connection: &Connection| {
            let session = connection.session().and_then(|id| self.sessions.get(&id));
            let of_session =
                session.map_or(0, |session| session.bytes() + self.inbox.bytes(&session.client_id));
            connection.held.bytes() + of_session
        };
        let connections = self.connections.iter().filter(|(_, one)| !one.is_closing());
        let connections = connections.map(|(id, one)| (held(one), Reverse(*id)));
        // Of clients that are away, or in this process.
        let is_alone = |id: &SessionId, session: &Session| {
            Some(*id) != self.host && !matches!(session.route, Route::Connection(_))
        };
        let alone = self.sessions.iter().filter(|(id, one)| is_alone(id, one));
        let alone = alone.map(|(id, one)| (one.bytes(), Reverse(*id)));
        // Very many may have to go: they are looked for once.
        let mut connections: BinaryHeap<_> = connections.collect();
        let mut alone: BinaryHeap<_> = alone.collect();
        // What those have asked for who have gone since counts as one's.
        let departed = self.inbox.departed().map(|(bytes, one)| (bytes, Arc::clone(one)));
        let mut departed: BinaryHeap<_> = departed.collect();
        let mut of_departed: usize = departed.iter().map(|(bytes, _)| *bytes).sum();
        while self.memory.total().saturating_sub(closing) > max {
            let most = connections.peek().map(|(bytes, _)| *bytes);
            let most = most.max(alone.peek().map(|(bytes, _)| *bytes)).unwrap_or_default();
            let is_theirs = of_departed >= most;
            if let Some((bytes, sender)) = is_theirs.then(|| departed.pop()).flatten() {
                of_departed -= bytes;
                let dropped = self.inbox.forget_departed(&mut self.memory, &sender);
                self.stats.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
                continue;
            }
            let other = alone.peek().map(|(bytes, _)| *bytes);
            let is_first = |bytes: usize| other.is_none_or(|other| bytes / 2 > other);
            if connections.peek().is_some_and(|(bytes, _)| is_first(*bytes)) {
                let Some((_, Reverse(id))) = connections.pop() else { return };
                self.evict_connection(now, id);
                let left = self.connections.get(&id).filter(|one| one.is_closing());
                closing += left.map_or(0, |one| one.held.bytes());
            } else {
                // What is left then is retained, waits for the host, or to be written; all of that has its own bounds.
                let Some((_, Reverse(id))) = alone.pop() else { return };
                if self.sessions.contains_key(&id) {
                    self.evict_session(now, id, IncidentKind::Memory);
                }
            }
        }
    }

    /// Ends a connection and its session for what they hold.
    fn evict_connection(&mut self, now: Duration, id: ConnectionId) {
        let session = self.connections.get(&id).and_then(Connection::session);
        if let Some(client_id) =
            session.and_then(|id| self.sessions.get(&id)).map(|one| Arc::clone(&one.client_id))
        {
            self.inbox.forget(&mut self.memory, &client_id);
        }
        match session {
            Some(session) => self.evict_session(now, session, IncidentKind::Memory),
            None => {
                self.stats.evicted += 1;
                self.note(id, IncidentKind::Memory, None, None);
                self.end_connection(now, id, None);
            }
        }
    }

    /// Ends a session for what it holds.
    fn evict_session(&mut self, now: Duration, id: SessionId, kind: IncidentKind) {
        self.stats.evicted += 1;
        let reason = Some(Reason::QUOTA_EXCEEDED);
        match self.sessions.get(&id) {
            Some(Session { route: Route::Connection(connection), .. }) => {
                self.note(*connection, kind, reason, None);
            }
            Some(session) => {
                let client_id = Some(&*session.client_id);
                self.incidents.push(Note { client_id, ..Note::new(kind, None) });
            }
            None => {}
        }
        self.end_session(now, id, reason);
    }

    /// Ends a session that holds more than its share.
    pub(super) fn check_share(&mut self, now: Duration, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.bytes() > self.config.limits.share {
            self.evict_session(now, id, IncidentKind::Share);
        }
    }
}
