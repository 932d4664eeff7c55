//! What happens by itself.

use alloc::sync::Arc;
use core::time::Duration;

use super::connection::{Connection, State};
use super::inbound::WORK_MAX;
use super::incidents::IncidentKind;
use super::message::Message;
use super::retained::Replay;
use super::session::{Queued, Session};
use super::tree::Subscribed;
use super::{Broker, ConnectionId, SessionId};
use crate::reason::Reason;

/// Topics looked at in one slice of the way through the retained messages.
const SLICE: usize = 256;

/// Timers that ring in one call.
const TIMERS_MAX: usize = 256;

/// Retained messages that wait for a client before no more of them are looked for.
const REPLAYED_MAX: usize = 32;

/// What is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A connection has not said anything for as long as it may.
    Connection(ConnectionId),
    /// What the client of a connection has proved is true no longer.
    Expiry(ConnectionId),
    /// A will is published.
    Will(SessionId),
    /// A session ends.
    Session(SessionId),
}

impl Broker {
    /// When [`handle_timeout`](Self::handle_timeout) is to be called next; zero for at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        if !self.replaying.is_empty() || !self.wills.is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.incidents.poll_timeout()).min()
    }

    /// Does what is due, and one slice of what takes long. Early or twice, it does no harm.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.work = 0;
        self.incidents.handle_timeout(now);
        let mut left = TIMERS_MAX;
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            // There may be very many at one time; the rest is due at the next call.
            if left == 0 || self.work > WORK_MAX {
                break;
            }
            left -= 1;
            self.timers.pop_first();
            match timer {
                Timer::Connection(id) => self.check_silence(now, id),
                Timer::Expiry(id) => {
                    self.connections.entry(id).and_modify(|one| one.expires_at = None);
                    let reason = Some(Reason::NOT_AUTHORIZED);
                    self.note(id, IncidentKind::Expired, reason, None);
                    self.end_connection(now, id, reason);
                }
                Timer::Will(id) => self.publish_will(now, id),
                Timer::Session(id) => self.end_session(now, id, None),
            }
        }
        self.replay(now);
        self.relieve(now);
        self.publish_wills(now);
    }

    /// Sets the one timer of a connection.
    pub(super) fn set_deadline(&mut self, id: ConnectionId, deadline: Option<Duration>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(before) = core::mem::replace(&mut connection.deadline, deadline) {
            self.timers.remove(&(before, Timer::Connection(id)));
        }
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, Timer::Connection(id)));
        }
    }

    /// Sets when a connection ends unless its client proves again who it is.
    pub(super) fn set_expiry(&mut self, id: ConnectionId, expires_at: Option<Duration>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(before) = core::mem::replace(&mut connection.expires_at, expires_at) {
            self.timers.remove(&(before, Timer::Expiry(id)));
        }
        if let Some(at) = expires_at {
            self.timers.insert((at, Timer::Expiry(id)));
        }
    }

    /// Stops the timers of a session whose client is back, or that is over.
    pub(super) fn stop_timers(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(at) = session.ends_at.take() {
            self.timers.remove(&(at, Timer::Session(id)));
        }
        if let Some(at) = session.will_at.take() {
            self.timers.remove(&(at, Timer::Will(id)));
        }
    }

    fn check_silence(&mut self, now: Duration, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.deadline = None;
        match connection.state {
            State::New | State::Asking(..) => {
                let kind = match connection.state {
                    State::New => IncidentKind::Silent,
                    _ => IncidentKind::Unanswered,
                };
                self.stats.offenders += 1;
                self.note(id, kind, None, None);
                self.end_connection(now, id, None);
            }
            State::Open(_) => {
                let Some(silence_max) = connection.silence_max else { return };
                // Nobody is silent who is not listened to.
                if !connection.wants_input() {
                    connection.heard = now;
                }
                let silent_at = connection.heard.saturating_add(silence_max);
                if silent_at <= now {
                    let reason = Some(Reason::KEEP_ALIVE_TIMEOUT);
                    self.note(id, IncidentKind::KeepAlive, reason, None);
                    self.end_connection(now, id, reason);
                } else {
                    self.set_deadline(id, Some(silent_at));
                }
            }
            State::Closing => {}
        }
    }

    /// Goes on with one subscription that has retained messages to come.
    fn replay(&mut self, now: Duration) {
        let Some(id) = self.replaying.pop_front() else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.is_replaying = false;
        let mut steps = SLICE;
        let mut replays = core::mem::take(&mut session.replays);
        while let Some(mut entry) = replays.first_entry() {
            if steps == 0 || session.waiting() >= REPLAYED_MAX {
                break;
            }
            let filter = entry.key().clone();
            let replay = entry.get_mut();
            let Subscribed { qos, no_local, id, .. } = replay.subscribed;
            let (found, goes_on) =
                self.retained.step(now, &mut self.memory, &filter, replay, &mut steps);
            let (client_id, rules) = (&session.client_id, &session.rules);
            let is_wanted = |message: &Arc<Message>| {
                let is_own = message.sender().is_some_and(|sender| sender == client_id);
                !(is_own && no_local) && rules.may_receive(client_id, message.topic())
            };
            if let Some(message) = found.filter(is_wanted) {
                let queued = Queued {
                    qos: qos.min(message.qos()),
                    message,
                    retain: true,
                    subscription_ids: id.into_iter().collect(),
                    must_arrive: false,
                };
                session.push(&mut self.memory, queued);
            }
            if !goes_on {
                session.held.remove(&mut self.memory, Replay::bytes(&filter));
                entry.remove();
            }
        }
        self.sessions.entry(id).and_modify(|session| session.replays = replays);
        self.wants_replay(id);
        self.wake_session(id);
        self.check_share(now, id);
    }

    /// Gives a session with retained messages to come its turn, if there is room for them.
    pub(super) fn wants_replay(&mut self, id: SessionId) {
        let wants = |session: &&mut Session| {
            !session.is_replaying
                && !session.replays.is_empty()
                && session.is_connected()
                && session.waiting() < REPLAYED_MAX
        };
        if let Some(session) = self.sessions.get_mut(&id).filter(wants) {
            session.is_replaying = true;
            self.replaying.push_back(id);
        }
    }
}

impl Connection {
    /// When it has been silent for too long.
    pub(super) fn silent_at(&self) -> Option<Duration> {
        self.silence_max.map(|silence_max| self.heard.saturating_add(silence_max))
    }
}
