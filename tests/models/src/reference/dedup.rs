//! Responses to duplicates.

use std::cmp::Reverse;

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
    /// `None` for an unverified client id; otherwise the name of its owner, if it has one.
    pub(super) owner: Option<Option<String>>,
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
        let owner = self.owner.iter().flatten().map(String::len).sum::<usize>();
        self.client.len() + owner + self.topic.len() + self.correlation.len() + self.payload.len()
    }

    /// Returns whether both are of the same owner. A client without another owner is its own.
    fn is_of_owner(&self, other: &Self) -> bool {
        let is_shared = matches!(self.owner, Some(Some(_)));
        self.owner == other.owner && (is_shared || self.client == other.client)
    }
}

impl ReferenceStore {
    /// Forgets responses whose retention has passed.
    pub(super) fn forget_answers(&mut self, ms: u64) {
        self.answers.retain(|answer| answer.until > ms);
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

    /// Evicts the oldest response of the owner whose responses take the most space. Unverified ones
    /// count together against verified ones. Each response counts its bytes and slot.
    fn evict_one(&mut self) {
        let slot =
            (self.limits.dedup_bytes_max / self.limits.dedup_entries_max.max(1)).min(1 << 20);
        let space = |is_same: &dyn Fn(&Answered) -> bool| -> usize {
            let same = self.answers.iter().filter(|answer| is_same(answer));
            same.map(|answer| answer.size() + slot).sum()
        };
        let first = |verified: bool| {
            let all = self.answers.iter().enumerate();
            let all = all.filter(|(_, answer)| answer.owner.is_some() == verified);
            let costs = all.map(|(at, answer)| (space(&|it| it.is_of_owner(answer)), Reverse(at)));
            costs.max().map(|(cost, Reverse(at))| (cost, at))
        };
        let verified = first(true);
        let unverified = space(&|answer| answer.owner.is_none());
        let first = match verified {
            Some((cost, _)) if cost >= unverified => verified,
            _ => first(false),
        };
        self.answers.remove(first.map_or(0, |(_, at)| at));
    }
}
