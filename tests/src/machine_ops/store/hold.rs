//! What a store sends and when, held against what its oracle said: in order, and nothing before its record is safe.

use std::collections::VecDeque;

use statestore_proto::mqtt::{PublishToken, Transmit};
use statestore_proto::store::{Batch, Durability, Record, Store};

use crate::ask::Told;
use crate::oracle::Out;

/// A disk that may take its time, and what waits for it.
#[derive(Default)]
pub(super) struct Disk {
    /// What is persisted, in order.
    pub(super) records: Vec<Record>,
    /// Whether batches wait until they are told to be persisted.
    pub(super) holds: bool,
    /// The registrations that notifications belonged to, as the oracle and as the store name them.
    pub(super) numbers: Vec<(u64, PublishToken)>,
    batches: VecDeque<Batch>,
    handed_out: u64,
    persisted: u64,
    /// What the oracle said and nobody has heard yet, and how many batches must be persisted before.
    due: VecDeque<(Out, u64)>,
}

impl Disk {
    /// Takes what the oracle said to the last operation, writes what the store asks for, and hears what it sends.
    ///
    /// # Panics
    /// When the store sends anything else, anything too early, or not all that it could.
    pub(super) fn settle(&mut self, store: &mut Store, durability: Durability, expected: Out) {
        if let Some(batch) = store.poll_records() {
            assert!(durability != Durability::None && !batch.records.is_empty());
            self.handed_out += 1;
            self.batches.push_back(batch);
        }
        self.due.push_back((expected, self.handed_out));
        if durability == Durability::All {
            self.hear(store);
        }
        while !self.holds && !self.batches.is_empty() {
            self.persist(store);
        }
        self.hear(store);
    }

    /// Persists the oldest batch; whether there was one.
    pub(super) fn persist(&mut self, store: &mut Store) -> bool {
        let Some(batch) = self.batches.pop_front() else { return false };
        self.records.extend(batch.records);
        self.persisted += 1;
        store.handle_persisted(batch.id);
        true
    }

    /// Hears everything that the store sends now: no less and no more than what is safe.
    fn hear(&mut self, store: &mut Store) {
        let mut expected = Out::new();
        while self.due.front().is_some_and(|(_, batch)| *batch <= self.persisted) {
            expected.extend(self.due.pop_front().into_iter().flat_map(|(told, _)| told));
        }
        let sent: Vec<Transmit> = std::iter::from_fn(|| store.poll_transmit()).collect();
        assert_same(&sent, expected, &mut self.numbers);
    }
}

/// The same things in the same order; only of keys that expired in one moment the order is free.
///
/// # Panics
/// When they are not, or when a registration has two tokens.
pub(crate) fn assert_same(
    sent: &[Transmit],
    expected: Out,
    numbers: &mut Vec<(u64, PublishToken)>,
) {
    let told = |transmit: &Transmit| match transmit {
        Transmit::Publish(publish) => (Told::of(transmit), publish.token),
        _ => (Told::of(transmit), None),
    };
    let sent = in_free_order(sent.iter().map(told).collect());
    let expected = in_free_order(expected);
    let sent_told: Vec<&Told> = sent.iter().map(|(told, _)| told).collect();
    assert_eq!(sent_told, expected.iter().map(|(told, _)| told).collect::<Vec<_>>());
    for ((_, token), (_, number)) in sent.iter().zip(&expected) {
        let Some(token) = *token else { continue };
        let same = |known: &&(u64, PublishToken)| known.0 == *number || known.1 == token;
        assert!(
            numbers.iter().filter(same).all(|known| *known == (*number, token)),
            "one token each"
        );
        numbers.push((*number, token));
    }
}

/// Brings deletions that follow each other into the order of their keys; everything else stays where it is.
fn in_free_order<T>(mut told: Vec<(Told, T)>) -> Vec<(Told, T)> {
    let deleted = |(told, _): &(Told, T)| match told {
        Told::Notification { topic, payload, .. } if !payload.contains("VALUE") => {
            topic.rsplit('/').next().map(str::to_owned)
        }
        _ => None,
    };
    for run in told.chunk_by_mut(|one, next| deleted(one).is_some() && deleted(next).is_some()) {
        run.sort_by_key(deleted);
    }
    told
}
