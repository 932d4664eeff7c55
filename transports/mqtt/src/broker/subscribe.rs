//! SUBSCRIBE and UNSUBSCRIBE, some filters at a time.

use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::time::Duration;

use super::inbound::WORK_MAX;
use super::incidents::{IncidentKind, Note};
use super::retained::Replay;
use super::tree::{Match, Subscribed, Tree};
use super::{Broker, ConnectionId, SessionId};
use crate::packet::{
    Acks, Filters, Packet, RetainHandling, Subscribe, Subscription, Subscriptions, Unsubscribe,
};
use crate::property::{Property, id};
use crate::reason::Reason;
use crate::topic::Filter;

/// What a filter counts for, whatever it says.
const FILTER_WORK: usize = 32;

/// What a level of a filter counts for that is added or removed: its node is made, or given back.
const LEVEL_WORK: usize = 8;

/// What adding or removing a filter counts for.
pub(super) fn work(filter: &str) -> usize {
    FILTER_WORK + LEVEL_WORK * filter.split('/').count()
}

/// What filters were sent for.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// To subscribe, with this identifier.
    Subscribe(Option<u32>),
    Unsubscribe,
}

/// Filters that were sent together, of which the first are done.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// Packet id.
    id: NonZeroU16,
    aim: Aim,
    /// All of them, as they came.
    filters: Vec<u8>,
    /// Bytes that are done.
    done: usize,
    /// What came of these. Each is shorter than its filter as it came, so it never grows beyond that.
    reasons: Vec<u8>,
}

