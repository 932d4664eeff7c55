//! Topic aliases of a connection, in both directions.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::alias::Alias;

/// Topic aliases that the server sets.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The topic of alias `n` is at `n - 1`.
    topics: Vec<Option<Bytes>>,
}

impl Incoming {
    /// Sets an alias, which is not 0. A copy of the topic is retained, not the received packet.
    pub(super) fn set(&mut self, alias: u16, topic: &str) {
        let at = usize::from(alias).saturating_sub(1);
        if self.topics.len() <= at {
            self.topics.resize(at + 1, None);
        }
        if let Some(place) = self.topics.get_mut(at) {
            if place.as_deref() != Some(topic.as_bytes()) {
                *place = Some(Bytes::copy_from_slice(topic.as_bytes()));
            }
        }
    }

    pub(super) fn get(&self, alias: u16) -> Option<Bytes> {
        self.topics.get(usize::from(alias).checked_sub(1)?)?.clone()
    }

    pub(super) fn clear(&mut self) {
        self.topics.clear();
    }

    /// Bytes of the topics.
    pub(super) fn bytes(&self) -> usize {
        self.topics.iter().flatten().map(Bytes::len).sum()
    }
}

/// Topic aliases that the session sets. The first topics of a connection get them and keep them.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    topics: BTreeMap<Box<str>, u16>,
    bytes: usize,
}

impl Outgoing {
    /// The alias that a topic has, or gets next, of `maximum`.
    pub(super) fn choose(&self, topic: &str, maximum: u16) -> Alias {
        Alias::choose(topic, self.topics.get(topic).copied(), self.topics.len(), maximum)
    }

    /// Records an alias that is sent.
    pub(super) fn set(&mut self, topic: &str, number: u16) {
        self.bytes += topic.len();
        self.topics.insert(topic.into(), number);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes of the topics.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
