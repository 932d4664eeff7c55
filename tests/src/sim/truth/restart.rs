//! What is true after a store was replaced: what was persisted, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use statestore_proto::hlc::Hlc;
use statestore_proto::store::{Answered, Record};
use statestore_proto::time::Now;

use super::{Change, Effect, Held, Truth};
use crate::sim::wire::{Answer, RequestName, name_of_data};

/// A store that began with what an earlier one had written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// What ended no earlier may have been there again: its end was not persisted, or came when there was no store.
    pub from: u64,
    /// When it began.
    pub at: u64,
}

/// Longer than it takes until the end of a value is persisted: the batch that is being written, and the one after it.
const PERSIST_MAX: u64 = 100;

impl Truth {
    /// Each store that took back what an earlier one had written.
    #[must_use]
    pub fn restarts(&self) -> &[Restart] {
        &self.restarts
    }

    /// The store has crashed. Of all it did only these records were ever persisted: what is not among them never happened,
    /// and whoever was told of it was told a lie. The next store finds what is `there`.
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
                Record::Answered(answered) => self.kept.extend(kept_answer(answered)),
                _ => {}
            }
        }
        let is_kept = |change: &Change| {
            let put = matches!(change.effect, Effect::Set(_));
            kept.contains(&(change.key.clone(), change.version.clone(), put))
        };
        self.log.retain(is_kept);
        // No record says who wrote a value.
        let held = |(key, version): (Bytes, Option<&Hlc>)| {
            let held = self.written.get(version?)?.clone();
            let recorded = expiries.get(&key[..]).copied().flatten();
            Some((key, Held { owner: None, recorded, ..held }))
        };
        self.held = latest.into_iter().filter_map(held).collect();
        self.answers.clear();
        self.replaced.push(at);
        // Another crash before the next store began is the same absence.
        self.crashed.get_or_insert(at);
    }

    /// The store is replaced by one that has nothing.
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

    /// When a store was gone whose registrations the next one does not know.
    #[must_use]
    pub fn replaced(&self) -> &[u64] {
        &self.replaced
    }

    /// When everything was lost.
    #[must_use]
    pub fn losses(&self) -> &[u64] {
        &self.losses
    }

    /// The next store has taken back what was persisted, at a time by both clocks.
    pub fn restart(&mut self, now: Now) {
        let at = now.instant.as_millis();
        if let Some(crashed) = self.crashed.take() {
            self.restarts.push(Restart { from: crashed.saturating_sub(PERSIST_MAX), at });
            for held in self.held.values_mut() {
                let Some(recorded) = held.recorded else { continue };
                // A lease has all its time again, for no clock tells how long the store was away. Any other value has what
                // the wall clock says, and no more than it was given.
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

/// An answer that a record has, and for how many milliseconds.
fn kept_answer(answered: &Answered) -> Option<(RequestName, (Answer, u64))> {
    let name = name_of_data(answered.correlation.as_bytes())?;
    let (payload, version) = (answered.payload.clone(), answered.timestamp.clone());
    let kept = u64::try_from(answered.kept.as_millis()).unwrap_or(u64::MAX);
    Some((name, (Answer { payload, version }, kept)))
}
