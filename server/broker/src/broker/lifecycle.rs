//! Start and end of connections and sessions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use super::{Broker, connect};
use crate::connection::Connection;
use crate::event::{Redirect, Refused};
use crate::ids::{ConnectionId, SessionId};
use crate::incidents::IncidentKind;
use crate::session::{Route, Session};
use crate::timers::Timer;
use statestore_mqtt::Reason;

impl Broker {
    /// Accepts a new connection. `peer` is its address, if known.
    ///
    /// The connection is pending until its client is accepted. At the limit of
    /// [pending connections](crate::Limits::pending_connections), it takes the place of another
    /// one. A client in excess of the limits of [connections](crate::Limits::connections) is
    /// rejected in its CONNACK.
    ///
    /// # Errors
    /// [`Refused`] if as many connections as may be pending are closing already. The broker is
    /// unchanged then, and the connection must be closed.
    pub fn handle_accept(
        &mut self,
        now: Duration,
        peer: Option<IpAddr>,
    ) -> Result<ConnectionId, Refused> {
        let limits = &self.config.limits;
        let replaced = self.connections.pending_victim(limits)?;
        let deadline = now.saturating_add(limits.connect_time);
        let throttled_until = now.saturating_add(limits.slow_start);
        let number = self.next_number();
        let connection =
            Connection { throttled_until, ..Connection::new(now, peer, &mut self.memory) };
        let id = self.connections.insert(number, connection);
        if let Some(replaced) = replaced {
            self.displace(now, replaced);
        }
        self.set_deadline(id, Some(deadline));
        self.settle(now);
        Ok(id)
    }

    /// Ends the pending connection that would be replaced next at the limit of [pending
    /// connections](crate::Limits::pending_connections), and returns whether there was one. For a
    /// driver that cannot accept a connection because it has no file descriptor left.
    ///
    /// A connection is open for at least `login_time`, so that clients that connect all at once do
    /// not displace each other before they log in.
    ///
    /// ```
    /// use statestore_broker::{Broker, Config};
    /// # use core::time::Duration;
    ///
    /// let login_time = Duration::from_millis(500);
    /// let mut broker = Broker::new(Config::default());
    /// let silent = broker.handle_accept(Duration::ZERO, None)?;
    /// // The next accept has failed.
    /// assert!(!broker.displace_pending(Duration::from_millis(100), login_time));
    /// assert!(broker.displace_pending(Duration::from_millis(500), login_time));
    /// assert!(broker.is_closing(silent));
    /// # Ok::<(), statestore_broker::Refused>(())
    /// ```
    pub fn displace_pending(&mut self, now: Duration, login_time: Duration) -> bool {
        let Some(displaced) = self.connections.next_displaced() else { return false };
        let opened_at = self.connections.get(displaced).map(|connection| connection.opened_at);
        if opened_at.is_none_or(|opened_at| opened_at.saturating_add(login_time) > now) {
            return false;
        }
        self.displace(now, displaced);
        self.settle(now);
        true
    }

    fn displace(&mut self, now: Duration, id: ConnectionId) {
        self.report_incident(id, IncidentKind::Pending, None, None);
        self.end_connection(now, id, None);
    }

    /// Removes a connection that was closed by either side, and frees its memory. Its will is
    /// published unless the client sent a DISCONNECT with reason 0.
    pub fn handle_closed(&mut self, now: Duration, id: ConnectionId) {
        self.end_connection(now, id, None);
        self.set_deadline(id, None);
        self.set_expiry(id, None);
        self.awaiting_host.remove(&id);
        if self.connections.remove(&mut self.memory, id) {
            self.settle(now);
        }
    }

    /// Ends the connection or attachment of a client with a reason. Returns whether there was one.
    /// The session of a connection survives.
    pub fn disconnect(&mut self, now: Duration, client_id: &str, reason: Reason) -> bool {
        let session = self.sessions.find(client_id);
        let Some(session) = session.filter(|id| !self.sessions.is_host(*id)) else { return false };
        match self.sessions.route(session) {
            Some(Route::Connection(id)) => self.end_connection(now, id, Some(reason)),
            Some(Route::Local(_)) => self.end_session(now, session, Some(reason)),
            Some(Route::Detached) | None => return false,
        }
        self.settle(now);
        true
    }

    /// Ends the session of a client with a reason, including its connection or attachment.
    /// Returns whether there was a session.
    pub fn terminate_session(&mut self, now: Duration, client_id: &str, reason: Reason) -> bool {
        let session = self.sessions.find(client_id);
        let Some(session) = session.filter(|id| !self.sessions.is_host(*id)) else { return false };
        self.end_session(now, session, Some(reason));
        self.settle(now);
        true
    }

