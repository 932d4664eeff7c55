//! Packets in transit between the broker and a client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use statestore_proto::time::Instant;
use statestore_proto::transport::{Delivery, Transmit};

use super::Output;
use crate::Message;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Lane {
    last: Instant,
    by_topic: BTreeMap<Arc<str>, Instant>,
}

/// A packet in transit, and its connection.
#[derive(Debug)]
pub(super) struct InTransit {
    pub(super) client_id: Arc<str>,
    pub(super) generation: u64,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    ToBroker(Box<Transmit>),
    FromBroker(Box<Output>),
}

/// The unacknowledged messages of a client, in order; as many as are queued for a connection.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    client_id: Arc<str>,
    messages: VecDeque<Message>,
}

impl Unacknowledged {
    pub(super) const fn new(client_id: Arc<str>) -> Self {
        Self { client_id, messages: VecDeque::new() }
    }

    pub(super) fn delivered(&mut self, to: &Arc<str>, message: &Message) {
        if self.client_id == *to {
            self.messages.push_back(message.clone());
        }
    }

    pub(super) fn acknowledged(&mut self, by: &Arc<str>, delivery: Delivery) {
        if self.client_id == *by {
            self.messages.retain(|message| message.delivery != Some(delivery));
        }
    }

    /// Removes and returns the messages to redeliver to this client.
    pub(super) fn take(&mut self, client_id: &Arc<str>) -> Option<VecDeque<Message>> {
        (self.client_id == *client_id).then(|| std::mem::take(&mut self.messages))
    }
}

impl Lane {
    /// Returns the arrival of a packet that could arrive at `earliest`: after all packets before it
    /// or, if it overtakes, after those of its topic.
    pub(super) fn arrival(
        &mut self,
        earliest: Instant,
        topic: Option<&Arc<str>>,
        overtakes: bool,
    ) -> Instant {
        let floor = match topic {
            Some(topic) if overtakes => self.by_topic.get(topic).copied().unwrap_or_default(),
            _ => self.last,
        };
        let arrival = earliest.max(floor);
        self.last = self.last.max(arrival);
        if let Some(topic) = topic {
            self.by_topic.insert(Arc::clone(topic), arrival);
        }
        arrival
    }
}

impl Content {
    /// Returns the message, if this is a delivery.
    pub(super) fn message(&self) -> Option<&Message> {
        match self {
            Self::FromBroker(output) => match &**output {
                Output::Message { message, .. } => Some(message),
                _ => None,
            },
            Self::ToBroker(_) => None,
        }
    }

    pub(super) fn topic(&self) -> Option<&Arc<str>> {
        match self {
            Self::ToBroker(transmit) => match &**transmit {
                Transmit::Publish(publish) => Some(&publish.topic),
                _ => None,
            },
            Self::FromBroker(_) => self.message().map(|message| &message.topic),
        }
    }
}
