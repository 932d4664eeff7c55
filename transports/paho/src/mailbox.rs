//! What Paho's threads leave for the link.
//!
//! They hold Paho's one lock while they do, so nothing here waits, and nothing here calls Paho.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use paho_mqtt::{Message as Packet, QoS};
use statestore_tokio::LinkError;
use tokio::sync::Notify;

/// The mailbox of one connection; that of the next one is another.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages_max: usize,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Packet>,
    /// Numbers of the packets of which something is known now.
    settled: Vec<u64>,
    /// How many settled packets whose outcome nobody wants are worth a wake-up.
    settled_worth: Option<usize>,
    overfull: bool,
    lost: Option<LinkError>,
    closed: bool,
}

/// What arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// These packets are settled.
    Settled(Vec<u64>),
    Message(Packet),
    /// More messages wait than may: Paho is to stop. Said once.
    Overfull,
}

impl Mailbox {
    pub(crate) fn new(messages_max: usize) -> Arc<Self> {
        Arc::new(Self { messages_max, state: Mutex::default(), arrived: Notify::new() })
    }

    /// Takes a message. Those at QoS 0 may get lost; one too many of the others ends the connection.
    pub(crate) fn deliver(&self, packet: Packet) {
        let mut state = self.state();
        let waiting = state.messages.len();
        if state.closed || waiting >= 2 * self.messages_max {
            return;
        }
        if waiting >= self.messages_max {
            if packet.qos() == QoS::AtMostOnce {
                return;
            }
            if state.lost.is_none() {
                state.overfull = true;
                let text =
                    "more messages than may wait; connecting again to have the broker keep them";
                state.lost = Some(LinkError::transient(text));
            }
        }
        state.messages.push_back(packet);
        // Who has not taken the one before is awake, or is not interested.
        if waiting == 0 || state.overfull {
            self.arrived.notify_one();
        }
    }

    /// Notes the end of the connection. The first reason counts.
    pub(crate) fn lose(&self, error: LinkError) {
        self.state().lost.get_or_insert(error);
        self.arrived.notify_one();
    }

    /// Takes nothing more: nobody will read it.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.messages.clear();
    }

    /// Something that tells when a packet is settled: at once if its outcome matters.
    pub(crate) fn waker(self: &Arc<Self>, number: u64, matters: bool) -> Waker {
        Arc::new(Settles { mailbox: Arc::clone(self), number, matters }).into()
    }

    /// From how many settled packets on they are worth a wake-up, whatever became of them.
    pub(crate) fn settled_worth(&self, count: Option<usize>) {
        let mut state = self.state();
        state.settled_worth = count;
        if count.is_some_and(|count| state.settled.len() >= count) {
            self.arrived.notify_one();
        }
    }

    /// Waits for [`take`](Self::take) to give something else.
    pub(crate) async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// The next thing there is. What arrived before the connection was lost comes before that.
    pub(crate) fn take(&self, messages: bool) -> Result<Option<Arrival>, LinkError> {
        let mut state = self.state();
        if std::mem::take(&mut state.overfull) {
            return Ok(Some(Arrival::Overfull));
        }
        if !state.settled.is_empty() {
            return Ok(Some(Arrival::Settled(std::mem::take(&mut state.settled))));
        }
        if messages && let Some(packet) = state.messages.pop_front() {
            return Ok(Some(Arrival::Message(packet)));
        }
        if let Some(error) = state.lost.take() {
            state.lost = Some(LinkError::transient("not connected"));
            return Err(error);
        }
        Ok(None)
    }

    fn settle(&self, number: u64, matters: bool) {
        let mut state = self.state();
        state.settled.push(number);
        if matters || state.settled_worth.is_some_and(|count| state.settled.len() >= count) {
            self.arrived.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Settles {
    mailbox: Arc<Mailbox>,
    number: u64,
    matters: bool,
}

impl Wake for Settles {
    fn wake(self: Arc<Self>) {
        self.mailbox.settle(self.number, self.matters);
    }
}
