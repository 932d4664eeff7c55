//! Deliveries: requests to the store and its replies, matched by correlation data.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::Message;
use bytes::Bytes;
use statestore_proto::client::{Event, RequestId};
use statestore_proto::hlc::Hlc;
use statestore_proto::message::{Command, RequestKind, property};
use statestore_proto::topic::NotificationTopic;
use statestore_proto::transport::Correlation;

/// Name of a request, from its correlation data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestName {
    /// The index of the client.
    pub client: usize,
    /// The number of the request.
    pub number: u64,
}

impl RequestName {
    /// The name of a client's request on the wire.
    #[must_use]
    pub fn new(client: usize, id: RequestId) -> Self {
        let mut number = Number(0);
        id.hash(&mut number);
        Self { client, number: number.0 }
    }

    /// The nonce in the configuration of the client with this index.
    #[must_use]
    pub fn nonce(client: usize) -> [u8; 8] {
        (client as u64 + 1).to_be_bytes()
    }
}

/// Extracts the number of an id, which lacks an accessor.
struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The request that a message belongs to.
pub(super) fn name_of(message: &Message) -> Option<RequestName> {
    name_of_data(message.correlation_data.as_ref().map(Correlation::as_bytes)?)
}

/// The request with this correlation data.
pub(super) fn name_of_data(data: &[u8]) -> Option<RequestName> {
    let data: [u8; 16] = data.try_into().ok()?;
    let (nonce, number) = data.split_at(8);
    let nonce = u64::from_be_bytes(nonce.try_into().ok()?);
    let number = u64::from_be_bytes(number.try_into().ok()?);
    Some(RequestName { client: usize::try_from(nonce.checked_sub(1)?).ok()?, number })
}

/// A user property by its name.
pub(super) fn user_property<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message
        .user_properties
        .iter()
        .find(|(other, _)| *other == name)
        .map(|(_, value)| value.as_str())
}

/// A reply: its payload and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The payload.
    pub payload: Bytes,
    /// `__ts`.
    pub version: Option<Hlc>,
}

/// One request and its deliveries.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Position among all requests of its first delivery that was answered; of its first delivery
    /// if none was. The store may drop a request whose expiry has passed, and then answer another
    /// copy.
    pub first: u64,
    /// Number of deliveries to the store.
    pub deliveries: u32,
    /// Command.
    pub kind: RequestKind,
    /// Its `__ts`.
    pub timestamp: Option<Hlc>,
    /// Expected reply of each delivery; empty where unknown.
    pub expected: Vec<Answer>,
    /// Replies delivered to the client.
    pub replies: Vec<Answer>,
}

/// All requests that reached the store.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    /// By name.
    pub exchanges: BTreeMap<RequestName, Exchange>,
    /// Numbers of requests after which the store lost all state.
    pub losses: Vec<u64>,
    /// Notifications after the reply to the STOP that ended their registration.
    pub after_stop: Vec<String>,
    requests: u64,
    registrations: BTreeMap<String, Registration>,
    /// The registration that each STOP ends.
    stops: BTreeMap<RequestName, String>,
}

/// The last events of a registration, keyed by its notification topic. Numbers are those of
/// requests.
#[derive(Clone, Copy, Debug, Default)]
struct Registration {
    begun: u64,
    /// The last STOP whose reply reached the client.
    ended: u64,
}

impl Wire {
    /// Records a request that reached the store, and its expected reply.
    pub fn request(&mut self, message: &Message, expected: Option<Answer>) {
        let Some(name) = name_of(message) else { return };
        let Ok(command) = Command::decode(&message.payload) else { return };
        self.requests += 1;
        if let Ok(topic) = NotificationTopic::new(&message.sender, command.key()) {
            match command.kind() {
                RequestKind::Watch => {
                    self.registrations.entry(topic.to_string()).or_default().begun = self.requests;
                }
                RequestKind::Unwatch => _ = self.stops.insert(name, topic.to_string()),
                _ => {}
            }
        }
        let exchange = self.exchanges.entry(name).or_insert_with(|| Exchange {
            first: self.requests,
            deliveries: 0,
            kind: command.kind(),
            timestamp: stamp(message),
            expected: Vec::new(),
            replies: Vec::new(),
        });
        exchange.deliveries += 1;
        if exchange.expected.is_empty() && expected.is_some() {
            exchange.first = self.requests;
        }
        exchange.expected.extend(expected);
    }

    /// The store was replaced by an empty one.
    pub fn lose(&mut self) {
        self.losses.push(self.requests);
    }

    /// Records a message that reached a client.
    pub fn deliver(&mut self, message: &Message) {
        let Some(name) = name_of(message) else {
            let registration = self.registrations.get(&*message.topic);
            if registration.is_some_and(|Registration { begun, ended }| begun < ended) {
                self.after_stop.push(message.topic.to_string());
            }
            return;
        };
        if let Some(exchange) = self.exchanges.get_mut(&name) {
            let payload = message.payload.clone();
            exchange.replies.push(Answer { payload, version: stamp(message) });
            let stopped = self.stops.get(&name).and_then(|topic| self.registrations.get_mut(topic));
            if let Some(registration) = stopped {
                registration.ended = registration.ended.max(exchange.first);
            }
        }
    }
}

fn stamp(message: &Message) -> Option<Hlc> {
    user_property(message, property::TIMESTAMP)?.parse().ok()
}

/// A running hash (FNV-1a) of all deliveries and events: equal runs have equal digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// The hash so far.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Adds a delivered message.
    pub fn message(&mut self, at: u64, message: &Message) {
        self.bytes(&at.to_le_bytes());
        self.bytes(message.sender.as_bytes());
        self.bytes(message.topic.as_bytes());
        self.bytes(&message.payload);
        let topic = message.response_topic.as_deref().unwrap_or_default();
        self.bytes(topic.as_bytes());
        let correlation = message.correlation_data.as_ref().map(Correlation::as_bytes);
        self.bytes(correlation.unwrap_or_default());
        self.bytes(&message.message_expiry.unwrap_or_default().to_le_bytes());
        for (name, value) in &message.user_properties {
            self.bytes(name.as_bytes());
            self.bytes(value.as_bytes());
        }
    }

    /// Adds an event.
    pub fn event(&mut self, at: u64, client: usize, event: &Event) {
        self.bytes(&at.to_le_bytes());
        self.bytes(&client.to_le_bytes());
        // Writing to a hash cannot fail.
        let _ = fmt::Write::write_fmt(self, format_args!("{event:?}"));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // The length separates neighbouring fields.
        for byte in bytes.len().to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}
