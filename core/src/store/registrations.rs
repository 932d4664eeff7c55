//! Registrations for notifications.

mod eviction;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::sync::atomic::{AtomicBool, Ordering};

use super::Record;
use super::fan_outs::FanOut;
use super::usage::{Owner, Usage, UsageTable};
use crate::message::{Dialect, Incarnation};
use crate::time::Instant;
use crate::topic;
use crate::transport::{Publish, PublishToken, Purpose};
use eviction::Evicted;

/// The registration of one client for one key.
///
/// A notification without a subscriber silences its registration: nothing more is published for it,
/// until the client renews it with a KEYNOTIFY. It does not end, since a client that never
/// subscribes is still registered, and expects `+OK` for its STOP.
#[derive(Debug)]
pub(super) struct Registration {
    /// The number of this registration. Every registration and renewal gets a greater one.
    number: u64,
    /// The number of the registration that this one renews, or its own: the last one with a record.
    recorded: u64,
    /// The request number of the KEYNOTIFY. A redelivered KEYNOTIFY keeps it.
    request_number: u64,
    client_id: Arc<str>,
    /// The part of the topic of notifications that depends on the client, shared by all its
    /// registrations; `None` for a client id longer than [`SHARED_HEAD_ID_MAX`].
    topic_head: Option<Arc<str>>,
    /// The owner whose share it counts against; `None` if the client id is not verified.
    owner: Option<Owner>,
    key: Arc<[u8]>,
    pub(super) dialect: Dialect,
    /// The incarnation to send with notifications, if the KEYNOTIFY asked for it.
    incarnation: Option<Incarnation>,
    /// Atomic, since queued notifications share the registration: they are dropped when it is
    /// silenced.
    is_silenced: AtomicBool,
}

/// A KEYNOTIFY to register.
pub(super) struct NewRegistration<'a> {
    pub(super) client_id: &'a str,
    /// The owner whose share it counts against; `None` if the client id is not verified.
    pub(super) owner: Option<Owner>,
    pub(super) key: &'a [u8],
    pub(super) dialect: Dialect,
    pub(super) incarnation: Option<Incarnation>,
    /// The request number of the KEYNOTIFY.
    pub(super) request_number: u64,
}

