//! The deduplication cache: a redelivered request gets its first response again.
//!
//! QoS 1 delivers at least once, and the DUP flag applies to one hop only, so a duplicate is
//! recognized by its client id, response topic, correlation data and content. GET and SCAN are not
//! cached: reading again changes nothing, and their responses are the large ones.
//!
//! Every requester can fill the cache. If it is full, responses are evicted in this order:
//!
//! 1. those of a client that takes more than its share of the cache, so a client that floods the
//!    store evicts its own responses. (With unverified client ids, one client can use many.)
//! 2. those of absent clients, the oldest first. A client is absent after it has disconnected, and
//!    after the store was restored, until a request of the client is cached again.
//! 3. the oldest response of the client whose responses take the most space.

mod queue;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;

use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::RecordedResponse;
use super::keyed_hash::KeyedHash;
use super::persist::ORDER_MAX;
use crate::hlc::Hlc;
use crate::limits::StoreLimits;
use crate::slab::{Slab, Slot};
use crate::time::Instant;
use crate::transport::{Correlation, Incoming};
use queue::Queue;

/// The parts that identify a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestKey<'a> {
    pub(super) client_id: &'a str,
    pub(super) response_topic: &'a str,
    pub(super) correlation: &'a [u8],
    /// See [`Dedup::content_hash`].
    pub(super) content: u64,
}

/// Payload and version of a response. The request determines the rest.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) payload: Bytes,
    pub(super) version: Option<Hlc>,
}

/// A response to be cached, with what identifies its request besides the client id.
#[derive(Debug)]
pub(super) struct NewResponse {
    pub(super) response_topic: Arc<str>,
    pub(super) correlation: Correlation,
    pub(super) content: u64,
    pub(super) response: Response,
    /// The time in which a duplicate may arrive.
    pub(super) retention: Duration,
    /// True if the response has a record.
    pub(super) is_recorded: bool,
}

impl NewResponse {
    fn key<'a>(&'a self, client_id: &'a str) -> RequestKey<'a> {
        RequestKey {
            client_id,
            response_topic: &self.response_topic,
            correlation: self.correlation.as_bytes(),
            content: self.content,
        }
    }
}

/// The deduplication cache.
#[derive(Debug)]
pub(super) struct Dedup {
    entries: Slab<Entry>,
    /// The entries by the hash of their request keys. Never iterated.
    by_request: HashTable<Slot>,
    /// The entries by the binary length of their retention in seconds, so that the retentions in
    /// one queue differ by less than a factor of two.
    by_retention: [Queue; RETENTION_CLASSES],
    /// No retention ends before this, on the [`AgeClock`].
    next_deadline: Duration,
    count: usize,
    clients: Slab<Client>,
    /// The clients by the hash of their ids. Never iterated.
    by_client_id: HashTable<Slot>,
    /// The clients in the order in which they lose responses; the last one is first to lose. Valid
    /// except for those in `unranked`: most caches are never full and need no order.
    by_rank: BTreeSet<(Rank, Slot)>,
    /// Clients whose rank may have changed, and former clients; see [`Dedup::rank_clients`].
    unranked: Vec<Slot>,
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
    entry_cost: usize,
    /// The share of one client.
    client_cost_max: usize,
}

#[derive(Debug)]
struct Entry {
    request: NewResponse,
    /// The request number.
    number: u64,
    client: Slot,
    /// When the response was given, by the [`AgeClock`].
    given_at: Duration,
    /// The hash of the request key.
    hash: u64,
}

impl Entry {
    fn deadline(&self) -> Duration {
        self.given_at.saturating_add(self.request.retention)
    }
}

/// The number of queues by retention. The last one is for all longer retentions.
const RETENTION_CLASSES: usize = 13;

fn retention_class(retention: Duration) -> usize {
    let bits = u64::BITS - retention.as_secs().leading_zeros();
    (bits as usize).min(RETENTION_CLASSES - 1)
}

/// A client with cached responses.
#[derive(Debug)]
struct Client {
    id: Box<str>,
    /// Its responses, the oldest first.
    responses: Queue,
    /// The space that they take; see [`Dedup::cost`].
    cost: usize,
    /// True if the client has disconnected, or if the store was restored, and no request of the
    /// client was cached since then.
    is_absent: bool,
    /// The rank in [`Dedup::by_rank`], if it is there.
    rank: Option<Rank>,
    /// True if it is in [`Dedup::unranked`].
    is_unranked: bool,
}

/// The class of a client, the cost of its responses, and the number of the oldest one. The cost of
/// absent clients does not matter: the age of their responses decides.
type Rank = (Class, usize, Reverse<u64>);

