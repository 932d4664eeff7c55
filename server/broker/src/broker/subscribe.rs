//! SUBSCRIBE and UNSUBSCRIBE, processed in turns.

use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::time::Duration;

use super::Broker;
use crate::filter_batch::{FilterBatch, FilterOperation};
use crate::ids::{ConnectionId, SessionId};
use crate::incidents::{IncidentKind, IncidentRef};
use crate::retained::Replay;
use crate::subscription_index::{SubscriptionEntry, SubscriptionIndex};
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{
    Acks, Filters, Packet, RetainHandling, Subscribe, Subscription, Subscriptions, Unsubscribe,
};
use statestore_mqtt::property::{Property, id};
use statestore_mqtt::topic::Filter;

impl Broker {
    pub(super) fn handle_subscribe(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        subscribe: &Subscribe<'_>,
    ) {
        let identifier = match subscribe.properties.first(id::SUBSCRIPTION) {
            Some(Property::SubscriptionId(number)) => Some(number),
            _ => None,
        };
        if subscribe.subscriptions.count() > self.config.limits.filters {
            return self.disconnect_for_violation(now, id, Some(Reason::QUOTA_EXCEEDED), None);
        }
        let filters = subscribe.subscriptions.as_bytes();
        self.handle_filters(
            now,
            id,
            session,
            subscribe.id,
            FilterOperation::Subscribe(identifier),
            filters,
        );
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        unsubscribe: &Unsubscribe<'_>,
    ) {
        if unsubscribe.filters.count() > self.config.limits.filters {
            return self.disconnect_for_violation(now, id, Some(Reason::QUOTA_EXCEEDED), None);
        }
        let filters = unsubscribe.filters.as_bytes();
        self.handle_filters(
            now,
            id,
            session,
            unsubscribe.id,
            FilterOperation::Unsubscribe,
            filters,
        );
    }

    fn handle_filters(
        &mut self,
        now: Duration,
        connection_id: ConnectionId,
        session: SessionId,
        id: NonZeroU16,
        operation: FilterOperation,
        filters: &[u8],
    ) {
        let mut reasons = Vec::new();
        let done = self.process_filters(session, operation, filters, &mut reasons);
        if done == filters.len() {
            return self.acknowledge_filters(now, connection_id, session, id, operation, &reasons);
        }
        let Some(connection) = self.connections.get_mut(connection_id) else { return };
        let filter_batch = FilterBatch { id, operation, filters: filters.into(), done, reasons };
        connection.set_filter_batch(&mut self.memory, filter_batch);
        self.yield_and_throttle(now, connection_id);
    }

    /// Continues with the remaining filters of a packet. Returns whether all are processed.
    pub(super) fn resume_filters(&mut self, now: Duration, connection_id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(connection_id) else { return true };
        connection.has_yielded = false;
        let session = connection.session();
        let Some(mut filter_batch) = connection.take_filter_batch(&mut self.memory) else {
            return true;
        };
        let Some(session) = session else { return true };
        self.budget.restart();
        let FilterBatch { id, operation, filters, done, reasons } = &mut filter_batch;
        let rest = filters.get(*done..).unwrap_or_default();
        *done += self.process_filters(session, *operation, rest, reasons);
        if *done == filters.len() {
            self.acknowledge_filters(now, connection_id, session, *id, *operation, reasons);
            return true;
        }
        if let Some(connection) = self.connections.get_mut(connection_id) {
            connection.set_filter_batch(&mut self.memory, filter_batch);
            self.yield_and_throttle(now, connection_id);
        }
        false
    }

    /// Processes filters until the work limit of a turn is reached, at least one. Returns the bytes
    /// of the processed filters.
    fn process_filters(
        &mut self,
        session: SessionId,
        operation: FilterOperation,
        bytes: &[u8],
        reasons: &mut Vec<u8>,
    ) -> usize {
        let mut left = bytes;
        while !left.is_empty() {
            let reason = match operation {
                FilterOperation::Subscribe(identifier) => {
                    let mut rest = Subscriptions::from_validated(left);
                    let Some(subscription) = rest.next() else { return bytes.len() };
                    left = rest.as_bytes();
                    self.subscribe(session, &subscription, identifier)
                }
                FilterOperation::Unsubscribe => {
                    let mut rest = Filters::from_validated(left);
                    let Some(filter) = rest.next() else { return bytes.len() };
                    left = rest.as_bytes();
                    self.unsubscribe(session, filter)
                }
            };
            reasons.push(reason.0);
            if self.budget.is_exceeded() {
                break;
            }
        }
        bytes.len() - left.len()
    }

