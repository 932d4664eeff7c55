//! Requests of the applications: plain traffic on few keys, a lock, and writes guarded by the lock.

use bytes::Bytes;
use fastrand::Rng;
use statestore_proto::hlc::FencingToken;
use statestore_proto::message::{Command, Condition, Expiry, Operand};

use super::Run;

/// The key used as a lock.
pub(super) const LOCK: &[u8] = b"lock";

/// The key written with the versions of the lock as tokens.
const GUARDED: &[u8] = b"guarded";

/// The lock, the guarded key, and further plain keys.
pub(super) fn keys(plain: usize) -> Vec<Bytes> {
    let fixed = [LOCK, GUARDED].map(Bytes::from_static);
    fixed.into_iter().chain((0..plain).map(|number| format!("k{number}").into())).collect()
}

type Choice = (Command<Bytes>, Option<FencingToken>);

/// The next request of an actor.
pub(super) fn choose(run: &mut Run, actor: usize) -> Choice {
    let key = run.keys[run.rng.usize(0..run.keys.len())].clone();
    if key == LOCK {
        (lock(run, actor, key), None)
    } else if key == GUARDED {
        let token = token(run, actor).filter(|_| run.rng.u8(0..10) > 0);
        (plain(run, key), token)
    } else {
        let token = token(run, actor).filter(|_| run.rng.u8(0..20) == 0);
        (plain(run, key), token)
    }
}

/// The lock recipe: acquire or renew, release, read; sometimes another client deletes the lock.
fn lock(run: &mut Run, actor: usize, key: Bytes) -> Command<Bytes> {
    let fresh = value(run);
    let held = &mut run.actors[actor].holder;
    match run.rng.u8(0..20) {
        0..=9 => {
            let renews = run.rng.u8(0..4) > 0;
            let value = held.take().filter(|_| renews).unwrap_or(fresh);
            *held = Some(value.clone());
            let expiry = Expiry::from_millis(run.rng.u64(50..=800));
            Command::Set { key, value, condition: Condition::IfAbsentOrEqual, expiry }
        }
        10..=13 => match held.take() {
            Some(value) => Command::VDel { key, value },
            None => Command::Get { key },
        },
        14 => Command::Del { key },
        _ => Command::Get { key },
    }
}

fn plain(run: &mut Run, key: Bytes) -> Command<Bytes> {
    let value = value(run);
    match run.rng.u8(0..20) {
        0..=8 => {
            let condition = condition(run, &key);
            let expiry = expiry(&mut run.rng);
            Command::Set { key, value, condition, expiry }
        }
        9..=14 => Command::Get { key },
        15 | 16 => Command::Del { key },
        _ => {
            let value = stored(run, &key).unwrap_or(value);
            Command::VDel { key, value }
        }
    }
}

fn condition(run: &mut Run, key: &Bytes) -> Condition<Bytes> {
    match run.rng.u8(0..8) {
        0..=3 => Condition::Always,
        4 => Condition::IfAbsent,
        5 => Condition::IfAbsentOrEqual,
        _ => stored(run, key)
            .and_then(Operand::new)
            .map_or(Condition::IfAbsent, Condition::IfAbsentOrEqualTo),
    }
}

fn expiry(rng: &mut Rng) -> Option<Expiry> {
    if rng.u8(0..3) == 0 { Expiry::from_millis(rng.u64(1..=400)) } else { None }
}

/// A value currently in the store, so that conditions often hold.
fn stored(run: &Run, key: &Bytes) -> Option<Bytes> {
    run.truth.get(key)
}

/// A unique value, so that a read identifies its write.
fn value(run: &Run) -> Bytes {
    format!("v{}", run.history.ops.len()).into()
}

/// A version of the lock while this client held it: the latest, or an older one after a pause.
fn token(run: &mut Run, actor: usize) -> Option<FencingToken> {
    let tokens = &run.actors[actor].tokens;
    let zombie = run.rng.u8(0..4) == 0;
    let place = if zombie { run.rng.usize(0..=tokens.len()) } else { tokens.len() };
    tokens.get(place.checked_sub(1)?).cloned()
}