/// The order of eviction, the last class first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Present,
    Absent,
    AboveShare,
}

/// A clock that counts the running time of all stores that continued one set of records.
///
/// It stands still from the last record of one store until the next store restores it, since no
/// clock measures how long a store was down. So a restored response is at least as old as it was
/// when the last record was written.
#[derive(Clone, Copy, Debug, Default)]
struct AgeClock {
    origin: Instant,
    /// The greatest age in the records that were restored.
    at_origin: Duration,
}

impl AgeClock {
    fn now(&self, now: Instant) -> Duration {
        self.at_origin.saturating_add(now.duration_since(self.origin))
    }

    /// Continues from a record of an earlier store. The time that passed on the clock of this store
    /// before that does not count.
    fn restore(&mut self, now: Instant, recorded: Duration) {
        *self = Self { origin: now, at_origin: self.at_origin.max(recorded) };
    }
}

impl Dedup {
    pub(super) fn new(seed: u64, limits: &StoreLimits, is_durable: bool) -> Self {
        // Capped, so that sums cannot overflow if the limits are unlimited.
        let entry_cost = (limits.dedup_bytes_max / limits.dedup_entries_max.max(1)).min(1 << 20);
        let total = entry_cost.saturating_mul(limits.dedup_entries_max);
        Self {
            entry_cost,
            client_cost_max: limits.share_of(total),
            entries: Slab::new(),
            by_request: HashTable::new(),
            by_retention: Default::default(),
            next_deadline: Duration::MAX,
            count: 0,
            clients: Slab::new(),
            by_client_id: HashTable::new(),
            by_rank: BTreeSet::new(),
            unranked: Vec::new(),
            hash: KeyedHash::new(seed),
            is_durable,
            last_number: 0,
            last_response: 0,
            age_clock: AgeClock { origin: Instant::from_millis(0), at_origin: Duration::ZERO },
            bytes: 0,
            count_max: limits.dedup_entries_max,
            bytes_max: limits.dedup_bytes_max,
        }
    }

