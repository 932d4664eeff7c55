//! The truth about the store: a second, naive store that receives the same requests.
//!
//! It shares only the codec and the clock values with the crate under test. Its log is the true
//! order of changes, and [`Truth::differs`] compares the real store with it after every step.

mod restart;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Message;
use bytes::Bytes;
use statestore_proto::hlc::{Hlc, NodeId};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{
    Command, Condition, Dialect, Refusal, Reply, RequestKind, ServiceError, property,
};
use statestore_proto::store::{RecordedExpiry, Store};
use statestore_proto::time::{Now, UnixTime};

pub use restart::Restart;

use super::wire::{Answer, RequestName, name_of, user_property};

/// Maximum advance of a timestamp ahead of the store.
const DRIFT_MAX: u64 = 60_000;

/// Maximum number of counts past the store's last version, at any wall time.
const LEAD_MAX: u64 = 65_536;

/// One applied change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// True time.
    pub at: u64,
    /// Key.
    pub key: Bytes,
    /// Effect.
    pub effect: Effect,
    /// Version of the value set or removed.
    pub version: Hlc,
    /// The request that caused it; `None` for an expiry.
    pub by: Option<RequestName>,
}

/// An effect on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The key was set to this value.
    Set(Bytes),
    /// It was deleted.
    Deleted,
    /// It expired.
    Expired,
    /// Its store was replaced by an empty one.
    Lost,
}

#[derive(Clone, Debug)]
struct Held {
    value: Bytes,
    version: Hlc,
    fence: Option<Hlc>,
    expires: Option<u64>,
    /// The verified client that it counts for.
    owner: Option<Arc<str>>,
    /// The expiry in its record.
    recorded: Option<RecordedExpiry>,
}

/// The naive store.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    held: BTreeMap<Bytes, Held>,
    clock: (u64, u64),
    answers: BTreeMap<RequestName, (Answer, u64)>,
    log: Vec<Change>,
    limits: StoreLimits,
    /// Every value ever set, by its version.
    written: BTreeMap<Hlc, Held>,
    /// Time of the crash, while no store runs.
    crashed: Option<u64>,
    /// Replies restored by the next store, and their remaining time.
    kept: BTreeMap<RequestName, (Answer, u64)>,
    restarts: Vec<Restart>,
    losses: Vec<u64>,
    replaced: Vec<u64>,
}

/// The timestamps of a request.
struct Stamps {
    timestamp: Option<Hlc>,
    token: Option<Hlc>,
}

impl Truth {
    /// An empty store with these limits on keys and values.
    #[must_use]
    pub fn new(limits: StoreLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Every change so far, in order.
    #[must_use]
    pub fn log(&self) -> &[Change] {
        &self.log
    }

    /// The value and version of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<(&Bytes, &Hlc)> {
        self.held.get(key).map(|held| (&held.value, &held.version))
    }

    /// Removes all expired values.
    pub fn expire(&mut self, at: u64) {
        let due = |held: &Held| held.expires.is_some_and(|expires| expires <= at);
        if self.crashed.is_some() || !self.held.values().any(due) {
            return;
        }
        let keys: Vec<Bytes> =
            self.held.iter().filter(|(_, held)| due(held)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(at, &key, Effect::Expired, None);
        }
    }

    /// Executes a request; returns the expected reply, if known.
    pub fn take(&mut self, now: Now, message: &Message) -> Option<Answer> {
        let name = name_of(message)?;
        let command = Command::decode(&message.payload).ok()?;
        if matches!(command.kind(), RequestKind::Watch | RequestKind::Unwatch) {
            return None;
        }
        let at = now.instant.as_millis();
        if has_waited_too_long(message, at) {
            return None;
        }
        let reads = command.kind() == RequestKind::Get;
        if let Some((first, until)) = self.answers.get(&name)
            && at < *until
            && !reads
        {
            return Some(first.clone());
        }
        let (reply, version) = self.execute(now, message, &command, name);
        let answer = Answer { payload: reply.to_bytes(Dialect::Deployed), version };
        if !reads {
            let kept = message
                .message_expiry
                .map_or(60_000, |seconds| (u64::from(seconds) * 2_000).max(1_000));
            self.answers.insert(name, (answer.clone(), at + kept));
        }
        Some(answer)
    }

