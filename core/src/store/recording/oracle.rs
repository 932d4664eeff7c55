//! What the embedder's functions said, which a replay has to say again: the authorizer, and the selector of durable keys.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::store::{Authorizer, KeySelector};

/// Answers for one message at most: a page of SCAN asks about each key that it looks at, some 800 by default. They take a
/// byte each.
const ANSWERS_MAX: usize = 1 << 16;

/// The answers about one message, in order. The functions of a store are shared, so this is shared with them; all of it
/// happens on whatever thread the store is called.
pub(super) struct Answers {
    answers: Box<[AtomicBool]>,
    /// How many were given, or there are to be given.
    count: AtomicUsize,
    /// How many were taken, in a replay.
    taken: AtomicUsize,
}

impl Answers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            answers: (0..ANSWERS_MAX).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    fn give(&self, answer: bool) -> bool {
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = self.answers.get(at) {
            place.store(answer, Ordering::Relaxed);
        }
        answer
    }

    /// All that were given since the last call; `None` when there were too many.
    pub(super) fn drain(&self) -> Option<Vec<u8>> {
        let given = self.answers.get(..self.count.swap(0, Ordering::Relaxed))?;
        Some(given.iter().map(|answer| u8::from(answer.load(Ordering::Relaxed))).collect())
    }

    /// Puts answers there to be taken, and returns whether there was room.
    pub(super) fn fill(&self, answers: &[u8]) -> bool {
        let Some(places) = self.answers.get(..answers.len()) else { return false };
        for (place, answer) in places.iter().zip(answers) {
            place.store(*answer != 0, Ordering::Relaxed);
        }
        self.count.store(answers.len(), Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        true
    }

    /// Takes an answer; what nobody was asked before is not allowed.
    fn take(&self) -> bool {
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        let given = self.answers.get(..self.count.load(Ordering::Relaxed)).unwrap_or_default();
        given.get(at).is_some_and(|answer| answer.load(Ordering::Relaxed))
    }

    /// How many there were to be taken, and how many were asked for.
    pub(super) fn taken(&self) -> (usize, usize) {
        (self.count.load(Ordering::Relaxed), self.taken.load(Ordering::Relaxed))
    }
}

/// An authorizer whose answers are noted.
pub(super) fn noted_authorizer(answers: &Arc<Answers>, allows: Authorizer) -> Authorizer {
    let answers = Arc::clone(answers);
    Box::new(move |from, access, key| answers.give(allows(from, access, key)))
}

/// A selector whose answers are noted.
pub(super) fn noted_selector(answers: &Arc<Answers>, selects: KeySelector) -> KeySelector {
    let answers = Arc::clone(answers);
    Box::new(move |key| answers.give(selects(key)))
}

/// An authorizer that gives the answers which were noted.
pub(super) fn replayed_authorizer(answers: &Arc<Answers>) -> Authorizer {
    let answers = Arc::clone(answers);
    Box::new(move |_, _, _| answers.take())
}

/// A selector that gives the answers which were noted.
pub(super) fn replayed_selector(answers: &Arc<Answers>) -> KeySelector {
    let answers = Arc::clone(answers);
    Box::new(move |_| answers.take())
}
