//! The parties of a world: a machine each, its clock, and what has arrived for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use statestore_proto::client::Client;
use statestore_proto::mqtt::ReasonCode;
use statestore_proto::store::{Principal, Store, StoreConfig};
use statestore_proto::time::{Instant, Now};

use super::{Clock, Flaw, Traced};
use crate::broker::Output;
use crate::message::Message;

#[derive(Debug)]
pub(super) struct StoreNode {
    pub(super) id: Arc<str>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) reconnect_at: Option<Instant>,
    pub(super) reconnect_after: Duration,
    /// Stores made so far, which numbers their incarnations.
    pub(super) made: u64,
    /// While there is no store: the next one, and whether it finds what was written.
    pub(super) next: Option<(StoreConfig, bool)>,
    pub(super) paused_until: Option<Instant>,
    /// What has arrived and was not taken yet: [`Broker::QUEUE_MAX`](crate::Broker::QUEUE_MAX) at most.
    pub(super) inbox: VecDeque<Output>,
}

#[derive(Debug)]
pub(super) struct ClientNode {
    pub(super) id: Arc<str>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    /// When to connect, while there is no connection.
    pub(super) reconnect_at: Option<Instant>,
    pub(super) reconnect_after: Duration,
    pub(super) paused_until: Option<Instant>,
    /// What has arrived and was not taken yet: [`Broker::QUEUE_MAX`](crate::Broker::QUEUE_MAX) at most.
    pub(super) inbox: VecDeque<Output>,
}

impl StoreNode {
    pub(super) fn now(&self, now: Instant) -> Now {
        Now::new(now, self.clock.read(now))
    }

    pub(super) const fn runs(&self) -> bool {
        self.next.is_none() && self.paused_until.is_none()
    }

    /// When it does something by itself.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 3] {
        let timer = if self.runs() { self.store.poll_timeout() } else { None };
        // One that stands still does not connect either.
        let reconnect_at = self.reconnect_at.filter(|_| self.paused_until.is_none());
        [reconnect_at, self.paused_until, timer]
    }

    /// Takes what has arrived, as long as it is ready; what it took, in order.
    pub(super) fn take_news(&mut self, now: Instant, flaw: Option<Flaw>) -> Vec<Traced> {
        let mut taken = Vec::new();
        while self.runs() {
            let now = self.now(now);
            // What is due and found no room to be told makes room for what a request adds.
            self.store.handle_timeout(now);
            if !self.store.has_room() && flaw != Some(Flaw::NeverAsks) {
                break;
            }
            let Some(news) = self.inbox.pop_front() else { break };
            taken.extend(self.take(now, news, flaw));
        }
        taken
    }

    fn take(&mut self, now: Now, output: Output, flaw: Option<Flaw>) -> Option<Traced> {
        match output {
            Output::Message { message, .. } => {
                let mut seen = Message::clone(&message);
                seen.arrived = seen.arrived.filter(|_| flaw != Some(Flaw::ForgetsArrival));
                let from = Principal::verified(&message.sender);
                self.store.handle_publish(now, from, &seen.as_incoming());
                Some(Traced::Message(message))
            }
            Output::Published { token, reason, .. } => {
                self.store.handle_published(token, reason);
                let nobody = reason == ReasonCode::NO_MATCHING_SUBSCRIBERS;
                nobody.then_some(Traced::Undeliverable(token))
            }
            Output::Gone { gone, .. } => {
                self.store.handle_client_gone(&gone);
                Some(Traced::Gone(gone))
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

    /// When it does something by itself.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 3] {
        if self.paused_until.is_some() {
            return [self.paused_until, None, None];
        }
        [self.reconnect_at, self.client.poll_timeout(), None]
    }

    /// Takes what has arrived; what it took, in order.
    pub(super) fn take_news(&mut self, now: Instant) -> Vec<Traced> {
        let mut taken = Vec::new();
        let node_now = self.now(now);
        while self.paused_until.is_none() {
            let Some(news) = self.inbox.pop_front() else { break };
            match news {
                Output::Message { message, .. } => {
                    self.client.handle_publish(node_now, &message.as_incoming());
                    taken.push(Traced::Message(message));
                }
                Output::Published { token, reason, .. } => {
                    self.client.handle_published(node_now, token, reason);
                }
                Output::Subscribed { token, reason, .. } => {
                    self.client.handle_subscribed(node_now, token, reason);
                }
                Output::Disconnected { .. } => {
                    self.client.handle_disconnected(node_now);
                    self.reconnect_at = Some(now + self.reconnect_after);
                }
                Output::Gone { .. } => {}
            }
        }
        taken
    }
}