    /// Returns how the real store differs from this one for a key.
    #[must_use]
    pub fn differs(&self, store: &Store, now: Now, key: &[u8]) -> Option<String> {
        let (own, real) = (self.held.get(key), store.get(now, key));
        let same = match (own, &real) {
            (None, None) => true,
            (Some(own), Some(real)) => {
                own.value == real.value
                    && own.version == *real.version.hlc()
                    && own.fence.as_ref() == real.fencing_token.map(|token| token.hlc())
                    && own.expires == real.expires.map(|at| at.as_millis())
            }
            _ => false,
        };
        (!same).then(|| format!("the store holds {real:?} where {own:?} was expected"))
    }

    fn execute(
        &mut self,
        now: Now,
        message: &Message,
        command: &Command<&[u8]>,
        name: RequestName,
    ) -> (Reply<Bytes>, Option<Hlc>) {
        let at = now.instant.as_millis();
        let unix = now.unix.as_millis();
        let stamps = match stamps(message, command.kind(), unix, self.clock) {
            Ok(stamps) => stamps,
            Err(refusal) => return refused(refusal),
        };
        let held = self.held.get(*command.key());
        let fence = held.and_then(|held| held.fence.as_ref());
        let version = held.map(|held| held.version.clone());
        let found = held.map(|held| held.value.clone());
        if command.kind().is_write() {
            match (fence, &stamps.token) {
                (Some(_), None) => return refused(Refusal::FencingTokenRequired),
                (Some(fence), Some(token)) if token < fence => {
                    return refused(Refusal::FencingTokenLower);
                }
                _ => {}
            }
        }
        match command {
            Command::Get { .. } => (found.map_or(Reply::Absent, Reply::Value), version),
            Command::Set { value, condition, .. }
                if found.as_ref().is_some_and(|found| !allows(condition, found, value)) =>
            {
                (Reply::NotApplied, version)
            }
            Command::Set { key, value, .. } if !self.has_room(key, value, &message.sender) => {
                refused(Refusal::QuotaExceeded)
            }
            Command::Set { .. } => self.set(now, command, stamps, (name, &message.sender)),
            _ if found.is_none() => (Reply::NothingRemoved, None),
            Command::VDel { value, .. } if found.as_ref().is_some_and(|found| found != value) => {
                (Reply::NotApplied, version)
            }
            _ => {
                self.remove(at, command.key(), Effect::Deleted, Some(name));
                (Reply::Removed, version)
            }
        }
    }

    fn set(
        &mut self,
        now: Now,
        command: &Command<&[u8]>,
        stamps: Stamps,
        (name, sender): (RequestName, &Arc<str>),
    ) -> (Reply<Bytes>, Option<Hlc>) {
        let Command::Set { key, value, expiry, .. } = command else {
            return refused(Refusal::Syntax);
        };
        let Some(version) = self.issue(now.unix.as_millis(), &stamps) else {
            return refused(Refusal::TimestampSkew);
        };
        let at = now.instant.as_millis();
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        self.log.push(Change {
            at,
            key: key.clone(),
            effect: Effect::Set(value.clone()),
            version: version.clone(),
            by: Some(name),
        });
        let px = expiry.map(|expiry| expiry.as_millis());
        let (fence, expires) = (stamps.token, px.map(|px| at + px));
        let owner = Some(Arc::clone(sender));
        let recorded = None;
        let held = Held { value, version: version.clone(), fence, expires, owner, recorded };
        self.written.insert(version.clone(), held.clone());
        self.held.insert(key, held);
        (Reply::Done, Some(version))
    }

    /// The quota, as the limits define it.
    fn has_room(&self, key: &[u8], value: &[u8], sender: &str) -> bool {
        let limits = &self.limits;
        let taken: usize = self.held.iter().map(|(key, held)| key.len() + held.value.len()).sum();
        let old = self.held.get(key).map(|held| held.value.len());
        let after = taken + key.len() + value.len() - old.map_or(0, |old| key.len() + old);
        let grows = old.is_none_or(|old| value.len() > old);
        key.len() <= limits.key_bytes_max
            && (old.is_some() || self.held.len() < limits.keys_max)
            && (!grows || after <= limits.bytes_max)
            && self.leaves_room(key, value, sender)
    }

