//! The bounded cache of answers: a redelivered request gets the first one again and has no second effect.
//!
//! QoS 1 delivers at least once, and the DUP flag is per hop, so a duplicate is known by its requester, response topic
//! and correlation data. GET is not remembered: reading again has no effect, and its answers are the large ones.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::hash::{BuildHasher, Hash, Hasher};

use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::hlc::Hlc;
use crate::mqtt::Correlation;
use crate::time::Instant;

/// What names a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestKey<'a> {
    pub(super) correlation: &'a [u8],
    pub(super) client_id: &'a str,
    pub(super) response_topic: &'a str,
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
    pub(super) client_id: Box<str>,
    pub(super) response_topic: Arc<str>,
    pub(super) correlation: Correlation,
    pub(super) answer: Answer,
    pub(super) until: Instant,
    /// Of all that names the request; computed once.
    pub(super) hash: u64,
}

impl Remembered {
    fn key(&self) -> RequestKey<'_> {
        RequestKey {
            client_id: &self.client_id,
            response_topic: &self.response_topic,
            correlation: self.correlation.as_bytes(),
        }
    }

    fn len(&self) -> usize {
        self.client_id.len()
            + self.response_topic.len()
            + self.correlation.as_bytes().len()
            + self.answer.payload.len()
    }
}

/// Answers in the order they were given; the oldest goes first.
#[derive(Debug)]
pub(super) struct Replies {
    queue: VecDeque<Remembered>,
    /// Sequence numbers: that of the front of the queue is `first`.
    index: HashTable<u64>,
    first: u64,
    hash: FixedState,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl Replies {
    pub(super) const fn new(seed: u64, count_max: usize, bytes_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            index: HashTable::new(),
            first: 0,
            hash: FixedState::with_seed(seed),
            bytes: 0,
            count_max,
            bytes_max,
        }
    }

    /// What a request is looked up by.
    ///
    /// All of the name is hashed, so that no client can crowd another's bucket.
    pub(super) fn hash_of(&self, key: RequestKey<'_>) -> u64 {
        let mut hasher = self.hash.build_hasher();
        key.correlation.hash(&mut hasher);
        key.response_topic.hash(&mut hasher);
        key.client_id.hash(&mut hasher);
        hasher.finish()
    }

    /// The answer that this request was given, unless it is past its time.
    pub(super) fn find(&self, now: Instant, hash: u64, key: RequestKey<'_>) -> Option<&Answer> {
        let number = self.index.find(hash, |number| is(&self.queue, self.first, *number, key))?;
        let remembered = at(&self.queue, self.first, *number)?;
        (now < remembered.until).then_some(&remembered.answer)
    }

    /// Remembers an answer until its request cannot be delivered again.
    pub(super) fn insert(&mut self, remembered: Remembered) {
        let (hash, key) = (remembered.hash, remembered.key());
        // An outdated answer to the same name must not be found first.
        if let Ok(entry) =
            self.index.find_entry(hash, |number| is(&self.queue, self.first, *number, key))
        {
            entry.remove();
        }
        self.bytes += remembered.len();
        let number = self.first + self.queue.len() as u64;
        self.queue.push_back(remembered);
        let (queue, first) = (&self.queue, self.first);
        let rehash =
            |number: &u64| at(queue, first, *number).map_or(0, |remembered| remembered.hash);
        self.index.insert_unique(hash, number, rehash);
        while self.queue.len() > self.count_max || self.bytes > self.bytes_max {
            self.forget_oldest();
        }
    }

    /// Forgets answers from the front that are past their time.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.queue.front().is_some_and(|oldest| oldest.until <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.queue.pop_front() else { return };
        self.bytes -= oldest.len();
        let first = self.first;
        if let Ok(entry) = self.index.find_entry(oldest.hash, |number| *number == first) {
            entry.remove();
        }
        self.first += 1;
    }
}

fn at(queue: &VecDeque<Remembered>, first: u64, number: u64) -> Option<&Remembered> {
    queue.get(usize::try_from(number.checked_sub(first)?).ok()?)
}

fn is(queue: &VecDeque<Remembered>, first: u64, number: u64, key: RequestKey<'_>) -> bool {
    at(queue, first, number).is_some_and(|remembered| remembered.key() == key)
}
