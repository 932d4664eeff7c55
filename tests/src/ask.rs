//! A request to a store spelled out, and what a store sends in a form that compares and prints.

use bytes::Bytes;
use statestore_loopback::Message;
use statestore_proto::message::{Command, property};
use statestore_proto::mqtt::{Correlation, Delivery, Incoming, Qos, Transmit};
use statestore_proto::store::{Explanation, Handled, Principal, Store, Verdict};
use statestore_proto::time::{Instant, Now};
use statestore_proto::topic;

/// Everything about a request that a store looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The sender, if the broker vouches for it; otherwise it is only claimed.
    pub verified: Option<String>,
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
    /// Whether `__protVer` is there.
    pub deployed: bool,
    /// Whether `aio-persistence` is `true`.
    pub persist: bool,
    /// What it says when it asks which incarnation of the store answers.
    pub incarnation: Option<String>,
    /// Bytes of the largest packet that the sender takes, if it has said.
    pub packet_bytes_max: Option<usize>,
    /// Message expiry interval in seconds.
    pub expiry: Option<u32>,
    /// When it arrived, if it waited.
    pub arrived: Option<Instant>,
    /// Delivery token.
    pub delivery: Option<u64>,
}

impl Ask {
    /// A request as a client behind a broker that hosts the store sends it: nothing wrong, `__ts` at the epoch.
    #[must_use]
    pub fn new(client: &str, number: u64, command: &Command<&[u8]>) -> Self {
        Self::of_payload(client, number, command.encode())
    }

    /// The same with any payload.
    #[must_use]
    pub fn of_payload(client: &str, number: u64, payload: Vec<u8>) -> Self {
        Self {
            verified: Some(client.into()),
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
            packet_bytes_max: None,
            expiry: None,
            arrived: None,
            delivery: Some(number),
        }
    }

    /// The request that a broker delivered, whose sender it knows.
    #[must_use]
    pub fn of_message(message: &Message) -> Self {
        let find = |name: &str| {
            let mut all = message.user_properties.iter();
            all.find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        Self {
            verified: Some(message.sender.as_ref().into()),
            topic: message.topic.as_ref().into(),
            payload: message.payload.clone(),
            response_topic: message.response_topic.as_deref().map(Into::into),
            correlation: message.correlation_data.as_ref().map(|data| data.as_bytes().to_vec()),
            qos: Qos::AtLeastOnce,
            timestamp: find(property::TIMESTAMP),
            token: find(property::FENCING_TOKEN),
            source: find(property::SOURCE_ID),
            deployed: find(property::PROTOCOL_VERSION).is_some(),
            persist: find(property::PERSIST).is_some(),
            incarnation: find(property::INCARNATION),
            packet_bytes_max: None,
            expiry: message.message_expiry,
            arrived: message.arrived,
            delivery: message.delivery.map(|delivery| delivery.0),
        }
    }

    /// Hands it to a store.
    ///
    /// # Panics
    /// Unless the store explains what it refuses and drops, and nothing else.
    pub fn hand_to(&self, now: Now, store: &mut Store) -> Handled {
        let handled = self.show(|from, incoming| store.handle_publish(now, from, incoming));
        hold_explained(store, handled);
        handled
    }

    /// Shows it as it arrives, and whom it is from.
    pub fn show<T>(&self, to: impl FnOnce(Principal<'_>, &Incoming<'_>) -> T) -> T {
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
        let from = match &self.verified {
            Some(client) => Principal::verified(client),
            None => Principal::claimed(&incoming),
        };
        to(from, &incoming)
    }
}

/// The law that each request that is refused or dropped is explained, in one line, with the rule that its answer names, and
/// no other is.
fn hold_explained(store: &Store, handled: Handled) {
    let explanation = store.explanation();
    let refusal = explanation.map(Explanation::refusal);
    let expected = match handled.verdict {
        Verdict::Refused(refusal) => Some(Some(refusal)),
        Verdict::Dropped(_) => Some(None),
        _ => None,
    };
    assert_eq!(refusal, expected, "{handled:?} {explanation:?}");
    let text = explanation.map(ToString::to_string);
    assert!(text.is_none_or(|text| !text.is_empty() && !text.contains('\n')));
}

/// The recommended response topic of a client.
#[must_use]
pub fn response_topic(client: &str) -> String {
    format!("clients/{client}/services/statestore/_any_/command/invoke/response")
}

/// One thing that a store told the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// An answer.
    Reply {
        /// Where to.
        topic: String,
        /// Whose.
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
        /// To whom.
        client: String,
        /// Where to.
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
    /// A subscription of the store's own.
    Subscribe(String),
}

impl Told {
    /// What a packet of a store says.
    ///
    /// # Panics
    /// When its user properties are not exactly those that the protocol asks for.
    #[must_use]
    pub fn of(transmit: &Transmit) -> Self {
        let publish = match transmit {
            Transmit::Publish(publish) => publish,
            Transmit::Acknowledge(delivery) => return Self::Acknowledge(delivery.0),
            Transmit::Disconnect { client_id, .. } => {
                return Self::Disconnect(client_id.to_string());
            }
            Transmit::Subscribe { filter, .. } => {
                return Self::Subscribe(filter.to_string());
            }
        };
        let mut properties: Vec<(&str, String)> =
            publish.user_properties().map(|(name, value)| (name, value.to_string())).collect();
        let stamped = properties.first().is_some_and(|(name, _)| *name == "__ts");
        let version = stamped.then(|| properties.remove(0).1);
        // Which store it is, is what a test of its own is about.
        properties.pop_if(|(name, text)| *name == property::INCARNATION && text.len() == 16);
        let (topic, payload) =
            (publish.topic.to_string(), publish.payload.escape_ascii().to_string());
        match publish.recipient() {
            Some(client) => {
                assert!(properties.is_empty() && version.is_some(), "{transmit:?}");
                assert_eq!(publish.message_expiry, None, "it is of use whenever it comes");
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

    /// Everything that a store has to tell now.
    #[must_use]
    pub fn drain(store: &mut Store) -> Vec<Self> {
        std::iter::from_fn(|| store.poll_transmit()).map(|transmit| Self::of(&transmit)).collect()
    }
}
