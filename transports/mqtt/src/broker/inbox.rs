//! What waits for the host: a queue for each sender, and turns.
//!
//! Whoever asks for one thing after the other goes before those who have more waiting than that: of these one has its turn
//! after each round of the others. And of those who have gone, whose requests were acknowledged and still have to be done, one
//! has its turn after each round of those who have much waiting, however many they are.

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
    /// Who had nothing waiting before.
    prompt: VecDeque<Arc<str>>,
    /// Who has had a turn, and more waiting.
    busy: VecDeque<Arc<str>>,
    /// Who has gone, and is not forgotten yet.
    departed: VecDeque<Arc<str>>,
    /// Turns until one of those who are busy has one, and turns of these until one of the departed has one.
    until_busy: usize,
    until_departed: usize,
    gone: usize,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Whether it has no turn until its sender has taken some of its answers.
    is_parked: bool,
    /// Whether its sender has gone since it asked last.
    is_departed: bool,
    /// Whose requests these are.
    user: Option<Arc<str>>,
    held: Held,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.busy.is_empty() && self.departed.is_empty()
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
                self.prompt.push_back(Arc::clone(sender));
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
        queue.is_departed = matches!(item, Item::Gone);
        queue.items.push_back(item);
    }

    /// Gives a sender its turns again; whether it had lost them.
    pub(super) fn unpark(&mut self, sender: &Arc<str>) -> bool {
        let Some(queue) = self.queues.get_mut(sender).filter(|queue| queue.is_parked) else {
            return false;
        };
        queue.is_parked = false;
        let is_departed = queue.is_departed;
        self.turn_among_others(Arc::clone(sender), is_departed);
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
            let (sender, is_prompt) = self.next_turn()?;
            let Some(queue) = self.queues.get_mut(&sender) else { continue };
            if !is_ready(&sender) {
                queue.is_parked = true;
            } else if is_prompt && queue.is_departed {
                self.turn_among_others(sender, true);
            } else {
                break sender;
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
            let is_departed = queue.is_departed;
            self.turn_among_others(Arc::clone(&sender), is_departed);
        }
        Some((sender, item))
    }

    /// Lets one who has more waiting, or has gone, wait for the next turn.
    fn turn_among_others(&mut self, sender: Arc<str>, is_departed: bool) {
        if self.busy.is_empty() && self.departed.is_empty() {
            self.until_busy = self.prompt.len();
        }
        let others = if is_departed { &mut self.departed } else { &mut self.busy };
        others.push_back(sender);
    }

    /// Whose turn it is, and whether it had nothing waiting before.
    fn next_turn(&mut self) -> Option<(Arc<str>, bool)> {
        let has_others = !self.busy.is_empty() || !self.departed.is_empty();
        if self.until_busy > 0 || !has_others {
            self.until_busy = self.until_busy.saturating_sub(1);
            if let Some(sender) = self.prompt.pop_front() {
                return Some((sender, true));
            }
        }
        self.until_busy = self.prompt.len();
        if self.until_departed > 0 || self.departed.is_empty() {
            self.until_departed = self.until_departed.saturating_sub(1);
            if let Some(sender) = self.busy.pop_front() {
                return Some((sender, false));
            }
        }
        self.until_departed = self.busy.len();
        let sender = self.departed.pop_front().or_else(|| self.busy.pop_front())?;
        Some((sender, false))
    }

    /// Those who have gone and still have something waiting, with its bytes.
    pub(super) fn departed(&self) -> impl Iterator<Item = (usize, &Arc<str>)> {
        let departed = self.queues.iter().filter(|(_, queue)| queue.is_departed);
        departed.map(|(sender, queue)| (queue.held.bytes(), sender))
    }

    /// Forgets what one who has gone had asked for, but not that it has; gives how much that was.
    pub(super) fn forget_departed(&mut self, memory: &mut Memory, sender: &str) -> usize {
        let Some(queue) = self.queues.get_mut(sender).filter(|queue| queue.is_departed) else {
            return 0;
        };
        let before = queue.items.len();
        let items = core::mem::take(&mut queue.items);
        for item in items {
            match item {
                Item::Message(message) => {
                    queue.held.release(memory, &message, size_of::<Item>());
                }
                gone @ Item::Gone => queue.items.push_back(gone),
            }
        }
        before - queue.items.len()
    }

    /// Forgets what a sender has asked for and was not taken.
    pub(super) fn forget(&mut self, memory: &mut Memory, sender: &str) {
        let Some(mut queue) = self.queues.remove(sender) else { return };
        for turns in [&mut self.prompt, &mut self.busy, &mut self.departed] {
            turns.retain(|turn| &**turn != sender);
        }
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
