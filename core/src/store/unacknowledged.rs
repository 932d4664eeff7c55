//! Notifications that were sent and not acknowledged, to be sent again on the next connection.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;

use super::fan_outs::FanOuts;
use super::registrations::Registration;
use crate::slab::Slot;
use crate::transport::{Publish, PublishToken};

/// A notification that may have to be sent, or sent again.
#[derive(Debug)]
pub(super) struct PendingNotification {
    pub(super) registration: Arc<Registration>,
    pub(super) fan_out: Slot,
}

impl PendingNotification {
    /// `topic` is a buffer. `None` only if its fan-out was removed too early, which is a bug.
    pub(super) fn to_publish(&self, fan_outs: &FanOuts, topic: &mut String) -> Option<Publish> {
        Some(self.registration.notification(topic, fan_outs.get(self.fan_out)?))
    }
}

/// The notifications that were sent, in order, until their PUBACK.
///
/// Writes fill it while a broker does not acknowledge. Its limits are those of the output queue; if
/// they are exceeded, the oldest is removed, and is lost if the connection is lost.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    sent: VecDeque<PendingNotification>,
    count_max: usize,
    bytes_max: usize,
}

impl Unacknowledged {
    pub(super) const fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { sent: VecDeque::new(), count_max, bytes_max }
    }

    /// Adds a notification that was queued.
    pub(super) fn push(&mut self, fan_outs: &mut FanOuts, sent: PendingNotification) {
        fan_outs.mark_sent(sent.fan_out);
        self.sent.push_back(sent);
        while self.sent.len() > self.count_max || fan_outs.sent_bytes() > self.bytes_max {
            let Some(oldest) = self.sent.pop_front() else { return };
            fan_outs.remove_sent(oldest.fan_out);
        }
    }

    /// Removes the oldest notification of a registration, which has its PUBACK. Brokers acknowledge
    /// in order, so it is among the first.
    pub(super) fn acknowledge(&mut self, fan_outs: &mut FanOuts, token: PublishToken) {
        let found = self.sent.iter().position(|sent| sent.registration.number() == token.0);
        if let Some(sent) = found.and_then(|at| self.sent.remove(at)) {
            fan_outs.remove_sent(sent.fan_out);
        }
    }

    pub(super) fn drain_newest_first(&mut self) -> impl Iterator<Item = PendingNotification> {
        self.sent.drain(..).rev()
    }
}
