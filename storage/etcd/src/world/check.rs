//! What clients were told, held against what is in the log: the one order of all writes.

use std::collections::BTreeMap;

use statestore_proto::store::Record;
use statestore_testkit::machines::request::StoreRequest;

use super::etcd::Etcd;

/// What a client wants.
#[derive(Clone, Debug)]
pub(super) enum What {
    Get,
    /// A value that nobody else writes.
    Set {
        value: Vec<u8>,
    },
    Del,
}

/// One request, however often it was sent.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) key: Vec<u8>,
    pub(super) what: What,
    pub(super) ask: StoreRequest,
    pub(super) invoked: u64,
    /// When it was sent last.
    pub(super) asked: u64,
    /// When it was answered first.
    pub(super) answered: Option<u64>,
    /// Payloads and versions.
    pub(super) answers: Vec<(String, Option<String>)>,
}

/// A change of a key.
struct Change<'a> {
    at: u64,
    value: Option<&'a [u8]>,
    version: String,
}

/// Everything that cannot be.
pub(super) fn all(ops: &[Op], etcd: &Etcd) -> Vec<String> {
    let mut wrong = Vec::new();
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
                    wrong.push(format!("{version} is not after {last:?}"));
                }
                last = hlc;
            }
            let change = Change { at: entry.at, value, version: version.to_string() };
            keys.entry(key).or_default().push(change);
        }
    }
    for (number, op) in ops.iter().enumerate() {
        let changes = keys.get(&*op.key).map_or(&[][..], Vec::as_slice);
        wrong.extend(one(op, changes).map(|what| format!("request {number}, {op:?}: {what}")));
    }
    wrong
}

/// The changes that set this value.
fn made<'a>(changes: &'a [Change<'a>], value: &'a [u8]) -> impl Iterator<Item = &'a Change<'a>> {
    changes.iter().filter(move |change| change.value == Some(value))
}

/// What is wrong with the answers to one request.
fn one(op: &Op, changes: &[Change<'_>]) -> Option<&'static str> {
    if let What::Set { value } = &op.what
        && made(changes, value).count() > 1
    {
        return Some("it has taken effect twice");
    }
    let answered = op.answered?;
    let (payload, version) = op.answers.first()?;
    let is_read = matches!(op.what, What::Get);
    if !is_read && op.answers.iter().any(|answer| answer != &op.answers[0]) {
        return Some("it was answered in two ways");
    }
    let during = |change: &&Change<'_>| (op.invoked..=answered).contains(&change.at);
    // What the key may have had at some moment in between.
    let before = changes.iter().rev().find(|change| change.at < op.invoked);
    let before = before.and_then(|change| change.value);
    let held = || {
        let within = changes.iter().filter(during).map(|change| change.value);
        std::iter::once(before).chain(within)
    };
    match (&op.what, payload.as_str()) {
        (What::Get, r"$-1\r\n") => {
            (!held().any(|value| value.is_none())).then_some("the key was there all the time")
        }
        (What::Get, payload) => {
            let is = |value: &[u8]| {
                format!(r"${}\r\n{}\r\n", value.len(), value.escape_ascii()) == payload
            };
            (!held().flatten().any(is)).then_some("no value that it had")
        }
        (What::Set { value }, r"+OK\r\n") => {
            let is = |change: &Change<'_>| Some(&change.version) == version.as_ref();
            (!made(changes, value).filter(during).any(is))
                .then_some("nothing was written in that time")
        }
        (What::Set { value }, _) => (made(changes, value).count() > 0
            || !held().any(|value| value.is_some()))
        .then_some("it was refused and written, or without a reason"),
        (What::Del, r":1\r\n") => {
            let is_removed = changes.iter().filter(during).any(|change| change.value.is_none());
            (!is_removed).then_some("nothing was removed in that time")
        }
        (What::Del, _) => {
            (!held().any(|value| value.is_none())).then_some("there was something to remove")
        }
    }
}
