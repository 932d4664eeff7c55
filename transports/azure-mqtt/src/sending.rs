//! Packets that the SDK sends.

use std::pin::Pin;
use std::task::{Context, Poll};

use azure_iot_operations_mqtt::control_packet::{
    PublishProperties, QoS, RetainOptions, SubscribeProperties, TopicFilter, TopicName,
};
use azure_iot_operations_mqtt::error::{CompletionError, DetachedError};
use azure_iot_operations_mqtt::session::SessionManagedClient;
use azure_iot_operations_mqtt::token::{PublishQoS1CompletionToken, SubscribeCompletionToken};
use bytes::Bytes;
use statestore_proto::transport::ReasonCode;

/// A packet that waits for capacity in the queue of the SDK.
pub(crate) type Queueing = Pin<Box<dyn Future<Output = Result<Sent, DetachedError>> + Send>>;

/// A packet that the SDK has accepted, until it is acknowledged.
pub(crate) enum Sent {
    Publish(PublishQoS1CompletionToken),
    Subscribe(SubscribeCompletionToken),
}

impl Future for Sent {
    type Output = Result<ReasonCode, CompletionError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Publish(token) => Pin::new(token)
                .poll(context)
                .map_ok(|acknowledgement| ReasonCode(acknowledgement.reason as u8)),
            Self::Subscribe(token) => Pin::new(token).poll(context).map_ok(|acknowledgement| {
                let reason = acknowledgement.reasons.into_iter().next();
                reason.map_or(ReasonCode::UNSPECIFIED_ERROR, |reason| ReasonCode(reason as u8))
            }),
        }
    }
}

/// Publishes at QoS 1.
pub(crate) fn publish(
    client: SessionManagedClient,
    topic: TopicName,
    payload: Bytes,
    properties: PublishProperties,
) -> Queueing {
    Box::pin(async move {
        client.publish_qos1(topic, false, payload, properties).await.map(Sent::Publish)
    })
}

/// Subscribes at QoS 1.
pub(crate) fn subscribe(client: SessionManagedClient, filter: TopicFilter) -> Queueing {
    Box::pin(async move {
        let (options, properties) = (RetainOptions::default(), SubscribeProperties::default());
        let sent = client.subscribe(filter, QoS::AtLeastOnce, false, options, properties).await;
        sent.map(Sent::Subscribe)
    })
}
