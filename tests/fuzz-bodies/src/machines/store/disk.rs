//! Compares the output of a store, and its time, with the reference store: the order is the same,
//! and no output precedes its durable record.

use std::collections::{BTreeMap, VecDeque};

use statestore_proto::message::{Command, WordCase};
use statestore_proto::store::{Batch, Durability, Record, Store};
use statestore_proto::transport::{PublishToken, Qos, Transmit};

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_models::reference::Out;

/// The stored state that a reply reveals.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// No stored state.
    Nothing,
    /// One key.
    Key(Vec<u8>),
    /// Any number of keys.
    Everything,
}

impl About {
    /// The state that the reply to this request reveals.
    pub(super) fn of(ask: &StoreRequest, case: WordCase) -> Self {
        let is_decoded =
            ask.correlation.is_some() && ask.qos == Qos::AtLeastOnce && ask.chunk.is_none();
        if !is_decoded {
            return Self::Nothing;
        }
        match Command::decode_with(&ask.payload, case) {
            Ok(command) => Self::Key(command.key().to_vec()),
            Err(_) => Self::Everything,
        }
    }
}

/// A disk that may be slow, and the output that waits for it.
#[derive(Default)]
pub(super) struct Disk {
    /// Persisted records, in order.
    pub(super) records: Vec<Record>,
    /// Batches are held until [`Disk::persist`].
    pub(super) holds: bool,
    /// Registrations of notifications: number at the reference store, token at the store.
    pub(super) numbers: Vec<(u64, PublishToken)>,
    /// All output that reveals stored state waits for a batch.
    holds_reads: bool,
    batches: VecDeque<Batch>,
    handed_out: u64,
    persisted: u64,
    /// The last batch that has a record about each key.
    written: BTreeMap<Vec<u8>, u64>,
    /// Expected output that must not be sent yet, with the batch that must be persisted before.
    held: Vec<(u64, (Sent, u64))>,
    /// Expected output that must be sent now.
    due: Out,
}

impl Disk {
    pub(super) fn new(holds_reads: bool) -> Self {
        Self { holds_reads, ..Self::default() }
    }

    /// Takes the output of the reference store for the last operation, persists the records of the
    /// store, and checks its packets.
    ///
    /// # Panics
    /// If the store sends anything else, anything too early, or less than it could.
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
        for output in expected {
            let key = match (&output.0, about) {
                (Sent::Notification { topic, .. }, _) => {
                    let level = topic.rsplit('/').next().unwrap_or_default();
                    hex::decode(level).expect("a key in hexadecimal digits")
                }
                (Sent::Reply { .. }, About::Key(key)) => key.clone(),
                (Sent::Acknowledge(_), _) | (Sent::Reply { .. }, About::Everything) => {
                    self.wait(self.handed_out.max(barrier), output);
                    continue;
                }
                _ => {
                    self.wait(0, output);
                    continue;
                }
            };
            let written = self.written.get(&key).copied().unwrap_or_default();
            self.wait(written.max(barrier), output);
        }
        if durability == Durability::All {
            self.check_sent(store);
        }
        while !self.holds && !self.batches.is_empty() {
            self.persist(store);
        }
        self.check_sent(store);
    }

    fn wait(&mut self, batch: u64, output: (Sent, u64)) {
        if batch <= self.persisted {
            self.due.push(output);
        } else {
            self.held.push((batch, output));
        }
    }

    /// Persists the oldest batch; returns whether there was one.
    pub(super) fn persist(&mut self, store: &mut Store) -> bool {
        let Some(batch) = self.batches.pop_front() else { return false };
        self.records.extend(batch.records);
        self.persisted += 1;
        store.handle_persisted(batch.id);
        let (due, held) = core::mem::take(&mut self.held)
            .into_iter()
            .partition::<Vec<_>, _>(|(batch, _)| *batch <= self.persisted);
        self.held = held;
        self.due.extend(due.into_iter().map(|(_, output)| output));
        true
    }

    /// Drops the notifications of a registration that were not sent yet.
    pub(super) fn drop_notifications(&mut self, number: u64) {
        self.held.retain(|(_, (_, other))| *other != number);
    }

    /// Checks that the store sends exactly the output that is due.
    fn check_sent(&mut self, store: &mut Store) {
        let sent: Vec<Transmit> = std::iter::from_fn(|| store.poll_transmit()).collect();
        assert_same(&sent, core::mem::take(&mut self.due), &mut self.numbers);
    }
}

/// Asserts equal output in equal order; keys that expired in one moment may come in any order.
///
/// # Panics
/// If the output differs, or a registration has two tokens.
pub(crate) fn assert_same(
    sent: &[Transmit],
    expected: Out,
    numbers: &mut Vec<(u64, PublishToken)>,
) {
    let packet = |transmit: &Transmit| match transmit {
        Transmit::Publish(publish) => (Sent::from_transmit(transmit), publish.token),
        _ => (Sent::from_transmit(transmit), None),
    };
    let sent = in_free_order(sent.iter().map(packet).collect());
    let expected = in_free_order(expected);
    let packets: Vec<&Sent> = sent.iter().map(|(packet, _)| packet).collect();
    assert_eq!(packets, expected.iter().map(|(packet, _)| packet).collect::<Vec<_>>());
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

/// Sorts consecutive delete notifications by key; everything else stays in place.
fn in_free_order<T>(mut packet: Vec<(Sent, T)>) -> Vec<(Sent, T)> {
    let deleted = |(packet, _): &(Sent, T)| match packet {
        Sent::Notification { topic, payload, .. } if !payload.contains("VALUE") => {
            topic.rsplit('/').next().map(str::to_owned)
        }
        _ => None,
    };
    for run in packet.chunk_by_mut(|one, next| deleted(one).is_some() && deleted(next).is_some()) {
        run.sort_by_key(deleted);
    }
    packet
}
