//! Topic aliases of a connection, in both directions.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;

use super::error::{Error, Violation};
use crate::alias::Alias;
use crate::packet::Publish;
use crate::property::{Property, id};

/// Topic aliases that the server sets.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The topic of alias `n` is at `n - 1`.
    topics: Vec<Option<Bytes>>,
}

impl Incoming {
    /// Sets or resolves the topic alias of a PUBLISH. Returns the topic if the packet lacks it.
    pub(super) fn resolve(
        &mut self,
        publish: &Publish<'_>,
        maximum: u16,
    ) -> Result<Option<Bytes>, Error> {
        if !publish.properties.has(id::TOPIC_ALIAS) {
            return Ok(None);
        }
        let alias = publish.properties.find(|property| match property {
            Property::TopicAlias(alias) => Some(alias),
            _ => None,
        });
        let alias = alias.unwrap_or_default();
        if alias == 0 || alias > maximum {
            return Err(Error::Protocol(Violation::TopicAlias(alias)));
        }
        if !publish.topic.is_empty() {
            self.set(alias, publish.topic);
            return Ok(None);
        }
        let topic = self.get(alias);
        topic.map(Some).ok_or(Error::Protocol(Violation::UnknownTopicAlias(alias)))
    }

    /// Sets an alias, which is not 0. A copy of the topic is retained, not the received packet.
    fn set(&mut self, alias: u16, topic: &str) {
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

    fn get(&self, alias: u16) -> Option<Bytes> {
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
    maximum: u16,
    topics: BTreeMap<Box<str>, u16>,
    bytes: usize,
}

impl Outgoing {
    /// At most `maximum` aliases, none of which is set.
    pub(super) fn new(maximum: u16) -> Self {
        Self { maximum, ..Self::default() }
    }

    /// The alias that a topic has, or gets next.
    pub(super) fn choose(&self, topic: &str) -> Alias {
        Alias::choose(topic, self.topics.get(topic).copied(), self.topics.len(), self.maximum)
    }

    /// Records an alias that is sent.
    pub(super) fn set(&mut self, topic: &str, number: u16) {
        self.bytes += topic.len();
        self.topics.insert(topic.into(), number);
    }

    /// Bytes of the topics.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
