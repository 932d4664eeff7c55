//! What a store sends and when, held against what its oracle said: in order, and nothing before its record is safe.

use std::collections::{BTreeMap, VecDeque};

use statestore_proto::message::{Command, WordCase};
use statestore_proto::mqtt::{PublishToken, Qos, Transmit};
use statestore_proto::store::{Batch, Durability, Record, Store};

use crate::ask::{Ask, Told};
use crate::oracle::Out;

/// What an answer tells of.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// Of nothing that is written.
    Nothing,
    /// Of one key.
    Key(Vec<u8>),
    /// Of any number of them.
    Everything,
}

impl About {
    /// What the answer to this request tells of.
    pub(super) fn of(ask: &Ask, case: WordCase) -> Self {
        if ask.correlation.is_none() || ask.qos != Qos::AtLeastOnce {
            return Self::Nothing;
        }
        match Command::decode_with(&ask.payload, case) {
            Ok(command) => Self::Key(command.key().to_vec()),
            Err(_) => Self::Everything,
        }
    }
}

/// A disk that may take its time, and what waits for it.
#[derive(Default)]
pub(super) struct Disk {
    /// What is persisted, in order.
    pub(super) records: Vec<Record>,
    /// Whether batches wait until they are told to be persisted.
    pub(super) holds: bool,
    /// The registrations that notifications belonged to, as the oracle and as the store name them.
    pub(super) numbers: Vec<(u64, PublishToken)>,
    /// Whether what tells of anything stored waits for a batch in any case.
    holds_reads: bool,
    batches: VecDeque<Batch>,
    handed_out: u64,
    persisted: u64,
    /// The last batch that has a record about each key.
    written: BTreeMap<Vec<u8>, u64>,
    /// What the oracle said and must not be heard yet, and how many batches must be persisted before.
    held: Vec<(u64, (Told, u64))>,
    /// What must be heard now.
    due: Out,
}

impl Disk {
    pub(super) fn new(holds_reads: bool) -> Self {
        Self { holds_reads, ..Self::default() }
    }

    /// Takes what the oracle said to the last operation, writes what the store asks for, and hears what it sends.
    ///
    /// # Panics
    /// When the store sends anything else, anything too early, or not all that it could.
    pub(super) fn settle(
        &mut self,
        store: &mut Store,
        durability: Durability,
        about: &About,
        expected: Out,
    ) {
        let barrier = if self.holds_reads { self.handed_out + 1 } else { 0 };
        while let Some(batch) = store.poll_records_within(1) {
            let is_barrier = self.handed_out < barrier && !expected.is_empty();
            assert!(durability != Durability::None && (is_barrier || !batch.records.is_empty()));
            self.handed_out += 1;
            for record in &batch.records {
                let key = match (record.key(), about) {
                    (Some(key), _) => key,
                    (None, About::Key(key)) => key,
                    (None, _) => panic!("{record:?} about nothing"),
                };
                self.written.insert(key.to_vec(), self.handed_out);
            }
            self.batches.push_back(batch);
        }
        for told in expected {
            let key = match (&told.0, about) {
                (Told::Notification { topic, .. }, _) => {
                    let level = topic.rsplit('/').next().unwrap_or_default();
                    hex::decode(level).expect("a key in hexadecimal digits")
                }
                (Told::Reply { .. }, About::Key(key)) => key.clone(),
                (Told::Acknowledge(_), _) | (Told::Reply { .. }, About::Everything) => {
                    self.wait(self.handed_out.max(barrier), told);
                    continue;
                }
                _ => {
                    self.wait(0, told);
                    continue;
                }
            };
            let written = self.written.get(&key).copied().unwrap_or_default();
            self.wait(written.max(barrier), told);
        }
        if durability == Durability::All {
            self.hear(store);
        }
        while !self.holds && !self.batches.is_empty() {
            self.persist(store);
        }
        self.hear(store);
    }

    fn wait(&mut self, batch: u64, told: (Told, u64)) {
        if batch <= self.persisted {
            self.due.push(told);
        } else {
            self.held.push((batch, told));
        }
    }

    /// Persists the oldest batch; whether there was one.
    pub(super) fn persist(&mut self, store: &mut Store) -> bool {
        let Some(batch) = self.batches.pop_front() else { return false };
        self.records.extend(batch.records);
        self.persisted += 1;
        store.handle_persisted(batch.id);
        let (due, held) = core::mem::take(&mut self.held)
            .into_iter()
            .partition::<Vec<_>, _>(|(batch, _)| *batch <= self.persisted);
        self.held = held;
        self.due.extend(due.into_iter().map(|(_, told)| told));
        true
    }

    /// Hears everything that the store sends now: no less and no more than what is safe.
    fn hear(&mut self, store: &mut Store) {
        let sent: Vec<Transmit> = std::iter::from_fn(|| store.poll_transmit()).collect();
        assert_same(&sent, core::mem::take(&mut self.due), &mut self.numbers);
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
