//! The topics that the link receives.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use azure_iot_operations_mqtt::control_packet::TopicFilter;
use azure_iot_operations_mqtt::session::{SessionManagedClient, SessionPubReceiver};

use crate::convert::Message;

/// A receiver for each filter to which the link has subscribed: that of responses and that of
/// notifications.
///
/// The SDK queues what a receiver has not yet returned. Its queue has no bound, but the broker
/// sends at most the session's Receive Maximum of messages at QoS 1 without an acknowledgement.
#[derive(Default)]
pub(crate) struct Receivers(VecDeque<(Arc<str>, SessionPubReceiver)>);

impl Receivers {
    /// Receives the messages of this filter, once.
    pub(crate) fn add(
        &mut self,
        client: &SessionManagedClient,
        name: &Arc<str>,
        filter: TopicFilter,
    ) {
        if !self.0.iter().any(|(known, _)| known == name) {
            self.0.push_back((Arc::clone(name), client.create_filtered_pub_receiver(filter)));
        }
    }

    /// Drops the receivers and returns their filters. The SDK acknowledges queued messages.
    pub(crate) fn take_filters(&mut self) -> impl Iterator<Item = Arc<str>> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(filter, _)| filter)
    }

    /// Waits for the next message. May be dropped without losing one.
    pub(crate) async fn next(&mut self) -> Message {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns the next message. The filters take turns.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Message> {
        for (index, (_, receiver)) in self.0.iter_mut().enumerate() {
            let received = pin!(receiver.recv_manual_ack()).poll(context);
            // A receiver ends only with the last client of the session, and the link has one.
            if let Poll::Ready(Some((packet, acknowledgement))) = received {
                self.0.rotate_left(index + 1);
                return Poll::Ready(Message::new(packet, acknowledgement));
            }
        }
        Poll::Pending
    }
}
