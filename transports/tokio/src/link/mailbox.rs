//! A bounded queue between a library's own task or threads and a link.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_proto::transport::{Qos, ReasonCode};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connector::{ConnectionEvent, PacketId, ReceivedPublish, Ticket};
use super::error::{LinkError, LinkErrorKind};

/// Bytes of messages that are queued before the library must stop reading.
const BYTES_MAX: usize = 64 << 20;

/// Messages accepted beyond the bound until the library stops reading: half a second at full speed.
const OVERRUN_MAX: usize = 16_384;

/// Bytes of these messages.
const OVERRUN_BYTES_MAX: usize = 64 << 20;

/// The events and messages of one connection, for a [`Connection`](super::Connection) whose library
/// reads in its own task or threads.
///
/// Messages are bounded, in number and to 64 MiB; twice that until the library stops reading. If it
/// does not stop, the connection fails. Other events are responses to packets of this side, whose
/// number the [queue](crate::Options::max_queued_packets) and the packet ids bound. Only
/// [`next_event`](Self::next_event) and the methods that begin with `wait_` wait, so a callback may
/// call the others.
#[derive(Debug)]
pub struct Mailbox<M> {
    messages_max: usize,
    state: Mutex<State<M>>,
    arrived: Notify,
    taken: Notify,
}

#[derive(Debug)]
struct State<M> {
    /// Contains no messages.
    events: VecDeque<ConnectionEvent<M>>,
    /// Messages and their bytes.
    messages: VecDeque<(ReceivedPublish<M>, usize)>,
    /// The sum of their bytes.
    bytes: usize,
    lost: Option<LinkError>,
    is_closed: bool,
}

/// Outcome of [`Mailbox::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The message was queued.
    Queued,
    /// The message was queued beyond the bound: the library must stop reading.
    Beyond,
    /// The message was dropped: at QoS 0 beyond the bound, or the mailbox is closed or has failed.
    Dropped,
}

impl<M> State<M> {
    fn is_full(&self, messages_max: usize) -> bool {
        self.messages.len() >= messages_max || self.bytes >= BYTES_MAX
    }
}

impl<M> Mailbox<M> {
    /// At most `messages_max` messages are queued before the library must stop reading.
    #[must_use]
    pub fn new(messages_max: usize) -> Arc<Self> {
        let state = State {
            events: VecDeque::new(),
            messages: VecDeque::new(),
            bytes: 0,
            lost: None,
            is_closed: false,
        };
        let (arrived, taken) = (Notify::new(), Notify::new());
        Arc::new(Self { messages_max, state: Mutex::new(state), arrived, taken })
    }

    /// Queues an event that is not a message.
    pub fn report(&self, event: ConnectionEvent<M>) {
        self.state().events.push_back(event);
        self.arrived.notify_one();
    }

    /// Queues the outcome of a packet, unless it is a success that does not matter. Most replies
    /// lack a token, and nothing follows from their success.
    pub fn settle(&self, ticket: Ticket, reason: ReasonCode) {
        if ticket.matters() || reason.is_error() {
            self.report(ConnectionEvent::Settled(ticket, reason));
        }
    }

    /// Queues a message of so many `bytes` that arrives now. `id` is set if it must be
    /// acknowledged.
    pub fn deliver(
        &self,
        message: M,
        bytes: usize,
        qos: Qos,
        id: Option<PacketId>,
        dup: bool,
    ) -> Delivered {
        let mut state = self.state();
        let queued = state.messages.len();
        let is_full = state.is_full(self.messages_max);
        if state.is_closed || state.lost.is_some() || (is_full && qos == Qos::AtMostOnce) {
            return Delivered::Dropped;
        }
        let is_overrun = queued >= self.messages_max.saturating_add(OVERRUN_MAX)
            || state.bytes >= BYTES_MAX + OVERRUN_BYTES_MAX;
        if is_overrun {
            // A broker sends no more than the Receive Maximum, unless it violates MQTT.
            let text = "more messages arrived than the queue can hold";
            state.lost = Some(LinkError::new(LinkErrorKind::Overloaded, text));
            self.arrived.notify_one();
            return Delivered::Dropped;
        }
        state.bytes += bytes;
        let received = ReceivedPublish { message, id, dup, at: Instant::now() };
        state.messages.push_back((received, bytes));
        // A reader that has not taken the previous message is awake, or does not want messages.
        if queued == 0 {
            self.arrived.notify_one();
        }
        if is_full { Delivered::Beyond } else { Delivered::Queued }
    }

