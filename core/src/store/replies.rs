//! The bounded cache of answers: a redelivered request gets the first one again and has no second effect.
//!
//! QoS 1 delivers at least once, and the DUP flag is per hop, so a duplicate is known by its requester, response topic,
//! correlation data and content. GET is not remembered: reading again has no effect, and its answers are the large ones.
//!
//! Every requester can fill the cache. When it is full, whoever takes most of it loses its oldest answer, so one that
//! floods the store forgets its own and not those of others. (A store that is told client ids without proof can be told
//! many.)

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::{BuildHasher, Hash, Hasher};

use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::Answered;
use crate::hlc::Hlc;
use crate::limits::StoreLimits;
use crate::mqtt::{Correlation, Incoming};
use crate::time::Instant;

/// What names a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestKey<'a> {
    pub(super) correlation: &'a [u8],
    pub(super) client_id: &'a str,
    pub(super) response_topic: &'a str,
    /// See [`Replies::content_of`].
    pub(super) content: u64,
}

/// An answer as it was given.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) payload: Bytes,
    pub(super) timestamp: Option<Hlc>,
}

/// An answer, what it answers, and until when that may come again.
#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) response_topic: Arc<str>,
    pub(super) correlation: Correlation,
    pub(super) content: u64,
    pub(super) answer: Answer,
    pub(super) until: Instant,
    /// Of all that names the request; computed once.
    pub(super) hash: u64,
    /// Whether a record says it.
    pub(super) is_recorded: bool,
}

