//! Retained messages, and their replay to new subscriptions.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Bound;
use core::time::Duration;

use crate::memory::{Memory, MemoryAccount};
use crate::message::Message;
use crate::tree::SubscriptionEntry;
use statestore_mqtt::topic;

/// Bytes of an entry, without message and topic.
const ENTRY_BYTES: usize = 96;

/// Retained messages in the order of their topics.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    messages: BTreeMap<Arc<str>, Arc<Message>>,
    account: MemoryAccount,
}

/// Progress of a subscription through the retained messages.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) subscription: SubscriptionEntry,
    /// The last topic that was visited.
    after: Option<Arc<str>>,
}

impl Replay {
    pub(crate) const fn new(subscription: SubscriptionEntry) -> Self {
        Self { subscription, after: None }
    }

    /// Bytes of a replay for this filter. `after` shares the topic of a retained message and is not
    /// counted.
    pub(crate) const fn bytes(filter: &str) -> usize {
        3 * size_of::<Self>() + filter.len()
    }
}

impl Retained {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Replaces the retained message of a topic, or removes it if the payload is empty. Returns
    /// false if it does not fit into `max` bytes.
    pub(crate) fn set(&mut self, memory: &mut Memory, message: &Arc<Message>, max: usize) -> bool {
        let topic = message.topic();
        let before =
            self.messages.get(topic).map_or(0, |old| old.size() + ENTRY_BYTES + topic.len());
        let after = match message.payload_bytes().is_empty() {
            true => 0,
            false => message.size() + ENTRY_BYTES + topic.len(),
        };
        if after > 0 && self.account.bytes() - before + after > max {
            return false;
        }
        self.remove(memory, topic);
        if after > 0 {
            self.account.hold(memory, message, ENTRY_BYTES + topic.len());
            self.messages.insert(topic.into(), Arc::clone(message));
        }
        true
    }

    fn remove(&mut self, memory: &mut Memory, topic: &str) {
        if let Some(old) = self.messages.remove(topic) {
            self.account.release(memory, &old, ENTRY_BYTES + topic.len());
        }
    }

    /// Continues a replay for at most `steps` topics. Returns the next match, and whether there may
    /// be more.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        memory: &mut Memory,
        filter: &str,
        replay: &mut Replay,
        steps: &mut usize,
    ) -> (Option<Arc<Message>>, bool) {
        // Prefix of all matching topics.
        let fixed = filter.split_inclusive('/').take_while(|level| !level.starts_with(['+', '#']));
        let fixed = filter.get(..fixed.map(str::len).sum()).unwrap_or_default();
        if fixed.len() == filter.len() {
            let found = self.messages.get(fixed).filter(|message| !message.has_expired(now));
            return (found.cloned(), false);
        }
        // `a/#` matches `a` too.
        let fixed = fixed.strip_suffix('/').unwrap_or(fixed);
        while *steps > 0 {
            *steps -= 1;
            let from = match &replay.after {
                None => Bound::Included(fixed),
                Some(after) => Bound::Excluded(&**after),
            };
            let next = self.messages.range::<str, _>((from, Bound::Unbounded)).next();
            let Some((topic, message)) = next.filter(|(topic, _)| topic.starts_with(fixed)) else {
                return (None, false);
            };
            let (topic, message) = (Arc::clone(topic), Arc::clone(message));
            replay.after = Some(Arc::clone(&topic));
            if message.has_expired(now) {
                self.remove(memory, &topic);
            } else if topic::matches(filter, &topic) {
                return (Some(message), true);
            }
        }
        (None, true)
    }
}
