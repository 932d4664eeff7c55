//! What one transaction writes: records, the last of each key, and the answers that go with them.

use std::collections::vec_deque::Iter;
use std::collections::{BTreeMap, VecDeque};
use std::iter::Take;
use std::time::Duration;

use statestore_proto::hlc::Version;
use statestore_proto::store::{Record, RecordedResponse, encode_records};

use crate::error::{Failure, preview};
use crate::head::later;
use crate::keys::Keys;
use crate::limits::MAX_VALUE_BYTES;

/// Writes of one transaction. With the head, the answers and the answers that are dropped there are 128, which is what etcd
/// takes unless it is told otherwise.
pub(crate) const WRITES_MAX: usize = 125;

/// Bytes of one transaction beyond which the next begins. What is never cut may pass it, and still fits into the 1.5 MiB that
/// etcd takes unless it is told otherwise.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// Bytes of a key, which is in its record once more, and of what names a request.
const NAME_BYTES_MAX: usize = 1 << 16;

/// Among so many records the answer follows that a record belongs to, if one does.
const ANSWER_WITHIN: usize = 8;

/// What beside its content a write takes in a request.
const OVERHEAD: usize = 64;

/// The writes of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Keys of etcd, and what they have afterwards; none for those that are removed.
    pub(crate) writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Answers as records, and for how long they are wanted.
    pub(crate) answers: Option<(Vec<u8>, Duration)>,
    /// No version up to this one is issued again.
    pub(crate) clock: Option<Version>,
}

/// A commit, one transaction after the other. It is cut where a request ends, so that a write and its answer are in one.
#[derive(Debug)]
pub(crate) struct Parts {
    records: VecDeque<Record>,
}

/// Records that are not to be cut.
#[derive(Default)]
struct Group {
    writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    answers: Vec<Record>,
    clock: Option<Version>,
    bytes: usize,
}

impl Parts {
    /// # Errors
    /// When one record alone is too large. Then none is written.
    pub(crate) fn new(records: Vec<Record>) -> Result<Self, Failure> {
        records.iter().try_for_each(check)?;
        Ok(Self { records: records.into() })
    }

    /// The next transaction, if anything is left to write.
    pub(crate) fn next(&mut self, keys: &Keys) -> Option<Part> {
        let mut part = Part::default();
        let (mut bytes, mut answers) = (0, Vec::new());
        while let Some(len) = self.group_len() {
            let records = self.records.iter().take(len);
            let group = Group::new(keys, records);
            let new = group.writes.iter().filter(|(key, _)| !part.writes.contains_key(key));
            let is_full =
                part.writes.len() + new.count() > WRITES_MAX || bytes + group.bytes > BYTES_MAX;
            if is_full && bytes > 0 {
                break;
            }
            self.records.drain(..len);
            bytes += group.bytes.max(1);
            part.writes.extend(group.writes);
            answers.extend(group.answers);
            part.clock = later(part.clock, group.clock);
        }
        let kept = |record: &Record| match record {
            Record::Response(answered) => answered.retention,
            _ => Duration::ZERO,
        };
        if let Some(longest) = answers.iter().map(kept).max() {
            part.answers = Some((encode_records(&answers), longest));
        }
        (bytes > 0).then_some(part)
    }

    /// How many records come before the first place where they may be cut.
    fn group_len(&self) -> Option<usize> {
        let is_answer = |at: usize| matches!(self.records.get(at), Some(Record::Response(_)));
        let mut bytes = 0;
        for (at, record) in self.records.iter().enumerate() {
            bytes += size(record);
            let next = self.records.get(at + 1);
            let is_cut = match next {
                None => true,
                Some(Record::Response(_)) => false,
                // More than a transaction takes: whoever sends a value of that size without a wish for an answer waits for none.
                Some(next) if bytes + size(next) > BYTES_MAX => true,
                Some(_) => is_answer(at) || !(at + 1..=at + ANSWER_WITHIN).any(is_answer),
            };
            if is_cut {
                return Some(at + 1);
            }
        }
        None
    }
}

impl Group {
    fn new(keys: &Keys, records: Take<Iter<'_, Record>>) -> Self {
        let mut group = Self::default();
        for record in records {
            group.bytes += size(record);
            let (clock, write) = match record {
                Record::Put { key, version, .. } => {
                    (Some(version), Some((keys.value(key), Some(encode_records([record])))))
                }
                Record::Removed { key, version } => (Some(version), Some((keys.value(key), None))),
                Record::Registered { key, client_id, .. } => {
                    let key = keys.watch(key, client_id);
                    (None, key.map(|key| (key, Some(encode_records([record])))))
                }
                Record::Unregistered { key, client_id } => {
                    (None, keys.watch(key, client_id).map(|key| (key, None)))
                }
                Record::Issued { version } => (Some(version), None),
                // What nobody here knows is kept beside the answers, where order and number do not matter.
                _ => {
                    group.answers.push(record.clone());
                    (None, None)
                }
            };
            group.clock = later(group.clock.take(), clock.cloned());
            group.writes.extend(write);
        }
        group
    }
}

/// Bytes that a record takes in a transaction, and rather more than less.
fn size(record: &Record) -> usize {
    OVERHEAD
        + match record {
            Record::Put { key, value, version, fencing_token, .. } => {
                let token =
                    fencing_token.as_ref().map_or(0, |token| token.hlc().node().as_str().len());
                2 * key.len() + value.len() + version.hlc().node().as_str().len() + token
            }
            Record::Removed { key, .. } => key.len(),
            Record::Registered { key, client_id, .. } | Record::Unregistered { key, client_id } => {
                2 * (key.len() + client_id.len())
            }
            Record::Response(answered) => size_of_answer(answered),
            _ => 0,
        }
}

fn size_of_answer(answered: &RecordedResponse) -> usize {
    let RecordedResponse { client_id, response_topic, correlation, payload, .. } = answered;
    client_id.len() + response_topic.len() + correlation.as_bytes().len() + payload.len()
}

fn check(record: &Record) -> Result<(), Failure> {
    let (key, bytes) = match record {
        Record::Put { key, value, .. } => (&**key, key.len() + value.len()),
        Record::Response(answered) => (&b"(an answer)"[..], 4 * size_of_answer(answered)),
        Record::Registered { key, client_id, .. } => (&**key, client_id.len()),
        _ => return Ok(()),
    };
    if key.len() > NAME_BYTES_MAX || bytes > MAX_VALUE_BYTES {
        return Err(Failure::ValueTooLarge { key: preview(key), bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
