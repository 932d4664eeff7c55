//! What is on its way between the broker and a client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use statestore_proto::mqtt::{Delivery, Transmit};
use statestore_proto::time::Instant;

use super::Output;
use crate::message::Message;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Lane {
    last: Instant,
    by_topic: BTreeMap<Arc<str>, Instant>,
}

/// Something on its way, and on which connection.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) client_id: Arc<str>,
    pub(super) generation: u64,
    pub(super) cargo: Cargo,
}

#[derive(Debug)]
pub(super) enum Cargo {
    ToBroker(Box<Transmit>),
    FromBroker(Box<Output>),
}

/// What a client has not acknowledged, in order. There is no more of it than is queued for a connection.
#[derive(Debug)]
pub(super) struct Kept {
    client_id: Arc<str>,
    messages: VecDeque<Message>,
}

impl Kept {
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

    /// Everything that is to be delivered again to this client.
    pub(super) fn take(&mut self, client_id: &Arc<str>) -> Option<VecDeque<Message>> {
        (self.client_id == *client_id).then(|| std::mem::take(&mut self.messages))
    }
}

impl Lane {
    /// When something that could arrive at `earliest` does: behind everything before it, or, when it overtakes, behind
    /// everything of its topic.
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

impl Cargo {
    /// What is delivered, if it is a message.
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
