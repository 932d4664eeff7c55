//! Proves that a key is linearizable: one order of all its operations respects real time and
//! explains every reply by a register with expiry and a fence.
//!
//! Uses only the requests and replies of clients. Operations with an unknown outcome may take
//! effect once, at any time after their invocation, or never. An expiry is a deletion no earlier
//! than its time after the SET, and done for every operation invoked later.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use bytes::Bytes;
use statestore_proto::message::Condition;

use super::search::{self, Step};
use super::{Action, Moment, Operation, Outcome, Remove, Set};

/// A store that restored the records of its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// A value that did not end earlier may have reappeared: its end was not persisted, or no store
    /// ran.
    pub from: u64,
    /// Time of its start.
    pub at: u64,
}

/// Tolerance of expiry times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks<'a> {
    /// Milliseconds by which a value may end too early: stores round, and their clocks are not that
    /// of the history.
    pub early: u64,
    /// A value may outlive its time by any amount, as after a takeover that restarts leases.
    pub may_be_late: bool,
    /// A value may live its full time again from each restart.
    pub restarts: &'a [Restart],
}

/// A change in the log of the store. It only suggests which order to try first.
#[derive(Clone, Debug)]
pub enum Logged<V> {
    /// The operation with this index set the version.
    Set(usize, V),
    /// The operation with this index removed the value.
    Removed(usize),
    /// The value expired.
    Expired,
}

/// Checks the operations of one key.
///
/// # Errors
/// The reply that no order explains.
pub fn check<V: Ord + Clone + Debug + Display>(
    operations: &[Operation<V>],
    log: &[Logged<V>],
    clocks: Clocks<'_>,
) -> Result<(), String> {
    let (mut calls, mut numbers) = (Vec::new(), BTreeMap::new());
    for (number, operation) in operations.iter().enumerate() {
        if let Some(call) = call(operation)? {
            numbers.insert(number, calls.len());
            calls.push(call);
        }
    }
    let chain = chain(&calls)?;
    let step = |logged: &Logged<V>| {
        Some(match logged {
            Logged::Set(by, version) => {
                let segment = chain.binary_search_by(|(other, _)| other.cmp(version)).ok();
                Step::Set { call: *numbers.get(by)?, segment }
            }
            Logged::Removed(by) => Step::Remove { call: *numbers.get(by)? },
            Logged::Expired => Step::Expire,
        })
    };
    let hint: Vec<Step> = log.iter().map_while(step).collect();
    search::search(&calls, &chain, &hint, clocks)
}

/// An operation as the search sees it.
#[derive(Debug)]
pub(super) struct Call<V> {
    pub(super) invoked: Moment,
    /// `None`: it need not have happened yet, or ever.
    pub(super) returned: Option<Moment>,
    pub(super) token: Option<V>,
    pub(super) does: Does<V>,
}

/// The effect or observation of an operation. A version is present if the reply had one.
#[derive(Debug)]
pub(super) enum Does<V> {
    Set { value: Bytes, condition: Condition<Bytes>, px: Option<u64>, version: Option<V> },
    Remove { value: Option<Bytes>, version: Option<V> },
    See(Seen<V>),
}

/// The state of the key that an operation without effect observes.
#[derive(Debug)]
pub(super) enum Seen<V> {
    /// The key has this version if it is known, and this value or a different one.
    Present { version: Option<V>, value: Option<Bytes>, other_than: Option<Bytes> },
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
fn call<V: Clone + Debug>(operation: &Operation<V>) -> Result<Option<Call<V>>, String> {
    let Operation { action, outcome, invoked, completed, .. } = operation;
    let token = match action {
        Action::Set(Set { token, .. }) | Action::Remove(Remove { token, .. }) => token.clone(),
        Action::Get => None,
    };
    let set = |set: &Set<V>, version| Does::Set {
        value: set.value.clone(),
        condition: set.condition.clone(),
        px: set.expires,
        version,
    };
    let remove =
        |remove: &Remove<V>, version| Does::Remove { value: remove.value.clone(), version };
    let does = match (action, outcome) {
        (_, Outcome::Refused) | (Action::Get, Outcome::Unknown) => return Ok(None),
        (Action::Set(_) | Action::Remove(_), Outcome::Fenced) => Does::See(Seen::Fenced),
        (Action::Set(it), Outcome::Unknown) => set(it, None),
        (Action::Set(it), Outcome::Applied(version)) => set(it, Some(version.clone())),
        (Action::Set(it), Outcome::NotApplied(version)) => {
            let other_than = match &it.condition {
                Condition::Always => return Err(format!("an unconditional SET: {operation:?}")),
                Condition::IfAbsent => None,
                Condition::IfAbsentOrEqual => Some(it.value.clone()),
                Condition::IfAbsentOrEqualTo(operand) => {
                    Some(Bytes::copy_from_slice(operand.as_bytes()))
                }
            };
            Does::See(Seen::Present { version: version.clone(), value: None, other_than })
        }
        (Action::Get, Outcome::Found(Some((value, version)))) => Does::See(Seen::Present {
            version: Some(version.clone()),
            value: Some(value.clone()),
            other_than: None,
        }),
        (Action::Get, Outcome::Found(None)) | (Action::Remove(_), Outcome::NothingRemoved) => {
            Does::See(Seen::Absent)
        }
        (Action::Remove(it), Outcome::Unknown) => remove(it, None),
        (Action::Remove(it), Outcome::Removed(version)) => remove(it, version.clone()),
        (Action::Remove(it), Outcome::NotApplied(version)) => Does::See(Seen::Present {
            version: version.clone(),
            value: None,
            other_than: it.value.clone(),
        }),
        _ => return Err(format!("not an outcome of the command: {operation:?}")),
    };
    let returned = completed.filter(|_| !matches!(outcome, Outcome::Unknown));
    Ok(Some(Call { invoked: *invoked, returned, token, does }))
}

/// Every version in a reply, in order: the order of versions is the order of the writes.
fn chain<V: Ord + Clone + Display>(calls: &[Call<V>]) -> Result<Vec<(V, Segment)>, String> {
    let mut chain: BTreeMap<V, Segment> = BTreeMap::new();
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
            Does::See(Seen::Present { version: Some(version), value, .. }) => {
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

fn agree(known: &mut Option<Bytes>, value: &Bytes, version: &impl Display) -> Result<(), String> {
    match known.replace(value.clone()) {
        Some(other) if other != *value => Err(format!("{version} is {other:?} and {value:?}")),
        _ => Ok(()),
    }
}
