//! Statistics of clients and stores.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_proto::statistics::Statistic;
use statestore_proto::{client, store};

use crate::metrics::histogram::Histogram;

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Stored keys.
    pub keys: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
    /// Registrations for notifications, including silenced ones.
    pub registrations: usize,
    /// [Silenced registrations](store::Store::silenced_registrations).
    pub silenced_registrations: usize,
    /// Requests by verb and outcome.
    pub counters: store::Counters,
    /// Requests whose response the link has not accepted yet, including those that wait for the
    /// journal.
    pub pending_requests: usize,
    /// Packets that wait for the link or the journal, or records that wait for the journal if they
    /// are more.
    pub queued_outputs: usize,
    /// Bytes of these packets.
    pub queued_bytes: usize,
    /// Durations of requests, from arrival until the link has accepted the response.
    pub response_times: Histogram,
    /// Durations of commits of the journal.
    pub commit_times: Histogram,
}

/// Reads the [`StoreStats`] of a service, also after the service has ended.
#[derive(Clone, Debug)]
pub struct StatsHandle(pub(crate) Arc<Mutex<StoreStats>>);

impl StatsHandle {
    /// Statistics of the store. They contain the effects of all requests that it has responded to.
    #[must_use]
    pub fn current(&self) -> StoreStats {
        *lock_mutex(&self.0)
    }
}

/// Statistics of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Requests without an outcome, including those of watches.
    pub pending: usize,
    /// Watched keys.
    pub watches: usize,
    /// Requests by verb and outcome.
    pub counters: client::Counters,
}

impl StoreStats {
    /// All counters, including zeros.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        self.counters.iter()
    }
}

impl ClientStats {
    /// All counters, including zeros.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        self.counters.iter()
    }
}

/// Gauges, and the counters that are not zero.
impl fmt::Display for StoreStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, bytes, registrations, counters, .. } = self;
        write!(f, "{keys} keys, {bytes} bytes, {registrations} watches; {counters}")
    }
}

/// Gauges, and the counters that are not zero.
impl fmt::Display for ClientStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pending, watches, counters } = self;
        write!(f, "{pending} pending, {watches} watches; {counters}")
    }
}

/// Locks a mutex. A panic of another thread leaves statistics valid.
pub(crate) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
