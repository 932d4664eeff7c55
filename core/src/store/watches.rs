//! Registrations for notifications: by key for the fan-out, by client for its end, by number for late outcomes, and by
//! the age of the last sign of life, where nobody says that a client is gone.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Bound;
use core::time::Duration;

use bytes::Bytes;

use super::Record;
use crate::hlc::Hlc;
use crate::message::{Dialect, Incarnation};
use crate::mqtt::{Publish, PublishToken, Purpose};
use crate::time::Instant;
use crate::topic::NotificationTopic;

/// One client's registration for one key.
#[derive(Debug)]
pub(super) struct Watch {
    /// Grows with every registration and renewal.
    number: u64,
    /// The number of the registration of which this is a renewal, or its own: the last that was recorded.
    recorded: u64,
    /// The number of the KEYNOTIFY, which stays the same when that is delivered again.
    request: u64,
    client_id: Arc<str>,
    /// Whether a broker vouched for the client id.
    verified: bool,
    key: Arc<[u8]>,
    pub(super) dialect: Dialect,
    /// What its notifications say, if its KEYNOTIFY asked.
    incarnation: Option<Incarnation>,
}

impl Watch {
    /// The PUBLISH of a notification. Its token names the registration in the PUBACK.
    pub(super) fn notification(&self, payload: Bytes, version: Hlc) -> Publish {
        let mut topic = String::new();
        if let Ok(name) = NotificationTopic::new(&self.client_id, &self.key) {
            topic.reserve_exact(name.encoded_len());
            // A string takes everything.
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
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// What restores it.
    pub(super) fn to_record(&self) -> Record {
        Record::Watched {
            client_id: (&*self.client_id).into(),
            key: (&*self.key).into(),
            verified: self.verified,
            dialect: self.dialect,
            wants_incarnation: self.incarnation.is_some(),
            order: self.request,
        }
    }

    /// What says that it has ended.
    pub(super) fn to_end(&self) -> Record {
        Record::Unwatched { client_id: (&*self.client_id).into(), key: (&*self.key).into() }
    }

    /// Whether the records of both would say the same, but for when it was asked for.
    fn is_like(&self, other: &Self) -> bool {
        self.verified == other.verified
            && self.dialect == other.dialect
            && self.incarnation == other.incarnation
    }

    /// Bytes of key and client id.
    fn len(&self) -> usize {
        bytes_of(&self.client_id, &self.key)
    }
}

/// What a registration counts for against the limit of bytes.
pub(super) const fn bytes_of(client_id: &str, key: &[u8]) -> usize {
    client_id.len() + key.len()
}

/// Registrations of one client that a broker vouched for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    pub(super) count: usize,
    /// Of keys and client id.
    pub(super) bytes: usize,
}

/// One client, for as long as it has a registration.
#[derive(Debug, Default)]
struct Client {
    /// Its registrations by key.
    keys: BTreeMap<Arc<[u8]>, u64>,
    /// Those among them that were made under a verified name.
    verified: Watched,
    /// Its last sign of life.
    seen: Instant,
}

impl Client {
    /// Whether it has registrations that somebody may have made in its name.
    fn is_claimed(&self) -> bool {
        self.keys.len() > self.verified.count
    }

    /// Counts one registration in the place of another.
    fn count(&mut self, old: Option<&Watch>, new: Option<&Watch>) {
        if let Some(old) = old.filter(|old| old.verified) {
            self.verified.count -= 1;
            self.verified.bytes -= old.len();
        }
        if let Some(new) = new.filter(|new| new.verified) {
            self.verified.count += 1;
            self.verified.bytes += new.len();
        }
    }
}

/// All registrations. A renewal replaces the registration at its place.
#[derive(Debug)]
pub(super) struct Watches {
    by_key: BTreeMap<Arc<[u8]>, Vec<Arc<Watch>>>,
    by_client: BTreeMap<Arc<str>, Client>,
    by_number: BTreeMap<u64, Arc<Watch>>,
    /// Clients with registrations under a claimed name, by their last sign of life. So there is no more of it than there
    /// are registrations.
    by_age: BTreeSet<(Instant, Arc<str>)>,
    last: u64,
    bytes: usize,
    /// Whether there are to be records of them.
    are_recorded: bool,
    /// Those that have ended, until their records are made, which is before the call ends in which they did.
    ended: VecDeque<Arc<Watch>>,
}

/// Who registers for what.
pub(super) struct Registration<'a> {
    pub(super) client_id: &'a str,
    pub(super) verified: bool,
    pub(super) key: &'a [u8],
    pub(super) dialect: Dialect,
    pub(super) incarnation: Option<Incarnation>,
    /// The number of the KEYNOTIFY.
    pub(super) request: u64,
}

