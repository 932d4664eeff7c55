//! What the link and its pump share: what was sent, and what has arrived.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rumqttc::v5::mqttbytes::QoS;
use statestore_proto::mqtt::{PublishToken, SubscribeToken};
use statestore_tokio::{LinkError, LinkEvent};
use tokio::sync::Notify;

use crate::convert::Message;

/// A request in rumqttc's channel. Requests leave it in order, which is how packet ids are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    Publish(Option<PublishToken>),
    Subscribe(Option<SubscribeToken>),
    /// An acknowledgement, an UNSUBSCRIBE or a DISCONNECT: nobody asks what became of it.
    Other,
}

/// How much may wait here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Requests in the channel.
    pub(crate) requests: usize,
    /// Messages. Those that are acknowledged by hand the broker bounds, by the Receive Maximum.
    pub(crate) messages: usize,
    /// Whether messages are acknowledged by hand.
    pub(crate) manual_acks: bool,
}

/// The mailbox of one connection; that of the next one is another.
#[derive(Debug)]
pub(crate) struct Mailbox {
    bounds: Bounds,
    state: Mutex<State>,
    arrived: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    tickets: VecDeque<Ticket>,
    /// Whether a packet was refused whose sender waits to hear that there is room again.
    starved: bool,
    /// Never holds a message.
    answers: VecDeque<LinkEvent<Message>>,
    /// Messages and the clients that have gone, in order: a client's end must not overtake its last message.
    messages: VecDeque<LinkEvent<Message>>,
    lost: Option<LinkError>,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        let (arrived, taken) = (Notify::new(), Notify::new());
        Arc::new(Self { bounds, state: Mutex::default(), arrived, taken })
    }

    /// Whether another request may be sent. If not, [`LinkEvent::Writable`] follows when it may.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.state();
        state.starved |= state.tickets.len() >= self.bounds.requests;
        !state.starved
    }

    /// Puts a request into the channel by `send`, which says whether it could.
    pub(crate) fn send(&self, ticket: Ticket, send: impl FnOnce() -> bool) {
        // Under the lock, or the pump might see the request leave before it has its ticket.
        let mut state = self.state();
        if send() {
            state.tickets.push_back(ticket);
        }
    }

    /// Notes that a request has left the channel.
    pub(crate) fn sent(&self) -> Option<Ticket> {
        let mut state = self.state();
        let ticket = state.tickets.pop_front();
        // Half empty rather than one less than full: the link is woken once for many.
        if state.starved && state.tickets.len() <= self.bounds.requests / 2 {
            state.starved = false;
            state.answers.push_back(LinkEvent::Writable);
            self.arrived.notify_one();
        }
        ticket
    }

    pub(crate) fn answer(&self, event: LinkEvent<Message>) {
        self.state().answers.push_back(event);
        self.arrived.notify_one();
    }

    pub(crate) fn deliver(&self, message: Message) {
        let mut state = self.state();
        let may_be_dropped = message.packet().qos == QoS::AtMostOnce;
        if state.closed || (may_be_dropped && state.messages.len() >= self.bounds.messages) {
            return;
        }
        state.messages.push_back(LinkEvent::Message(message));
        self.arrived.notify_one();
    }

    pub(crate) fn gone(&self, client_id: &str) {
        let mut state = self.state();
        if !state.closed && state.messages.len() < self.bounds.messages {
            state.messages.push_back(LinkEvent::ClientGone(client_id.into()));
            self.arrived.notify_one();
        }
    }

    /// Notes the end of the connection.
    pub(crate) fn lose(&self, error: LinkError) {
        self.state().lost = Some(error);
        self.arrived.notify_one();
    }

    /// Takes no more messages: nobody will read them.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.messages.clear();
        self.taken.notify_one();
    }

    /// Waits until the messages that are acknowledged already are fewer than they may be.
    pub(crate) async fn room_for_messages(&self) {
        while !self.bounds.manual_acks && self.state().messages.len() >= self.bounds.messages {
            self.taken.notified().await;
        }
    }

    /// Waits for [`take`](Self::take) to give something else.
    pub(crate) async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// The next thing there is. What arrived before the connection was lost comes before that.
    pub(crate) fn take(&self, messages: bool) -> Result<Option<LinkEvent<Message>>, LinkError> {
        let mut state = self.state();
        if let Some(answer) = state.answers.pop_front() {
            return Ok(Some(answer));
        }
        if messages && let Some(message) = state.messages.pop_front() {
            if state.messages.len() + 1 == self.bounds.messages {
                self.taken.notify_one();
            }
            return Ok(Some(message));
        }
        if let Some(error) = state.lost.take() {
            state.lost = Some(LinkError::transient("not connected"));
            return Err(error);
        }
        // The pump has stopped, and what would make room for messages may be waiting for it.
        if !messages && !self.bounds.manual_acks && state.messages.len() >= self.bounds.messages {
            return Err(LinkError::transient("messages have piled up; acknowledge them by hand"));
        }
        Ok(None)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
