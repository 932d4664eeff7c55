//! What Paho's threads leave for the link.
//!
//! They hold Paho's one lock while they do, so nothing here waits, and nothing here calls Paho.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use paho_mqtt::{Message as Packet, QoS};
use statestore_tokio::LinkError;
use tokio::sync::Notify;
use tracing::warn;

/// What may still arrive until Paho has said goodbye: half a second at full speed.
const LEAVING_MAX: usize = 16_384;

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
}

impl Mailbox {
    pub(crate) fn new(messages_max: usize) -> Arc<Self> {
        Arc::new(Self { messages_max, state: Mutex::default(), arrived: Notify::new() })
    }

    /// Takes a message, and says once when it was one too many, so that Paho is to stop: it has acknowledged all of them.
    /// Those at QoS 0 may get lost, the others only if more than [`LEAVING_MAX`] come before Paho has stopped.
    pub(crate) fn deliver(&self, packet: Packet) -> bool {
        let mut state = self.state();
        let waiting = state.messages.len();
        let is_full = waiting >= self.messages_max;
        if state.closed || (is_full && packet.qos() == QoS::AtMostOnce) {
            return false;
        }
        if waiting >= self.messages_max + LEAVING_MAX {
            warn!("a message was lost: the inbox is full, and the broker was not to be stopped");
            return false;
        }
        state.messages.push_back(packet);
        // Who has not taken the one before is awake, or is not interested.
        if waiting == 0 {
            self.arrived.notify_one();
        }
        is_full && !mem::replace(&mut state.overfull, true)
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
        if !state.settled.is_empty() {
            return Ok(Some(Arrival::Settled(mem::take(&mut state.settled))));
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
