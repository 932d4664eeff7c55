//! Messages that wait for the host: one queue per sender, served in turns.
//!
//! Senders with one outstanding message have priority. After each round of these, one sender with
//! more outstanding messages gets a turn. After each round of those, one sender that has
//! disconnected gets a turn: its requests were acknowledged and must still be processed, but they
//! must not delay connected clients.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::config::SenderDetails;
use crate::memory::{Memory, MemoryAccount};
use crate::message::Message;
use crate::names::{self, KeyedHash, NameMap};

/// Bytes of a queue without its name, including the entries of its first items.
const QUEUE_BYTES: usize = 256;

/// Maximum number of queued departures. They accumulate while there is no host. Further ones are
/// dropped.
const DEPARTURES_MAX: usize = 10_000;

/// An item for the host.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A message, with the details of its sender.
    Message(Arc<Message>, Option<SenderDetails>),
    /// The client has disconnected. It follows all messages of the client.
    Gone,
}

/// The queues for the host.
#[derive(Debug)]
pub(crate) struct Inbox {
    queues: NameMap<Arc<str>, Queue>,
    /// Senders whose queue was empty before.
    fresh: VecDeque<Arc<str>>,
    /// Senders that had a turn and have more items.
    backlogged: VecDeque<Arc<str>>,
    /// Disconnected senders with items.
    departed: VecDeque<Arc<str>>,
    /// Turns of fresh senders until a backlogged or departed sender gets one.
    until_backlogged: usize,
    /// Turns of backlogged senders until a departed sender gets one.
    until_departed: usize,
    /// Number of queued [`Item::Gone`].
    departures: usize,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Set while the queue gets no turns because its sender must first read some of its responses.
    is_parked: bool,
    /// Set if its sender has disconnected since its last message.
    is_departed: bool,
    /// User that the messages belong to.
    user: Option<Arc<str>>,
    account: MemoryAccount,
}

impl Inbox {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self {
            queues: hash.new_map(),
            fresh: VecDeque::new(),
            backlogged: VecDeque::new(),
            departed: VecDeque::new(),
            until_backlogged: 0,
            until_departed: 0,
            departures: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.backlogged.is_empty() && self.departed.is_empty()
    }

    /// Returns the bytes of the items of one sender.
    pub(crate) fn bytes(&self, sender: &str) -> usize {
        self.queues.get(sender).map_or(0, |queue| queue.account.bytes())
    }

    /// Returns the user whose messages wait under a client id, if there are any.
    pub(crate) fn user(&self, sender: &str) -> Option<Option<&Arc<str>>> {
        self.queues.get(sender).map(|queue| queue.user.as_ref())
    }

    /// Appends an item to the queue of its sender. Returns whether the queue was empty.
    pub(crate) fn push(
        &mut self,
        memory: &mut Memory,
        sender: &Arc<str>,
        user: Option<Arc<str>>,
        item: Item,
    ) -> bool {
        if matches!(item, Item::Gone) {
            // A disconnected client reads no more responses.
            self.unpark(sender);
            let last = self.queues.get(sender).and_then(|queue| queue.items.back());
            if self.departures >= DEPARTURES_MAX || matches!(last, Some(Item::Gone)) {
                return false;
            }
            self.departures += 1;
        }
        let queue = match self.queues.get_mut(sender) {
            Some(queue) => queue,
            None => {
                self.fresh.push_back(Arc::clone(sender));
                let queue = self.queues.entry(Arc::clone(sender)).or_default();
                queue.account.add(memory, QUEUE_BYTES);
                queue.user = user;
                queue
            }
        };
        match &item {
            Item::Message(message, _) => queue.account.hold(memory, message, size_of::<Item>()),
            Item::Gone => queue.account.add(memory, size_of::<Item>()),
        }
        queue.is_departed = matches!(item, Item::Gone);
        queue.items.push_back(item);
        queue.items.len() == 1
    }

    /// Gives a parked sender turns again. Returns whether it was parked.
    pub(crate) fn unpark(&mut self, sender: &Arc<str>) -> bool {
        let Some(queue) = self.queues.get_mut(sender).filter(|queue| queue.is_parked) else {
            return false;
        };
        queue.is_parked = false;
        let is_departed = queue.is_departed;
        self.requeue(Arc::clone(sender), is_departed);
        true
    }

