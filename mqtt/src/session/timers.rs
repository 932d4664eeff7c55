//! Keep alive and the time for the CONNACK.

use core::time::Duration;

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

impl Timers {
    /// A PINGREQ is due when nothing was sent, or nothing was received, for three quarters of the
    /// keep alive, in seconds. The response is due within `timeout`, or half of the keep alive.
    pub(super) fn keep_alive_deadline(
        self,
        seconds: u16,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        if seconds == 0 {
            return None;
        }
        let keep_alive = Duration::from_secs(seconds.into());
        let Self { last_sent, last_received, ping, .. } = self;
        Some(match ping {
            Some(at) => {
                let timeout = timeout.unwrap_or(keep_alive / 2);
                at.max(last_received).saturating_add(timeout.max(TIMEOUT_MIN))
            }
            None => last_sent.min(last_received).saturating_add(keep_alive / 4 * 3),
        })
    }
}