/// Answers by what names their request, by requester, and by age.
#[derive(Debug)]
pub(super) struct Replies {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Slots by what names their request.
    index: HashTable<u32>,
    /// The ends of the list of all answers in the order in which they were given.
    oldest: Option<u32>,
    newest: Option<u32>,
    shares: Vec<Option<Share>>,
    free_shares: Vec<u32>,
    /// Shares by client id.
    clients: HashTable<u32>,
    /// The greatest last.
    ranks: BTreeSet<(Rank, u32)>,
    hash: FixedState,
    /// Whether a later store must know the same requests.
    is_durable: bool,
    /// The greatest number that a request was given, and that of the newest answer.
    last: u64,
    last_answer: u64,
    count: usize,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Slot {
    remembered: Remembered,
    /// Grows with every request that is remembered.
    number: u64,
    share: u32,
    older: Option<u32>,
    newer: Option<u32>,
}

/// The answers of one requester, the oldest first.
#[derive(Debug)]
struct Share {
    client_id: Box<str>,
    slots: VecDeque<u32>,
    cost: usize,
    rank: Rank,
}

/// What a share takes, and the number of its oldest answer: of equals the one with the older goes first.
type Rank = (usize, Reverse<u64>);

impl Replies {
    pub(super) const fn new(seed: u64, limits: &StoreLimits, is_durable: bool) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            oldest: None,
            newest: None,
            shares: Vec::new(),
            free_shares: Vec::new(),
            clients: HashTable::new(),
            ranks: BTreeSet::new(),
            hash: FixedState::with_seed(seed),
            is_durable,
            last: 0,
            last_answer: 0,
            count: 0,
            bytes: 0,
            count_max: limits.replies_max,
            bytes_max: limits.reply_bytes_max,
        }
    }

    /// Stands for payload and stamps of a request: correlation data that is used again for another request makes no
    /// duplicate of it.
    pub(super) fn content_of(&self, incoming: &Incoming<'_>) -> u64 {
        let properties = &incoming.properties;
        if !self.is_durable {
            let stamps = (properties.timestamp, properties.fencing_token, properties.persist);
            return self.hash.hash_one((&incoming.payload[..], stamps));
        }
        // The same for every store there will be. Whoever finds two contents with one hash fools nobody but himself.
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

    /// What a request is looked up by.
    ///
    /// All of the name is hashed, so that no client can crowd another's bucket.
    pub(super) fn hash_of(&self, key: RequestKey<'_>) -> u64 {
        let mut hasher = self.hash.build_hasher();
        key.correlation.hash(&mut hasher);
        key.response_topic.hash(&mut hasher);
        key.client_id.hash(&mut hasher);
        key.content.hash(&mut hasher);
        hasher.finish()
    }

    /// The answer that this request was given, unless it is past its time, and its number.
    pub(super) fn find(
        &self,
        now: Instant,
        hash: u64,
        key: RequestKey<'_>,
    ) -> Option<(&Answer, u64)> {
        let slot = self.index.find(hash, |slot| self.key_at(*slot) == Some(key))?;
        let Slot { remembered, number, .. } = self.slot(*slot)?;
        (now < remembered.until).then_some((&remembered.answer, *number))
    }

    /// The number of the request that is remembered next.
    pub(super) const fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Remembers an answer to `client_id` until its request cannot be delivered again.
    pub(super) fn insert(&mut self, client_id: &str, remembered: Remembered) {
        self.insert_as(self.next_number(), client_id, remembered);
    }

    /// The same for the answer with this number. One that is not greater than those before has been there.
    pub(super) fn insert_as(&mut self, number: u64, client_id: &str, remembered: Remembered) {
        if number <= self.last_answer {
            return;
        }
        let hash = remembered.hash;
        let key = RequestKey {
            correlation: remembered.correlation.as_bytes(),
            client_id,
            response_topic: &remembered.response_topic,
            content: remembered.content,
        };
        // An outdated answer to the same name must not be found first.
        let outdated = self.index.find(hash, |slot| self.key_at(*slot) == Some(key)).copied();
        if let Some(outdated) = outdated {
            self.remove_from_index(hash, outdated);
        }
        self.advance(number);
        self.last_answer = number;
        let Some(share) = self.share_of(client_id) else { return };
        let slot = Slot { remembered, number, share, older: self.newest, newer: None };
        let Some(place) = place(&mut self.slots, &mut self.free, slot) else { return };
        self.link_newest(place);
        let (slots, hash_at) = (&self.slots, |slot: &Option<Slot>| match slot {
            Some(slot) => slot.remembered.hash,
            None => 0,
        });
        let rehash = |at: &u32| slots.get(*at as usize).map_or(0, hash_at);
        self.index.insert_unique(hash, place, rehash);
        self.count += 1;
        self.bytes += self.len_at(place);
        let cost = self.cost_at(place);
        self.change_share(share, |share| {
            share.slots.push_back(place);
            share.cost += cost;
        });
        while self.count > self.count_max || self.bytes > self.bytes_max {
            let greatest = self.ranks.last().and_then(|(_, share)| self.share(*share));
            let Some(oldest) = greatest.and_then(|share| share.slots.front().copied()) else {
                return;
            };
            self.forget(oldest);
        }
    }

    /// Gives no number again up to this one.
    pub(super) fn advance(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// The number of the newest answer.
    pub(super) const fn last_answer(&self) -> u64 {
        self.last_answer
    }

    /// The answers that records say, with numbers past one and up to another, in order.
    pub(super) fn recorded(
        &self,
        now: Instant,
        after: u64,
        until: u64,
    ) -> impl Iterator<Item = Answered> {
        let next = |at: &u32| self.slot(*at)?.newer;
        let slots = core::iter::successors(self.oldest, next).filter_map(|at| self.slot(at));
        let due = slots.take_while(move |slot| slot.number <= until);
        let due = due.filter(move |slot| slot.number > after && slot.remembered.is_recorded);
        due.filter(move |slot| now < slot.remembered.until)
            .filter_map(move |slot| self.to_record(now, slot))
    }

    fn to_record(&self, now: Instant, slot: &Slot) -> Option<Answered> {
        let Remembered { response_topic, correlation, content, answer, until, .. } =
            &slot.remembered;
        Some(Answered {
            client_id: self.share(slot.share)?.client_id.clone(),
            response_topic: Arc::clone(response_topic),
            correlation: correlation.clone(),
            content: *content,
            payload: answer.payload.clone(),
            timestamp: answer.timestamp.clone(),
            kept: until.duration_since(now),
            order: slot.number,
        })
    }

    /// Forgets answers that are past their time, as far as no older one is not.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(oldest) = self.oldest {
            if self.slot(oldest).is_some_and(|slot| slot.remembered.until > now) {
                return;
            }
            self.forget(oldest);
        }
    }

    /// Forgets the oldest answer of its requester.
    fn forget(&mut self, place: u32) {
        let (len, cost) = (self.len_at(place), self.cost_at(place));
        let Some(slot) = self.slots.get_mut(place as usize).and_then(Option::take) else { return };
        self.free.push(place);
        self.count -= 1;
        self.bytes -= len;
        match slot.older.and_then(|older| self.slot_mut(older)) {
            Some(older) => older.newer = slot.newer,
            None => self.oldest = slot.newer,
        }
        match slot.newer.and_then(|newer| self.slot_mut(newer)) {
            Some(newer) => newer.older = slot.older,
            None => self.newest = slot.older,
        }
        self.remove_from_index(slot.remembered.hash, place);
        self.change_share(slot.share, |share| {
            share.slots.pop_front();
            share.cost -= cost;
        });
    }

    fn remove_from_index(&mut self, hash: u64, place: u32) {
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == place) {
            entry.remove();
        }
    }

    fn link_newest(&mut self, place: u32) {
        match self.newest.and_then(|newest| self.slot_mut(newest)) {
            Some(newest) => newest.newer = Some(place),
            None => self.oldest = Some(place),
        }
        self.newest = Some(place);
    }

    /// The share of a requester, a new one if it has none.
    fn share_of(&mut self, client_id: &str) -> Option<u32> {
        let hash = self.hash.hash_one(client_id);
        let is_own =
            |share: &u32| self.share(*share).is_some_and(|share| *share.client_id == *client_id);
        if let Some(share) = self.clients.find(hash, is_own) {
            return Some(*share);
        }
        let share = Share {
            client_id: client_id.into(),
            slots: VecDeque::new(),
            cost: 0,
            rank: (0, Reverse(0)),
        };
        let place = place(&mut self.shares, &mut self.free_shares, share)?;
        let (shares, state) = (&self.shares, &self.hash);
        let rehash = |at: &u32| match shares.get(*at as usize) {
            Some(Some(share)) => state.hash_one(&*share.client_id),
            _ => 0,
        };
        self.clients.insert_unique(hash, place, rehash);
        Some(place)
    }

    /// Changes a share and its rank; one that is empty then is gone.
    fn change_share(&mut self, at: u32, change: impl FnOnce(&mut Share)) {
        let Some(Some(share)) = self.shares.get_mut(at as usize) else { return };
        change(share);
        self.ranks.remove(&(share.rank, at));
        if let Some(oldest) = share.slots.front() {
            let oldest = self.slots.get(*oldest as usize).and_then(Option::as_ref);
            share.rank = (share.cost, Reverse(oldest.map_or(0, |oldest| oldest.number)));
            self.ranks.insert((share.rank, at));
            return;
        }
        let Some(share) = self.shares.get_mut(at as usize).and_then(Option::take) else { return };
        self.free_shares.push(at);
        let hash = self.hash.hash_one(&*share.client_id);
        if let Ok(entry) = self.clients.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
    }

    fn slot(&self, at: u32) -> Option<&Slot> {
        self.slots.get(at as usize)?.as_ref()
    }

    fn slot_mut(&mut self, at: u32) -> Option<&mut Slot> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    fn share(&self, at: u32) -> Option<&Share> {
        self.shares.get(at as usize)?.as_ref()
    }

    fn key_at(&self, at: u32) -> Option<RequestKey<'_>> {
        let Slot { remembered, share, .. } = self.slot(at)?;
        Some(RequestKey {
            correlation: remembered.correlation.as_bytes(),
            client_id: &self.share(*share)?.client_id,
            response_topic: &remembered.response_topic,
            content: remembered.content,
        })
    }

    /// Bytes of an answer and of what names its request.
    fn len_at(&self, at: u32) -> usize {
        let len = |slot: &Slot| {
            let Remembered { response_topic, correlation, answer, .. } = &slot.remembered;
            let client_id = self.share(slot.share).map_or(0, |share| share.client_id.len());
            client_id + response_topic.len() + correlation.as_bytes().len() + answer.payload.len()
        };
        self.slot(at).map_or(0, len)
    }

    /// What an answer takes of both limits, in bytes: its own, and those that its place among so many stands for.
    fn cost_at(&self, at: u32) -> usize {
        // Of limits that are none, no more than sums can hold.
        self.len_at(at) + (self.bytes_max / self.count_max.max(1)).min(1 << 20)
    }
}

/// Puts an item into a free place of a slab.
fn place<T>(items: &mut Vec<Option<T>>, free: &mut Vec<u32>, item: T) -> Option<u32> {
    let place = match free.pop() {
        Some(place) => place,
        None => {
            let place = u32::try_from(items.len()).ok()?;
            items.push(None);
            place
        }
    };
    *items.get_mut(place as usize)? = Some(item);
    Some(place)
}
