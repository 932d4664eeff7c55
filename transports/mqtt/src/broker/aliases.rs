//! Topic aliases that a client is given.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use super::memory::{Held, Memory};

/// Bytes that an alias adds to a packet.
const PROPERTY_BYTES: usize = 3;

/// Bytes that an alias takes, its topic apart: a table has room for eleven.
const ENTRY_BYTES: usize = 11 * size_of::<(Arc<str>, u16)>();

/// The aliases of one connection.
///
/// The first topics have them, and keep them: what a client is sent for long, such as its answers, comes early, and where
/// there are more topics than aliases nothing is said anew with each message.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    topics: BTreeMap<Arc<str>, u16>,
    /// The greatest that its client takes.
    max: u16,
}

/// The alias that a topic has, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alias {
    None,
    /// To be said together with the topic.
    New(u16),
    /// To be said instead.
    Known(u16),
}

impl Alias {
    pub(super) const fn number(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::New(number) | Self::Known(number) => Some(number),
        }
    }
}

impl Aliases {
    pub(super) const fn new(max: u16) -> Self {
        Self { topics: BTreeMap::new(), max }
    }

    pub(super) fn of(&self, topic: &str) -> Alias {
        if self.max == 0 || topic.len() <= PROPERTY_BYTES {
            return Alias::None;
        }
        if let Some(number) = self.topics.get(topic) {
            return Alias::Known(*number);
        }
        let next = u16::try_from(self.topics.len() + 1).unwrap_or(u16::MAX);
        if next <= self.max { Alias::New(next) } else { Alias::None }
    }

    /// Notes an alias that was written.
    pub(super) fn set(
        &mut self,
        memory: &mut Memory,
        held: &mut Held,
        topic: &Arc<str>,
        number: u16,
    ) {
        if self.topics.insert(Arc::clone(topic), number).is_none() {
            held.add(memory, ENTRY_BYTES + topic.len());
        }
    }

    /// Gives back what they take, and there will be none.
    pub(super) fn clear(&mut self, memory: &mut Memory, held: &mut Held) {
        for topic in core::mem::take(self).topics.into_keys() {
            held.remove(memory, ENTRY_BYTES + topic.len());
        }
    }
}
