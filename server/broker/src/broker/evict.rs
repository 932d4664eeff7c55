//! Eviction when memory is full.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;
use core::time::Duration;

use super::Broker;
use crate::connection::Connection;
use crate::connections::Connections;
use crate::ids::{ConnectionId, SessionId};
use crate::inbox::Inbox;
use crate::incidents::{IncidentKind, IncidentRef};
use crate::network::network;
use crate::owner::Owner;
use crate::session::{Route, Session};
use crate::sessions::Sessions;
use statestore_mqtt::Reason;

/// Divisor of the memory limit. At the limit, this part is freed at once.
const SPARE_PART: usize = 20;

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
    owners: Vec<OwnerCandidates>,
    /// The rank and the index of each owner.
    by_rank: BinaryHeap<(Rank, Reverse<usize>)>,
    departed: BinaryHeap<(usize, Arc<str>)>,
    /// Bytes of all departed senders. Together they count as one candidate.
    departed_bytes: usize,
}

/// Bytes of an owner, or half of them if its next victim is a connection, and whether the next
/// victim is a session without a connection.
type Rank = (usize, bool);

/// The possible victims of one owner.
#[derive(Default)]
struct OwnerCandidates {
    bytes: usize,
    /// Connections with their sessions, without those that are closing.
    connections: BinaryHeap<(usize, Reverse<ConnectionId>)>,
    /// Sessions of disconnected clients and of clients in this process.
    unconnected: BinaryHeap<(usize, Reverse<SessionId>)>,
}

impl OwnerCandidates {
    /// Returns whether the next victim is a connection: only if it uses more than twice as much as
    /// each session without a connection.
    fn is_connection_next(&self) -> bool {
        let unconnected = self.unconnected.peek().map(|(bytes, _)| *bytes);
        let is_first = |bytes: usize| unconnected.is_none_or(|other| bytes / 2 > other);
        self.connections.peek().is_some_and(|(bytes, _)| is_first(*bytes))
    }

    fn rank(&self) -> Rank {
        match self.is_connection_next() {
            true => (self.bytes / 2, false),
            false => (self.bytes, true),
        }
    }

    /// Removes the candidate that uses the most. Among equals, it is the older one.
    fn next_victim(&mut self) -> Option<Victim> {
        let (bytes, victim) = if self.is_connection_next() {
            let (bytes, Reverse(id)) = self.connections.pop()?;
            (bytes, Victim::Connection(id))
        } else {
            let (bytes, Reverse(id)) = self.unconnected.pop()?;
            (bytes, Victim::Session(id))
        };
        self.bytes -= bytes;
        Some(victim)
    }

    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.unconnected.is_empty()
    }
}

impl Candidates {
    fn new(connections: &Connections, sessions: &Sessions, inbox: &Inbox) -> Self {
        let mut indexes: BTreeMap<Result<&str, Option<IpAddr>>, usize> = BTreeMap::new();
        let mut owners: Vec<OwnerCandidates> = Vec::new();
        let mut add = |owner, bytes, add: &dyn Fn(&mut OwnerCandidates)| {
            let index = *indexes.entry(owner).or_insert(owners.len());
            if index == owners.len() {
                owners.push(OwnerCandidates::default());
            }
            if let Some(owner) = owners.get_mut(index) {
                owner.bytes += bytes;
                add(owner);
            }
        };
        for (id, connection) in connections.iter().filter(|(_, it)| !it.is_closing()) {
            let session = connection.session().and_then(|id| sessions.get(id));
            let session_bytes =
                session.map_or(0, |session| session.bytes() + inbox.bytes(&session.client_id));
            let bytes = connection.account.bytes() + session_bytes;
            // A connection without a login counts for its network.
            let network = connection.peer.map(network);
            let owner = session.map(|session| &**session.owner().name()).ok_or(network);
            add(owner, bytes, &|owner| owner.connections.push((bytes, Reverse(id))));
        }
        let unconnected = sessions
            .iter_clients()
            .filter(|(_, session)| !matches!(session.route, Route::Connection(_)));
        for (id, session) in unconnected {
            let bytes = session.bytes();
            let owner = Ok(&**session.owner().name());
            add(owner, bytes, &|owner| owner.unconnected.push((bytes, Reverse(id))));
        }
        let departed = inbox.departed().map(|(bytes, sender)| (bytes, Arc::clone(sender)));
        let departed: BinaryHeap<_> = departed.collect();
        let by_rank = owners.iter().enumerate().map(|(index, it)| (it.rank(), Reverse(index)));
        Self {
            by_rank: by_rank.collect(),
            owners,
            departed_bytes: departed.iter().map(|(bytes, _)| *bytes).sum(),
            departed,
        }
    }

    /// Removes the candidate that is evicted next: of the owner that uses the most in total, the
    /// one that uses the most. Departed senders come first if together they use more.
    fn next_victim(&mut self) -> Option<Victim> {
        let most = self.by_rank.peek().and_then(|(_, Reverse(index))| self.owners.get(*index));
        if self.departed_bytes >= most.map_or(0, |owner| owner.bytes) {
            if let Some((bytes, sender)) = self.departed.pop() {
                self.departed_bytes -= bytes;
                return Some(Victim::DepartedSender(sender));
            }
        }
        let (_, Reverse(index)) = self.by_rank.pop()?;
        let owner = self.owners.get_mut(index)?;
        let victim = owner.next_victim();
        if !owner.is_empty() {
            self.by_rank.push((owner.rank(), Reverse(index)));
        }
        victim
    }
}

impl Broker {
    /// At the limit of connections, disconnects the newest client of the owner with most of them,
    /// if the new client belongs to an owner with fewer. Returns whether it did.
    pub(super) fn displace_connection(&mut self, now: Duration, newcomer: &Arc<Owner>) -> bool {
        let Some(id) = self.connections.displaced_for(newcomer.name()) else { return false };
        let reason = Some(Reason::QUOTA_EXCEEDED);
        self.report_incident(id, IncidentKind::Displaced, reason, None);
        self.end_connection(now, id, reason);
        true
    }

    /// Evicts if the broker exceeds its memory limit. See [`next_victim`](Candidates::next_victim)
    /// for the order. Finding the first victim needs all sessions and connections, so the broker
    /// then evicts until it has some memory left, and packets cost little until that is used.
    pub(super) fn evict_to_limit(&mut self, now: Duration) {
        let max = self.config.limits.memory;
        if self.memory.total() <= max {
            return;
        }
        // The memory of closing connections is freed anyway.
        let mut closing = self.connections.closing_bytes();
        if self.memory.total().saturating_sub(closing) <= max {
            return;
        }
        let target = max - max / SPARE_PART;
        let mut candidates = Candidates::new(&self.connections, &self.sessions, &self.inbox);
        while self.memory.total().saturating_sub(closing) > target {
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
