//! The deduplication cache: a redelivered request gets its first response again.
//!
//! QoS 1 delivers at least once, and the DUP flag applies to one hop only, so a duplicate is
//! recognized by its client id, owner, response topic, correlation data and content. GET and SCAN
//! are not cached: reading again changes nothing, and their responses are the large ones.
//!
//! Every requester can fill the cache. If it is full, the owner whose responses take the most space
//! loses its oldest one. An unverified client id is its own owner, and all of them together count
//! as one against verified owners, since one client can use any number of ids. So an owner loses no
//! response before its retention has passed while its responses take at most an equal part of the
//! cache, whatever other owners send. Disconnected clients keep their responses too: they are about
//! to redeliver.

mod owners;
mod queue;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;

use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::keyed_hash::KeyedHash;
use super::persist::ORDER_MAX;
use super::{Principal, RecordedResponse};
use crate::hlc::Hlc;
use crate::invariant::invariant;
use crate::limits::StoreLimits;
use crate::slab::{Slab, Slot};
use crate::time::{Instant, whole_millis};
use crate::transport::{Correlation, Incoming};
use owners::Owners;
use queue::Queue;

/// What identifies a request.
pub(super) struct RequestId<'a> {
    sender: Principal<'a>,
    response_topic: &'a str,
    correlation: &'a [u8],
    /// See [`Dedup::content_hash`].
    content: u64,
    /// The hash of all that.
    hash: u64,
}

/// The first response to a request, and the number of that request.
pub(super) struct First {
    pub(super) response: Response,
    pub(super) request_number: u64,
}

/// Payload and version of a response. The request determines the rest.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) payload: Bytes,
    pub(super) version: Option<Hlc>,
}

/// A response to be cached, with a part of what identifies its request.
#[derive(Debug)]
pub(super) struct NewResponse {
    pub(super) response_topic: Arc<str>,
    pub(super) correlation: Correlation,
    pub(super) response: Response,
    /// The time in which a duplicate may arrive.
    pub(super) retention: Duration,
    /// True if the response has a record.
    pub(super) is_recorded: bool,
}

impl NewResponse {
    fn to_record(
        &self,
        sender: Principal<'_>,
        (number, content): (u64, u64),
        given_at: u64,
    ) -> RecordedResponse {
        RecordedResponse {
            client_id: sender.client_id().unwrap_or_default().into(),
            verified: sender.is_verified(),
            owner: sender.owner().map(Into::into),
            response_topic: Arc::clone(&self.response_topic),
            correlation: self.correlation.clone(),
            content,
            payload: self.response.payload.clone(),
            timestamp: self.response.version.clone(),
            retention: self.retention,
            given_at: Duration::from_millis(given_at),
            order: number,
        }
    }
}

/// The deduplication cache.
#[derive(Debug)]
pub(super) struct Dedup {
    entries: Slab<Entry>,
    /// The entries by the hash of their [`RequestId`]. Never iterated.
    by_request: HashTable<Slot>,
    /// The end of the retention of each entry on the [`AgeClock`].
    deadlines: Queue<Deadline>,
    owners: Owners,
    hash: KeyedHash,
    /// True if a later store must recognize the same requests.
    is_durable: bool,
    /// The greatest request number given, and the number of the newest response.
    last_number: u64,
    last_response: u64,
    age_clock: AgeClock,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
    /// The part of [`Dedup::cost`] that each response has.
    entry_cost: u64,
}

/// The end of a retention, the number of the request, and the slot of the entry.
type Deadline = Reverse<(u64, u64, Slot)>;

/// Returns whether the entry of a deadline still exists.
fn is_current(entries: &Slab<Entry>, Reverse((_, number, slot)): &Deadline) -> bool {
    entries.get(*slot).is_some_and(|entry| entry.request_number == *number)
}

#[derive(Debug)]
struct Entry {
    response: NewResponse,
    /// The number and the [content](Dedup::content_hash) of the request.
    request_number: u64,
    content: u64,
    owner: Slot,
    /// The client id, if it is not the name of the owner.
    client_id: Option<Box<str>>,
    /// The neighbours in the list of the owner's responses.
    older: Option<Slot>,
    newer: Option<Slot>,
    /// When the response was given, in milliseconds of the [`AgeClock`].
    given_at: u64,
    /// When the retention ends.
    deadline: u64,
    /// Bytes of the response, and of the texts that identify its request.
    len: usize,
    /// The hash of the [`RequestId`].
    hash: u64,
}

