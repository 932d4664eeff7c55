//! Proves that each key is linearizable; see [`statestore_models::history::linear`].

use std::collections::BTreeMap;

use bytes::Bytes;
use statestore_models::history::linear::{self, Clocks, Logged};
use statestore_models::history::{Action, Operation, Outcome as Found, Remove, Set};
use statestore_proto::client::Outcome;
use statestore_proto::hlc::{FencingToken, Hlc, Version};
use statestore_proto::message::{Command, Refusal, Reply, Response, ServiceError};

use crate::runs::{Change, Effect, History, Op, Restart};

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
    let (mut operations, mut names) = (Vec::new(), BTreeMap::new());
    for op in ops {
        if let Some(operation) = operation(op)? {
            names.insert(op.name, operations.len());
            operations.push(operation);
        }
    }
    let logged = |change: &&Change| {
        let by = change.by.and_then(|name| names.get(&name).copied());
        match change.effect {
            Effect::Set(_) => Some(Logged::Set(by?, change.version.clone())),
            Effect::Deleted => Some(Logged::Removed(by?)),
            Effect::Expired => Some(Logged::Expired),
            // Persistence across a loss is not guaranteed, so no client expects it.
            Effect::Lost => None,
        }
    };
    let log: Vec<Logged<Hlc>> = log.iter().map_while(logged).collect();
    linear::check(&operations, &log, Clocks { restarts, ..Clocks::default() })
}

/// An operation and its outcome; `None` if it reveals nothing about the key.
fn operation(op: &Op) -> Result<Option<Operation<Hlc>>, String> {
    let Some((at, outcome)) = &op.completed else { return Ok(None) };
    let token = op.token.as_ref().map(FencingToken::hlc).cloned();
    let action = match op.command.clone() {
        Command::Get { .. } => Action::Get,
        Command::Set { value, condition, expiry, .. } => {
            let expires = expiry.map(|expiry| expiry.as_millis());
            Action::Set(Set { value, condition, expires, token })
        }
        Command::Del { .. } => Action::Remove(Remove { value: None, token }),
        Command::VDel { value, .. } => Action::Remove(Remove { value: Some(value), token }),
        Command::Watch { .. } | Command::Unwatch { .. } => return Ok(None),
    };
    let outcome = match outcome {
        Outcome::Responded { response: Response::Reply(reply), version, .. } => {
            let found = found(reply, version.as_ref().map(Version::hlc).cloned());
            found.ok_or_else(|| format!("{reply:?} with version {version:?} answers {op:?}"))?
        }
        outcome if outcome.may_be_applied() => Found::Unknown,
        _ => Found::Refused,
    };
    Ok(Some(Operation {
        client: op.name.client.to_string(),
        key: op.key().clone(),
        action,
        invoked: op.invoked,
        completed: Some(*at),
        outcome,
    }))
}

fn found(reply: &Reply<Bytes>, version: Option<Hlc>) -> Option<Found<Hlc>> {
    Some(match reply {
        Reply::Error(ServiceError::Known(refusal)) => match refusal {
            Refusal::FencingTokenLower | Refusal::FencingTokenRequired => Found::Fenced,
            Refusal::TimestampSkew | Refusal::FencingTokenSkew | Refusal::QuotaExceeded => {
                Found::Refused
            }
            _ => return None,
        },
        Reply::Absent => Found::Found(None),
        Reply::NothingRemoved => Found::NothingRemoved,
        Reply::Done => Found::Applied(version?),
        Reply::Removed => Found::Removed(Some(version?)),
        Reply::Value(value) => Found::Found(Some((value.clone(), version?))),
        Reply::NotApplied => Found::NotApplied(Some(version?)),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
