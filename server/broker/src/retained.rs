//! Retained messages, and their replay to new subscriptions.

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use crate::memory::{Memory, MemoryAccount};
use crate::message::Message;
use crate::subscription_index::SubscriptionEntry;
use statestore_mqtt::topic;

/// Bytes of an entry, without message and topic.
const ENTRY_BYTES: usize = 192;

/// Retained messages in the order of their topics.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    messages: BTreeMap<Arc<str>, Entry>,
    by_owner: BTreeMap<Arc<str>, Share>,
    /// Bytes and names of all owners.
    ranks: BTreeSet<(usize, Arc<str>)>,
    account: MemoryAccount,
    last_number: u64,
}

#[derive(Debug)]
struct Entry {
    message: Arc<Message>,
    /// Number in the order of publication.
    number: u64,
}

/// The messages of one owner.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    /// Topics in the order of publication.
    topics: BTreeMap<u64, Arc<str>>,
}

/// Bytes of a retained message.
fn size(message: &Message) -> usize {
    message.size() + ENTRY_BYTES + message.topic().len()
}

fn shared_owner(message: &Message) -> Arc<str> {
    message.owner_name().map_or_else(|| Arc::from(""), Arc::clone)
}

/// The owner of a message; that of the host has no name.
fn owner(message: &Message) -> &str {
    message.owner_name().map_or("", |owner| owner)
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

    /// Replaces the retained message of a topic, or removes it if the payload is empty.
    ///
    /// If the message does not fit into `max` bytes, removes the oldest messages of the owner with
    /// the most bytes, as long as this owner has more than the owner of the new message. Returns
    /// the number of removed messages, or `None` without a change if the message does not fit.
    pub(crate) fn set(
        &mut self,
        memory: &mut Memory,
        message: &Arc<Message>,
        max: usize,
    ) -> Option<usize> {
        if message.payload_bytes().is_empty() {
            self.remove(memory, message.topic());
            return Some(0);
        }
        let evicted = self.find_evicted(message, max)?;
        evicted.iter().for_each(|topic| self.remove(memory, topic));
        self.remove(memory, message.topic());
        self.last_number += 1;
        let (topic, number) = (Arc::clone(message.shared_topic()), self.last_number);
        self.account.hold(memory, message, size(message) - message.size());
        self.change_share(&shared_owner(message), |share| {
            share.bytes += size(message);
            share.topics.insert(number, Arc::clone(&topic));
        });
        self.messages.insert(topic, Entry { message: Arc::clone(message), number });
        Some(evicted.len())
    }

    /// Returns the topics whose messages make room for this one. `None` if it does not fit.
    fn find_evicted(&self, message: &Message, max: usize) -> Option<Vec<Arc<str>>> {
        let replaced = self.messages.get(message.topic()).map(|entry| &entry.message);
        let mut total = self.account.bytes() - replaced.map_or(0, |old| size(old)) + size(message);
        if total <= max {
            return Some(Vec::new());
        }
        let own_replaced = replaced.filter(|old| owner(old) == owner(message));
        let own = self.by_owner.get(owner(message)).map_or(0, |share| share.bytes);
        let own = own - own_replaced.map_or(0, |old| size(old)) + size(message);
        let others = self.ranks.iter().rev().filter(|(_, name)| &**name != owner(message));
        let mut others = others.map(|(bytes, name)| (*bytes, name, 0)).peekable();
        // Owners that lose messages, with the bytes that they keep.
        let mut losers: BinaryHeap<(usize, &Arc<str>, u64)> = BinaryHeap::new();
        let mut evicted = Vec::new();
        while total > max {
            losers.extend(others.next_if(|other| losers.peek().is_none_or(|most| other > most)));
            let (bytes, name, after) = losers.pop()?;
            if bytes <= own {
                return None;
            }
            let topics = &self.by_owner.get(name)?.topics;
            // The replaced message is removed anyway.
            let mut next = topics.range(after..).filter(|(_, topic)| &***topic != message.topic());
            let Some((number, topic)) = next.next() else { continue };
            let freed = self.messages.get(topic).map_or(0, |entry| size(&entry.message));
            total -= freed;
            evicted.push(Arc::clone(topic));
            losers.push((bytes - freed, name, number + 1));
        }
        Some(evicted)
    }

    fn remove(&mut self, memory: &mut Memory, topic: &str) {
        let Some(Entry { message, number }) = self.messages.remove(topic) else { return };
        self.account.release(memory, &message, size(&message) - message.size());
        self.change_share(&shared_owner(&message), |share| {
            share.bytes -= size(&message);
            share.topics.remove(&number);
        });
    }

    /// Changes the share of an owner, and its rank.
    fn change_share(&mut self, owner: &Arc<str>, change: impl FnOnce(&mut Share)) {
        let share = self.by_owner.entry(Arc::clone(owner)).or_default();
        self.ranks.remove(&(share.bytes, Arc::clone(owner)));
        change(share);
        if share.topics.is_empty() {
            self.by_owner.remove(owner);
        } else {
            self.ranks.insert((share.bytes, Arc::clone(owner)));
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
            let found = self.messages.get(fixed).map(|entry| &entry.message);
            return (found.filter(|message| !message.has_expired(now)).cloned(), false);
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
            let Some((topic, entry)) = next.filter(|(topic, _)| topic.starts_with(fixed)) else {
                return (None, false);
            };
            let (topic, message) = (Arc::clone(topic), Arc::clone(&entry.message));
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