/// A clock that counts the running time of all stores that continued one set of records, in
/// milliseconds.
///
/// It stands still from the last record of one store until the next store restores it, since no
/// clock measures how long a store was down. So a restored response is at least as old as it was
/// when the last record was written.
#[derive(Clone, Copy, Debug, Default)]
struct AgeClock {
    origin: Instant,
    /// The greatest age in the records that were restored.
    at_origin: u64,
}

impl AgeClock {
    const fn now(&self, now: Instant) -> u64 {
        let passed = now.as_millis().saturating_sub(self.origin.as_millis());
        self.at_origin.saturating_add(passed)
    }

    /// Continues from a record of an earlier store. The time that passed on the clock of this store
    /// before that does not count.
    fn restore(&mut self, now: Instant, recorded: u64) {
        *self = Self { origin: now, at_origin: self.at_origin.max(recorded) };
    }
}

impl Dedup {
    pub(super) fn new(seed: u64, limits: &StoreLimits, is_durable: bool) -> Self {
        let entry_cost = limits.dedup_bytes_max / limits.dedup_entries_max.max(1);
        Self {
            entries: Slab::new(),
            by_request: HashTable::new(),
            deadlines: Queue::new(),
            owners: Owners::new(seed),
            hash: KeyedHash::new(seed),
            is_durable,
            last_number: 0,
            last_response: 0,
            age_clock: AgeClock { origin: Instant::from_millis(0), at_origin: 0 },
            bytes: 0,
            count_max: limits.dedup_entries_max,
            bytes_max: limits.dedup_bytes_max,
            // Capped, so that sums cannot overflow if the limits are unlimited.
            entry_cost: (entry_cost as u64).min(1 << 20),
        }
    }

