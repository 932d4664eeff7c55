//! Sends requests to the store and collects the responses.

use std::time::Duration;

use statestore_mqtt::Reason;
use statestore_mqtt::property::Property;
use statestore_proto::hlc::TimestampRef;
use statestore_proto::message::Command;
use statestore_proto::message::property::{CONTENT_TYPE, RequestProperties};
use statestore_proto::topic::REQUEST;
use tokio::time::Instant;

use super::wire::{Received, Wire};

/// A time in the past, which each store accepts. The version of a SET is then the store's own time.
const PAST: &str = "1696374425000:0:doctor";

/// Seconds after which the broker discards a request that was not delivered.
const MESSAGE_EXPIRY: u32 = 10;

/// Events that followed one request.
#[derive(Default)]
pub(crate) struct Exchange {
    /// Reason code of the PUBACK.
    pub(crate) puback: Option<Reason>,
    /// Messages with the correlation data of the request, in order of arrival.
    pub(crate) responses: Vec<Received>,
}

impl Exchange {
    /// Returns whether the broker accepted the request.
    pub(crate) fn is_accepted(&self) -> bool {
        self.puback.is_some_and(|reason| !reason.is_error())
    }
}

/// A client that sends one request at a time.
pub(crate) struct Requests<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) response_topic: String,
    pub(crate) wire: Wire,
    pub(crate) timeout: Duration,
    /// Number of requests so far.
    pub(crate) count: u64,
}

impl Requests<'_> {
    /// The end of a step that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a request and waits for the response.
    pub(crate) async fn send(&mut self, command: &Command<Vec<u8>>) -> Exchange {
        self.send_with_timestamp(PAST, command, Duration::ZERO).await
    }

    /// Sends a request, waits for the response, and then for so long for a second response.
    pub(crate) async fn send_and_wait(
        &mut self,
        command: &Command<Vec<u8>>,
        extra_wait: Duration,
    ) -> Exchange {
        self.send_with_timestamp(PAST, command, extra_wait).await
    }

    /// Sends a request with this timestamp.
    pub(crate) async fn send_at(
        &mut self,
        timestamp: &str,
        command: &Command<Vec<u8>>,
    ) -> Exchange {
        self.send_with_timestamp(timestamp, command, Duration::ZERO).await
    }

    async fn send_with_timestamp(
        &mut self,
        timestamp: &str,
        command: &Command<Vec<u8>>,
        extra_wait: Duration,
    ) -> Exchange {
        let Ok(timestamp) = TimestampRef::parse(timestamp) else { return Exchange::default() };
        self.count += 1;
        let correlation = u128::from(self.count).to_be_bytes();
        let user = RequestProperties::new(self.client_id).timestamp(timestamp);
        let user: Vec<(&str, String)> =
            user.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        let mut properties = vec![
            Property::ResponseTopic(&self.response_topic),
            Property::CorrelationData(&correlation),
            Property::ContentType(CONTENT_TYPE),
            Property::MessageExpiry(MESSAGE_EXPIRY),
        ];
        properties.extend(user.iter().map(|(name, value)| Property::User(name, value)));
        let until = self.deadline();
        let token = self.wire.publish(REQUEST, &properties, &command.encode(), until).await;
        let is_response = |message: &Received| message.has_correlation(&correlation);
        let puback = self.wire.ack(token, until).await;
        let is_lost = puback
            .is_some_and(|reason| reason.is_error() || reason == Reason::NO_MATCHING_SUBSCRIBERS);
        if !is_lost {
            self.wire.listen(until, |wire| wire.messages.iter().any(is_response)).await;
        }
        if !extra_wait.is_zero() {
            let until = Instant::now() + extra_wait.min(self.timeout);
            let count = |wire: &Wire| wire.messages.iter().filter(|it| is_response(it)).count();
            self.wire.listen(until, |wire| count(wire) > 1).await;
        }
        let (responses, others) =
            std::mem::take(&mut self.wire.messages).into_iter().partition(is_response);
        self.wire.messages = others;
        // Late responses to earlier requests.
        self.wire.messages.retain(|message| message.topic != self.response_topic);
        Exchange { puback, responses }
    }
}