    /// A hash of the payload and timestamps of a request. Requests that reuse correlation data for
    /// other content are not duplicates.
    pub(super) fn content_hash(&self, incoming: &Incoming<'_>) -> u64 {
        let properties = &incoming.properties;
        // A collision only affects the client that constructed it, so this hash is not keyed.
        if !self.is_durable {
            let timestamps = (properties.timestamp, properties.fencing_token, properties.persist);
            return FixedState::with_seed(0).hash_one((&incoming.payload[..], timestamps));
        }
        // Every later store must compute the same hash.
        let mut hasher = SipHasher13::new();
        for text in [properties.timestamp, properties.fencing_token] {
            let text = text.unwrap_or_default();
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text.as_bytes());
        }
        hasher.write(&[u8::from(properties.persist)]);
        hasher.write(incoming.payload);
        hasher.finish()
    }

    /// The hash of all parts of a request key.
    pub(super) fn hash_of(&self, key: RequestKey<'_>) -> u64 {
        let mut hasher = self.hash.hasher();
        key.correlation.hash(&mut hasher);
        key.response_topic.hash(&mut hasher);
        key.client_id.hash(&mut hasher);
        key.content.hash(&mut hasher);
        hasher.finish()
    }

    /// Finds the first response to a request and the number of that request, unless its retention
    /// has passed. A client that is found is present again. `hash` is the [hash](Self::hash_of) of
    /// the key.
    pub(super) fn find(
        &mut self,
        now: Instant,
        hash: u64,
        key: RequestKey<'_>,
    ) -> Option<(Response, u64)> {
        let slot = self.find_slot(hash, key)?;
        let entry = self.entries.get(slot)?;
        if self.has_passed(now, entry) {
            return None;
        }
        let (response, number, client) =
            (entry.request.response.clone(), entry.number, entry.client);
        self.update_client(client, |client| client.is_absent = false);
        Some((response, number))
    }

    fn find_slot(&self, hash: u64, key: RequestKey<'_>) -> Option<Slot> {
        self.by_request.find(hash, |slot| self.key_at(*slot) == Some(key)).copied()
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

    /// The age clock at `now`, for the record of a response.
    pub(super) fn age_at(&self, now: Instant) -> Duration {
        self.age_clock.now(now)
    }

    /// Caches the response to a request of a client that is present. `hash` is the
    /// [hash](Self::hash_of) of the request key.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        hash: u64,
        client_id: &str,
        response: NewResponse,
    ) {
        let (number, given_at) = (self.next_number(), self.age_clock.now(now));
        self.insert_entry(number, given_at, hash, client_id, response, false);
    }

    /// Caches the response of a record. The client is absent until it sends a request.
    pub(super) fn restore(&mut self, now: Instant, recorded: &RecordedResponse) {
        // A snapshot and the records after it may contain the same response.
        if recorded.order <= self.last_response || recorded.order > ORDER_MAX {
            return;
        }
        self.age_clock.restore(now, recorded.given_at);
        self.expire(now);
        let response = NewResponse {
            response_topic: Arc::clone(&recorded.response_topic),
            correlation: recorded.correlation.clone(),
            content: recorded.content,
            response: Response {
                payload: recorded.payload.clone(),
                version: recorded.timestamp.clone(),
            },
            retention: recorded.retention,
            is_recorded: true,
        };
        let (client_id, given_at) = (&recorded.client_id, recorded.given_at);
        let hash = self.hash_of(response.key(client_id));
        self.insert_entry(recorded.order, given_at, hash, client_id, response, true);
    }

    fn insert_entry(
        &mut self,
        number: u64,
        given_at: Duration,
        hash: u64,
        client_id: &str,
        request: NewResponse,
        is_absent: bool,
    ) {
        // A response whose retention has passed must not be found in place of the new one.
        if let Some(outdated) = self.find_slot(hash, request.key(client_id)) {
            self.remove_from_index(hash, outdated);
        }
        self.reserve_number(number);
        self.last_response = number;
        let Some(client) = self.client_slot(client_id, is_absent) else { return };
        let class = retention_class(request.retention);
        let entry = Entry { request, number, client, given_at, hash };
        let deadline = entry.deadline();
        let Some(slot) = self.entries.insert(entry) else { return };
        let entries = &self.entries;
        let rehash = |slot: &Slot| entries.get(*slot).map_or(0, |entry| entry.hash);
        self.by_request.insert_unique(hash, slot, rehash);
        self.next_deadline = self.next_deadline.min(deadline);
        if let Some(queue) = self.by_retention.get_mut(class) {
            queue.push(number, slot);
        }
        self.count += 1;
        self.bytes += self.len_at(slot);
        let cost = self.cost(slot);
        self.update_client(client, |client| {
            client.responses.push(number, slot);
            client.cost += cost;
            client.is_absent = is_absent;
        });
        while self.count > self.count_max || self.bytes > self.bytes_max {
            self.rank_clients();
            let first_to_lose = self.by_rank.last().and_then(|(_, slot)| self.clients.get(*slot));
            let oldest = first_to_lose.and_then(|client| client.responses.oldest());
            let Some(oldest) = oldest else { return };
            self.remove(oldest);
        }
    }

    /// Ensures that no later request gets a number up to this one.
    pub(super) fn reserve_number(&mut self, number: u64) {
        self.last_number = self.last_number.max(number);
    }

    /// Marks a client as absent.
    pub(super) fn mark_absent(&mut self, client_id: &str) {
        if let Some(client) = self.find_client(client_id) {
            self.update_client(client, |client| client.is_absent = true);
        }
    }

    /// Removes responses whose retention has passed. A response is removed only after all older
    /// ones in its queue.
    pub(super) fn expire(&mut self, now: Instant) {
        let age = self.age_clock.now(now);
        if age < self.next_deadline {
            return;
        }
        self.next_deadline = Duration::MAX;
        for class in 0..RETENTION_CLASSES {
            while let Some(slot) = self.by_retention.get(class).and_then(Queue::oldest) {
                let Some(entry) = self.entries.get(slot) else { break };
                if age < entry.deadline() {
                    self.next_deadline = self.next_deadline.min(entry.deadline());
                    break;
                }
                self.remove(slot);
            }
        }
    }

    /// Returns whether the retention of a response has passed.
    fn has_passed(&self, now: Instant, entry: &Entry) -> bool {
        self.age_clock.now(now) >= entry.deadline()
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
            entry.number > after
                && entry.number <= until
                && entry.request.is_recorded
                && now < entry.deadline()
        };
        let mut found: Vec<&Entry> = self.entries.iter().filter(is_wanted).collect();
        found.sort_unstable_by_key(|entry| entry.number);
        found.into_iter().filter_map(|entry| self.to_record(entry))
    }

    fn to_record(&self, entry: &Entry) -> Option<RecordedResponse> {
        let Entry { request, number, client, given_at, .. } = entry;
        Some(RecordedResponse {
            client_id: self.clients.get(*client)?.id.clone(),
            response_topic: Arc::clone(&request.response_topic),
            correlation: request.correlation.clone(),
            content: request.content,
            payload: request.response.payload.clone(),
            timestamp: request.response.version.clone(),
            retention: request.retention,
            given_at: *given_at,
            order: *number,
        })
    }

    fn remove(&mut self, slot: Slot) {
        let (len, cost) = (self.len_at(slot), self.cost(slot));
        let Some(entry) = self.entries.get(slot) else { return };
        let (number, client, hash) = (entry.number, entry.client, entry.hash);
        let class = retention_class(entry.request.retention);
        self.entries.clear(slot);
        if let Some(queue) = self.by_retention.get_mut(class) {
            queue.remove(number, &self.entries);
        }
        self.count -= 1;
        self.bytes -= len;
        self.remove_from_index(hash, slot);
        let (clients, entries) = (&mut self.clients, &self.entries);
        if let Some(client) = clients.get_mut(client) {
            client.responses.remove(number, entries);
        }
        self.update_client(client, |client| client.cost -= cost);
    }

    fn remove_from_index(&mut self, hash: u64, slot: Slot) {
        if let Ok(entry) = self.by_request.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
    }

    fn find_client(&self, id: &str) -> Option<Slot> {
        let is_same = |slot: &Slot| self.clients.get(*slot).is_some_and(|other| *other.id == *id);
        self.by_client_id.find(self.hash.hash_one(id), is_same).copied()
    }

    /// The slot of a client, which is new if none of its responses is cached.
    fn client_slot(&mut self, id: &str, is_absent: bool) -> Option<Slot> {
        if let Some(slot) = self.find_client(id) {
            return Some(slot);
        }
        let slot = self.clients.insert(Client {
            id: id.into(),
            responses: Queue::default(),
            cost: 0,
            is_absent,
            rank: None,
            is_unranked: false,
        })?;
        let (clients, hash) = (&self.clients, &self.hash);
        let rehash = |slot: &Slot| clients.get(*slot).map_or(0, |other| hash.hash_one(&*other.id));
        self.by_client_id.insert_unique(hash.hash_one(id), slot, rehash);
        Some(slot)
    }

    /// Changes a client, whose rank may change. A client without responses is removed.
    fn update_client(&mut self, slot: Slot, change: impl FnOnce(&mut Client)) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        change(client);
        if client.responses.oldest().is_some() {
            if !core::mem::replace(&mut client.is_unranked, true) {
                self.unranked.push(slot);
            }
            // Former clients would accumulate in a cache that is never full.
            if self.unranked.len() > 2 * self.by_client_id.len() + 64 {
                self.rank_clients();
            }
            return;
        }
        let Some(client) = self.clients.remove(slot) else { return };
        if let Some(rank) = client.rank {
            self.by_rank.remove(&(rank, slot));
        }
        let hash = self.hash.hash_one(&*client.id);
        if let Ok(entry) = self.by_client_id.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
    }

    /// Completes the order of the clients.
    fn rank_clients(&mut self) {
        for slot in self.unranked.drain(..) {
            let Some(client) = self.clients.get_mut(slot) else { continue };
            client.is_unranked = false;
            let (class, cost) = match client.is_absent {
                _ if client.cost > self.client_cost_max => (Class::AboveShare, client.cost),
                true => (Class::Absent, 0),
                false => (Class::Present, client.cost),
            };
            let Some(oldest) = client.responses.oldest_number() else { continue };
            let rank = (class, cost, Reverse(oldest));
            if client.rank == Some(rank) {
                continue;
            }
            if let Some(outdated) = client.rank.replace(rank) {
                self.by_rank.remove(&(outdated, slot));
            }
            self.by_rank.insert((rank, slot));
        }
    }

    fn key_at(&self, slot: Slot) -> Option<RequestKey<'_>> {
        let Entry { request, client, .. } = self.entries.get(slot)?;
        Some(request.key(&self.clients.get(*client)?.id))
    }

    /// The number of cached responses.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the cached responses, and of the client ids, topics and correlation data.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a response and of its request key.
    fn len_at(&self, slot: Slot) -> usize {
        let Some(Entry { request, client, .. }) = self.entries.get(slot) else { return 0 };
        self.clients.get(*client).map_or(0, |client| client.id.len())
            + request.response_topic.len()
            + request.correlation.as_bytes().len()
            + request.response.payload.len()
    }

    /// The cost of a response against both limits, in bytes: its own bytes, plus the bytes per
    /// entry if both limits are used up evenly.
    fn cost(&self, slot: Slot) -> usize {
        self.len_at(slot) + self.entry_cost
    }
}
