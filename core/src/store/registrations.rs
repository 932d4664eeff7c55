//! Registrations for notifications.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Bound;
use core::time::Duration;

use bytes::Bytes;

use super::{Principal, Record};
use crate::hlc::Hlc;
use crate::limits::{StoreLimits, TOPIC_BYTES_MAX};
use crate::message::{Dialect, Incarnation};
use crate::rules::{Exceeded, Limit};
use crate::time::Instant;
use crate::topic::NotificationTopic;
use crate::transport::{Publish, PublishToken, Purpose};

/// The registration of one client for one key.
#[derive(Debug)]
pub(super) struct Registration {
    /// The number of this registration. Every registration and renewal gets a greater one.
    number: u64,
    /// The number of the registration that this one renews, or its own: the last one with a record.
    recorded: u64,
    /// The request number of the KEYNOTIFY. A redelivered KEYNOTIFY keeps it.
    request: u64,
    client_id: Arc<str>,
    is_verified: bool,
    key: Arc<[u8]>,
    pub(super) dialect: Dialect,
    /// The incarnation to send with notifications, if the KEYNOTIFY asked for it.
    incarnation: Option<Incarnation>,
}

/// A KEYNOTIFY to register.
pub(super) struct NewRegistration<'a> {
    pub(super) client_id: &'a str,
    pub(super) is_verified: bool,
    pub(super) key: &'a [u8],
    pub(super) dialect: Dialect,
    pub(super) incarnation: Option<Incarnation>,
    /// The request number of the KEYNOTIFY.
    pub(super) request: u64,
}

impl Registration {
    /// The PUBLISH of a notification. Its token is the number of the registration.
    pub(super) fn notification(&self, payload: Bytes, version: Hlc) -> Publish {
        let mut topic = String::new();
        if let Ok(name) = NotificationTopic::new(&self.client_id, &self.key) {
            topic.reserve_exact(name.encoded_len());
            // Writing to a string cannot fail.
            let _ = write!(topic, "{name}");
        }
        Publish {
            topic: topic.into(),
            payload,
            response_topic: None,
            correlation_data: None,
            content_type: None,
            message_expiry: None,
            token: Some(PublishToken(self.number)),
            purpose: Purpose::Notification {
                client_id: Arc::clone(&self.client_id),
                incarnation: self.incarnation,
            },
            timestamp: Some(version),
            answers: None,
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The record that restores this registration.
    pub(super) fn to_record(&self) -> Record {
        Record::Registered {
            client_id: (&*self.client_id).into(),
            key: (&*self.key).into(),
            verified: self.is_verified,
            dialect: self.dialect,
            wants_incarnation: self.incarnation.is_some(),
            order: self.request,
        }
    }

    /// The record that ends this registration.
    pub(super) fn to_end_record(&self) -> Record {
        Record::Unregistered { client_id: (&*self.client_id).into(), key: (&*self.key).into() }
    }

    /// Returns whether both have the same record, request number aside.
    fn has_same_record(&self, other: &Self) -> bool {
        self.is_verified == other.is_verified
            && self.dialect == other.dialect
            && self.incarnation == other.incarnation
    }

    /// Bytes that count against the limits.
    fn len(&self) -> usize {
        counted_bytes(&self.client_id, &self.key)
    }
}

/// Bytes of a registration that count against the limits.
const fn counted_bytes(client_id: &str, key: &[u8]) -> usize {
    client_id.len() + key.len()
}

/// The registrations of one client that were made under a verified client id.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RegistrationUsage {
    pub(super) count: usize,
    /// Bytes of keys and client ids.
    pub(super) bytes: usize,
}

/// A client with at least one registration.
#[derive(Debug, Default)]
struct Client {
    /// The numbers of its registrations by key.
    by_key: BTreeMap<Arc<[u8]>, u64>,
    /// Those that were made under a verified client id.
    verified: RegistrationUsage,
    /// When the client last sent a KEYNOTIFY or received a notification.
    last_seen: Instant,
}

impl Client {
    /// Returns whether some registrations were made under an unverified client id.
    fn has_unverified(&self) -> bool {
        self.by_key.len() > self.verified.count
    }