    /// The connection has ended. The first error counts; it follows all queued events.
    pub fn fail(&self, error: LinkError) {
        self.state().lost.get_or_insert(error);
        self.arrived.notify_one();
    }

    /// Drops all messages, those that arrive later included.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.messages.clear();
        state.bytes = 0;
        self.taken.notify_one();
    }

    /// Wakes [`next_event`](Self::next_event).
    pub fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Waits until [`poll`](Self::poll) can return something else. Cancel safe.
    pub async fn wait_woken(&self) {
        self.arrived.notified().await;
    }

    /// Waits until less is queued than the bounds. Cancel safe.
    pub async fn wait_capacity(&self) {
        while self.is_full() {
            self.taken.notified().await;
        }
    }

    /// Returns whether as many messages, or bytes of messages, are queued as the bound.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.state().is_full(self.messages_max)
    }

    /// The next event, if any; a message only if `messages` is set.
    ///
    /// # Errors
    /// The error that ended the connection, after the events that arrived before, and after the
    /// messages if `messages` is set.
    pub fn poll(&self, messages: bool) -> Result<Option<ConnectionEvent<M>>, LinkError> {
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            return Ok(Some(event));
        }
        let was_full = state.is_full(self.messages_max);
        if messages && let Some((message, bytes)) = state.messages.pop_front() {
            state.bytes -= bytes;
            if was_full && !state.is_full(self.messages_max) {
                self.taken.notify_one();
            }
            return Ok(Some(ConnectionEvent::Message(message)));
        }
        match state.lost.take() {
            Some(error) => {
                state.lost = Some(LinkError::new(LinkErrorKind::NotConnected, "not connected"));
                Err(error)
            }
            None => Ok(None),
        }
    }

    /// Waits for the next event. Cancel safe.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub async fn next_event(&self, messages: bool) -> Result<ConnectionEvent<M>, LinkError> {
        loop {
            if let Some(event) = self.poll(messages)? {
                return Ok(event);
            }
            self.wait_woken().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    fn deliver(mailbox: &Mailbox<()>, qos: Qos) -> Delivered {
        mailbox.deliver((), SIZE, qos, None, false)
    }

    #[test]
    fn bytes_bound_the_queue_and_a_library_that_reads_on_fails() {
        let mailbox = Mailbox::new(usize::MAX);
        for _ in 0..BYTES_MAX / SIZE {
            assert!(!mailbox.is_full());
            assert_eq!(deliver(&mailbox, Qos::AtLeastOnce), Delivered::Queued);
        }
        assert!(mailbox.is_full());
        assert_eq!(deliver(&mailbox, Qos::AtMostOnce), Delivered::Dropped);
        assert!(matches!(mailbox.poll(true), Ok(Some(ConnectionEvent::Message(_)))));
        assert!(!mailbox.is_full(), "one message less is below the bound");
        assert_eq!(deliver(&mailbox, Qos::AtLeastOnce), Delivered::Queued);
        for _ in 0..OVERRUN_BYTES_MAX / SIZE {
            assert_eq!(deliver(&mailbox, Qos::AtLeastOnce), Delivered::Beyond);
        }
        for _ in 0..2 {
            assert_eq!(deliver(&mailbox, Qos::AtLeastOnce), Delivered::Dropped);
        }
        let error = mailbox.poll(false).expect_err("the connection has failed");
        assert_eq!(error.kind(), LinkErrorKind::Overloaded);
    }

    #[test]
    fn one_message_above_the_bound_is_queued() {
        let mailbox = Mailbox::new(1);
        let deliver = || mailbox.deliver((), 2 * BYTES_MAX, Qos::AtLeastOnce, None, false);
        assert_eq!((deliver(), mailbox.is_full()), (Delivered::Queued, true));
    }
}
