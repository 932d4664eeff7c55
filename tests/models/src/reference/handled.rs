//! Inputs and outputs of the reference store.

use std::collections::BTreeMap;

use statestore_proto::message::{Command, Dialect, Notification, Refusal, Reply, RequestKind};
use statestore_proto::statistics::Statistic;
use statestore_proto::time::Now;

use super::Stamp;
use super::clock::text;
use super::texts::notification_topic;
use crate::machines::request::Sent;

/// Sent packets, each with the number of its registration if it is a notification, else zero.
pub type Out = Vec<(Sent, u64)>;

/// Identity of a counter: name, command, refusal.
pub type Counted = (&'static str, Option<RequestKind>, Option<Refusal>);

/// Nonzero counters of a store.
pub fn counted(statistics: impl Iterator<Item = Statistic>) -> BTreeMap<Counted, u64> {
    let counted = statistics.filter(|statistic| statistic.value > 0);
    counted.map(|of| ((of.name, of.verb, of.reason), of.value)).collect()
}

/// A decoded command of one client, and its properties as text.
#[derive(Clone, Debug)]
pub struct Request {
    /// Time at which the store executes it.
    pub now: Now,
    /// The MQTT client id of the requester.
    pub client: String,
    /// Command.
    pub command: Command<Vec<u8>>,
    /// `__ts`.
    pub timestamp: Option<String>,
    /// `__ft`.
    pub token: Option<String>,
    /// True if the command would exceed a limit.
    pub full: bool,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notified {
    /// Client id of the recipient.
    pub client: String,
    /// Key.
    pub key: Vec<u8>,
    /// Change.
    pub notification: Notification<Vec<u8>>,
    /// Version of the value set or deleted.
    pub version: Stamp,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reply.
    pub reply: Reply<Vec<u8>>,
    /// `__ts` of the reply.
    pub version: Option<Stamp>,
    /// The notifications, in order.
    pub notified: Vec<Notified>,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Key.
    pub key: Vec<u8>,
    /// Effect.
    pub effect: Effect,
    /// Version of the value set or removed.
    pub version: Stamp,
    /// Correlation data of the request that caused it; `None` for an expiry.
    pub by: Option<Vec<u8>>,
}

/// An effect on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The key was set to this value.
    Set(Vec<u8>),
    /// It was deleted.
    Deleted,
    /// It expired.
    Expired,
    /// Its store was replaced by an empty one.
    Lost,
}

/// A response to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Response topic.
    pub topic: String,
    /// Correlation data.
    pub correlation: Option<Vec<u8>>,
    /// Payload.
    pub payload: Vec<u8>,
    /// `__ts`
    pub version: Option<Stamp>,
    /// Message expiry interval in seconds.
    pub expiry: Option<u32>,
}

/// A notification, and the registration that it is for.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) notified: Notified,
    pub(super) dialect: Dialect,
    pub(super) number: u64,
}

/// Output for one message.
#[derive(Clone, Debug, Default)]
pub struct Handled {
    pub(super) deliveries: Vec<Delivery>,
    /// The verified client that is disconnected, because its response topic is forbidden.
    pub disconnects: Option<String>,
    /// The response, if the message gets one.
    pub response: Option<Response>,
}

impl Handled {
    /// The output as packets, in order.
    #[must_use]
    pub fn into_packets(self) -> Out {
        let mut out = packets(self.deliveries);
        out.extend(self.disconnects.map(|client| (Sent::Disconnect(client), 0)));
        let reply = |Response { topic, correlation, payload, version, expiry }| Sent::Reply {
            topic,
            correlation,
            payload: payload.escape_ascii().to_string(),
            version: version.as_ref().map(text),
            expiry,
        };
        out.extend(self.response.map(|response| (reply(response), 0)));
        out
    }
}

/// Notifications as packets.
pub(super) fn packets(deliveries: Vec<Delivery>) -> Out {
    let sent = |Delivery { notified, dialect, number }| {
        let Notified { client, key, notification, version } = notified;
        let topic = notification_topic(&client, &key);
        let payload = notification.encode(dialect).escape_ascii().to_string();
        (Sent::Notification { client, topic, payload, version: Some(text(&version)) }, number)
    };
    deliveries.into_iter().map(sent).collect()
}