    /// A hash of the payload and timestamps of a request. Requests that reuse correlation data for
    /// other content are not duplicates.
    fn content_hash(&self, incoming: &Incoming<'_>) -> u64 {
        let properties = &incoming.properties;
        let timestamps =
            [properties.timestamp, properties.fencing_token].map(Option::unwrap_or_default);
        // A collision only affects the client that constructed it, so this hash is not keyed.
        if !self.is_durable {
            let [timestamp, token] = timestamps;
            let content = (&incoming.payload[..], timestamp, token, properties.persist);
            return FixedState::with_seed(0).hash_one(content);
        }
        // Every later store must compute the same hash.
        let mut hasher = SipHasher13::new();
        for text in timestamps {
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text.as_bytes());
        }
        hasher.write(&[u8::from(properties.persist)]);
        hasher.write(incoming.payload);
        hasher.finish()
    }

    /// What identifies a request of this sender.
    #[inline]
    pub(super) fn identify<'a>(
        &self,
        sender: Principal<'a>,
        incoming: &Incoming<'a>,
    ) -> RequestId<'a> {
        let response_topic = incoming.response_topic.unwrap_or_default();
        let correlation = incoming.correlation_data.unwrap_or_default();
        self.id_of(sender, response_topic, correlation, self.content_hash(incoming))
    }

    fn id_of<'a>(
        &self,
        sender: Principal<'a>,
        response_topic: &'a str,
        correlation: &'a [u8],
        content: u64,
    ) -> RequestId<'a> {
        let client_id = sender.client_id().unwrap_or_default();
        let mut hasher = self.hash.hasher();
        correlation.hash(&mut hasher);
        response_topic.hash(&mut hasher);
        client_id.hash(&mut hasher);
        content.hash(&mut hasher);
        RequestId { sender, response_topic, correlation, content, hash: hasher.finish() }
    }

    /// Finds the first response to a request. Call [`expire`](Self::expire) first.
    #[inline]
    pub(super) fn look_up(&self, id: &RequestId<'_>) -> Option<First> {
        let entry = self.entries.get(self.find(id)?)?;
        Some(First {
            response: entry.response.response.clone(),
            request_number: entry.request_number,
        })
    }

    fn find(&self, id: &RequestId<'_>) -> Option<Slot> {
        self.by_request.find(id.hash, |slot| self.is_response_to(*slot, id)).copied()
    }

    /// The owner does not count: that of a client without a user is its network, and the client may
    /// redeliver from another one.
    fn is_response_to(&self, slot: Slot, id: &RequestId<'_>) -> bool {
        let client_id = Some(id.sender.client_id().unwrap_or_default());
        self.entries.get(slot).is_some_and(|entry| {
            let response = &entry.response;
            (entry.hash, entry.content) == (id.hash, id.content)
                && response.correlation.as_bytes() == id.correlation
                && *response.response_topic == *id.response_topic
                && self.sender_of(entry).is_some_and(|it| it.client_id() == client_id)
        })
    }

    fn sender_of<'a>(&'a self, entry: &'a Entry) -> Option<Principal<'a>> {
        self.owners.sender(entry.owner, entry.client_id.as_deref())
    }

    /// The number for the next request that is cached. Numbers start at 1, and records with a
    /// number above [`ORDER_MAX`] are not restored, so they do not run out.
    pub(super) const fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// The number of the newest response.
    pub(super) const fn last_response(&self) -> u64 {
        self.last_response
    }

    /// Caches the response to a request that was not [found](Self::look_up). Returns its record, if
    /// it has one.
    pub(super) fn remember(
        &mut self,
        now: Instant,
        id: &RequestId<'_>,
        response: NewResponse,
    ) -> Option<RecordedResponse> {
        let (number, given_at) = (self.next_number(), self.age_clock.now(now));
        let record = || response.to_record(id.sender, (number, id.content), given_at);
        let recorded = response.is_recorded.then(record);
        self.insert(number, given_at, id, response);
        recorded
    }

    /// Caches the response of a record.
    pub(super) fn restore(&mut self, now: Instant, recorded: &RecordedResponse) {
        // A snapshot and the records after it may contain the same response.
        if recorded.order <= self.last_response || recorded.order > ORDER_MAX {
            return;
        }
        let given_at = whole_millis(recorded.given_at);
        self.age_clock.restore(now, given_at);
        self.expire(now);
        let response = NewResponse {
            response_topic: Arc::clone(&recorded.response_topic),
            correlation: recorded.correlation.clone(),
            response: Response {
                payload: recorded.payload.clone(),
                version: recorded.timestamp.clone(),
            },
            retention: recorded.retention,
            is_recorded: true,
        };
        let (topic, correlation) = (&recorded.response_topic, recorded.correlation.as_bytes());
        let id = self.id_of(recorded.sender(), topic, correlation, recorded.content);
        // The records of a store contain a request again only after its retention.
        if let Some(outdated) = self.find(&id) {
            self.remove(outdated);
        }
        self.insert(recorded.order, given_at, &id, response);
    }

    fn insert(&mut self, number: u64, given_at: u64, id: &RequestId<'_>, response: NewResponse) {
        let &RequestId { sender, content, hash, .. } = id;
        self.reserve_number(number);
        self.last_response = number;
        let Some(owner) = invariant(self.owners.owner(sender)) else { return };
        let client_id = sender.client_id().unwrap_or_default();
        let is_shared = self.owners.is_shared(owner);
        let (older, newer) = (self.owners.newest(owner), None);
        let retention = u64::try_from(response.retention.as_millis()).unwrap_or(u64::MAX);
        let deadline = given_at.saturating_add(retention);
        let len = client_id.len()
            + sender.owner().map_or(0, str::len)
            + id.response_topic.len()
            + id.correlation.len()
            + response.response.payload.len();
        let entry = Entry {
            response,
            request_number: number,
            content,
            owner,
            client_id: is_shared.then(|| client_id.into()),
            older,
            newer,
            given_at,
            deadline,
            len,
            hash,
        };
        let Some(slot) = invariant(self.entries.insert(entry)) else { return };
        let entries = &self.entries;
        let rehash = |slot: &Slot| entries.get(*slot).map_or(0, |entry| entry.hash);
        self.by_request.insert_unique(hash, slot, rehash);
        let end = Reverse((deadline, number, slot));
        self.deadlines.push(end, self.by_request.len(), |end| is_current(entries, end));
        if let Some(older) = older.and_then(|older| self.entries.get_mut(older)) {
            older.newer = Some(slot);
        }
        self.bytes += len;
        let cost = self.cost(len);
        self.owners.add(owner, (number, slot), cost);
        while self.len() > self.count_max || self.bytes > self.bytes_max {
            let Some(oldest) = invariant(self.owners.first_to_lose()) else { return };
            self.remove(oldest);
        }
    }

    /// Ensures that no later request gets a number up to this one.
    pub(super) fn reserve_number(&mut self, number: u64) {
        self.last_number = self.last_number.max(number);
    }

    /// Removes responses whose retention has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        let age = self.age_clock.now(now);
        loop {
            let first = self.deadlines.first(|end| is_current(&self.entries, end));
            let Some(Reverse((deadline, _, slot))) = first else { return };
            if age < deadline {
                return;
            }
            self.remove(slot);
        }
    }

    /// The recorded responses with numbers after `after` and up to `until`, in order.
    pub(super) fn recorded_responses(
        &self,
        now: Instant,
        after: u64,
        until: u64,
    ) -> impl Iterator<Item = RecordedResponse> {
        let now = self.age_clock.now(now);
        let is_wanted = |entry: &&Entry| {
            entry.request_number > after
                && entry.request_number <= until
                && entry.response.is_recorded
                && now < entry.deadline
        };
        let mut found: Vec<&Entry> = self.entries.iter().filter(is_wanted).collect();
        found.sort_unstable_by_key(|entry| entry.request_number);
        found.into_iter().filter_map(|entry| self.to_record(entry))
    }

    fn to_record(&self, entry: &Entry) -> Option<RecordedResponse> {
        Some(entry.response.to_record(
            self.sender_of(entry)?,
            (entry.request_number, entry.content),
            entry.given_at,
        ))
    }

    fn remove(&mut self, slot: Slot) {
        let Some(entry) = invariant(self.entries.get(slot)) else { return };
        let &Entry { owner, older, newer, len, hash, .. } = entry;
        let cost = self.cost(len);
        self.entries.clear(slot);
        self.bytes -= len;
        let found = self.by_request.find_entry(hash, |other| *other == slot);
        if let Some(entry) = invariant(found.ok()) {
            entry.remove();
        }
        if let Some(older) = older.and_then(|older| self.entries.get_mut(older)) {
            older.newer = newer;
        }
        let newer_entry = newer.and_then(|newer| self.entries.get_mut(newer));
        let next = newer.zip(newer_entry).map(|(slot, entry)| {
            entry.older = older;
            (entry.request_number, slot)
        });
        self.owners.remove(owner, (older, next), cost);
    }

    /// The number of cached responses.
    pub(super) fn len(&self) -> usize {
        self.by_request.len()
    }

    /// Bytes of the cached responses, and of the client ids, owners, topics and correlation data.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a response plus the average share of one entry, which weighs the limit of entries
    /// and the limit of bytes equally.
    const fn cost(&self, len: usize) -> u64 {
        len as u64 + self.entry_cost
    }
}

/// The retention of a response if its request lacks a message expiry interval.
const RETENTION: Duration = Duration::from_secs(60);

/// The shortest retention of a response. A request with a message expiry interval of zero is
/// delivered at once, and may be delivered twice.
const RETENTION_MIN: Duration = Duration::from_secs(1);

/// The longest retention of a response. A duplicate that a broker holds back for longer is executed
/// again, and responses that are retained for longer than others do not use up the cache (our
/// choice).
const RETENTION_MAX: Duration = Duration::from_secs(60 * 60);

/// The retention of the response to a request: twice the message expiry interval, since a duplicate
/// may arrive at the broker just before that has passed, and may then wait there for as long again.
pub(super) fn retention(incoming: &Incoming<'_>) -> Duration {
    let twice = incoming.message_expiry.map(|seconds| Duration::from_secs(2 * u64::from(seconds)));
    twice.unwrap_or(RETENTION).clamp(RETENTION_MIN, RETENTION_MAX)
}
