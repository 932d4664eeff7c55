//! Timers: connect and keep-alive timeouts, expiry of credentials and sessions, and delayed wills.

use core::time::Duration;

use super::Broker;
use crate::connection::State;
use crate::ids::ConnectionId;
use crate::incidents::IncidentKind;
use crate::timers::Timer;
use statestore_mqtt::Reason;

/// Maximum number of timers that one call fires.
const TIMERS_MAX: usize = 256;

impl Broker {
    /// Returns the time of the next [`handle_timeout`](Self::handle_timeout). Zero means
    /// immediately, `None` means that no timer is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.sessions.has_replays() || !self.wills.is_empty() {
            return Some(Duration::ZERO);
        }
        self.timers.next_at().into_iter().chain(self.incidents.poll_timeout()).min()
    }

    /// Fires due timers, and continues long operations for one turn. Calling it early or repeatedly
    /// is harmless.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.budget.restart();
        self.incidents.handle_timeout(now);
        for _ in 0..TIMERS_MAX {
            // Many timers may be due at one time. The next call fires the rest.
            if self.budget.is_exceeded() {
                break;
            }
            let Some(timer) = self.timers.pop_due(now) else { break };
            match timer {
                Timer::Connection(id) => self.check_deadline(now, id),
                Timer::Expiry(id) => self.expire_credentials(now, id),
                Timer::Will(id) => self.queue_will(now, id),
                Timer::Session(id) => self.end_session(now, id, None),
            }
        }
        self.continue_replay(now);
        self.evict_to_limit(now);
        self.publish_wills(now);
    }

    /// Sets or clears the connect or keep-alive timer of a connection.
    pub(super) fn set_deadline(&mut self, id: ConnectionId, deadline: Option<Duration>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let before = core::mem::replace(&mut connection.deadline, deadline);
        self.timers.restart(before, deadline, Timer::Connection(id));
    }

    /// Sets or clears the time at which the credentials of a connection expire.
    pub(super) fn set_expiry(&mut self, id: ConnectionId, expires_at: Option<Duration>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let before = core::mem::replace(&mut connection.expires_at, expires_at);
        self.timers.restart(before, expires_at, Timer::Expiry(id));
    }

    /// Ends a connection whose credentials have expired.
    fn expire_credentials(&mut self, now: Duration, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.expires_at = None;
        if connection.is_closing() {
            return;
        }
        let reason = Some(Reason::NOT_AUTHORIZED);
        self.report_incident(id, IncidentKind::Expired, reason, None);
        self.end_connection(now, id, reason);
    }

    fn check_deadline(&mut self, now: Duration, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.deadline = None;
        match connection.state {
            State::New | State::Authenticating(..) => {
                let kind = match connection.state {
                    State::New => IncidentKind::ConnectTimeout,
                    _ => IncidentKind::LoginTimeout,
                };
                self.stats.violations += 1;
                self.report_incident(id, kind, None, None);
                self.end_connection(now, id, None);
            }
            State::Open(_) => {
                let Some(keep_alive_timeout) = connection.keep_alive_timeout else { return };
                // The keep-alive does not run while the broker does not read.
                if !connection.wants_input() {
                    connection.last_received_at = now;
                }
                let keep_alive_deadline =
                    connection.last_received_at.saturating_add(keep_alive_timeout);
                if keep_alive_deadline <= now {
                    let reason = Some(Reason::KEEP_ALIVE_TIMEOUT);
                    self.report_incident(id, IncidentKind::KeepAlive, reason, None);
                    self.end_connection(now, id, reason);
                } else {
                    self.set_deadline(id, Some(keep_alive_deadline));
                }
            }
            State::Closing => {}
        }
    }
}
