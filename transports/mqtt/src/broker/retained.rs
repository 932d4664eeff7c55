//! Retained messages, and subscriptions that have not seen all of them yet.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Bound;
use core::time::Duration;

use super::memory::{Held, Memory};
use super::message::Message;
use super::tree::Subscribed;
use crate::topic;

/// Bytes that a retained message takes beside itself, its topic apart.
const ENTRY_BYTES: usize = 96;

/// Retained messages, in the order of their topics.
#[derive(Debug, Default)]
pub(super) struct Retained {
    messages: BTreeMap<Arc<str>, Arc<Message>>,
    held: Held,
}

/// A subscription on its way through the retained messages.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) subscribed: Subscribed,
    /// The last topic that was looked at.
    after: Option<Arc<str>>,
}

impl Replay {
    pub(super) const fn new(subscribed: Subscribed) -> Self {
        Self { subscribed, after: None }
    }

    /// Bytes that the one of a filter takes; the topic that it has come to is that of a retained message.
    pub(super) const fn bytes(filter: &str) -> usize {
        3 * size_of::<Self>() + filter.len()
    }
}

impl Retained {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Keeps a message in place of what its topic had, or nothing if its payload is empty. Whether there was room for it
    /// within `max` bytes.
    pub(super) fn set(&mut self, memory: &mut Memory, message: &Arc<Message>, max: usize) -> bool {
        let topic = message.topic();
        let before =
            self.messages.get(topic).map_or(0, |old| old.size() + ENTRY_BYTES + topic.len());
        let after = match message.payload_bytes().is_empty() {
            true => 0,
            false => message.size() + ENTRY_BYTES + topic.len(),
        };
        if after > 0 && self.held.bytes() - before + after > max {
            return false;
        }
        self.remove(memory, topic);
        if after > 0 {
            self.held.hold(memory, message, ENTRY_BYTES + topic.len());
            self.messages.insert(topic.into(), Arc::clone(message));
        }
        true
    }

    fn remove(&mut self, memory: &mut Memory, topic: &str) {
        if let Some(old) = self.messages.remove(topic) {
            self.held.release(memory, &old, ENTRY_BYTES + topic.len());
        }
    }

    /// Goes on with a replay for as many as `steps` topics. Gives what it has found, and whether there is more to come.
    pub(super) fn step(
        &mut self,
        now: Duration,
        memory: &mut Memory,
        filter: &str,
        replay: &mut Replay,
        steps: &mut usize,
    ) -> (Option<Arc<Message>>, bool) {
        // What every match begins with.
        let fixed = filter.split_inclusive('/').take_while(|level| !level.starts_with(['+', '#']));
        let fixed = filter.get(..fixed.map(str::len).sum()).unwrap_or_default();
        if fixed.len() == filter.len() {
            let found = self.messages.get(fixed).filter(|message| !message.has_expired(now));
            return (found.cloned(), false);
        }
        // `a/#` is for `a` too.
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
