//! A request to a store with every field explicit, and the output of a store in a form that can be
//! compared and printed.

use bytes::Bytes;
use statestore_proto::message::{Command, property};
use statestore_proto::store::{Handled, RequestOutcome, Store};
use statestore_proto::time::{Instant, Now};
use statestore_proto::topic;
use statestore_proto::transport::{Correlation, Delivery, Incoming, Qos, Transmit};

/// Every field of a request that a store may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRequest {
    /// The verified sender; if `None`, the client id is unverified.
    pub verified: Option<String>,
    /// Owner of the verified sender's keys and registrations, if it is not its client id.
    pub owner: Option<String>,
    /// Topic.
    pub topic: String,
    /// Payload.
    pub payload: Bytes,
    /// Response topic.
    pub response_topic: Option<String>,
    /// Correlation data.
    pub correlation: Option<Vec<u8>>,
    /// Quality of service.
    pub qos: Qos,
    /// `__ts`
    pub timestamp: Option<String>,
    /// `__ft`
    pub token: Option<String>,
    /// `__srcId`
    pub source: Option<String>,
    /// `__protVer` is present.
    pub deployed: bool,
    /// `aio-persistence` is `true`.
    pub persist: bool,
    /// Value of the property that asks for the incarnation of the store.
    pub incarnation: Option<String>,
    /// `__chunk`
    pub chunk: Option<String>,
    /// Maximum Packet Size of the sender in bytes, if it announced one.
    pub packet_bytes_max: Option<usize>,
    /// Message expiry interval in seconds.
    pub expiry: Option<u32>,
    /// Time of arrival, if the request waited.
    pub arrived: Option<Instant>,
    /// Delivery token.
    pub delivery: Option<u64>,
}

impl StoreRequest {
    /// A valid request, as sent by a client of an embedded broker, with `__ts` near the Unix epoch.
    #[must_use]
    pub fn new(client: &str, number: u64, command: &Command<&[u8]>) -> Self {
        Self::with_payload(client, number, command.encode())
    }

    /// A request with any payload.
    #[must_use]
    pub fn with_payload(client: &str, number: u64, payload: Vec<u8>) -> Self {
        Self {
            verified: Some(client.into()),
            owner: None,
            topic: topic::REQUEST.into(),
            payload: payload.into(),
            response_topic: Some(response_topic(client)),
            correlation: Some(u128::from(number).to_be_bytes().to_vec()),
            qos: Qos::AtLeastOnce,
            timestamp: Some(format!("1:0:{client}")),
            token: None,
            source: None,
            deployed: true,
            persist: false,
            incarnation: None,
            chunk: None,
            packet_bytes_max: None,
            expiry: None,
            arrived: None,
            delivery: Some(number),
        }
    }

    /// A request from a message of a broker that verifies its senders, at QoS 1.
    #[must_use]
    pub fn from_incoming(message: &Incoming<'_>) -> Self {
        let find = |name: &str| {
            let mut all = message.user_properties();
            all.find(|(other, _)| *other == name).map(|(_, value)| value.to_owned())
        };
        Self {
            verified: message.verified_sender.map(Into::into),
            owner: None,
            topic: message.topic.into(),
            payload: message.payload.clone(),
            response_topic: message.response_topic.map(Into::into),
            correlation: message.correlation_data.map(Into::into),
            qos: Qos::AtLeastOnce,
            timestamp: find(property::TIMESTAMP),
            token: find(property::FENCING_TOKEN),
            source: find(property::SOURCE_ID),
            deployed: find(property::PROTOCOL_VERSION).is_some(),
            persist: find(property::PERSIST).is_some(),
            incarnation: find(property::INCARNATION),
            chunk: find(property::CHUNK),
            packet_bytes_max: None,
            expiry: message.message_expiry,
            arrived: message.arrived,
            delivery: message.delivery.map(|delivery| delivery.0),
        }
    }

