//! Notifications that were sent and not acknowledged, to be sent again on the next connection.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;

use super::registrations::Registration;
use super::shared_payloads::{SharedPayload, SharedPayloads};
use crate::hlc::Hlc;
use crate::transport::{Publish, PublishToken};

/// A notification that may have to be sent, or sent again.
#[derive(Debug)]
pub(super) struct PendingNotification {
    pub(super) registration: Arc<Registration>,
    pub(super) payload: SharedPayload,
    pub(super) version: Hlc,
}

impl PendingNotification {
    /// `topic` is a buffer.
    pub(super) fn to_publish(&self, topic: &mut String) -> Publish {
        self.registration.notification(topic, self.payload.bytes.clone(), self.version.clone())
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
    pub(super) fn push(&mut self, payloads: &mut SharedPayloads, sent: PendingNotification) {
        payloads.mark_sent(&sent.payload);
        self.sent.push_back(sent);
        while self.sent.len() > self.count_max || payloads.sent_bytes() > self.bytes_max {
            let Some(oldest) = self.sent.pop_front() else { return };
            payloads.remove_sent(&oldest.payload);
        }
    }

    /// Removes the oldest notification of a registration, which has its PUBACK. Brokers acknowledge
    /// in order, so it is among the first.
    pub(super) fn acknowledge(&mut self, payloads: &mut SharedPayloads, token: PublishToken) {
        let found = self.sent.iter().position(|sent| sent.registration.number() == token.0);
        if let Some(sent) = found.and_then(|at| self.sent.remove(at)) {
            payloads.remove_sent(&sent.payload);
        }
    }

    pub(super) fn drain_newest_first(&mut self) -> impl Iterator<Item = PendingNotification> {
        self.sent.drain(..).rev()
    }
}