    fn acknowledge_filters(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        session: SessionId,
        id: NonZeroU16,
        operation: FilterOperation,
        reasons: &[u8],
    ) {
        let acks = Acks { id, properties: (), reasons };
        match operation {
            FilterOperation::Subscribe(_) => {
                self.send_packet(connection, &Packet::SubAck(acks));
                self.sessions.schedule_replay(session);
                self.check_session_memory(now, session);
            }
            FilterOperation::Unsubscribe => self.send_packet(connection, &Packet::UnsubAck(acks)),
        }
    }

    /// Adds or replaces a subscription of a session. Returns the reason code for the SUBACK.
    pub(super) fn subscribe(
        &mut self,
        session: SessionId,
        subscription: &Subscription<'_>,
        id: Option<u32>,
    ) -> Reason {
        let Subscription { filter: text, options } = *subscription;
        self.budget.spend_filter(text);
        let Some(filter) = Filter::parse(text) else { return Reason::TOPIC_FILTER_INVALID };
        if let Err((kind, reason)) = self.check_subscription(session, text, &filter) {
            if let Some(session) = self.sessions.get(session) {
                let (client_id, topic) = (&*session.client_id, filter.filter);
                self.incidents.push(IncidentRef::about(kind, client_id, topic, Some(reason)));
            }
            return reason;
        }
        let subscription = SubscriptionEntry {
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id,
        };
        let is_host = self.sessions.is_host(session);
        let added = self.sessions.subscribe(&mut self.memory, session, text, &filter, subscription);
        let Some((session, is_new)) = added else { return Reason::UNSPECIFIED_ERROR };
        let replays = match options.retain_handling {
            RetainHandling::Always => filter.share.is_none(),
            RetainHandling::IfNew => is_new && filter.share.is_none(),
            RetainHandling::Never => false,
        };
        if replays && !is_host && self.retained.len() > 0 {
            session.replay(&mut self.memory, text, Replay::new(subscription));
        }
        Reason(options.qos as u8)
    }

    /// Checks a subscription against the limits and the access control list of its client. The
    /// host is only subject to the limit of levels.
    fn check_subscription(
        &mut self,
        id: SessionId,
        text: &str,
        filter: &Filter<'_>,
    ) -> Result<(), (IncidentKind, Reason)> {
        let limits = &self.config.limits;
        if filter.filter.split('/').count() > limits.levels {
            return Err((IncidentKind::Subscribe, Reason::TOPIC_FILTER_INVALID));
        }
        let Some(session) = self.sessions.get(id).filter(|_| !self.sessions.is_host(id)) else {
            return Ok(());
        };
        let is_new = !session.subscriptions.contains(text);
        let account = session.account.bytes() + SubscriptionIndex::cost(text);
        let exceeds_limit =
            session.subscriptions.len() >= limits.subscriptions || account > limits.session_memory;
        if is_new && exceeds_limit {
            return Err((IncidentKind::Subscriptions, Reason::QUOTA_EXCEEDED));
        }
        session.acl.may_subscribe(&session.client_id, filter.filter).map_err(|reason| {
            self.stats.denied += 1;
            (IncidentKind::Subscribe, reason)
        })
    }

    fn unsubscribe(&mut self, session: SessionId, text: &str) -> Reason {
        self.budget.spend_filter(text);
        let Some(filter) = Filter::parse(text) else { return Reason::TOPIC_FILTER_INVALID };
        match self.sessions.unsubscribe(&mut self.memory, session, text, &filter) {
            Some(true) => Reason::SUCCESS,
            Some(false) => Reason::NO_SUBSCRIPTION_EXISTED,
            None => Reason::UNSPECIFIED_ERROR,
        }
    }
}
