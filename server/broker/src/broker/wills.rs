//! Publication of wills, and the end of each call.

use alloc::sync::Arc;
use core::time::Duration;

use super::Broker;
use crate::ids::SessionId;
use crate::timers::Timer;

/// Minimum work units of a will.
const WILL_WORK: usize = 256;

/// Divisor of the memory limit. If waiting wills exceed this part, each call publishes some of
/// them.
const WILLS_PART: usize = 16;

impl Broker {
    /// Queues the will of a client for publication.
    pub(super) fn queue_will(&mut self, now: Duration, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let will_at = session.will_at;
        if let Some(will) = session.take_will(&mut self.memory) {
            self.timers.stop(will_at, Timer::Will(id));
            // A will may evict other sessions, whose wills follow. It therefore waits for its turn.
            self.wills.push(&mut self.memory, Arc::new(will.message.published(now)));
            self.sessions.update_eviction_place(id);
        }
    }

    /// Completes a call: evicts sessions if memory is full, and publishes due wills. If earlier
    /// wills are waiting, new wills wait behind them for `handle_timeout`, so that one client's
    /// wills do not delay other clients.
    pub(super) fn settle(&mut self, now: Duration) {
        self.evict_to_limit(now);
        // Waiting wills must not fill the memory of the broker.
        let are_many = self.wills.bytes() > self.config.limits.memory / WILLS_PART;
        if !self.wills.has_backlog() || are_many {
            self.publish_wills(now);
        }
    }

    /// Publishes due wills until the work limit of a turn is reached.
    pub(super) fn publish_wills(&mut self, now: Duration) {
        while !self.budget.is_exceeded() {
            let Some(will) = self.wills.pop() else { break };
            self.budget.spend(WILL_WORK);
            self.route(now, &will, None);
            self.memory.release(&will);
            self.evict_to_limit(now);
        }
        self.wills.end_turn();
    }
}
