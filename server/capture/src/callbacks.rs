//! The results of the embedder's callbacks, which a replay returns again: those of the authorizer
//! and of the predicate of durable keys.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use statestore_proto::store::{Authorizer, KeyPredicate};

/// Maximum number of results for one message, of one byte each. A page of SCAN calls the authorizer
/// for each key that it looks at, some 800 by default.
const RESULTS_MAX: usize = 1 << 16;

/// The results for one message, in order.
///
/// The callbacks of a store must be `Send + Sync`, hence the atomics. All calls are on the thread
/// that calls the store.
pub(crate) struct Results {
    results: Box<[AtomicBool]>,
    /// The number of results.
    count: AtomicUsize,
    /// The number of calls in a replay.
    calls: AtomicUsize,
}

impl Results {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            results: (0..RESULTS_MAX).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        })
    }

    fn push(&self, result: bool) -> bool {
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = self.results.get(at) {
            slot.store(result, Ordering::Relaxed);
        }
        result
    }

    /// Removes all results; `None` if there were more than [`RESULTS_MAX`].
    pub(crate) fn drain(&self) -> Option<Vec<u8>> {
        let results = self.results.get(..self.count.swap(0, Ordering::Relaxed))?;
        Some(results.iter().map(|result| u8::from(result.load(Ordering::Relaxed))).collect())
    }

    /// Sets the results of the next calls in a replay. Returns whether they fit.
    pub(crate) fn fill(&self, results: &[u8]) -> bool {
        let Some(slots) = self.results.get(..results.len()) else { return false };
        for (slot, result) in slots.iter().zip(results) {
            slot.store(*result != 0, Ordering::Relaxed);
        }
        self.count.store(results.len(), Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        true
    }

    /// The next result; false if the captured store made fewer calls.
    fn next(&self) -> bool {
        let at = self.calls.fetch_add(1, Ordering::Relaxed);
        let results = self.results.get(..self.count.load(Ordering::Relaxed)).unwrap_or_default();
        results.get(at).is_some_and(|result| result.load(Ordering::Relaxed))
    }

    /// The number of captured results, and the number of calls in the replay.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.count.load(Ordering::Relaxed), self.calls.load(Ordering::Relaxed))
    }
}

pub(crate) fn captured_authorizer(results: &Arc<Results>, authorizer: Authorizer) -> Authorizer {
    let results = Arc::clone(results);
    Box::new(move |from, access, key| results.push(authorizer(from, access, key)))
}

pub(crate) fn captured_durable_keys(
    results: &Arc<Results>,
    durable_keys: KeyPredicate,
) -> KeyPredicate {
    let results = Arc::clone(results);
    Box::new(move |key| results.push(durable_keys(key)))
}

pub(crate) fn replayed_authorizer(results: &Arc<Results>) -> Authorizer {
    let results = Arc::clone(results);
    Box::new(move |_, _, _| results.next())
}

pub(crate) fn replayed_durable_keys(results: &Arc<Results>) -> KeyPredicate {
    let results = Arc::clone(results);
    Box::new(move |_| results.next())
}