    /// Ends the sessions of clients whose access control list is [no longer in
    /// force](crate::Acl::is_current), with *not authorized*, except that of the host. Their wills
    /// are not published, and the host does not receive their messages that wait for it. Returns
    /// their number.
    pub fn recheck(&mut self, now: Duration) -> usize {
        let is_over = |session: &Session| !session.acl.is_current(&session.client_id);
        let over = self.sessions.iter_clients().filter(|(_, session)| is_over(session));
        let over: Vec<SessionId> = over.map(|(id, _)| id).collect();
        for id in &over {
            let Some(session) = self.sessions.get_mut(*id) else { continue };
            let client_id = Arc::clone(&session.client_id);
            self.timers.stop(session.will_at.take(), Timer::Will(*id));
            session.set_will(&mut self.memory, None);
            self.end_session(now, *id, Some(Reason::NOT_AUTHORIZED));
            self.inbox.drop_departed_messages(&mut self.memory, &client_id);
        }
        self.settle(now);
        over.len()
    }

    /// Ends all connections with a reason.
    pub fn disconnect_all(&mut self, now: Duration, reason: Reason) {
        let all: Vec<ConnectionId> = self.connections.iter().map(|(id, _)| id).collect();
        for id in all {
            self.end_connection(now, id, Some(reason));
        }
        self.settle(now);
    }

    /// Redirects clients to another server: those that are connected, and all that connect until
    /// [`Redirect::None`] is set. They receive *use another server*. Sessions and clients in the
    /// process remain.
    pub fn redirect(&mut self, now: Duration, to: Redirect<'_>) {
        self.redirect = match to {
            Redirect::None => None,
            Redirect::UnknownServer => Some(Arc::default()),
            Redirect::Server(server) => Some(server.into()),
        };
        if self.redirect.is_none() {
            return;
        }
        // A connection without a CONNECT receives the redirect in its CONNACK.
        let open = self.connections.iter().filter(|(_, connection)| connection.session().is_some());
        let open: Vec<ConnectionId> = open.map(|(id, _)| id).collect();
        for id in open {
            self.end_connection(now, id, Some(Reason::USE_ANOTHER_SERVER));
        }
        self.settle(now);
    }

    /// Closes a connection with a reason. Its session survives for its expiry interval.
    pub(super) fn end_connection(
        &mut self,
        now: Duration,
        id: ConnectionId,
        reason: Option<Reason>,
    ) {
        let Some(connection) = self.connections.get(id) else { return };
        let session = connection.session();
        let reference =
            reason.and_then(|reason| connect::server_reference(reason, self.redirect.as_deref()));
        self.connections.close(&mut self.memory, id, reason, reference.as_slice());
        self.wake(id);
        if let Some(session) = session {
            self.detach_session(now, session);
        }
    }

    /// Marks the client of a session as disconnected, and starts the timers of the session and its
    /// will.
    pub(super) fn detach_session(&mut self, now: Duration, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let client_id = Arc::clone(&session.client_id);
        session.detach();
        let ends_at = now.saturating_add(session.expiry);
        session.ends_at = Some(ends_at);
        let will_at = session.will.as_ref().map(|will| now.saturating_add(will.delay));
        session.will_at = will_at;
        let is_over = session.expiry.is_zero();
        self.sessions.update_eviction_place(id);
        self.notify_host_of_departure(&client_id);
        if is_over {
            return self.end_session(now, id, None);
        }
        self.timers.start(ends_at, Timer::Session(id));
        match will_at {
            Some(at) if at <= now => self.queue_will(now, id),
            Some(at) => {
                self.timers.start(at, Timer::Will(id));
            }
            None => {}
        }
    }

    /// Ends a session, including its connection, and publishes its will if it has one.
    pub(super) fn end_session(&mut self, now: Duration, id: SessionId, reason: Option<Reason>) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        match session.route {
            Route::Connection(connection) => {
                // `detach_session` calls this function again.
                session.expiry = Duration::ZERO;
                return self.end_connection(now, connection, reason);
            }
            Route::Local(_) => {
                session.expiry = Duration::ZERO;
                self.end_attachment(id, reason);
                return self.detach_session(now, id);
            }
            Route::Detached => {}
        }
        self.queue_will(now, id);
        self.stop_timers(id);
        self.sessions.remove(&mut self.memory, &mut self.budget, id);
    }

    /// Ends an attachment and records the reason.
    pub(super) fn end_attachment(&mut self, session_id: SessionId, reason: Option<Reason>) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        if let Route::Local(id) = session.route {
            session.route = Route::Detached;
            self.attachments.end(id, reason.unwrap_or(Reason::UNSPECIFIED_ERROR));
            self.wakes.push_local(id);
            if self.sessions.is_host(session_id) {
                self.release_all();
            }
        }
    }

    /// Stops the timers of a session that is resumed or ended.
    pub(super) fn stop_timers(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        self.timers.stop(session.ends_at.take(), Timer::Session(id));
        self.timers.stop(session.will_at.take(), Timer::Will(id));
        self.sessions.update_eviction_place(id);
    }
}
