//! `decide` against the reference store: on its finite world, on generated states, and as a table.

mod order;
mod table;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use statestore_models::generators::{bytes, command, hlc};
use statestore_models::reference::clock::{self, stamp};
use statestore_models::reference::{Entry, Notified, ReferenceStore, Request};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Condition, Notification, Reply};
use statestore_proto::rules::{
    Change, Decision, Exceeded, KeyState, Limit, Rejected, ReplyVersion, Stored, decide,
};
use statestore_proto::time::{Instant, Now, UnixTime};

use crate::support::same;
use world::World;

const CLIENT: &str = "client";

/// One input of `decide`: a command and the state that it may depend on.
#[derive(Clone, Debug)]
struct Case {
    command: Command<Vec<u8>>,
    value: Option<Vec<u8>>,
    fence: Option<Hlc>,
    token: Option<Hlc>,
    full: bool,
    watched: bool,
}

impl Case {
    fn decide(&self) -> Result<Decision<'_>, Rejected<'_>> {
        let fence = self.fence.as_ref().map(|fence| FencingToken::new(fence.borrowed()));
        let entry = self.value.as_ref().map(|value| Stored { value, fence });
        let exceeded = self.full.then_some(Exceeded::new(Limit::Keys, 2, 1));
        let state = KeyState { stored: entry, is_registered: self.watched, exceeded };
        let token = self.token.as_ref().map(|token| FencingToken::new(token.borrowed()));
        decide(state, &self.command, token)
    }

    /// Checks that the reference store makes the same change, reply and notifications as the decision.
    fn check(&self) -> Result<(), String> {
        let (key, stored) = (self.command.key().clone(), (7, 0, "s".to_owned()));
        let mut reference = ReferenceStore::new(StoreLimits::default());
        if let Some(value) = self.value.clone() {
            let fence = self.fence.as_ref().map(stamp);
            let entry = Entry { value, version: stored.clone(), fence, due: None };
            reference.entries.insert(key.clone(), entry);
        }
        reference.add_registration("another client", &key);
        if self.watched {
            reference.add_registration(CLIENT, &key);
        }
        let before = state(&reference);
        let now = Now::new(Instant::from_millis(9), UnixTime::from_millis(u64::MAX));
        let answer = reference.request(&Request {
            now,
            client: CLIENT.into(),
            command: self.command.clone(),
            timestamp: Some("5:0:c".into()),
            token: self.token.as_ref().map(|token| clock::text(&stamp(token))),
            full: self.full,
        });

        let decision = self.decide().unwrap_or_else(|rejected| Decision {
            change: Change::None,
            reply: Reply::Error(rejected.refusal().into()),
            version: ReplyVersion::None,
        });
        same("reply", &decision.reply.map(<[u8]>::to_vec), &answer.reply)?;
        let new = (u64::MAX, 0, "StateStore".to_owned());
        let version = match decision.version {
            ReplyVersion::None => None,
            ReplyVersion::Stored => Some(stored.clone()),
            ReplyVersion::New => Some(new.clone()),
        };
        same("version", &version, &answer.version)?;
        let (mut after, mut notified) = (before.clone(), None);
        match decision.change {
            Change::None => {}
            Change::Put => {
                let Command::Set { value, expiry, .. } = self.command.clone() else {
                    return Err("only a SET stores".into());
                };
                let due = expiry.map(|expiry| expiry.as_millis().saturating_add(9));
                let fence = self.token.as_ref().map(stamp);
                let entry = Entry { value: value.clone(), version: new.clone(), fence, due };
                after.entries.insert(key.clone(), entry);
                after.clock = (u64::MAX, 0);
                notified = Some((Notification::Set(value), new));
            }
            Change::Remove => {
                after.entries.remove(&key);
                notified = Some((Notification::Deleted, stored));
            }
            Change::Register => {
                after.registered.insert((key.clone(), CLIENT.into()));
            }
            Change::Unregister => {
                after.registered.remove(&(key.clone(), CLIENT.into()));
            }
        }
        same("state", &after, &state(&reference))?;
        let expected = before.registered.into_iter().filter_map(|(key, client)| {
            let (notification, version) = notified.clone()?;
            Some(Notified { client, key, notification, version })
        });
        same("notifications", &expected.collect(), &answer.notified)
    }
}

/// The state that a command may change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    entries: BTreeMap<Vec<u8>, Entry>,
    registered: BTreeSet<(Vec<u8>, String)>,
    clock: (u64, u64),
}

fn state(reference: &ReferenceStore) -> State {
    let (entries, registered) = (reference.entries.clone(), reference.registered());
    State { entries, registered, clock: reference.clock.own }
}

#[test]
fn decide_agrees_with_the_reference_on_the_whole_finite_world() {
    let worlds = World::all();
    for world in &worlds {
        for with_expiry in [false, true] {
            let case = world.case(with_expiry);
            case.check().unwrap_or_else(|error| panic!("{world:?}: {error}"));
        }
    }
    // Nine commands, nine entries (absent; two values with four fences each), four tokens, two
    // flags.
    assert_eq!(worlds.len(), 9 * (1 + 2 * 4) * 4 * 2 * 2);
}

/// Any command, with a stored value that the command compares with or any other.
fn case() -> impl Strategy<Value = Case> {
    let past = || {
        let clamp = |hlc: Hlc| {
            let wall = hlc.wall().as_millis().min(u64::MAX - 1);
            Hlc::new(UnixTime::from_millis(wall), hlc.counter(), hlc.node().clone())
        };
        proptest::option::of(hlc().prop_map(clamp))
    };
    let flags = (any::<bool>(), any::<bool>(), 0..4_u8, any::<bool>());
    let parts = (command(), bytes(), past(), past(), flags);
    parts.prop_map(|(command, other, fence, token, (full, watched, source, repeat))| {
        let near = match &command {
            Command::Set { condition: Condition::IfAbsentOrEqualTo(operand), .. } if repeat => {
                operand.as_bytes().to_vec()
            }
            Command::Set { value, .. } | Command::VDel { value, .. } => value.clone(),
            _ => other.clone(),
        };
        let value =
            [None, Some(near.clone()), Some(near), Some(other)][usize::from(source)].clone();
        let token = if repeat { token.or_else(|| fence.clone()) } else { token };
        let fence = fence.filter(|_| value.is_some());
        Case { command, value, fence, token, full, watched }
    })
}

proptest! {
    #[test]
    fn decide_agrees_with_the_reference_on_any_state(case in case()) {
        case.check().map_err(TestCaseError::fail)?;
    }
}
