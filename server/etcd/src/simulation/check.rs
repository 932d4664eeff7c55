//! Checks the responses to clients against the log of etcd, the total order of all writes.

use std::collections::BTreeMap;

use statestore_models::machines::request::StoreRequest;
use statestore_proto::store::Record;

use super::etcd::Etcd;

/// Kind of a request.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Get,
    /// A unique value.
    Set {
        value: Vec<u8>,
    },
    Del,
}

/// A request, which may be sent several times.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) key: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) ask: StoreRequest,
    pub(super) invoked: u64,
    /// Time at which it was last sent.
    pub(super) sent: u64,
    /// Time of the first response.
    pub(super) responded: Option<u64>,
    /// Payloads and versions of all responses.
    pub(super) responses: Vec<(String, Option<String>)>,
}

/// A change of a key.
struct Change<'a> {
    at: u64,
    value: Option<&'a [u8]>,
    version: String,
}

/// Returns all violations of the guarantees.
pub(super) fn violations(ops: &[Op], etcd: &Etcd) -> Vec<String> {
    let mut violations = Vec::new();
    let mut keys: BTreeMap<&[u8], Vec<Change<'_>>> = BTreeMap::new();
    let mut last = None;
    for entry in &etcd.log {
        for record in &entry.records {
            let (key, value, version) = match record {
                Record::Put { key, value, version, .. } => (key, Some(&**value), version),
                Record::Removed { key, version } => (key, None, version),
                _ => continue,
            };
            if value.is_some() {
                let hlc = Some(version.hlc().clone());
                if hlc <= last {
                    violations.push(format!("{version} is not after {last:?}"));
                }
                last = hlc;
            }
            let change = Change { at: entry.at, value, version: version.to_string() };
            keys.entry(key).or_default().push(change);
        }
    }
    for (number, op) in ops.iter().enumerate() {
        let changes = keys.get(&*op.key).map_or(&[][..], Vec::as_slice);
        let found = violation(op, changes);
        violations.extend(found.map(|found| format!("request {number}, {op:?}: {found}")));
    }
    violations
}

/// Returns the changes to this value.
fn changes_to<'a>(
    changes: &'a [Change<'a>],
    value: &'a [u8],
) -> impl Iterator<Item = &'a Change<'a>> {
    changes.iter().filter(move |change| change.value == Some(value))
}

/// Returns the first violation by a request and its responses.
fn violation(op: &Op, changes: &[Change<'_>]) -> Option<&'static str> {
    if let Kind::Set { value } = &op.kind
        && changes_to(changes, value).count() > 1
    {
        return Some("it took effect twice");
    }
    let responded = op.responded?;
    let (payload, version) = op.responses.first()?;
    let is_read = matches!(op.kind, Kind::Get);
    if !is_read && op.responses.iter().any(|response| response != &op.responses[0]) {
        return Some("its responses differ");
    }
    let during = |change: &&Change<'_>| (op.invoked..=responded).contains(&change.at);
    // The values of the key between the request and the response.
    let before = changes.iter().rev().find(|change| change.at < op.invoked);
    let before = before.and_then(|change| change.value);
    let held = || {
        let within = changes.iter().filter(during).map(|change| change.value);
        std::iter::once(before).chain(within)
    };
    match (&op.kind, payload.as_str()) {
        (Kind::Get, r"$-1\r\n") => {
            (!held().any(|value| value.is_none())).then_some("the key existed all the time")
        }
        (Kind::Get, payload) => {
            let is = |value: &[u8]| {
                format!(r"${}\r\n{}\r\n", value.len(), value.escape_ascii()) == payload
            };
            (!held().flatten().any(is)).then_some("the key never had this value in that time")
        }
        (Kind::Set { value }, r"+OK\r\n") => {
            let is = |change: &Change<'_>| Some(&change.version) == version.as_ref();
            (!changes_to(changes, value).filter(during).any(is))
                .then_some("the value was not written in that time")
        }
        (Kind::Set { value }, _) => (changes_to(changes, value).count() > 0
            || !held().any(|value| value.is_some()))
        .then_some("it was refused although it was written, or although the key did not exist"),
        (Kind::Del, r":1\r\n") => {
            let is_removed = changes.iter().filter(during).any(|change| change.value.is_none());
            (!is_removed).then_some("the key was not removed in that time")
        }
        (Kind::Del, _) => {
            (!held().any(|value| value.is_none())).then_some("the key existed and was not removed")
        }
    }
}
