//! What waits for the host: a queue for each sender, and turns.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use super::memory::{Held, Memory};
use super::message::Message;

/// Bytes of a queue, its name apart, and of what stands in it beside the message.
const QUEUE_BYTES: usize = 256;

/// Notices about clients that wait while there is no host. Beyond them they are dropped: a host that is away for so many
/// should not trust what it knew.
const GONE_MAX: usize = 10_000;

/// Something for the host.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Message(Arc<Message>),
    /// A client has gone: behind everything that it sent.
    Gone,
}

/// What waits for the host.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queues: BTreeMap<Arc<str>, Queue>,
    /// Who has something waiting, by turns.
    turns: VecDeque<Arc<str>>,
    gone: usize,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Whether it has no turn until its sender has taken some of its answers.
    is_parked: bool,
    /// Whose requests these are.
    user: Option<Arc<str>>,
    held: Held,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Bytes of one sender that wait.
    pub(super) fn bytes(&self, sender: &str) -> usize {
        self.queues.get(sender).map_or(0, |queue| queue.held.bytes())
    }

    /// Whose requests wait under a client id, if any do.
    pub(super) fn user(&self, sender: &str) -> Option<Option<&Arc<str>>> {
        self.queues.get(sender).map(|queue| queue.user.as_ref())
    }

    pub(super) fn push(
        &mut self,
        memory: &mut Memory,
        sender: &Arc<str>,
        user: Option<Arc<str>>,
        item: Item,
    ) {
        if matches!(item, Item::Gone) {
            // It takes no answers any more.
            self.unpark(sender);
            let last = self.queues.get(sender).and_then(|queue| queue.items.back());
            if self.gone >= GONE_MAX || matches!(last, Some(Item::Gone)) {
                return;
            }
            self.gone += 1;
        }
        let queue = match self.queues.get_mut(sender) {
            Some(queue) => queue,
            None => {
                self.turns.push_back(Arc::clone(sender));
                let queue = self.queues.entry(Arc::clone(sender)).or_default();
                queue.held.add(memory, QUEUE_BYTES);
                queue.user = user;
                queue
            }
        };
        match &item {
            Item::Message(message) => queue.held.hold(memory, message, size_of::<Item>()),
            Item::Gone => queue.held.add(memory, size_of::<Item>()),
        }
        queue.items.push_back(item);
    }

    /// Gives a sender its turns again; whether it had lost them.
    pub(super) fn unpark(&mut self, sender: &Arc<str>) -> bool {
        let Some(queue) = self.queues.get_mut(sender).filter(|queue| queue.is_parked) else {
            return false;
        };
        queue.is_parked = false;
        self.turns.push_back(Arc::clone(sender));
        true
    }

    /// The first of whose turn it is. Who is not ready for answers loses its turns until it is
    /// [given them again](Self::unpark).
    pub(super) fn pop(
        &mut self,
        memory: &mut Memory,
        is_ready: impl Fn(&str) -> bool,
    ) -> Option<(Arc<str>, Item)> {
        let sender = loop {
            let sender = self.turns.pop_front()?;
            if is_ready(&sender) {
                break sender;
            }
            if let Some(queue) = self.queues.get_mut(&sender) {
                queue.is_parked = true;
            }
        };
        let queue = self.queues.get_mut(&sender)?;
        let item = queue.items.pop_front()?;
        match &item {
            Item::Message(message) => queue.held.release(memory, message, size_of::<Item>()),
            Item::Gone => {
                self.gone -= 1;
                queue.held.remove(memory, size_of::<Item>());
            }
        }
        if queue.items.is_empty() {
            let rest = queue.held.bytes();
            queue.held.remove(memory, rest);
            self.queues.remove(&sender);
        } else {
            self.turns.push_back(Arc::clone(&sender));
        }
        Some((sender, item))
    }

    /// Forgets what a sender has asked for and was not taken.
    pub(super) fn forget(&mut self, memory: &mut Memory, sender: &str) {
        let Some(mut queue) = self.queues.remove(sender) else { return };
        self.turns.retain(|turn| &**turn != sender);
        for item in core::mem::take(&mut queue.items) {
            match &item {
                Item::Message(message) => queue.held.release(memory, message, size_of::<Item>()),
                Item::Gone => self.gone -= 1,
            }
        }
        let rest = queue.held.bytes();
        queue.held.remove(memory, rest);
    }
}
