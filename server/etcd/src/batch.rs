//! Splitting of a commit into the writes of etcd transactions.

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

/// Maximum number of writes of one transaction. Together with the head, the responses and the
/// removal of old responses that makes 128 operations, the default limit of etcd.
pub(crate) const WRITES_MAX: usize = 125;

/// Bytes of one transaction beyond which the next one begins. A group that cannot be split may
/// exceed this limit, but always fits into 1.5 MiB, the default limit of etcd.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// Maximum length of a key. Its record contains the key again.
const NAME_BYTES_MAX: usize = 1 << 16;

/// A record and the response that belongs to it are at most this many records apart.
const RESPONSE_WITHIN: usize = 8;

/// Bytes of a write in a transaction besides its key and value.
const OVERHEAD: usize = 64;

/// The writes of one transaction.
#[derive(Default)]
pub(crate) struct Part {
    /// Keys in etcd with their new values; `None` for removed keys.
    pub(crate) writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Encoded responses, and the longest time for which one of them is retained.
    pub(crate) responses: Option<(Vec<u8>, Duration)>,
    /// Greatest version that was issued.
    pub(crate) clock: Option<Version>,
}

/// The transactions of a commit. The commit is split between requests, so that a write and its
/// response are in the same transaction.
#[derive(Debug)]
pub(crate) struct Parts {
    records: VecDeque<Record>,
}

/// Records that must be in one transaction.
#[derive(Default)]
struct Group {
    writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    responses: Vec<Record>,
    clock: Option<Version>,
    bytes: usize,
}

impl Parts {
    /// # Errors
    /// [`Failure::ValueTooLarge`] if one record alone is too large. Nothing is written then.
    pub(crate) fn new(records: Vec<Record>) -> Result<Self, Failure> {
        records.iter().try_for_each(check_size)?;
        Ok(Self { records: records.into() })
    }

    /// Returns the next transaction; `None` when nothing is left to write.
    pub(crate) fn next(&mut self, keys: &Keys) -> Option<Part> {
        let mut part = Part::default();
        let (mut bytes, mut responses) = (0, Vec::new());
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
            responses.extend(group.responses);
            part.clock = later(part.clock, group.clock);
        }
        let retention = |record: &Record| match record {
            Record::Response(response) => response.retention,
            _ => Duration::ZERO,
        };
        if let Some(longest) = responses.iter().map(retention).max() {
            part.responses = Some((encode_records(&responses), longest));
        }
        (bytes > 0).then_some(part)
    }

    /// Returns the number of records up to the first place where the commit may be split.
    fn group_len(&self) -> Option<usize> {
        let is_response = |at: usize| matches!(self.records.get(at), Some(Record::Response(_)));
        let mut bytes = 0;
        for (at, record) in self.records.iter().enumerate() {
            bytes += size(record);
            let next = self.records.get(at + 1);
            let is_cut = match next {
                None => true,
                Some(Record::Response(_)) => false,
                // A request writes at most one large value, so these records belong to different
                // requests, and the earlier ones have no response.
                Some(next) if bytes + size(next) > BYTES_MAX => true,
                Some(_) => is_response(at) || !(at + 1..=at + RESPONSE_WITHIN).any(is_response),
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
                // Responses, and records of later versions, which are stored with the responses.
                _ => {
                    group.responses.push(record.clone());
                    (None, None)
                }
            };
            group.clock = later(group.clock.take(), clock.cloned());
            group.writes.extend(write);
        }
        group
    }
}

/// Returns an upper estimate of the bytes of a record in a transaction.
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
            Record::Response(response) => response_size(response),
            _ => 0,
        }
}

fn response_size(response: &RecordedResponse) -> usize {
    let RecordedResponse { client_id, owner, response_topic, correlation, payload, .. } = response;
    let texts = client_id.len() + owner.as_ref().map_or(0, |owner| owner.len());
    texts + response_topic.len() + correlation.as_bytes().len() + payload.len()
}

fn check_size(record: &Record) -> Result<(), Failure> {
    let (key, bytes) = match record {
        Record::Put { key, value, .. } => (&**key, key.len() + value.len()),
        Record::Response(response) => (&b"(a response)"[..], 4 * response_size(response)),
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