impl Registration {
    /// The PUBLISH of a notification. Its token is the number of the registration. `topic` is a
    /// buffer for the text of the topic.
    pub(super) fn notification(&self, topic: &mut String, fan_out: &FanOut) -> Publish {
        topic.clear();
        match &self.topic_head {
            Some(head) => topic.push_str(head),
            // Writing to a string cannot fail.
            None => _ = topic::write_notification_head(topic, &self.client_id),
        }
        topic.push_str(&fan_out.topic_tail);
        Publish {
            topic: topic.as_str().into(),
            payload: fan_out.payload.clone(),
            response_topic: None,
            correlation_data: None,
            content_type: None,
            message_expiry: None,
            token: Some(PublishToken(self.number)),
            purpose: Purpose::Notification {
                client_id: Arc::clone(&self.client_id),
                incarnation: self.incarnation,
            },
            timestamp: Some(fan_out.version.clone()),
            answers: None,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    const fn is_verified(&self) -> bool {
        self.owner.is_some()
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The number that this registration has in its last record. Renewals without a record change
    /// only [`number`](Self::number).
    pub(super) const fn recorded_number(&self) -> u64 {
        self.recorded
    }

    /// Returns whether nothing is published for this registration.
    pub(super) fn is_silenced(&self) -> bool {
        self.is_silenced.load(Ordering::Relaxed)
    }

    /// The record that restores this registration. A restored one is not silenced.
    pub(super) fn to_record(&self) -> Record {
        Record::Registered {
            client_id: (&*self.client_id).into(),
            key: (&*self.key).into(),
            verified: self.is_verified(),
            dialect: self.dialect,
            wants_incarnation: self.incarnation.is_some(),
            order: self.request_number,
        }
    }

    /// The record that ends this registration.
    pub(super) fn to_end_record(&self) -> Record {
        Record::Unregistered { client_id: (&*self.client_id).into(), key: (&*self.key).into() }
    }

    /// Returns whether both have the same record, request number aside.
    fn has_same_record(&self, new: &NewRegistration<'_>) -> bool {
        self.is_verified() == new.owner.is_some()
            && self.dialect == new.dialect
            && self.incarnation.is_some() == new.incarnation.is_some()
    }

    /// Bytes that count against the limits.
    fn len(&self) -> usize {
        counted_bytes(&self.client_id, &self.key)
    }
}

/// Bytes of the longest client id whose part of the topic is stored. That part has twice as many
/// bytes, and they count against no limit.
const SHARED_HEAD_ID_MAX: usize = 64;

fn shared_head(client_id: &str) -> Option<Arc<str>> {
    let is_short = client_id.len() <= SHARED_HEAD_ID_MAX;
    is_short.then(|| topic::notification_head(client_id).into())
}

/// Bytes of a registration that count against the limits.
const fn counted_bytes(client_id: &str, key: &[u8]) -> usize {
    client_id.len() + key.len()
}

/// A client with at least one registration.
#[derive(Debug, Default)]
struct Client {
    topic_head: Option<Arc<str>>,
    /// The numbers of its registrations by key.
    by_key: BTreeMap<Arc<[u8]>, u64>,
    /// The number of those that were made under a verified client id.
    verified: usize,
    /// The time from which its unverified registrations may be evicted: after its last sign of
    /// life, which is a KEYNOTIFY or a delivered notification, or when a notification had no
    /// subscriber since.
    evictable_from: Instant,
}

impl Client {
    /// Returns whether some registrations were made under an unverified client id.
    fn has_unverified(&self) -> bool {
        self.by_key.len() > self.verified
    }

    fn count(&mut self, old: Option<&Registration>, new: Option<&Registration>) {
        self.verified -= usize::from(old.is_some_and(Registration::is_verified));
        self.verified += usize::from(new.is_some_and(Registration::is_verified));
    }
}

/// All registrations, silenced ones included. Requesters fill it with KEYNOTIFY, up to the limits
/// that [`check_quota`](Self::check_quota) compares.
///
/// Methods that end registrations return them, so that the store can count and record their end.
#[derive(Debug)]
pub(super) struct Registrations {
    by_key: BTreeMap<Arc<[u8]>, Vec<Arc<Registration>>>,
    by_client: BTreeMap<Arc<str>, Client>,
    usage: UsageTable,
    by_number: BTreeMap<u64, Arc<Registration>>,
    /// The numbers of the registrations by the numbers of their last records. A renewal without a
    /// record keeps its place, or clients that renew could keep a snapshot from ending.
    by_record: BTreeMap<u64, u64>,
    /// The numbers of the silenced registrations.
    silenced: BTreeSet<u64>,
    /// The clients with unverified registrations, by the time from which these may be evicted.
    by_evictable_from: BTreeSet<(Instant, Arc<str>)>,
    evicted: Evicted,
    last_number: u64,
    bytes: usize,
}

impl Registrations {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_client: BTreeMap::new(),
            usage: UsageTable::new(),
            by_number: BTreeMap::new(),
            by_record: BTreeMap::new(),
            silenced: BTreeSet::new(),
            by_evictable_from: BTreeSet::new(),
            evicted: Evicted::new(seed),
            last_number: 0,
            bytes: 0,
        }
    }

    /// The number of registrations.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Bytes of the keys and client ids of all registrations.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of silenced registrations.
    pub(super) fn silenced(&self) -> usize {
        self.silenced.len()
    }

    /// The registrations that count for an owner.
    pub(super) fn usage_of(&self, owner: Option<Owner>) -> Usage {
        owner.map(|owner| self.usage.get(owner)).unwrap_or_default()
    }

    /// The registrations for `key`, the oldest first.
    #[inline]
    pub(super) fn for_key(&self, key: &[u8]) -> &[Arc<Registration>] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn contains(&self, client_id: &str, key: &[u8]) -> bool {
        self.number_of(client_id, key).is_some()
    }

    /// Returns whether a client has this registration, with an equal record.
    pub(super) fn has_equal_record(&self, new: &NewRegistration<'_>) -> bool {
        let number = self.number_of(new.client_id, new.key);
        number
            .and_then(|number| self.by_number.get(&number))
            .is_some_and(|registration| registration.has_same_record(new))
    }

    fn number_of(&self, client_id: &str, key: &[u8]) -> Option<u64> {
        self.by_client.get(client_id)?.by_key.get(key).copied()
    }

    /// The number of the newest registration.
    pub(super) const fn last_number(&self) -> u64 {
        self.last_number
    }

    /// The registrations whose last records are newer than `after` and not newer than `until`, in
    /// the order of these records.
    pub(super) fn recorded_between(
        &self,
        after: u64,
        until: u64,
    ) -> impl Iterator<Item = &Registration> {
        let range = (Bound::Excluded(after), Bound::Included(until.max(after)));
        let numbers = self.by_record.range(range).map(|(_, number)| number);
        numbers.filter_map(|number| self.by_number.get(number)).map(|registration| &**registration)
    }

    /// Registers a client, or renews its registration under a new number, which is not silenced.
    /// Returns whether this needs a record.
    ///
    /// A renewal with the same record needs none. Only its request number is greater, which matters
    /// to a redelivered STOP that ended an earlier registration; that end has a record, and so has
    /// each registration made since.
    pub(super) fn insert(
        &mut self,
        evictable_from: Instant,
        new: &NewRegistration<'_>,
    ) -> (Arc<Registration>, bool) {
        let known_client = self.by_client.get_key_value(new.client_id);
        let (client_id, topic_head) = match known_client {
            Some((id, client)) => (Arc::clone(id), client.topic_head.clone()),
            None => (new.client_id.into(), shared_head(new.client_id)),
        };
        let known_key = self.by_key.get_key_value(new.key).map(|(key, _)| Arc::clone(key));
        let key: Arc<[u8]> = known_key.unwrap_or_else(|| new.key.into());
        self.last_number += 1;
        let renewed_number = self.number_of(&client_id, &key);
        let renewed = renewed_number.and_then(|number| self.by_number.remove(&number));
        match &renewed {
            Some(renewed) => _ = self.silenced.remove(&renewed.number),
            None => self.evicted.remove(&client_id, &key),
        }
        let mut registration = Registration {
            number: self.last_number,
            recorded: self.last_number,
            request_number: new.request_number,
            client_id,
            topic_head,
            owner: new.owner,
            key,
            dialect: new.dialect,
            incarnation: new.incarnation,
            is_silenced: AtomicBool::new(false),
        };
        let same = renewed.as_ref().filter(|renewed| renewed.has_same_record(new));
        let needs_record = same.is_none();
        if let Some(same) = same {
            registration.recorded = same.recorded;
        }
        if let Some(renewed) = &renewed {
            self.by_record.remove(&renewed.recorded);
        }
        self.by_record.insert(registration.recorded, registration.number);
        let registration = Arc::new(registration);
        if let Some(renewed) = &renewed {
            self.usage.remove(renewed.owner, renewed.len());
        }
        self.usage.add(registration.owner, registration.len());
        self.by_number.insert(registration.number, Arc::clone(&registration));
        self.update_client(&registration.client_id, |client| {
            client.topic_head = registration.topic_head.clone();
            client.evictable_from = evictable_from;
            client.by_key.insert(Arc::clone(&registration.key), registration.number);
            client.count(renewed.as_deref(), Some(&registration));
        });
        let for_key = self.by_key.entry(Arc::clone(&registration.key)).or_default();
        match renewed {
            None => {
                self.bytes += registration.len();
                for_key.push(Arc::clone(&registration));
            }
            Some(renewed) => for_key
                .iter_mut()
                .filter(|other| other.number == renewed.number)
                .for_each(|other| *other = Arc::clone(&registration)),
        }
        (registration, needs_record)
    }

    /// Ends the registration of a client for a key.
    pub(super) fn remove(&mut self, client_id: &str, key: &[u8]) -> Option<Arc<Registration>> {
        self.evicted.remove(client_id, key);
        self.number_of(client_id, key).and_then(|number| self.end(number))
    }

    /// Ends a registration if its KEYNOTIFY came before the request with this number.
    pub(super) fn remove_earlier(
        &mut self,
        client_id: &str,
        key: &[u8],
        request_number: u64,
    ) -> Option<Arc<Registration>> {
        let number = self.number_of(client_id, key)?;
        let is_earlier = self.by_number.get(&number)?.request_number < request_number;
        if is_earlier { self.end(number) } else { None }
    }

    /// Ends every registration of a client, which is gone.
    pub(super) fn remove_client(&mut self, client_id: &str) -> Vec<Arc<Registration>> {
        self.evicted.remove_client(client_id);
        self.remove_where(client_id, usize::MAX, |_| true)
    }

    /// Silences the registration of a notification that had no subscriber, unless it was renewed
    /// since: then it has another number. Returns whether it was not silenced before.
    ///
    /// Other registrations of the client stay as they are, since it may subscribe to the topic of
    /// each key. But it is probably gone, so unverified ones may be evicted from now on.
    pub(super) fn silence(&mut self, now: Instant, token: PublishToken) -> bool {
        let Some(registration) = self.by_number.get(&token.0) else { return false };
        if !self.silenced.insert(token.0) {
            return false;
        }
        registration.is_silenced.store(true, Ordering::Relaxed);
        if !registration.is_verified() {
            let client_id = Arc::clone(&registration.client_id);
            self.update_client(&client_id, |client| {
                client.evictable_from = client.evictable_from.min(now);
            });
        }
        true
    }

    /// Records that a notification was delivered, so its client is connected.
    pub(super) fn record_delivery(&mut self, evictable_from: Instant, token: PublishToken) {
        let unverified = self.by_number.get(&token.0).filter(|it| !it.is_verified());
        if let Some(client_id) = unverified.map(|it| Arc::clone(&it.client_id)) {
            self.touch(evictable_from, &client_id);
        }
    }

    /// Records a sign of life of a client.
    fn touch(&mut self, evictable_from: Instant, client_id: &str) {
        let known = self.by_client.get_key_value(client_id).map(|(id, _)| Arc::clone(id));
        if let Some(client_id) = known {
            self.update_client(&client_id, |client| client.evictable_from = evictable_from);
        }
    }

    /// Ends the first registrations of a client that match, at most `max`, in the order of keys.
    fn remove_where(
        &mut self,
        client_id: &str,
        max: usize,
        matches: impl Fn(&Registration) -> bool,
    ) -> Vec<Arc<Registration>> {
        let Some(client) = self.by_client.get(client_id) else { return Vec::new() };
        let is_match = |number: &u64| self.by_number.get(number).is_some_and(|it| matches(it));
        let numbers: Vec<u64> =
            client.by_key.values().copied().filter(is_match).take(max).collect();
        numbers.into_iter().filter_map(|number| self.end(number)).collect()
    }

    fn end(&mut self, number: u64) -> Option<Arc<Registration>> {
        let registration = self.by_number.remove(&number)?;
        self.by_record.remove(&registration.recorded);
        self.silenced.remove(&number);
        self.bytes -= registration.len();
        self.usage.remove(registration.owner, registration.len());
        self.update_client(&registration.client_id, |client| {
            client.by_key.remove(&registration.key);
            client.count(Some(&registration), None);
        });
        if let Some(for_key) = self.by_key.get_mut(&registration.key) {
            for_key.retain(|other| other.number != number);
            if for_key.is_empty() {
                self.by_key.remove(&registration.key);
            }
        }
        Some(registration)
    }

    /// Changes a client and its place in the order of eviction. A client without registrations is
    /// removed.
    fn update_client(&mut self, client_id: &Arc<str>, change: impl FnOnce(&mut Client)) {
        let client = self.by_client.entry(Arc::clone(client_id)).or_default();
        let before = client.has_unverified().then_some(client.evictable_from);
        change(client);
        let after = client.has_unverified().then_some(client.evictable_from);
        if client.by_key.is_empty() {
            self.by_client.remove(client_id);
        }
        if before == after {
            return;
        }
        if let Some(evictable_from) = before {
            self.by_evictable_from.remove(&(evictable_from, Arc::clone(client_id)));
        }
        if let Some(evictable_from) = after {
            self.by_evictable_from.insert((evictable_from, Arc::clone(client_id)));
        }
    }
}