impl Unfinished {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.filters.len()
    }
}

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
            return self.offend(now, id, Some(Reason::QUOTA_EXCEEDED), None);
        }
        let filters = subscribe.subscriptions.as_bytes();
        self.handle_filters(now, id, session, subscribe.id, Aim::Subscribe(identifier), filters);
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session: SessionId,
        unsubscribe: &Unsubscribe<'_>,
    ) {
        if unsubscribe.filters.count() > self.config.limits.filters {
            return self.offend(now, id, Some(Reason::QUOTA_EXCEEDED), None);
        }
        let filters = unsubscribe.filters.as_bytes();
        self.handle_filters(now, id, session, unsubscribe.id, Aim::Unsubscribe, filters);
    }

    fn handle_filters(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        session: SessionId,
        id: NonZeroU16,
        aim: Aim,
        filters: &[u8],
    ) {
        let mut reasons = Vec::new();
        let done = self.filters(session, aim, filters, &mut reasons);
        if done == filters.len() {
            return self.answer_filters(now, connection, session, id, aim, &reasons);
        }
        let Some(kept) = self.connections.get_mut(&connection) else { return };
        let unfinished = Unfinished { id, aim, filters: filters.into(), done, reasons };
        kept.set_unfinished(&mut self.memory, unfinished);
        self.rest_for_long(now, connection);
    }

    /// Goes on with filters of which some are done; whether that was all of them.
    pub(super) fn go_on_with_filters(&mut self, now: Duration, connection: ConnectionId) -> bool {
        let Some(kept) = self.connections.get_mut(&connection) else { return true };
        kept.rests = false;
        let session = kept.session();
        let Some(mut unfinished) = kept.take_unfinished(&mut self.memory) else { return true };
        let Some(session) = session else { return true };
        self.work = 0;
        let Unfinished { id, aim, filters, done, reasons } = &mut unfinished;
        let rest = filters.get(*done..).unwrap_or_default();
        *done += self.filters(session, *aim, rest, reasons);
        if *done == filters.len() {
            self.answer_filters(now, connection, session, *id, *aim, reasons);
            return true;
        }
        if let Some(kept) = self.connections.get_mut(&connection) {
            kept.set_unfinished(&mut self.memory, unfinished);
            self.rest_for_long(now, connection);
        }
        false
    }

    /// Does as many of these filters as a turn has room for, one at least, and gives their bytes.
    fn filters(
        &mut self,
        session: SessionId,
        aim: Aim,
        bytes: &[u8],
        reasons: &mut Vec<u8>,
    ) -> usize {
        let mut left = bytes;
        while !left.is_empty() {
            let reason = match aim {
                Aim::Subscribe(identifier) => {
                    let mut rest = Subscriptions::trusted(left);
                    let Some(subscription) = rest.next() else { return bytes.len() };
                    left = rest.as_bytes();
                    self.subscribe(session, &subscription, identifier)
                }
                Aim::Unsubscribe => {
                    let mut rest = Filters::trusted(left);
                    let Some(filter) = rest.next() else { return bytes.len() };
                    left = rest.as_bytes();
                    self.unsubscribe(session, filter)
                }
            };
            reasons.push(reason.0);
            if self.work > WORK_MAX {
                break;
            }
        }
        bytes.len() - left.len()
    }

    fn answer_filters(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        session: SessionId,
        id: NonZeroU16,
        aim: Aim,
        reasons: &[u8],
    ) {
        let acks = Acks { id, properties: (), reasons };
        match aim {
            Aim::Subscribe(_) => {
                self.answer(connection, &Packet::SubAck(acks));
                self.wants_replay(session);
                self.check_share(now, session);
            }
            Aim::Unsubscribe => self.answer(connection, &Packet::UnsubAck(acks)),
        }
    }

    /// One subscription of a session.
    pub(super) fn subscribe(
        &mut self,
        session: SessionId,
        subscription: &Subscription<'_>,
        id: Option<u32>,
    ) -> Reason {
        let Subscription { filter: text, options } = *subscription;
        self.work += work(text);
        let limits = &self.config.limits;
        let Some(filter) = Filter::parse(text) else { return Reason::TOPIC_FILTER_INVALID };
        let levels = filter.filter.split('/').count();
        let Some(kept) = self.sessions.get_mut(&session) else { return Reason::UNSPECIFIED_ERROR };
        let mut refuse = |kind, reason| {
            self.incidents.push(Note::about(kind, &kept.client_id, filter.filter, Some(reason)));
            reason
        };
        if levels > limits.levels {
            return refuse(IncidentKind::Subscribe, Reason::TOPIC_FILTER_INVALID);
        }
        if Some(session) != self.host {
            let is_new = !kept.subscriptions.contains(text);
            let held = kept.held.bytes() + Tree::cost(text);
            if is_new && (kept.subscriptions.len() >= limits.subscriptions || held > limits.share) {
                return refuse(IncidentKind::Subscriptions, Reason::QUOTA_EXCEEDED);
            }
            if let Err(reason) = kept.rules.may_subscribe(&kept.client_id, filter.filter) {
                self.stats.denied += 1;
                return refuse(IncidentKind::Subscribe, reason);
            }
        }
        let subscribed = Subscribed {
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id,
        };
        let is_new = self.tree.insert(&filter, Match { session, subscribed });
        kept.subscribe(&mut self.memory, text);
        let replays = match options.retain_handling {
            RetainHandling::Always => filter.share.is_none(),
            RetainHandling::IfNew => is_new && filter.share.is_none(),
            RetainHandling::Never => false,
        };
        if replays && Some(session) != self.host && self.retained.len() > 0 {
            kept.replay(&mut self.memory, text, Replay::new(subscribed));
        }
        Reason(options.qos as u8)
    }

    fn unsubscribe(&mut self, session: SessionId, text: &str) -> Reason {
        self.work += work(text);
        let Some(filter) = Filter::parse(text) else { return Reason::TOPIC_FILTER_INVALID };
        let Some(kept) = self.sessions.get_mut(&session) else { return Reason::UNSPECIFIED_ERROR };
        kept.unsubscribe(&mut self.memory, text);
        match self.tree.remove(&filter, session) {
            true => Reason::SUCCESS,
            false => Reason::NO_SUBSCRIPTION_EXISTED,
        }
    }
}
