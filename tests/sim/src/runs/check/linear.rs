//! Proves that each key is linearizable: one order of all its operations respects real time and
//! explains every reply by a register with expiry and a fence.
//!
//! Uses only the requests and replies of clients. Operations with an unknown outcome may take
//! effect once, at any time after their invocation, or never. An expiry is a deletion no earlier
//! than its time after the SET, and done for every operation invoked later.

use std::collections::BTreeMap;

use bytes::Bytes;
use statestore_proto::client::Outcome;
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{Command, Condition, Refusal, Reply, Response, ServiceError};

use super::search::{self, Step};
use crate::runs::{Change, Effect, History, Moment, Op, Restart};

/// Checks every key of a history. The log of the store only suggests which order to try first. A
/// value may live its full time again from each restart: a conditional SET always, any other if the
/// wall clock was set back.
///
/// # Errors
/// The first key without such an order, and its operations.
pub fn check(history: &History, log: &[Change], restarts: &[Restart]) -> Result<(), String> {
    for key in history.keys() {
        let ops: Vec<&Op> = history.ops.iter().filter(|op| *op.key() == key).collect();
        let log: Vec<&Change> = log.iter().filter(|change| change.key == key).collect();
        check_key(&ops, &log, restarts).map_err(|why| {
            let ops: Vec<String> = ops.iter().map(|op| format!("    {op:?}\n")).collect();
            format!("key {key:?}: {why}\n{}", ops.concat())
        })?;
    }
    Ok(())
}

fn check_key(ops: &[&Op], log: &[&Change], restarts: &[Restart]) -> Result<(), String> {
    let (mut calls, mut names) = (Vec::new(), BTreeMap::new());
    for op in ops {
        if let Some(call) = call(op)? {
            names.insert(op.name, calls.len());
            calls.push(call);
        }
    }
    let chain = chain(&calls)?;
    let step = |change: &&Change| {
        let call = change.by.and_then(|name| names.get(&name).copied());
        let place = |(version, _): &(Version, Segment)| version.hlc().cmp(&change.version);
        match change.effect {
            Effect::Set(_) => {
                Some(Step::Set { call: call?, segment: chain.binary_search_by(place).ok() })
            }
            Effect::Deleted => Some(Step::Remove { call: call? }),
            Effect::Expired => Some(Step::Expire),
            // Persistence across a loss is not guaranteed, so no client expects it.
            Effect::Lost => None,
        }
    };
    let hint: Vec<Step> = log.iter().map_while(step).collect();
    search::search(&calls, &chain, &hint, restarts)
}

/// An operation as the search sees it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) invoked: Moment,
    /// `None`: it need not have happened yet, or ever.
    pub(super) returned: Option<Moment>,
    pub(super) token: Option<FencingToken>,
    pub(super) does: Does,
}

/// The effect or observation of an operation. A version is present if the reply had one.
#[derive(Debug)]
pub(super) enum Does {
    Set { value: Bytes, condition: Condition<Bytes>, px: Option<u64>, version: Option<Version> },
    Remove { value: Option<Bytes>, version: Option<Version> },
    See(Seen),
}

/// The state of the key that an operation without effect observes.
#[derive(Debug)]
pub(super) enum Seen {
    /// The key has this version, and this value or a different one.
    Present { version: Version, value: Option<Bytes>, other_than: Option<Bytes> },
    /// The key is absent.
    Absent,
    /// The key has a fence that refuses the operation's token.
    Fenced,
}

/// Known facts of a version of the key.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// The SET whose reply has this version; `None` if that reply was lost.
    pub(super) setter: Option<usize>,
    pub(super) value: Option<Bytes>,
    /// Number of operations that observed it.
    pub(super) watchers: usize,
    /// The deletion whose reply has this version.
    pub(super) remover: Option<usize>,
}

