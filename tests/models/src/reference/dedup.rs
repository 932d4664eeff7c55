//! Responses to duplicates.

use std::collections::BTreeSet;

use super::{ReferenceStore, Stamp};
use crate::machines::request::StoreRequest;

/// The content that a duplicate shares with its request, besides the correlation data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    payload: Vec<u8>,
    timestamp: Option<String>,
    token: Option<String>,
    persist: bool,
}

/// A request that got its response.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) client: String,
    pub(super) topic: String,
    pub(super) correlation: Vec<u8>,
    /// `None` if restored: a record has a hash only, and any content matches.
    pub(super) content: Option<Content>,
    pub(super) request: u64,
    pub(super) until: u64,
    /// Its retention in milliseconds.
    pub(super) kept: u64,
    pub(super) payload: Vec<u8>,
    pub(super) version: Option<Stamp>,
}

impl Content {
    pub(super) fn of(request: &StoreRequest) -> Self {
        let StoreRequest { payload, timestamp, token, persist, .. } = request;
        let (timestamp, token) = (timestamp.clone(), token.clone());
        Self { payload: payload.to_vec(), timestamp, token, persist: *persist }
    }

    fn is_that_of(&self, request: &StoreRequest) -> bool {
        self.payload == request.payload
            && self.timestamp == request.timestamp
            && self.token == request.token
            && self.persist == request.persist
    }
}

impl Answered {
    /// Returns whether this request is a duplicate: same requester, topic, correlation data,
    /// content.
    pub(super) fn is_about(&self, request: &StoreRequest, client: &str, response: &str) -> bool {
        request.correlation.as_ref() == Some(&self.correlation)
            && self.client == client
            && self.topic == response
            && self.content.as_ref().is_none_or(|content| content.is_that_of(request))
    }

    pub(super) fn size(&self) -> usize {
        self.client.len() + self.topic.len() + self.correlation.len() + self.payload.len()
    }
}

impl ReferenceStore {
    /// Forgets responses. A response waits for the older ones whose retention has as many binary
    /// digits of seconds.
    pub(super) fn forget_answers(&mut self, ms: u64) {
        let mut waiting = BTreeSet::new();
        self.answers.retain(|answer| {
            let digits = (answer.kept / 1_000).checked_ilog2().map_or(0, |log| log + 1);
            if answer.until > ms {
                waiting.insert(digits);
            }
            waiting.contains(&digits)
        });
    }

    /// Adds a response and evicts others until the cache is within its limits.
    pub(super) fn remember(&mut self, answered: Answered) {
        self.answers.push(answered);
        while self.answers.len() > self.limits.dedup_entries_max
            || self.answers.iter().map(Answered::size).sum::<usize>() > self.limits.dedup_bytes_max
        {
            self.evict_one();
        }
    }

    /// Evicts the oldest response of a client that uses more than its share of the cache, if there
    /// is one; otherwise of an absent client; otherwise of the client that uses most bytes. Each
    /// response counts its bytes and slot.
    fn evict_one(&mut self) {
        let place =
            (self.limits.dedup_bytes_max / self.limits.dedup_entries_max.max(1)).min(1 << 20);
        let takes = |client: &str| {
            let own = self.answers.iter().filter(|answer| answer.client == client);
            own.map(|answer| answer.size() + place).sum::<usize>()
        };
        let total = place.saturating_mul(self.limits.dedup_entries_max);
        let percent = u128::from(self.limits.client_percent.min(100));
        let share = (total as u128 * percent).div_ceil(100);
        let rank = |client: &str| match (takes(client), self.absent.contains(client)) {
            (takes, _) if takes as u128 > share => (2, takes),
            (_, true) => (1, 0),
            (takes, false) => (0, takes),
        };
        let most = self.answers.iter().map(|answer| rank(&answer.client)).max();
        let oldest = self.answers.iter().position(|answer| Some(rank(&answer.client)) == most);
        self.answers.remove(oldest.unwrap_or_default());
    }
}
