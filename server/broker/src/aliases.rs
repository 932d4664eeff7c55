//! Topic aliases that the broker sets.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use statestore_mqtt::Alias;

use crate::memory::{Memory, MemoryAccount};

/// Bytes of an alias without its topic. A table node has space for eleven entries.
const ENTRY_BYTES: usize = 11 * size_of::<(Arc<str>, u16)>();

/// The outbound topic aliases of one connection.
///
/// Aliases go to the first topics and are never reassigned. Topics that a client uses for long,
/// such as its response topic, come early. Reassigning aliases would repeat topics with every
/// message if there are more topics than aliases.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    topics: BTreeMap<Arc<str>, u16>,
    /// Topic Alias Maximum of the client.
    max: u16,
}

impl Aliases {
    pub(crate) const fn new(max: u16) -> Self {
        Self { topics: BTreeMap::new(), max }
    }

    pub(crate) fn choose(&self, topic: &str) -> Alias {
        Alias::choose(topic, self.topics.get(topic).copied(), self.topics.len(), self.max)
    }

    /// Records an alias that was sent.
    pub(crate) fn set(
        &mut self,
        memory: &mut Memory,
        account: &mut MemoryAccount,
        topic: &Arc<str>,
        number: u16,
    ) {
        if self.topics.insert(Arc::clone(topic), number).is_none() {
            account.add(memory, ENTRY_BYTES + topic.len());
        }
    }

    /// Removes all aliases, frees their memory, and sets no further ones.
    pub(crate) fn clear(&mut self, memory: &mut Memory, account: &mut MemoryAccount) {
        for topic in core::mem::take(self).topics.into_keys() {
            account.remove(memory, ENTRY_BYTES + topic.len());
        }
    }
}
