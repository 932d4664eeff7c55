//! The topics that the link receives.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use azure_iot_operations_mqtt::control_packet::TopicFilter;
use azure_iot_operations_mqtt::session::{SessionManagedClient, SessionPubReceiver};
use statestore_proto::topic;

use crate::convert::Message;

/// Notifications that are returned in a row while responses wait: as many as the drive loop handles
/// in a turn.
const ROW_MAX: u8 = 16;

/// The receivers of the two filters to which a client subscribes.
///
/// The SDK queues what a receiver has not yet returned. Its queue has no bound, but the broker
/// sends at most the session's Receive Maximum of messages at QoS 1 without an acknowledgement.
///
/// The SDK does not report the order of messages of two receivers. Notifications are returned
/// first: a watch expects a notification before the response to an earlier read, and reports a gap
/// for one that comes after the response to a later read.
#[derive(Default)]
pub(crate) struct Receivers {
    responses: Option<Receiver>,
    notifications: Option<Receiver>,
    /// Notifications that were returned since the last response.
    row: u8,
}

struct Receiver {
    filter: Arc<str>,
    messages: SessionPubReceiver,
}

impl Receivers {
    /// Receives the messages of a filter, if it does not already.
    pub(crate) fn add(
        &mut self,
        client: &SessionManagedClient,
        name: &Arc<str>,
        filter: TopicFilter,
    ) {
        let receiver = match name.starts_with(topic::RESERVED) {
            true => &mut self.notifications,
            false => &mut self.responses,
        };
        if receiver.as_ref().is_none_or(|receiver| receiver.filter != *name) {
            let messages = client.create_filtered_pub_receiver(filter);
            *receiver = Some(Receiver { filter: Arc::clone(name), messages });
        }
    }

    /// Drops the receivers, whose messages the SDK acknowledges. Returns the filter of responses.
    pub(crate) fn clear(&mut self) -> Option<Arc<str>> {
        std::mem::take(self).responses.map(|receiver| receiver.filter)
    }

    /// Waits for the next message. May be dropped without losing one.
    pub(crate) async fn next(&mut self) -> Message {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns the next message.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Message> {
        if self.row < ROW_MAX
            && let Poll::Ready(message) = poll(&mut self.notifications, context)
        {
            self.row += 1;
            return Poll::Ready(message);
        }
        if let Poll::Ready(message) = poll(&mut self.responses, context) {
            self.row = 0;
            return Poll::Ready(message);
        }
        poll(&mut self.notifications, context)
    }
}

fn poll(receiver: &mut Option<Receiver>, context: &mut Context<'_>) -> Poll<Message> {
    let Some(receiver) = receiver else { return Poll::Pending };
    match pin!(receiver.messages.recv_manual_ack()).poll(context) {
        Poll::Ready(Some((packet, acknowledgement))) => {
            Poll::Ready(Message::new(packet, acknowledgement))
        }
        // A receiver ends only with the last client of the session, and the link has one.
        Poll::Ready(None) | Poll::Pending => Poll::Pending,
    }
}