    fn count(&mut self, old: Option<&Registration>, new: Option<&Registration>) {
        if let Some(old) = old.filter(|old| old.is_verified) {
            self.verified.count -= 1;
            self.verified.bytes -= old.len();
        }
        if let Some(new) = new.filter(|new| new.is_verified) {
            self.verified.count += 1;
            self.verified.bytes += new.len();
        }
    }
}

/// All registrations. Requesters fill it with KEYNOTIFY, up to the limits that
/// [`check_quota`](Self::check_quota) compares.
///
/// Methods that end registrations return them, so that the store can count and record their end.
#[derive(Debug)]
pub(super) struct Registrations {
    by_key: BTreeMap<Arc<[u8]>, Vec<Arc<Registration>>>,
    by_client: BTreeMap<Arc<str>, Client>,
    by_number: BTreeMap<u64, Arc<Registration>>,
    /// The clients with unverified registrations, by the time they were last seen.
    by_last_seen: BTreeSet<(Instant, Arc<str>)>,
    last_number: u64,
    bytes: usize,
}

impl Registrations {
    pub(super) const fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_client: BTreeMap::new(),
            by_number: BTreeMap::new(),
            by_last_seen: BTreeSet::new(),
            last_number: 0,
            bytes: 0,
        }
    }

    /// The number of registrations.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The usage of a client under a verified client id.
    pub(super) fn usage_of(&self, client_id: &str) -> RegistrationUsage {
        self.by_client.get(client_id).map_or_else(RegistrationUsage::default, |it| it.verified)
    }

    /// The registrations for `key`, the oldest first.
    #[inline]
    pub(super) fn for_key(&self, key: &[u8]) -> &[Arc<Registration>] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn contains(&self, client_id: &str, key: &[u8]) -> bool {
        self.number_of(client_id, key).is_some()
    }

    fn number_of(&self, client_id: &str, key: &[u8]) -> Option<u64> {
        self.by_client.get(client_id)?.by_key.get(key).copied()
    }

    /// The number of the newest registration.
    pub(super) const fn last_number(&self) -> u64 {
        self.last_number
    }

    /// The registrations with numbers greater than `after` whose records are not newer than
    /// `until`, in order.
    pub(super) fn recorded(&self, after: u64, until: u64) -> impl Iterator<Item = &Registration> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let registrations = self.by_number.range(range).map(|(_, registration)| &**registration);
        registrations.filter(move |registration| registration.recorded <= until)
    }

    /// Registers a client, or renews its registration under a new number. Returns whether this
    /// needs a record.
    ///
    /// A renewal with the same record needs none. Only its request number is greater, which matters
    /// to a redelivered STOP that ended an earlier registration; that end has a record, and so has
    /// each registration made since.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        new: &NewRegistration<'_>,
    ) -> (Arc<Registration>, bool) {
        let known_id = self.by_client.get_key_value(new.client_id).map(|(id, _)| Arc::clone(id));
        let client_id: Arc<str> = known_id.unwrap_or_else(|| new.client_id.into());
        let known_key = self.by_key.get_key_value(new.key).map(|(key, _)| Arc::clone(key));
        let key: Arc<[u8]> = known_key.unwrap_or_else(|| new.key.into());
        self.last_number += 1;
        let renewed_number = self.number_of(&client_id, &key);
        let renewed = renewed_number.and_then(|number| self.by_number.remove(&number));
        let mut registration = Registration {
            number: self.last_number,
            recorded: self.last_number,
            request: new.request,
            client_id,
            is_verified: new.is_verified,
            key,
            dialect: new.dialect,
            incarnation: new.incarnation,
        };
        let same = renewed.as_ref().filter(|renewed| renewed.has_same_record(&registration));
        let needs_record = same.is_none();
        if let Some(same) = same {
            registration.recorded = same.recorded;
        }
        let registration = Arc::new(registration);
        self.by_number.insert(registration.number, Arc::clone(&registration));
        self.update_client(&registration.client_id, |client| {
            client.last_seen = now;
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
        self.number_of(client_id, key).and_then(|number| self.end(number))
    }

    /// Ends a registration if its KEYNOTIFY came before the request with this number.
    pub(super) fn remove_earlier(
        &mut self,
        client_id: &str,
        key: &[u8],
        request: u64,
    ) -> Option<Arc<Registration>> {
        let number = self.number_of(client_id, key)?;
        let is_earlier = self.by_number.get(&number)?.request < request;
        if is_earlier { self.end(number) } else { None }
    }

    /// Ends every registration of a client.
    pub(super) fn remove_client(&mut self, client_id: &str) -> Vec<Arc<Registration>> {
        self.remove_where(client_id, |_| true)
    }

    /// Ends the registrations of a client whose notification had no subscriber, except those that
    /// are newer than the one that the notification belonged to: a client that renewed is back.
    pub(super) fn remove_undeliverable(&mut self, token: PublishToken) -> Vec<Arc<Registration>> {
        let Some(registration) = self.by_number.get(&token.0) else { return Vec::new() };
        let client_id = Arc::clone(&registration.client_id);
        self.remove_where(&client_id, |registration| registration.number <= token.0)
    }

    /// Records that a notification was delivered, so its client is connected.
    pub(super) fn record_delivery(&mut self, now: Instant, token: PublishToken) {
        let unverified = self.by_number.get(&token.0).filter(|it| !it.is_verified);
        if let Some(client_id) = unverified.map(|it| Arc::clone(&it.client_id)) {
            self.touch(now, &client_id);
        }
    }

    /// Records that a client was seen.
    fn touch(&mut self, now: Instant, client_id: &str) {
        let known = self.by_client.get_key_value(client_id).map(|(id, _)| Arc::clone(id));
        if let Some(client_id) = known {
            self.update_client(&client_id, |client| client.last_seen = now);
        }
    }

    /// Checks the limits for a KEYNOTIFY of a client that is not registered for the key.
    pub(super) fn check_quota(
        &self,
        limits: &StoreLimits,
        sender: Principal<'_>,
        key: &[u8],
    ) -> Result<(), Exceeded> {
        self.check_client_share(limits, sender, key)?;
        self.check_total(limits, sender, key)?;
        self.check_per_key(limits, key)
    }

    /// Checks the limits that no eviction can help with: lengths, and the share of a client.
    fn check_client_share(
        &self,
        limits: &StoreLimits,
        sender: Principal<'_>,
        key: &[u8],
    ) -> Result<(), Exceeded> {
        let client_id = sender.client_id().unwrap_or_default();
        if NotificationTopic::new(client_id, key).is_err() {
            // The topic contains the key in hexadecimal digits.
            let needed = 2 * key.len() + client_id.len();
            return Err(Exceeded { limit: Limit::TopicBytes, needed, max: TOPIC_BYTES_MAX });
        }
        Exceeded::check(Limit::KeyBytes, key.len(), limits.key_bytes_max)?;
        if !sender.is_verified() {
            return Ok(());
        }
        let used = self.usage_of(client_id);
        let max = limits.share_of(limits.registrations_max);
        Exceeded::check(Limit::ClientRegistrations, used.count + 1, max)?;
        let needed = used.bytes + counted_bytes(client_id, key);
        let max = limits.share_of(limits.registration_bytes_max);
        Exceeded::check(Limit::ClientRegistrationBytes, needed, max)
    }

    fn check_total(
        &self,
        limits: &StoreLimits,
        sender: Principal<'_>,
        key: &[u8],
    ) -> Result<(), Exceeded> {
        Exceeded::check(Limit::Registrations, self.len() + 1, limits.registrations_max)?;
        let client_id = sender.client_id().unwrap_or_default();
        let needed = self.bytes + counted_bytes(client_id, key);
        Exceeded::check(Limit::RegistrationBytes, needed, limits.registration_bytes_max)
    }

    fn check_per_key(&self, limits: &StoreLimits, key: &[u8]) -> Result<(), Exceeded> {
        let needed = self.for_key(key).len() + 1;
        Exceeded::check(Limit::RegistrationsPerKey, needed, limits.registrations_per_key_max)
    }

    /// Evicts registrations for a KEYNOTIFY: those of unverified client ids that were not seen for
    /// [`unverified_registrations_kept`](StoreLimits::unverified_registrations_kept).
    pub(super) fn evict_for(
        &mut self,
        now: Instant,
        limits: &StoreLimits,
        sender: Principal<'_>,
        key: &[u8],
    ) -> Vec<Arc<Registration>> {
        let mut ended = Vec::new();
        let client_id = sender.client_id().unwrap_or_default();
        let share = self.check_client_share(limits, sender, key);
        if self.contains(client_id, key) || share.is_err() {
            return ended;
        }
        self.touch(now, client_id);
        let kept = limits.unverified_registrations_kept;
        loop {
            let only_for = if self.check_per_key(limits, key).is_err() {
                Some(key)
            } else if self.check_total(limits, sender, key).is_err() {
                None
            } else {
                return ended;
            };
            let evicted = self.remove_stalest(now, kept, only_for);
            if evicted.is_empty() {
                return ended;
            }
            ended.extend(evicted);
        }
    }

    /// Ends the unverified registrations of the client that was not seen for the longest time, if
    /// that is at least `kept`. With a key, only clients that are registered for it count.
    fn remove_stalest(
        &mut self,
        now: Instant,
        kept: Duration,
        key: Option<&[u8]>,
    ) -> Vec<Arc<Registration>> {
        let stalest = match key {
            None => self.by_last_seen.first().cloned(),
            Some(key) => {
                let unverified = self.for_key(key).iter().filter(|it| !it.is_verified);
                let last_seen = |it: &Arc<Registration>| {
                    let client = self.by_client.get(&it.client_id)?;
                    Some((client.last_seen, Arc::clone(&it.client_id)))
                };
                unverified.filter_map(last_seen).min()
            }
        };
        match stalest {
            Some((last_seen, client_id)) if last_seen + kept <= now => {
                self.remove_where(&client_id, |registration| !registration.is_verified)
            }
            _ => Vec::new(),
        }
    }

    fn remove_where(
        &mut self,
        client_id: &str,
        matches: impl Fn(&Registration) -> bool,
    ) -> Vec<Arc<Registration>> {
        let Some(client) = self.by_client.get(client_id) else { return Vec::new() };
        let is_match = |number: &u64| self.by_number.get(number).is_some_and(|it| matches(it));
        let numbers: Vec<u64> = client.by_key.values().copied().filter(is_match).collect();
        numbers.into_iter().filter_map(|number| self.end(number)).collect()
    }

    fn end(&mut self, number: u64) -> Option<Arc<Registration>> {
        let registration = self.by_number.remove(&number)?;
        self.bytes -= registration.len();
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

    /// Changes a client and its place by last sight. A client without registrations is removed.
    fn update_client(&mut self, client_id: &Arc<str>, change: impl FnOnce(&mut Client)) {
        let client = self.by_client.entry(Arc::clone(client_id)).or_default();
        let before = client.has_unverified().then_some(client.last_seen);
        change(client);
        let after = client.has_unverified().then_some(client.last_seen);
        if client.by_key.is_empty() {
            self.by_client.remove(client_id);
        }
        if before == after {
            return;
        }
        if let Some(last_seen) = before {
            self.by_last_seen.remove(&(last_seen, Arc::clone(client_id)));
        }
        if let Some(last_seen) = after {
            self.by_last_seen.insert((last_seen, Arc::clone(client_id)));
        }
    }
}