    /// Returns whether a client stays within its share after setting a key.
    fn leaves_room(&self, key: &[u8], value: &[u8], sender: &str) -> bool {
        let limits = &self.limits;
        let share = |limit: usize| limit.saturating_mul(limits.client_percent.into()).div_ceil(100);
        let own = |held: &&Held| held.owner.as_deref() == Some(sender);
        let others = self.held.iter().filter(|(other, held)| *other != key && own(held));
        let sizes = others.map(|(key, held)| key.len() + held.value.len());
        let (keys, bytes) = sizes.fold((1, 0), |(keys, bytes), size| (keys + 1, bytes + size));
        // A value without an owner may be the client's own, restored.
        let free = |held: &&Held| held.owner.is_none() || own(held);
        let old = self.held.get(key).filter(free).map(|held| held.value.len());
        (old.is_some() || keys <= share(limits.keys_max))
            && (old.is_some_and(|old| value.len() <= old)
                || bytes + key.len() + value.len() <= share(limits.bytes_max))
    }

    /// The version of a write: past the clock, the request's timestamp and its token.
    fn issue(&mut self, now: u64, stamps: &Stamps) -> Option<Hlc> {
        let latest = stamps.timestamp.as_ref().max(stamps.token.as_ref())?;
        let past = self.clock.max((latest.wall().as_millis(), latest.counter()));
        let next = if now > past.0 { (now, 0) } else { (past.0, past.1 + 1) };
        self.clock = next;
        let node = NodeId::new("StateStore").ok()?;
        Some(Hlc::new(UnixTime::from_millis(next.0), next.1, node))
    }

    fn remove(&mut self, at: u64, key: &[u8], effect: Effect, by: Option<RequestName>) {
        if let Some((key, held)) = self.held.remove_entry(key) {
            self.log.push(Change { at, key, effect, version: held.version, by });
        }
    }
}

/// A request past its message expiry is dropped.
fn has_waited_too_long(message: &Message, at: u64) -> bool {
    let waited = message.arrived.map_or(0, |arrived| at.saturating_sub(arrived.as_millis()));
    let allowed = message.message_expiry.map(|seconds| u64::from(seconds) * 1_000);
    waited > 0 && allowed.is_some_and(|allowed| waited >= allowed)
}

fn stamps(
    message: &Message,
    kind: RequestKind,
    now: u64,
    issued: (u64, u64),
) -> Result<Stamps, Refusal> {
    let read = |name, skew| {
        let Some(text) = user_property(message, name) else { return Ok(None) };
        let hlc: Hlc = text.parse().map_err(|_| Refusal::MalformedTimestamp)?;
        let follows = (hlc.wall().as_millis(), hlc.counter()) <= (issued.0, issued.1 + LEAD_MAX);
        let ahead = hlc.wall().as_millis() > now + DRIFT_MAX;
        if ahead && !follows { Err(skew) } else { Ok(Some(hlc)) }
    };
    let mut stamps = Stamps { timestamp: None, token: None };
    if kind == RequestKind::Set {
        stamps.timestamp = read(property::TIMESTAMP, Refusal::TimestampSkew)?;
        if stamps.timestamp.is_none() {
            return Err(Refusal::MissingTimestamp);
        }
    }
    if kind.is_write() {
        stamps.token = read(property::FENCING_TOKEN, Refusal::FencingTokenSkew)?;
    }
    Ok(stamps)
}

fn allows(condition: &Condition<&[u8]>, found: &[u8], value: &[u8]) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => false,
        Condition::IfAbsentOrEqual => found == value,
        Condition::IfAbsentOrEqualTo(operand) => found == operand.as_bytes(),
    }
}

fn refused(refusal: Refusal) -> (Reply<Bytes>, Option<Hlc>) {
    (Reply::Error(ServiceError::Known(refusal)), None)
}
