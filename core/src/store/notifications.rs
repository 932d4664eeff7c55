//! Notifications that are queued, and those that were sent and not acknowledged.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;

use bytes::Bytes;

use super::registrations::Registration;
use crate::hlc::Hlc;
use crate::invariant::invariant;
use crate::limits::StoreLimits;
use crate::slab::{Slab, Slot};
use crate::topic;
use crate::transport::{Answers, Publish, PublishToken, Purpose, Transmit};

/// What all notifications of one change in one dialect share. It is removed with the last of them.
#[derive(Debug)]
struct FanOut {
    payload: Bytes,
    version: Hlc,
    /// The part of the topic that depends on the key.
    topic_tail: String,
    queued: usize,
    sent: usize,
}

impl FanOut {
    /// Bytes that count for its queued notifications, and for those that were sent.
    fn counted_bytes(&self) -> (usize, usize) {
        let bytes = self.payload.len() + self.topic_tail.len();
        (if self.queued > 0 { bytes } else { 0 }, if self.sent > 0 { bytes } else { 0 })
    }
}

/// A notification that may have to be sent, or sent again.
#[derive(Debug)]
pub(super) struct Notification {
    registration: Arc<Registration>,
    fan_out: Slot,
}

/// The notifications of a store.
///
/// Writes fill it while a broker does not acknowledge. The limits of those that were sent are those
/// of the output queue; if they are exceeded, the oldest is removed, and is lost if the connection is
/// lost.
#[derive(Debug)]
pub(super) struct Notifications {
    fan_outs: Slab<FanOut>,
    /// In the order in which they were sent.
    sent: VecDeque<Notification>,
    queued_bytes: usize,
    sent_bytes: usize,
    sent_max: usize,
    sent_bytes_max: usize,
    /// Buffer for the topic of a notification. A topic has at most 64 KiB.
    topic: String,
}

impl Notifications {
    pub(super) const fn new(limits: &StoreLimits) -> Self {
        Self {
            fan_outs: Slab::new(),
            sent: VecDeque::new(),
            queued_bytes: 0,
            sent_bytes: 0,
            sent_max: limits.outgoing_max,
            sent_bytes_max: limits.outgoing_bytes_max,
            topic: String::new(),
        }
    }

    /// Bytes that the queued notifications share, once for each change and dialect.
    pub(super) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Adds what the notifications of a change share. [Queue](Self::queue) at least one of them.
    /// `None` when 2^32 changes are queued, which the limit of the queue excludes.
    pub(super) fn add_fan_out(&mut self, payload: Bytes, version: Hlc, key: &[u8]) -> Option<Slot> {
        let topic_tail = topic::notification_tail(key);
        self.fan_outs.insert(FanOut { payload, version, topic_tail, queued: 0, sent: 0 })
    }

    pub(super) fn queue(&mut self, registration: Arc<Registration>, fan_out: Slot) -> Notification {
        self.update(fan_out, |fan_out| fan_out.queued += 1);
        Notification { registration, fan_out }
    }

    /// Sends a queued notification. Returns `None` if its registration was silenced since.
    pub(super) fn send(&mut self, notification: Notification) -> Option<Transmit> {
        let slot = notification.fan_out;
        if notification.registration.is_silenced() {
            self.update(slot, |fan_out| fan_out.queued -= 1);
            return None;
        }
        let publish = self.publish_of(&notification);
        self.update(slot, |fan_out| {
            fan_out.queued -= 1;
            fan_out.sent += 1;
        });
        self.sent.push_back(notification);
        while self.sent.len() > self.sent_max || self.sent_bytes > self.sent_bytes_max {
            let Some(oldest) = invariant(self.sent.pop_front()) else { break };
            self.update(oldest.fan_out, |fan_out| fan_out.sent -= 1);
        }
        publish
    }

    /// The token is the id of the registration.
    fn publish_of(&mut self, notification: &Notification) -> Option<Transmit> {
        let fan_out = invariant(self.fan_outs.get(notification.fan_out))?;
        let registration = &notification.registration;
        registration.write_topic_head(&mut self.topic);
        self.topic.push_str(&fan_out.topic_tail);
        Some(Transmit::Publish(Publish {
            topic: self.topic.as_str().into(),
            payload: fan_out.payload.clone(),
            response_topic: None,
            correlation_data: None,
            content_type: None,
            message_expiry: None,
            token: Some(PublishToken(registration.id)),
            purpose: Purpose::Notification {
                client_id: Arc::clone(&registration.client_id),
                incarnation: registration.incarnation,
            },
            timestamp: Some(fan_out.version.clone()),
            answers: Answers(None),
        }))
    }

    /// Removes the oldest notification of a registration, which has its PUBACK. Brokers acknowledge
    /// in order, so it is among the first.
    pub(super) fn acknowledge(&mut self, token: PublishToken) {
        let found = self.sent.iter().position(|sent| sent.registration.id == token.0);
        if let Some(sent) = found.and_then(|at| self.sent.remove(at)) {
            self.update(sent.fan_out, |fan_out| fan_out.sent -= 1);
        }
    }

    /// The newest notification that was sent and not acknowledged; it is queued again.
    pub(super) fn requeue_newest(&mut self) -> Option<Notification> {
        let newest = self.sent.pop_back()?;
        self.update(newest.fan_out, |fan_out| {
            fan_out.sent -= 1;
            fan_out.queued += 1;
        });
        Some(newest)
    }

    fn update(&mut self, slot: Slot, update: impl FnOnce(&mut FanOut)) {
        let Some(fan_out) = invariant(self.fan_outs.get_mut(slot)) else { return };
        let (queued, sent) = fan_out.counted_bytes();
        update(fan_out);
        let (queued_now, sent_now) = fan_out.counted_bytes();
        self.queued_bytes = self.queued_bytes - queued + queued_now;
        self.sent_bytes = self.sent_bytes - sent + sent_now;
        if fan_out.queued == 0 && fan_out.sent == 0 {
            self.fan_outs.clear(slot);
        }
    }
}