    /// Submits the request to a store.
    ///
    /// # Panics
    /// If a refused or dropped request has no explanation.
    pub fn submit_to(&self, now: Now, store: &mut Store) -> Handled<'_> {
        let handled = store.handle_publish(now, &self.incoming());
        check_explanation(&handled);
        handled
    }

    /// The request as an incoming message.
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        let mut incoming = Incoming::new(&self.topic, &self.payload);
        incoming.response_topic = self.response_topic.as_deref();
        incoming.correlation_data = self.correlation.as_deref();
        incoming.qos = self.qos;
        incoming.packet_bytes_max = self.packet_bytes_max;
        incoming.message_expiry = self.expiry;
        incoming.arrived = self.arrived;
        incoming.delivery = self.delivery.map(Delivery);
        let texts = [
            (property::TIMESTAMP, &self.timestamp),
            (property::FENCING_TOKEN, &self.token),
            (property::SOURCE_ID, &self.source),
            (property::INCARNATION, &self.incarnation),
            (property::CHUNK, &self.chunk),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                incoming.user_property(name, value);
            }
        }
        if self.deployed {
            incoming.user_property(property::PROTOCOL_VERSION, property::PROTOCOL_VERSION_VALUE);
        }
        if self.persist {
            incoming.user_property(property::PERSIST, property::PERSIST_VALUE);
        }
        incoming.verified_sender = self.verified.as_deref();
        incoming.owner = self.owner.as_deref();
        incoming
    }
}

/// Checks that a refused or dropped request has an explanation of one line.
fn check_explanation(handled: &Handled<'_>) {
    let text = match &handled.outcome {
        RequestOutcome::Refused(refused) => refused.to_string(),
        RequestOutcome::Dropped(reason) => reason.to_string(),
        _ => return,
    };
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

/// The recommended response topic of a client.
#[must_use]
pub fn response_topic(client: &str) -> String {
    format!("clients/{client}/services/statestore/_any_/command/invoke/response")
}

/// One packet that a store sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A reply.
    Reply {
        /// Response topic.
        topic: String,
        /// Correlation data.
        correlation: Option<Vec<u8>>,
        /// Payload, escaped.
        payload: String,
        /// `__ts`
        version: Option<String>,
        /// Message expiry interval in seconds.
        expiry: Option<u32>,
    },
    /// A notification.
    Notification {
        /// Client id of the recipient.
        client: String,
        /// Topic.
        topic: String,
        /// Payload, escaped.
        payload: String,
        /// `__ts`
        version: Option<String>,
    },
    /// An acknowledgement.
    Acknowledge(u64),
    /// An order to disconnect.
    Disconnect(String),
    /// A subscription of the store.
    Subscribe(String),
}

impl Sent {
    /// Converts a packet of a store.
    ///
    /// # Panics
    /// If the user properties are not exactly those that the protocol requires.
    #[must_use]
    pub fn from_transmit(transmit: &Transmit) -> Self {
        let publish = match transmit {
            Transmit::Publish(publish) => publish,
            Transmit::Acknowledge(delivery) => return Self::Acknowledge(delivery.0),
            Transmit::Disconnect { client_id, .. } => {
                return Self::Disconnect(client_id.to_string());
            }
            Transmit::Subscribe { filter, .. } => {
                return Self::Subscribe(filter.to_string());
            }
            unsupported => panic!("not an output that the tests know: {unsupported:?}"),
        };
        let mut properties: Vec<(&str, String)> =
            publish.user_properties().map(|(name, value)| (name, value.to_string())).collect();
        let stamped = properties.first().is_some_and(|(name, _)| *name == "__ts");
        let version = stamped.then(|| properties.remove(0).1);
        // Tested separately in `store/incarnation.rs`.
        properties.pop_if(|(name, text)| *name == property::INCARNATION && text.len() == 16);
        let (topic, payload) =
            (publish.topic.to_string(), publish.payload.escape_ascii().to_string());
        match publish.recipient() {
            Some(client) => {
                assert!(properties.is_empty() && version.is_some(), "{transmit:?}");
                assert_eq!(publish.message_expiry, None, "notifications do not expire");
                Self::Notification { client: client.to_string(), topic, payload, version }
            }
            None => {
                assert_eq!(properties, [("__stat", "200".to_owned())], "{transmit:?}");
                let correlation =
                    publish.correlation_data.as_ref().map(Correlation::as_bytes).map(Into::into);
                let expiry = publish.message_expiry;
                Self::Reply { topic, correlation, payload, version, expiry }
            }
        }
    }

    /// Polls all packets that a store can send now.
    #[must_use]
    pub fn drain(store: &mut Store) -> Vec<Self> {
        std::iter::from_fn(|| store.poll_transmit())
            .map(|transmit| Self::from_transmit(&transmit))
            .collect()
    }
}
