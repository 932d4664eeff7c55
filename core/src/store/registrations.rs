//! Registrations for notifications.

mod eviction;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::sync::atomic::{AtomicBool, Ordering};

use super::Record;
use super::usage::{Owner, Usage, UsageTable};
use crate::message::{Dialect, Incarnation};
use crate::time::Instant;
use crate::topic;
use crate::transport::PublishToken;

/// The registration of one client for one key.
///
/// A notification without a subscriber silences its registration: nothing more is published for it,
/// until the client renews it with a KEYNOTIFY. It does not end, since a client that never
/// subscribes is still registered, and expects `+OK` for its STOP.
#[derive(Debug)]
pub(super) struct Registration {
    /// The id of this registration. Every registration and renewal gets a greater one.
    pub(super) id: u64,
    /// The id that this registration has in its last record: its own, or that of the registration
    /// that it renews without a record.
    pub(super) recorded_id: u64,
    /// The request number of the KEYNOTIFY. A redelivered KEYNOTIFY keeps it.
    request_number: u64,
    pub(super) client_id: Arc<str>,
    /// The part of the topic of notifications that depends on the client, shared by all its
    /// registrations; `None` for a client id longer than [`SHARED_HEAD_ID_MAX`].
    topic_head: Option<Arc<str>>,
    /// The owner whose share it counts against; `None` if the client id is not verified.
    owner: Option<Owner>,
    pub(super) key: Arc<[u8]>,
    pub(super) dialect: Dialect,
    /// The incarnation to send with notifications, if the KEYNOTIFY asked for it.
    pub(super) incarnation: Option<Incarnation>,
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

impl NewRegistration<'_> {
    /// Bytes that count against the limits.
    const fn len(&self) -> usize {
        self.client_id.len() + self.key.len()
    }
}

impl Registration {
    /// Writes the part of the topic of notifications that depends on the client.
    pub(super) fn write_topic_head(&self, topic: &mut String) {
        topic.clear();
        match &self.topic_head {
            Some(head) => topic.push_str(head),
            // Writing to a string cannot fail.
            None => _ = topic::write_notification_head(topic, &self.client_id),
        }
    }

    const fn is_verified(&self) -> bool {
        self.owner.is_some()
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
        self.client_id.len() + self.key.len()
    }
}

/// Bytes of the longest client id whose part of the topic is stored. That part has twice as many
/// bytes, and they count against no limit.
const SHARED_HEAD_ID_MAX: usize = 64;

fn shared_head(client_id: &str) -> Option<Arc<str>> {
    let is_short = client_id.len() <= SHARED_HEAD_ID_MAX;
    is_short.then(|| topic::notification_head(client_id).into())
}

/// A client with at least one registration.
#[derive(Debug, Default)]
struct Client {
    by_key: BTreeMap<Arc<[u8]>, Arc<Registration>>,
    /// The number of its registrations under a verified client id.
    verified: usize,
    /// The time from which its unverified registrations may be evicted: after its last sign of
    /// life, which is a KEYNOTIFY or a delivered notification, or when a notification had no
    /// subscriber since.
    evictable_from: Instant,
}

impl Client {
    /// The time from which unverified registrations may be evicted, if there are some.
    fn evictable_from(&self) -> Option<Instant> {
        (self.by_key.len() > self.verified).then_some(self.evictable_from)
    }

    fn insert(&mut self, registration: &Arc<Registration>) {
        let key = Arc::clone(&registration.key);
        let replaced = self.by_key.insert(key, Arc::clone(registration));
        self.verified += usize::from(registration.is_verified());
        self.verified -= usize::from(replaced.is_some_and(|replaced| replaced.is_verified()));
    }