/// Known facts of an operation; `None` without any.
fn call(op: &Op) -> Result<Option<Call>, String> {
    let Some((at, outcome)) = &op.completed else { return Ok(None) };
    let (does, known) = match outcome {
        Outcome::Responded { response: Response::Reply(Reply::Error(error)), .. } => match error {
            ServiceError::Known(Refusal::FencingTokenLower | Refusal::FencingTokenRequired) => {
                (Does::See(Seen::Fenced), true)
            }
            ServiceError::Known(
                Refusal::TimestampSkew | Refusal::FencingTokenSkew | Refusal::QuotaExceeded,
            ) => return Ok(None),
            error => return Err(format!("{error:?} answers {op:?}")),
        },
        Outcome::Responded { response: Response::Reply(reply), version, .. } => {
            (answered(op, reply, version.clone())?, true)
        }
        outcome if outcome.may_be_applied() => match effect(&op.command, None) {
            Some(does) => (does, false),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let returned = known.then_some(*at);
    Ok(Some(Call { invoked: op.invoked, returned, token: op.token.clone(), does }))
}

/// Effect of a command.
fn effect(command: &Command<Bytes>, version: Option<Version>) -> Option<Does> {
    match command.clone() {
        Command::Set { value, condition, expiry, .. } => Some(Does::Set {
            value,
            condition,
            px: expiry.map(|expiry| expiry.as_millis()),
            version,
        }),
        Command::Del { .. } => Some(Does::Remove { value: None, version }),
        Command::VDel { value, .. } => Some(Does::Remove { value: Some(value), version }),
        _ => None,
    }
}

fn answered(op: &Op, reply: &Reply<Bytes>, version: Option<Version>) -> Result<Does, String> {
    let wrong = || format!("{reply:?} with version {version:?} answers {op:?}");
    match reply {
        Reply::Absent | Reply::NothingRemoved => Ok(Does::See(Seen::Absent)),
        Reply::Done | Reply::Removed if version.is_some() => {
            effect(&op.command, version.clone()).ok_or_else(wrong)
        }
        Reply::Value(value) => {
            let version = version.clone().ok_or_else(wrong)?;
            Ok(Does::See(Seen::Present { version, value: Some(value.clone()), other_than: None }))
        }
        Reply::NotApplied => {
            let version = version.clone().ok_or_else(wrong)?;
            let other_than = match &op.command {
                Command::Set { value, condition, .. } => match condition {
                    Condition::Always => return Err(wrong()),
                    Condition::IfAbsent => None,
                    Condition::IfAbsentOrEqual => Some(value.clone()),
                    Condition::IfAbsentOrEqualTo(operand) => {
                        Some(Bytes::copy_from_slice(operand.as_bytes()))
                    }
                },
                Command::VDel { value, .. } => Some(value.clone()),
                _ => return Err(wrong()),
            };
            Ok(Does::See(Seen::Present { version, value: None, other_than }))
        }
        _ => Err(wrong()),
    }
}

/// Every version in a reply, in order: the order of versions is the order of the writes.
fn chain(calls: &[Call]) -> Result<Vec<(Version, Segment)>, String> {
    let mut chain: BTreeMap<Version, Segment> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        match &call.does {
            Does::Set { value, version: Some(version), .. } => {
                let segment = chain.entry(version.clone()).or_default();
                if segment.setter.replace(number).is_some() {
                    return Err(format!("two writes have the version {version}"));
                }
                agree(&mut segment.value, value, version)?;
            }
            Does::Remove { version: Some(version), .. } => {
                let segment = chain.entry(version.clone()).or_default();
                if segment.remover.replace(number).is_some() {
                    return Err(format!("the version {version} was removed twice"));
                }
            }
            Does::See(Seen::Present { version, value, .. }) => {
                let segment = chain.entry(version.clone()).or_default();
                segment.watchers += 1;
                if let Some(value) = value {
                    agree(&mut segment.value, value, version)?;
                }
            }
            _ => {}
        }
    }
    Ok(chain.into_iter().collect())
}

fn agree(known: &mut Option<Bytes>, value: &Bytes, version: &Version) -> Result<(), String> {
    match known.replace(value.clone()) {
        Some(other) if other != *value => Err(format!("{version} is {other:?} and {value:?}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
