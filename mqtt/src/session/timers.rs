//! Keep alive and the time for the CONNACK.

use core::time::Duration;

use super::error::Error;
use super::{Phase, Session};
use crate::packet::Packet;

/// The shortest timeout, so that time advances from deadline to deadline.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Instants of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    pub(super) connect_deadline: Duration,
    pub(super) last_sent: Duration,
    pub(super) last_received: Duration,
    /// When a PINGREQ without a response was written.
    pub(super) ping: Option<Duration>,
}

impl Session {
    /// The next instant at which [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match self.phase {
            Phase::Connecting => Some(self.timers.connect_deadline),
            Phase::Connected => self.keep_alive_deadline(),
            Phase::Disconnected | Phase::Closing => None,
        }
    }

    /// Handles the deadline that is due, if one is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.phase {
            Phase::Connecting => self.end(Error::ConnectTimeout),
            Phase::Connected if self.timers.ping.is_some() => self.end(Error::KeepAliveTimeout),
            Phase::Connected => {
                self.timers.ping = Some(now);
                self.timers.last_sent = now;
                self.put_ack(Packet::PingReq);
            }
            Phase::Disconnected | Phase::Closing => {}
        }
    }

    /// A PINGREQ is due when nothing was sent, or nothing was received, for three quarters of the
    /// keep alive.
    fn keep_alive_deadline(&self) -> Option<Duration> {
        let seconds = self.server.as_ref().map_or(0, |server| server.keep_alive);
        if seconds == 0 {
            return None;
        }
        let keep_alive = Duration::from_secs(seconds.into());
        let Timers { last_sent, last_received, ping, .. } = self.timers;
        Some(match ping {
            Some(at) => {
                let timeout = self.options.ping_timeout.unwrap_or(keep_alive / 2);
                at.max(last_received).saturating_add(timeout.max(TIMEOUT_MIN))
            }
            None => last_sent.min(last_received).saturating_add(keep_alive / 4 * 3),
        })
    }
}
