//! State after a store was replaced: the persisted records, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use statestore_proto::store::{Record, RecordedExpiry, RecordedResponse};
use statestore_proto::time::Now;

use super::clock::stamp;
use super::dedup::Answered;
use super::{Change, Effect, Entry, ReferenceStore, Stamp};

/// The state that outlives a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Restarts {
    /// Every value ever set, by its version.
    pub(super) written: BTreeMap<Stamp, Entry>,
    /// Between a crash and the next start: the expiries in the records, by key.
    expiries: Option<BTreeMap<Vec<u8>, RecordedExpiry>>,
    /// Responses that the next store restores, without their end.
    answers: Vec<Answered>,
}

/// The changes that persisted records contain.
pub struct Persisted {
    /// Key, version, and whether the value was set.
    changes: BTreeSet<(Vec<u8>, Stamp, bool)>,
}

impl Persisted {
    /// Returns whether a change is persisted.
    #[must_use]
    pub fn contains(&self, change: &Change) -> bool {
        let is_set = matches!(change.effect, Effect::Set(_));
        self.changes.contains(&(change.key.clone(), change.version.clone(), is_set))
    }
}

impl ReferenceStore {
    /// A store that may [crash](Self::crash) and [restart](Self::restart).
    #[must_use]
    pub fn restartable(mut self) -> Self {
        self.restarts = Some(Restarts::default());
        self
    }

    /// Returns whether the store has crashed and not restarted.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.restarts.as_ref().is_some_and(|restarts| restarts.expiries.is_some())
    }

    /// The store has crashed; `persisted` are all records ever persisted, `there` those that the
    /// next store restores. Changes without a record never happened.
    ///
    /// Values come from this store and not from the records, so a record with a wrong value is
    /// found.
    ///
    /// # Panics
    /// If the store is not [`restartable`](Self::restartable), or has registrations: which of them
    /// are restored is not part of the reference.
    pub fn crash(&mut self, persisted: &[Record], there: &[&Record]) -> Persisted {
        assert!(self.registrations.is_empty(), "restored registrations are not modelled");
        let restarts = self.restarts.as_mut().expect("a restartable store");
        let (mut changes, mut latest) = (BTreeSet::new(), BTreeMap::new());
        self.clock.own = (0, 0);
        for record in persisted {
            let (Record::Put { key, version, .. } | Record::Removed { key, version }) = record
            else {
                continue;
            };
            let version = stamp(version.hlc());
            let is_set = matches!(record, Record::Put { .. });
            self.clock.own = self.clock.own.max((version.0, version.1));
            latest.insert(key.to_vec(), is_set.then(|| version.clone()));
            changes.insert((key.to_vec(), version, is_set));
        }
        let mut expiries = BTreeMap::new();
        restarts.answers.clear();
        for record in there {
            match record {
                Record::Put { key, expires: Some(expires), .. } => {
                    expiries.insert(key.to_vec(), *expires);
                }
                Record::Put { key, expires: None, .. } => _ = expiries.remove(&**key),
                Record::Response(response) => restarts.answers.push(restored(response)),
                _ => {}
            }
        }
        let entry = |(key, version): (Vec<u8>, Option<Stamp>)| {
            Some((key, restarts.written.get(&version?)?.clone()))
        };
        self.entries = latest.into_iter().filter_map(entry).collect();
        restarts.expiries = Some(expiries);
        // Records do not name the writer of a value.
        self.owners.clear();
        self.answers.clear();
        Persisted { changes }
    }

    /// The store is replaced by an empty one.
    pub fn lose(&mut self) -> Vec<Change> {
        let entries = std::mem::take(&mut self.entries);
        self.owners.clear();
        self.answers.clear();
        self.clock.own = (0, 0);
        if let Some(restarts) = &mut self.restarts {
            restarts.answers.clear();
        }
        let lost =
            |(key, Entry { version, .. })| Change { key, effect: Effect::Lost, version, by: None };
        entries.into_iter().map(lost).collect()
    }

    /// The next store has restored the records. Returns whether the store was down.
    pub fn restart(&mut self, now: Now) -> bool {
        let Some(restarts) = &mut self.restarts else { return false };
        let Some(expiries) = restarts.expiries.take() else { return false };
        let at = now.instant.as_millis();
        for (key, entry) in &mut self.entries {
            let Some(recorded) = expiries.get(key) else { continue };
            // A lease restarts in full, because no clock measures the outage. Any other value keeps
            // the rest of its expiry by the wall clock, and at most the full expiry.
            let left = recorded.at.as_millis().saturating_sub(now.unix.as_millis());
            let given = recorded.after.as_millis();
            entry.due = Some(at + if recorded.is_lease { given } else { left.min(given) });
        }
        let answers = std::mem::take(&mut restarts.answers).into_iter();
        self.answers =
            answers.map(|answer| Answered { until: at + answer.kept, ..answer }).collect();
        true
    }
}

/// A restored response, and its remaining time.
fn restored(response: &RecordedResponse) -> Answered {
    Answered {
        client: response.client_id.to_string(),
        owner: response.verified.then(|| response.owner.as_ref().map(ToString::to_string)),
        topic: response.response_topic.to_string(),
        correlation: response.correlation.as_bytes().to_vec(),
        content: None,
        request: 0,
        until: 0,
        kept: u64::try_from(response.retention.as_millis()).unwrap_or(u64::MAX),
        payload: response.payload.to_vec(),
        version: response.timestamp.as_ref().map(stamp),
    }
}