    fn remove(&mut self, registration: &Registration) {
        self.by_key.remove(&registration.key);
        self.verified -= usize::from(registration.is_verified());
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
    by_id: BTreeMap<u64, Arc<Registration>>,
    /// By the ids of their last records. A renewal without a record keeps its position.
    /// Otherwise a snapshot might never reach the end while clients renew.
    by_recorded_id: BTreeMap<u64, Arc<Registration>>,
    /// The ids of the silenced registrations.
    silenced: BTreeSet<u64>,
    /// The clients with unverified registrations, by the time from which these may be evicted.
    by_evictable_from: BTreeSet<(Instant, Arc<str>)>,
    last_id: u64,
    bytes: usize,
}

impl Registrations {
    pub(super) const fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_client: BTreeMap::new(),
            usage: UsageTable::new(),
            by_id: BTreeMap::new(),
            by_recorded_id: BTreeMap::new(),
            silenced: BTreeSet::new(),
            by_evictable_from: BTreeSet::new(),
            last_id: 0,
            bytes: 0,
        }
    }

    /// The number of registrations.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
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

    fn find(&self, client_id: &str, key: &[u8]) -> Option<&Arc<Registration>> {
        self.by_client.get(client_id)?.by_key.get(key)
    }

    pub(super) fn contains(&self, client_id: &str, key: &[u8]) -> bool {
        self.find(client_id, key).is_some()
    }

    /// Returns whether a client has this registration, with an equal record.
    pub(super) fn has_equal_record(&self, new: &NewRegistration<'_>) -> bool {
        self.find(new.client_id, new.key).is_some_and(|found| found.has_same_record(new))
    }

    /// The id of the newest registration.
    pub(super) const fn last_id(&self) -> u64 {
        self.last_id
    }

    /// The registrations whose last records are newer than `after` and not newer than `until`, in
    /// the order of these records.
    pub(super) fn recorded_between(
        &self,
        after: u64,
        until: u64,
    ) -> impl Iterator<Item = &Registration> {
        let range = (Bound::Excluded(after), Bound::Included(until.max(after)));
        self.by_recorded_id.range(range).map(|(_, registration)| &**registration)
    }

    /// Registers a client, or renews its registration under a new id, which is not silenced.
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
        let renewed = self.find(new.client_id, new.key).cloned();
        let of_client = self.by_client.get(new.client_id);
        let other = of_client.and_then(|client| client.by_key.values().next());
        let (client_id, topic_head) = match other {
            Some(other) => (Arc::clone(&other.client_id), other.topic_head.clone()),
            None => (new.client_id.into(), shared_head(new.client_id)),
        };
        let known_key = self.by_key.get_key_value(new.key).map(|(key, _)| Arc::clone(key));
        let same = renewed.as_ref().filter(|renewed| renewed.has_same_record(new));
        let (needs_record, id) = (same.is_none(), self.last_id + 1);
        let registration = Arc::new(Registration {
            id,
            recorded_id: same.map_or(id, |same| same.recorded_id),
            request_number: new.request_number,
            client_id,
            topic_head,
            owner: new.owner,
            key: known_key.unwrap_or_else(|| new.key.into()),
            dialect: new.dialect,
            incarnation: new.incarnation,
            is_silenced: AtomicBool::new(false),
        });
        let for_key = self.by_key.entry(Arc::clone(&registration.key)).or_default();
        match renewed {
            Some(renewed) => {
                let place = for_key.iter_mut().find(|other| other.id == renewed.id);
                if let Some(place) = place {
                    *place = Arc::clone(&registration);
                }
                self.remove_ids(&renewed);
            }
            None => for_key.push(Arc::clone(&registration)),
        }
        self.last_id = id;
        self.bytes += registration.len();
        self.usage.add(registration.owner, registration.len());
        self.by_id.insert(id, Arc::clone(&registration));
        self.by_recorded_id.insert(registration.recorded_id, Arc::clone(&registration));
        self.update_client(&registration.client_id, |client| {
            client.evictable_from = evictable_from;
            client.insert(&registration);
        });
        (registration, needs_record)
    }

    /// Ends the registration of a client for a key.
    pub(super) fn remove(&mut self, client_id: &str, key: &[u8]) -> Option<Arc<Registration>> {
        let id = self.find(client_id, key)?.id;
        self.end(id)
    }

    /// Ends a registration if its KEYNOTIFY came before the request with this number.
    pub(super) fn remove_earlier(
        &mut self,
        client_id: &str,
        key: &[u8],
        request_number: u64,
    ) -> Option<Arc<Registration>> {
        let found = self.find(client_id, key)?;
        let id = found.id;
        if found.request_number < request_number { self.end(id) } else { None }
    }

    /// Ends every registration of a client, which is gone.
    pub(super) fn remove_client(&mut self, client_id: &str) -> Vec<Arc<Registration>> {
        self.remove_where(client_id, usize::MAX, |_| true)
    }

    /// Silences the registration of a notification that had no subscriber, unless it was renewed
    /// since: then it has another id. Returns whether it was not silenced before.
    ///
    /// Other registrations of the client stay as they are, since it may subscribe to the topic of
    /// each key. But it is probably gone, so unverified ones may be evicted from now on.
    pub(super) fn silence(&mut self, now: Instant, token: PublishToken) -> bool {
        let Some(registration) = self.by_id.get(&token.0).cloned() else { return false };
        if !self.silenced.insert(token.0) {
            return false;
        }
        registration.is_silenced.store(true, Ordering::Relaxed);
        if !registration.is_verified() {
            self.update_client(&registration.client_id, |client| {
                client.evictable_from = client.evictable_from.min(now);
            });
        }
        true
    }

    /// Records that a notification was delivered, so its client is connected.
    pub(super) fn record_delivery(&mut self, evictable_from: Instant, token: PublishToken) {
        let registration = self.by_id.get(&token.0).filter(|it| !it.is_verified());
        if let Some(registration) = registration.cloned() {
            self.touch(evictable_from, &registration.client_id);
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
        let found = client.by_key.values().filter(|it| matches(it)).take(max);
        let ids: Vec<u64> = found.map(|it| it.id).collect();
        ids.into_iter().filter_map(|id| self.end(id)).collect()
    }

    fn end(&mut self, id: u64) -> Option<Arc<Registration>> {
        let registration = self.by_id.get(&id).cloned()?;
        self.remove_ids(&registration);
        self.update_client(&registration.client_id, |client| client.remove(&registration));
        if let Some(for_key) = self.by_key.get_mut(&registration.key) {
            for_key.retain(|other| other.id != id);
            if for_key.is_empty() {
                self.by_key.remove(&registration.key);
            }
        }
        Some(registration)
    }

    /// Removes what is counted, and found by its ids, of a registration that ends or is renewed.
    fn remove_ids(&mut self, registration: &Registration) {
        self.by_id.remove(&registration.id);
        self.by_recorded_id.remove(&registration.recorded_id);
        self.silenced.remove(&registration.id);
        self.bytes -= registration.len();
        self.usage.remove(registration.owner, registration.len());
    }

    /// Changes a client and its place in the order of eviction. A client without registrations is
    /// removed.
    fn update_client(&mut self, client_id: &Arc<str>, change: impl FnOnce(&mut Client)) {
        let client = self.by_client.entry(Arc::clone(client_id)).or_default();
        let before = client.evictable_from();
        change(client);
        let after = client.evictable_from();
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
