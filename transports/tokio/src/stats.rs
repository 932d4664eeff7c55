//! What clients and stores hold and have done.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_proto::statistics::Statistic;
use statestore_proto::{client, store};

use crate::histogram::Histogram;

/// What a store holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Keys stored.
    pub keys: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
    /// Registrations for notifications.
    pub watches: usize,
    /// Requests and what became of them.
    pub counters: store::Counters,
    /// Requests whose answer the link has not taken yet, those included that wait for the journal.
    pub unanswered: usize,
    /// Packets of the store, and records if these are more, that wait for the link or the journal.
    pub waiting: usize,
    /// Bytes of what waits.
    pub waiting_bytes: usize,
    /// How long requests took, from their arrival here until the link had taken the answer.
    pub requests: Histogram,
    /// How long commits of the journal took.
    pub commits: Histogram,
}

/// Reads the [`StoreStats`] of a service, which it may outlive.
#[derive(Clone, Debug)]
pub struct StatsHandle(pub(crate) Arc<Mutex<StoreStats>>);

impl StatsHandle {
    /// What the store holds and has done, as of its last step.
    #[must_use]
    pub fn current(&self) -> StoreStats {
        *lock(&self.0)
    }
}

/// What a client has outstanding and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Requests without an outcome yet, those of watches included.
    pub pending: usize,
    /// Keys watched.
    pub watches: usize,
    /// Requests and what became of them.
    pub counters: client::Counters,
}

impl StoreStats {
    /// What the counters have counted, zeroes included.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        self.counters.iter()
    }
}

impl ClientStats {
    /// What the counters have counted, zeroes included.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        self.counters.iter()
    }
}

/// What is held, and the counters that are not zero.
impl fmt::Display for StoreStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, bytes, watches, counters, .. } = self;
        write!(f, "{keys} keys, {bytes} bytes, {watches} watches; {counters}")
    }
}

/// What is outstanding, and the counters that are not zero.
impl fmt::Display for ClientStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pending, watches, counters } = self;
        write!(f, "{pending} pending, {watches} watches; {counters}")
    }
}

/// Statistics are whole whoever panicked.
pub(crate) fn lock<T>(stats: &Mutex<T>) -> MutexGuard<'_, T> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}
