//! The results of the embedder's callbacks, which a replay returns again: those of the authorizer,
//! of the predicate of durable keys, and of the policy of expiries.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use statestore_proto::message::Expiry;
use statestore_proto::store::{Authorizer, ExpiryPolicy, KeyPredicate};

use crate::codec::{Reader, number};

/// Maximum number of results for one message, of eight bytes each. A page of SCAN calls the authorizer
/// for each key that it looks at, some 800 by default.
const RESULTS_MAX: usize = 1 << 16;

/// The results for one message, in order.
///
/// The callbacks of a store must be `Send + Sync`, hence the atomics. All calls are on the thread
/// that calls the store.
pub(crate) struct Results {
    results: Box<[AtomicU64]>,
    /// The number of results.
    count: AtomicUsize,
    /// The number of calls in a replay.
    calls: AtomicUsize,
}

impl Results {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            results: (0..RESULTS_MAX).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        })
    }

    fn push(&self, result: u64) {
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = self.results.get(at) {
            slot.store(result, Ordering::Relaxed);
        }
    }

    fn push_bool(&self, result: bool) -> bool {
        self.push(u64::from(result));
        result
    }

    /// Removes all results; `None` if there were more than [`RESULTS_MAX`].
    pub(crate) fn drain(&self) -> Option<Vec<u8>> {
        let results = self.results.get(..self.count.swap(0, Ordering::Relaxed))?;
        let mut out = Vec::new();
        results.iter().for_each(|result| number(&mut out, result.load(Ordering::Relaxed)));
        Some(out)
    }

    /// Sets the results of the next calls in a replay. Returns whether they are readable and fit.
    pub(crate) fn fill(&self, results: &[u8]) -> bool {
        let (mut reader, mut count) = (Reader(results), 0);
        while !reader.0.is_empty() {
            let Some((slot, result)) = self.results.get(count).zip(reader.number()) else {
                return false;
            };
            slot.store(result, Ordering::Relaxed);
            count += 1;
        }
        self.count.store(count, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        true
    }

    /// The next result; zero if the captured store made fewer calls.
    fn next(&self) -> u64 {
        let at = self.calls.fetch_add(1, Ordering::Relaxed);
        let results = self.results.get(..self.count.load(Ordering::Relaxed)).unwrap_or_default();
        results.get(at).map_or(0, |result| result.load(Ordering::Relaxed))
    }

    /// The number of captured results, and the number of calls in the replay.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.count.load(Ordering::Relaxed), self.calls.load(Ordering::Relaxed))
    }
}

pub(crate) fn captured_authorizer(results: &Arc<Results>, authorizer: Authorizer) -> Authorizer {
    let results = Arc::clone(results);
    Box::new(move |from, access, key| results.push_bool(authorizer(from, access, key)))
}

pub(crate) fn captured_durable_keys(
    results: &Arc<Results>,
    durable_keys: KeyPredicate,
) -> KeyPredicate {
    let results = Arc::clone(results);
    Box::new(move |key| results.push_bool(durable_keys(key)))
}

pub(crate) fn replayed_authorizer(results: &Arc<Results>) -> Authorizer {
    let results = Arc::clone(results);
    Box::new(move |_, _, _| results.next() != 0)
}

pub(crate) fn replayed_durable_keys(results: &Arc<Results>) -> KeyPredicate {
    let results = Arc::clone(results);
    Box::new(move |_| results.next() != 0)
}

pub(crate) fn captured_expiry_policy(results: &Arc<Results>, policy: ExpiryPolicy) -> ExpiryPolicy {
    let results = Arc::clone(results);
    Box::new(move |key, requested| {
        let expiry = policy(key, requested);
        results.push(expiry.map_or(0, Expiry::as_millis));
        expiry
    })
}

pub(crate) fn replayed_expiry_policy(results: &Arc<Results>) -> ExpiryPolicy {
    let results = Arc::clone(results);
    Box::new(move |_, _| Expiry::from_millis(results.next()))
}
