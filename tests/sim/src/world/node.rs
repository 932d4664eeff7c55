//! The nodes of a world: each has a machine, a clock and an inbox.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use statestore_proto::client::Client;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now};
use statestore_proto::transport::ReasonCode;

use super::{Clock, DriverBug, TraceEvent};
use crate::Message;
use crate::broker::Output;

#[derive(Debug)]
pub(super) struct StoreNode {
    pub(super) id: Arc<str>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) reconnect_at: Option<Instant>,
    pub(super) reconnect_after: Duration,
    /// Number of stores so far, used as the incarnation.
    pub(super) made: u64,
    /// After a crash, the next store and whether it restores the journal.
    pub(super) next: Option<(StoreConfig, bool)>,
    pub(super) paused_until: Option<Instant>,
    /// Outputs to be received, [`Broker::QUEUE_MAX`](crate::Broker::QUEUE_MAX) at most.
    pub(super) inbox: VecDeque<Output>,
}

#[derive(Debug)]
pub(super) struct ClientNode {
    pub(super) id: Arc<str>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    /// Time to connect, if disconnected.
    pub(super) reconnect_at: Option<Instant>,
    pub(super) reconnect_after: Duration,
    pub(super) paused_until: Option<Instant>,
    /// Outputs to be received, [`Broker::QUEUE_MAX`](crate::Broker::QUEUE_MAX) at most.
    pub(super) inbox: VecDeque<Output>,
}

impl StoreNode {
    pub(super) fn now(&self, now: Instant) -> Now {
        Now::new(now, self.clock.read(now))
    }

    pub(super) const fn runs(&self) -> bool {
        self.next.is_none() && self.paused_until.is_none()
    }

    /// Returns the times of its next actions.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 3] {
        let timer = if self.runs() { self.store.poll_timeout() } else { None };
        // A paused store does not connect.
        let reconnect_at = self.reconnect_at.filter(|_| self.paused_until.is_none());
        [reconnect_at, self.paused_until, timer]
    }

    /// Receives outputs while the store can receive. Returns the events, in order.
    pub(super) fn receive_all(&mut self, now: Instant, bug: Option<DriverBug>) -> Vec<TraceEvent> {
        let mut taken = Vec::new();
        while self.runs() {
            let now = self.now(now);
            // Expiries that waited for capacity come before the next request.
            self.store.handle(now, Input::Timeout);
            if !self.store.can_receive() && bug != Some(DriverBug::IgnoresBackPressure) {
                break;
            }
            let Some(output) = self.inbox.pop_front() else { break };
            taken.extend(self.receive(now, output, bug));
        }
        taken
    }

    fn receive(&mut self, now: Now, output: Output, bug: Option<DriverBug>) -> Option<TraceEvent> {
        match output {
            Output::Message { message, .. } => {
                let mut seen = Message::clone(&message);
                seen.arrived = seen.arrived.filter(|_| bug != Some(DriverBug::LosesArrivalTimes));
                let mut incoming = seen.as_incoming();
                incoming.verified_sender = Some(&message.sender);
                self.store.handle_publish(now, &incoming);
                Some(TraceEvent::Message(message))
            }
            Output::Published { token, reason, .. } => {
                self.store.handle(now, Input::Published(token, reason));
                let is_undeliverable = reason == ReasonCode::NO_MATCHING_SUBSCRIBERS;
                is_undeliverable.then_some(TraceEvent::Undeliverable(token))
            }
            Output::Gone { gone, .. } => {
                self.store.handle(now, Input::ClientGone(&gone));
                Some(TraceEvent::ClientGone(gone))
            }
            Output::Disconnected { .. } => {
                self.reconnect_at = Some(now.instant + self.reconnect_after);
                None
            }
            Output::Subscribed { .. } => None,
        }
    }
}

impl ClientNode {
    pub(super) fn now(&self, now: Instant) -> Now {
        Now::new(now, self.clock.read(now))
    }

    /// Returns the times of its next actions.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 3] {
        if self.paused_until.is_some() {
            return [self.paused_until, None, None];
        }
        [self.reconnect_at, self.client.poll_timeout(), None]
    }

    /// Receives all outputs. Returns the events, in order.
    pub(super) fn receive_all(&mut self, now: Instant) -> Vec<TraceEvent> {
        let mut taken = Vec::new();
        let node_now = self.now(now);
        while self.paused_until.is_none() {
            let Some(output) = self.inbox.pop_front() else { break };
            match output {
                Output::Message { message, .. } => {
                    self.client.handle(node_now, Input::Message(&message.as_incoming()));
                    taken.push(TraceEvent::Message(message));
                }
                Output::Published { token, reason, .. } => {
                    self.client.handle(node_now, Input::Published(token, reason));
                }
                Output::Subscribed { token, reason, .. } => {
                    self.client.handle(node_now, Input::Subscribed(token, reason));
                }
                Output::Disconnected { .. } => {
                    self.client.handle(node_now, Input::Disconnected);
                    self.reconnect_at = Some(now + self.reconnect_after);
                }
                Output::Gone { .. } => {}
            }
        }
        taken
    }
}