impl Watches {
    pub(super) const fn new(are_recorded: bool) -> Self {
        Self {
            are_recorded,
            ended: VecDeque::new(),
            by_key: BTreeMap::new(),
            by_client: BTreeMap::new(),
            by_number: BTreeMap::new(),
            by_age: BTreeSet::new(),
            last: 0,
            bytes: 0,
        }
    }

    /// How many registrations there are.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Bytes of their keys and client ids.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a client holds under a verified name.
    pub(super) fn held_by(&self, client_id: &str) -> Watched {
        self.by_client.get(client_id).map_or_else(Watched::default, |client| client.verified)
    }

    /// The registrations for `key`, the oldest first.
    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> &[Arc<Watch>] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn contains(&self, client_id: &str, key: &[u8]) -> bool {
        self.by_client.get(client_id).is_some_and(|client| client.keys.contains_key(key))
    }

    /// A registration that has ended since the last call, where there are to be records of that.
    pub(super) fn poll_ended(&mut self) -> Option<Arc<Watch>> {
        self.ended.pop_front()
    }

    /// The number of the newest registration.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// The registrations with numbers past `after`, in order, where there are to be records of them; those left out that
    /// were recorded past `until`.
    pub(super) fn recorded(&self, after: u64, until: u64) -> impl Iterator<Item = &Watch> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let watches = self.by_number.range(range).map(|(_, watch)| &**watch);
        watches.filter(move |watch| self.are_recorded && watch.recorded <= until)
    }

    /// Registers at `now`, or renews under a new number; what there is to be recorded of that.
    ///
    /// A renewal is none of it. Its request only has a later place among others, which matters to a copy of a STOP that
    /// ended an earlier registration; that end was recorded, and what was registered since as well.
    pub(super) fn insert(&mut self, now: Instant, of: &Registration<'_>) -> Option<Record> {
        let known = self.by_client.get_key_value(of.client_id).map(|(id, _)| Arc::clone(id));
        let client_id: Arc<str> = known.unwrap_or_else(|| of.client_id.into());
        let known = self.by_key.get_key_value(of.key).map(|(key, _)| Arc::clone(key));
        let key: Arc<[u8]> = known.unwrap_or_else(|| of.key.into());
        self.last += 1;
        let number = self.last;
        let renewed = self.by_client.get(&client_id).and_then(|client| client.keys.get(&key));
        let renewed = renewed.and_then(|number| self.by_number.remove(number));
        let mut watch = Watch {
            number,
            recorded: number,
            request: of.request,
            client_id: Arc::clone(&client_id),
            verified: of.verified,
            key: Arc::clone(&key),
            dialect: of.dialect,
            incarnation: of.incarnation,
        };
        let record = match &renewed {
            Some(renewed) if renewed.is_like(&watch) => {
                watch.recorded = renewed.recorded;
                None
            }
            _ => self.are_recorded.then(|| watch.to_record()),
        };
        let watch = Arc::new(watch);
        self.by_number.insert(number, Arc::clone(&watch));
        self.change(&client_id, |client| {
            client.seen = now;
            client.keys.insert(Arc::clone(&key), number);
            client.count(renewed.as_deref(), Some(&watch));
        });
        let watchers = self.by_key.entry(key).or_default();
        match renewed {
            None => {
                self.bytes += watch.len();
                watchers.push(watch);
            }
            Some(renewed) => watchers
                .iter_mut()
                .filter(|old| old.number == renewed.number)
                .for_each(|old| *old = Arc::clone(&watch)),
        }
        record
    }

    pub(super) fn remove(&mut self, client_id: &str, key: &[u8]) {
        let number = self.by_client.get(client_id).and_then(|client| client.keys.get(key));
        if let Some(number) = number.copied() {
            self.end(&[number]);
        }
    }

    /// Ends a registration if its KEYNOTIFY came before the request with this number.
    pub(super) fn remove_earlier(&mut self, client_id: &str, key: &[u8], request: u64) {
        let number = self.by_client.get(client_id).and_then(|client| client.keys.get(key));
        let watch = number.and_then(|number| self.by_number.get(number));
        if watch.is_some_and(|watch| watch.request < request) {
            self.remove(client_id, key);
        }
    }

    /// Ends every registration of a client; how many there were.
    pub(super) fn remove_client(&mut self, client_id: &str) -> usize {
        self.remove_where(client_id, |_| true)
    }

    /// Ends the registrations of the client whose notification reached nobody, as far as they are not younger than the
    /// one that notification belonged to: a renewed one says that the client is back. How many there were.
    pub(super) fn remove_undeliverable(&mut self, token: PublishToken) -> usize {
        let Some(watch) = self.by_number.get(&token.0) else { return 0 };
        let client_id = Arc::clone(&watch.client_id);
        self.remove_where(&client_id, |watch| watch.number <= token.0)
    }

    /// Takes note that a notification has reached somebody.
    pub(super) fn delivered(&mut self, now: Instant, token: PublishToken) {
        let claimed = self.by_number.get(&token.0).filter(|watch| !watch.verified);
        let client_id = claimed.map(|watch| Arc::clone(&watch.client_id));
        client_id.into_iter().for_each(|client_id| self.is_there(now, &client_id));
    }

    /// Takes note of a sign of life.
    pub(super) fn is_there(&mut self, now: Instant, client_id: &str) {
        let known = self.by_client.get_key_value(client_id).map(|(id, _)| Arc::clone(id));
        known.into_iter().for_each(|id| self.change(&id, |client| client.seen = now));
    }

    /// Ends the registrations of the claimed name whose last sign of life is the oldest, if that is at least as old as
    /// `kept`; how many there were. With a key, of those only that have registered for it.
    pub(super) fn remove_oldest(
        &mut self,
        now: Instant,
        kept: Duration,
        key: Option<&[u8]>,
    ) -> usize {
        let oldest = match key {
            None => self.by_age.first().cloned(),
            Some(key) => {
                let claimed = self.of(key).iter().filter(|watch| !watch.verified);
                let seen = |id: &Arc<str>| Some((self.by_client.get(id)?.seen, Arc::clone(id)));
                claimed.filter_map(|watch| seen(&watch.client_id)).min()
            }
        };
        match oldest {
            Some((seen, client_id)) if seen + kept <= now => {
                self.remove_where(&client_id, |watch| !watch.verified)
            }
            _ => 0,
        }
    }

    fn remove_where(&mut self, client_id: &str, which: impl Fn(&Watch) -> bool) -> usize {
        let Some(client) = self.by_client.get(client_id) else { return 0 };
        let is_meant = |number: &u64| self.by_number.get(number).is_some_and(|watch| which(watch));
        let dead: Vec<u64> = client.keys.values().copied().filter(is_meant).collect();
        self.end(&dead);
        dead.len()
    }

    fn end(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(watch) = self.by_number.remove(number) else { continue };
            self.bytes -= watch.len();
            self.change(&watch.client_id, |client| {
                client.keys.remove(&watch.key);
                client.count(Some(&watch), None);
            });
            let Some(watchers) = self.by_key.get_mut(&watch.key) else { continue };
            watchers.retain(|other| other.number != *number);
            if watchers.is_empty() {
                self.by_key.remove(&watch.key);
            }
            if self.are_recorded {
                self.ended.push_back(watch);
            }
        }
    }

    /// Changes a client and its place among the others; one without registrations is gone.
    fn change(&mut self, client_id: &Arc<str>, change: impl FnOnce(&mut Client)) {
        let client = self.by_client.entry(Arc::clone(client_id)).or_default();
        let before = client.is_claimed().then_some(client.seen);
        change(client);
        let after = client.is_claimed().then_some(client.seen);
        if client.keys.is_empty() {
            self.by_client.remove(client_id);
        }
        if before == after {
            return;
        }
        if let Some(seen) = before {
            self.by_age.remove(&(seen, Arc::clone(client_id)));
        }
        if let Some(seen) = after {
            self.by_age.insert((seen, Arc::clone(client_id)));
        }
    }
}