    /// Returns the next item. A sender that is not ready for responses is parked until
    /// [`unpark`](Self::unpark), and appended to `parked`.
    pub(crate) fn pop(
        &mut self,
        memory: &mut Memory,
        parked: &mut Vec<Arc<str>>,
        is_ready: impl Fn(&str) -> bool,
    ) -> Option<(Arc<str>, Item)> {
        let sender = loop {
            let (sender, is_fresh) = self.next_turn()?;
            let Some(queue) = self.queues.get_mut(&sender) else { continue };
            if !is_ready(&sender) {
                queue.is_parked = true;
                parked.push(sender);
            } else if is_fresh && queue.is_departed {
                self.requeue(sender, true);
            } else {
                break sender;
            }
        };
        let queue = self.queues.get_mut(&sender)?;
        let item = queue.items.pop_front()?;
        match &item {
            Item::Message(message, _) => queue.account.release(memory, message, size_of::<Item>()),
            Item::Gone => {
                self.departures -= 1;
                queue.account.remove(memory, size_of::<Item>());
            }
        }
        if queue.items.is_empty() {
            debug_assert!(queue.account.bytes() == QUEUE_BYTES, "the account has drifted");
            queue.account.remove(memory, QUEUE_BYTES);
            names::remove(&mut self.queues, &sender);
        } else {
            let is_departed = queue.is_departed;
            self.requeue(Arc::clone(&sender), is_departed);
        }
        Some((sender, item))
    }

    /// Queues a sender that is backlogged or departed for its next turn.
    fn requeue(&mut self, sender: Arc<str>, is_departed: bool) {
        if self.backlogged.is_empty() && self.departed.is_empty() {
            self.until_backlogged = self.fresh.len();
        }
        let others = if is_departed { &mut self.departed } else { &mut self.backlogged };
        others.push_back(sender);
    }

    /// Returns the next sender, and whether its queue was empty before.
    fn next_turn(&mut self) -> Option<(Arc<str>, bool)> {
        let has_others = !self.backlogged.is_empty() || !self.departed.is_empty();
        if self.until_backlogged > 0 || !has_others {
            self.until_backlogged = self.until_backlogged.saturating_sub(1);
            if let Some(sender) = self.fresh.pop_front() {
                return Some((sender, true));
            }
        }
        self.until_backlogged = self.fresh.len();
        if self.until_departed > 0 || self.departed.is_empty() {
            self.until_departed = self.until_departed.saturating_sub(1);
            if let Some(sender) = self.backlogged.pop_front() {
                return Some((sender, false));
            }
        }
        self.until_departed = self.backlogged.len();
        let sender = self.departed.pop_front().or_else(|| self.backlogged.pop_front())?;
        Some((sender, false))
    }

    /// Returns the disconnected senders that have items, with the bytes of these, in any order.
    pub(crate) fn departed(&self) -> impl Iterator<Item = (usize, &Arc<str>)> {
        let departed = self.queues.iter().filter(|(_, queue)| queue.is_departed);
        departed.map(|(sender, queue)| (queue.account.bytes(), sender))
    }

    /// Drops the messages of a disconnected sender, but not the notice of its departure. Returns
    /// their number.
    pub(crate) fn drop_departed_messages(&mut self, memory: &mut Memory, sender: &str) -> usize {
        let Some(queue) = self.queues.get_mut(sender).filter(|queue| queue.is_departed) else {
            return 0;
        };
        let before = queue.items.len();
        let items = core::mem::take(&mut queue.items);
        for item in items {
            match item {
                Item::Message(message, _) => {
                    queue.account.release(memory, &message, size_of::<Item>());
                }
                gone @ Item::Gone => queue.items.push_back(gone),
            }
        }
        before - queue.items.len()
    }

    /// Drops all items of a sender.
    pub(crate) fn remove_sender(&mut self, memory: &mut Memory, sender: &str) {
        let Some(mut queue) = names::remove(&mut self.queues, sender) else { return };
        for turns in [&mut self.fresh, &mut self.backlogged, &mut self.departed] {
            turns.retain(|turn| &**turn != sender);
        }
        for item in core::mem::take(&mut queue.items) {
            match &item {
                Item::Message(message, _) => {
                    queue.account.release(memory, message, size_of::<Item>())
                }
                Item::Gone => {
                    self.departures -= 1;
                    queue.account.remove(memory, size_of::<Item>());
                }
            }
        }
        debug_assert!(queue.account.bytes() == QUEUE_BYTES, "the account has drifted");
        queue.account.remove(memory, QUEUE_BYTES);
    }
}
