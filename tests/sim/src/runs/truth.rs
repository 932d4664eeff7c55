//! The truth about the store: the reference store receives the same requests.
//!
//! Its log is the true order of changes, and [`Truth::differs`] compares the real store with it
//! after every step.

use bytes::Bytes;
use statestore_models::machines::request::StoreRequest;
use statestore_models::reference::clock::stamp;
use statestore_models::reference::{self, Entry, ReferenceStore, Stamp};
use statestore_proto::hlc::{Hlc, NodeId};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, RequestKind};
use statestore_proto::store::{Record, Store};
use statestore_proto::time::{Now, UnixTime};

use super::wire::{Answer, RequestName, name_of, name_of_data};
use crate::Message;

pub use statestore_models::history::Restart;
pub use statestore_models::reference::Effect;

/// One applied change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// True time.
    pub at: u64,
    /// Key.
    pub key: Bytes,
    /// Effect.
    pub effect: Effect,
    /// Version of the value set or removed.
    pub version: Hlc,
    /// The request that caused it; `None` for an expiry.
    pub by: Option<RequestName>,
}

/// Longer than persisting the end of a value takes: the current batch and the next.
const PERSIST_MAX: u64 = 100;

/// The reference store, and the history of the real one.
#[derive(Clone, Debug)]
pub struct Truth {
    reference: ReferenceStore,
    log: Vec<Change>,
    /// Time of the crash, while no store runs.
    crashed: Option<u64>,
    restarts: Vec<Restart>,
    losses: Vec<u64>,
    replaced: Vec<u64>,
}

impl Truth {
    /// An empty store with these limits on keys and values.
    #[must_use]
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            reference: ReferenceStore::new(limits).restartable(),
            log: Vec::new(),
            crashed: None,
            restarts: Vec::new(),
            losses: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Every change so far, in order.
    #[must_use]
    pub fn log(&self) -> &[Change] {
        &self.log
    }

    /// Each store that restored the records of a predecessor.
    #[must_use]
    pub fn restarts(&self) -> &[Restart] {
        &self.restarts
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

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        let entry = self.reference.entries.get(key)?;
        Some(Bytes::copy_from_slice(&entry.value))
    }

    /// Removes all expired values.
    pub fn expire(&mut self, now: Now) {
        if !self.reference.is_down() {
            let _ = self.reference.expire_notifying(now);
            self.record(now);
        }
    }

    /// Executes a request; returns the expected reply, if known. Registrations and SCAN are not
    /// executed; the checker of watches and the scenarios of listings cover them.
    pub fn take(&mut self, now: Now, message: &Message) -> Option<Answer> {
        name_of(message)?;
        let kind = Command::decode(&message.payload).ok()?.kind();
        if matches!(kind, RequestKind::Watch | RequestKind::Unwatch) {
            return None;
        }
        let handled =
            self.reference.handle(now, &StoreRequest::from_incoming(&message.as_incoming()));
        self.record(now);
        let response = handled.response?;
        let version = response.version.as_ref().map(hlc);
        Some(Answer { payload: response.payload.into(), version })
    }

    /// Returns how the real store differs from this one for a key.
    #[must_use]
    pub fn differs(&self, store: &Store, now: Now, key: &[u8]) -> Option<String> {
        let (own, real) = (self.reference.entries.get(key), store.get(now, key));
        let found = real.as_ref().map(|real| Entry {
            value: real.value.to_vec(),
            version: stamp(real.version.hlc()),
            fence: real.fencing_token.map(|token| stamp(token.hlc())),
            due: real.expires.map(|at| at.as_millis()),
        });
        (found.as_ref() != own)
            .then(|| format!("the store holds {real:?} where {own:?} was expected"))
    }

    /// The store has crashed. Changes without one of these records never happened, and no client
    /// may have seen them. The next store restores the records in `there`.
    pub fn crash(&mut self, at: u64, persisted: &[Record], there: &[&Record]) {
        let persisted = self.reference.crash(persisted, there);
        self.log.retain(|change| {
            persisted.contains(&reference::Change {
                key: change.key.to_vec(),
                effect: change.effect.clone(),
                version: stamp(&change.version),
                by: None,
            })
        });
        self.replaced.push(at);
        // Another crash before the next start extends the same outage.
        self.crashed.get_or_insert(at);
    }

    /// The store is replaced by an empty one.
    pub fn lose(&mut self, at: u64) {
        let lost = self.reference.lose();
        self.log.extend(lost.iter().map(|change| logged(at, change)));
        self.losses.push(at);
        self.replaced.push(at);
    }

    /// The next store has restored the records, at a time by both clocks.
    pub fn restart(&mut self, now: Now) {
        if let Some(crashed) = self.crashed.take() {
            let (from, at) = (crashed.saturating_sub(PERSIST_MAX), now.instant.as_millis());
            self.restarts.push(Restart { from, at });
            self.reference.restart(now);
            self.expire(now);
        }
    }

    /// Logs the changes of the last call.
    fn record(&mut self, now: Now) {
        let at = now.instant.as_millis();
        self.log.extend(self.reference.changes().iter().map(|change| logged(at, change)));
    }
}

fn logged(at: u64, change: &reference::Change) -> Change {
    Change {
        at,
        key: Bytes::copy_from_slice(&change.key),
        effect: change.effect.clone(),
        version: hlc(&change.version),
        by: change.by.as_deref().and_then(name_of_data),
    }
}

fn hlc((wall, counter, node): &Stamp) -> Hlc {
    let node = NodeId::new(node).expect("the node of a version");
    Hlc::new(UnixTime::from_millis(*wall), *counter, node)
}
