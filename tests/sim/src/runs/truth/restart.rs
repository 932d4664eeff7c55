//! State after a store was replaced: the persisted records, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use statestore_proto::hlc::Hlc;
use statestore_proto::store::{Record, RecordedResponse};
use statestore_proto::time::Now;

use super::{Change, Effect, Held, Truth};
use crate::runs::wire::{Answer, RequestName, name_of_data};

/// A store that restored the records of its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// A value that did not end earlier may have reappeared: its end was not persisted, or no store
    /// ran.
    pub from: u64,
    /// Time of its start.
    pub at: u64,
}

/// Longer than persisting the end of a value takes: the current batch and the next.
const PERSIST_MAX: u64 = 100;

impl Truth {
    /// Each store that restored the records of a predecessor.
    #[must_use]
    pub fn restarts(&self) -> &[Restart] {
        &self.restarts
    }

    /// The store has crashed. Changes without one of these records never happened, and no client
    /// may have seen them. The next store restores the records in `there`.
    pub fn crash(&mut self, at: u64, persisted: &[Record], there: &[&Record]) {
        let mut kept = BTreeSet::new();
        let mut latest = BTreeMap::new();
        self.clock = (0, 0);
        for record in persisted {
            let (Record::Put { key, version, .. } | Record::Removed { key, version }) = record
            else {
                continue;
            };
            let (key, version) = (Bytes::copy_from_slice(key), version.hlc());
            let put = matches!(record, Record::Put { .. });
            self.clock = self.clock.max((version.wall().as_millis(), version.counter()));
            kept.insert((key.clone(), version.clone(), put));
            latest.insert(key, put.then_some(version));
        }
        let mut expiries = BTreeMap::new();
        self.kept.clear();
        for record in there {
            match record {
                Record::Put { key, expires, .. } => _ = expiries.insert(&key[..], *expires),
                Record::Response(answered) => self.kept.extend(kept_answer(answered)),
                _ => {}
            }
        }
        let is_kept = |change: &Change| {
            let put = matches!(change.effect, Effect::Set(_));
            kept.contains(&(change.key.clone(), change.version.clone(), put))
        };
        self.log.retain(is_kept);
        // Records do not name the writer of a value.
        let held = |(key, version): (Bytes, Option<&Hlc>)| {
            let held = self.written.get(version?)?.clone();
            let recorded = expiries.get(&key[..]).copied().flatten();
            Some((key, Held { owner: None, recorded, ..held }))
        };
        self.held = latest.into_iter().filter_map(held).collect();
        self.answers.clear();
        self.replaced.push(at);
        // Another crash before the next start extends the same outage.
        self.crashed.get_or_insert(at);
    }

    /// The store is replaced by an empty one.
    pub fn lose(&mut self, at: u64) {
        let keys: Vec<Bytes> = self.held.keys().cloned().collect();
        for key in keys {
            self.remove(at, &key, Effect::Lost, None);
        }
        self.answers.clear();
        self.kept.clear();
        self.clock = (0, 0);
        self.losses.push(at);
        self.replaced.push(at);
    }

    /// Times at which a store was lost whose registrations its successor does not have.
    #[must_use]
    pub fn replaced(&self) -> &[u64] {
        &self.replaced
    }

    /// Times at which all state was lost.
    #[must_use]
    pub fn losses(&self) -> &[u64] {
        &self.losses
    }

    /// The next store has restored the records, at a time by both clocks.
    pub fn restart(&mut self, now: Now) {
        let at = now.instant.as_millis();
        if let Some(crashed) = self.crashed.take() {
            self.restarts.push(Restart { from: crashed.saturating_sub(PERSIST_MAX), at });
            for held in self.held.values_mut() {
                let Some(recorded) = held.recorded else { continue };
                // A lease restarts in full, because no clock measures the outage. Any other value
                // has what the wall clock leaves, but no more than its full expiry.
                let left = recorded.at.as_millis().saturating_sub(now.unix.as_millis());
                let given = recorded.after.as_millis();
                held.expires = Some(at + if recorded.is_lease { given } else { left.min(given) });
            }
            let kept = core::mem::take(&mut self.kept).into_iter();
            self.answers = kept.map(|(name, (answer, kept))| (name, (answer, at + kept))).collect();
            self.expire(at);
        }
    }
}

/// The reply in a record, and its remaining time in milliseconds.
fn kept_answer(answered: &RecordedResponse) -> Option<(RequestName, (Answer, u64))> {
    let name = name_of_data(answered.correlation.as_bytes())?;
    let (payload, version) = (answered.payload.clone(), answered.timestamp.clone());
    let kept = u64::try_from(answered.retention.as_millis()).unwrap_or(u64::MAX);
    Some((name, (Answer { payload, version }, kept)))
}
