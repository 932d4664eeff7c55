//! What a machine wants done, done with the router.

use std::sync::Arc;

use mqtt5::QoS;
use mqtt5::broker::router::{MessageRouter, SubscriptionRequest};
use mqtt5::broker::storage::QueuedMessage;
use mqtt5::packet::publish::PublishPacket;
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_proto::topic::REQUEST;
use statestore_tokio::LinkEvent;
use tokio::time::Instant;
use tracing::warn;

use crate::access::{STORE, may_publish};
use crate::broker::Running;
use crate::convert::{self, Message};

/// Does it, in the name of `client_id`, and gives what there is to report. For the store this waits for nobody.
pub(crate) async fn dispatch(
    running: Arc<Running>,
    client_id: Arc<str>,
    transmit: Transmit,
) -> Option<LinkEvent<Message>> {
    let (router, is_store) = (&running.router, &*client_id == STORE);
    match transmit {
        Transmit::Publish(publish) => {
            let mut packet = convert::packet(&publish);
            let reason = if !is_store {
                convert::stamp(&mut packet, &client_id);
                send(&running, &client_id, &packet).await
            } else if let Some(recipient) = publish.recipient() {
                deliver(router, recipient, packet).await
            } else {
                // A deadline that has come: to a client that does not read, what is sent queues up at once.
                router.route_message_with_deadline(&packet, None, Instant::now()).await;
                ReasonCode::SUCCESS
            };
            publish.token.map(|token| LinkEvent::Published(token, reason))
        }
        Transmit::Subscribe { filter, token } => {
            let wish = SubscriptionRequest::new(&*client_id, &*filter, QoS::AtLeastOnce);
            let reason = match router.subscribe(wish).await {
                Ok(_) => {
                    if is_store {
                        running.store_route.subscribed();
                    }
                    ReasonCode::GRANTED_QOS_1
                }
                Err(_) => ReasonCode(0x80),
            };
            Some(LinkEvent::Subscribed(token, reason))
        }
        Transmit::Disconnect { client_id } => {
            warn!(client_id = &*client_id, "an offender is disconnected");
            router.unregister_client(&client_id).await;
            None
        }
        // Nothing is kept until it is acknowledged: a store that dies takes the broker with it.
        Transmit::Acknowledge(_) => None,
    }
}

/// Publishes for a client in this process, by the rules for all clients.
async fn send(running: &Running, client_id: &str, packet: &PublishPacket) -> ReasonCode {
    if !may_publish(&packet.topic_name) {
        return ReasonCode::NOT_AUTHORIZED;
    }
    if packet.topic_name == REQUEST && !running.store_route.admit().await {
        return ReasonCode::NO_MATCHING_SUBSCRIBERS;
    }
    running.router.route_message(packet, Some(client_id)).await;
    ReasonCode::SUCCESS
}

/// Delivers to one client and no other, whatever it subscribes to, exactly once.
///
/// What waits in a client's queue goes out after what is in its lane, and while something is in the queue the router puts
/// everything behind it; so notifications and replies stay in order.
async fn deliver(router: &MessageRouter, client_id: &str, packet: PublishPacket) -> ReasonCode {
    let queue = router.queue_handle(client_id);
    // Before it is asked for the client: the end of its session begins another epoch, which then refuses the message.
    let epoch = queue.epoch();
    if !router.is_connected(client_id).await {
        return ReasonCode::NO_MATCHING_SUBSCRIBERS;
    }
    let message = QueuedMessage::new(packet, client_id.to_owned(), QoS::AtLeastOnce, None);
    let Some(outcome) = queue.push_in_epoch(message, epoch) else {
        return ReasonCode::NO_MATCHING_SUBSCRIBERS;
    };
    queue.notify();
    if outcome.dropped_oldest > 0 {
        // It must not miss one without knowing: it registers anew when it connects again, and reads the key.
        warn!(client_id, "a client that leaves too many messages unread is disconnected");
        router.unregister_client(client_id).await;
        return ReasonCode::NO_MATCHING_SUBSCRIBERS;
    }
    ReasonCode::SUCCESS
}
