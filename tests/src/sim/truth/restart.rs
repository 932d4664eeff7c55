//! What is true after a store was replaced: what was persisted, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use statestore_proto::store::Record;

use super::{Change, Effect, Held, Truth};

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

    /// The store has crashed, and of all it did only these records are left. What is not among them never happened:
    /// whoever was told of it was told a lie.
    pub fn crash(&mut self, at: u64, records: &[Record]) {
        let mut kept = BTreeSet::new();
        let mut latest = BTreeMap::new();
        self.clock = (0, 0);
        for record in records {
            let (Record::Put { key, version, .. } | Record::Removed { key, version }) = record
            else {
                continue;
            };
            let key = Bytes::copy_from_slice(key);
            let put = matches!(record, Record::Put { .. });
            let version = version.hlc();
            self.clock = self.clock.max((version.wall().as_millis(), version.counter()));
            kept.insert((key.clone(), version.clone(), put));
            latest.insert(key, put.then_some(version));
        }
        let is_kept = |change: &Change| {
            let put = matches!(change.effect, Effect::Set(_));
            kept.contains(&(change.key.clone(), change.version.clone(), put))
        };
        self.log.retain(is_kept);
        // No record says who wrote a value.
        let held = |(key, version)| {
            let held = self.written.get(version?)?.clone();
            Some((key, Held { owner: None, ..held }))
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

    /// The next store has taken back what was persisted.
    pub fn restart(&mut self, at: u64) {
        if let Some(crashed) = self.crashed.take() {
            self.restarts.push(Restart { from: crashed.saturating_sub(PERSIST_MAX), at });
            // A lease has all its time again, for no clock tells how long the store was away.
            for held in self.held.values_mut() {
                if let Some((px, true)) = held.lease {
                    held.expires = Some(at + px);
                }
            }
            self.expire(at);
        }
    }
}
