//! What was delivered and told, written down; and the store held to what it must hold.

use std::collections::BTreeSet;

use bytes::Bytes;
use statestore_loopback::{Message, Traced};
use statestore_proto::client::{Event, Outcome, RequestId, Stale, WatchEvent};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Incarnation, Reply, property};
use statestore_proto::store::Store;
use statestore_proto::topic;

use super::Run;
use crate::sim::history::{Moment, Note, What};
use crate::sim::wire::{RequestName, name_of, user_property};
use crate::sim::{Check, Violation, commands};

impl Run {
    /// Records what was delivered in the last step, and holds the store to what it must hold.
    pub(super) fn tap(&mut self) {
        let at = self.now();
        let trace = self.world.take_trace();
        let runs = self.world.store_runs();
        let (store, now) = self.world.store();
        // While no store looks at the clock nothing expires for anybody.
        if runs {
            self.truth.expire(at);
        }
        let mut answered = Vec::new();
        for traced in &trace {
            match traced {
                Traced::Message(message) if *message.topic == *topic::REQUEST => {
                    self.digest.message(at, message);
                    let answer = self.truth.take(now, message);
                    self.wire.request(message, answer);
                    if let Some(name) = name_of(message) {
                        self.taken_by.insert(name, self.stores);
                    }
                }
                Traced::Message(message) => {
                    self.digest.message(at, message);
                    self.wire.deliver(message);
                    answered.extend(name_of(message).map(|name| (name, said_by(message))));
                }
                Traced::Started => self.truth.restart(now),
                _ => {}
            }
        }
        if self.violations.is_empty() && runs {
            let differs = |key: &Bytes| {
                let text = self.truth.differs(store, now, key)?;
                Some(format!("at {at} ms, key {key:?}: {text}"))
            };
            let wrong = self.keys.iter().find_map(differs);
            let clients = (0..self.actors.len()).map(|actor| format!("c{actor}"));
            let wrong = wrong.or_else(|| exceeded(store, &self.scenario.limits, clients));
            self.violations.extend(wrong.map(|text| Violation { check: Check::Store, text }));
        }
        for actor in 0..self.actors.len() {
            if self.world.is_paused(self.actors[actor].index) {
                continue;
            }
            if !self.actors[actor].sleepy || self.rng.u8(0..8) == 0 {
                let late = self.poll(actor);
                if !self.actors[actor].sleepy {
                    // What a sleeper is told now may be from before these answers.
                    let heard = answered.iter().filter(|(name, _)| name.client == actor);
                    let heard = heard.filter(|(name, _)| !late.contains(name));
                    // A copy of the request may have reached a later store than the one that answers.
                    let store = |(name, said): &(RequestName, Option<u64>)| {
                        said.or_else(|| self.taken_by.get(name).copied())
                    };
                    let store = heard.filter_map(store).max();
                    self.meet(actor, store.unwrap_or_default());
                }
            }
        }
    }

    /// Notes which store a client has heard, by an answer that it was waiting for.
    fn meet(&mut self, actor: usize, store: u64) {
        let before = self.actors[actor].met;
        self.actors[actor].met = before.max(store);
        if before > 0 && store > before {
            self.note_all(actor, &What::Replaced);
        }
    }

    /// Takes every event of a client. Returns the requests whose answers came when it did not wait for them any more.
    pub(super) fn poll(&mut self, actor: usize) -> BTreeSet<RequestName> {
        let mut late = BTreeSet::new();
        let after = self.actors[actor].last_poll;
        while let Some(event) = self.world.poll_event(self.actors[actor].index) {
            let at = self.now();
            self.digest.event(at, actor, &event);
            let moment = self.moment();
            match event {
                Event::Completed { id, outcome } => self.completed(actor, id, moment, outcome),
                Event::Watch { id, event } => {
                    let Some(watch) = self.actors[actor].watches.get(&id).copied() else {
                        self.history.strays += 1;
                        continue;
                    };
                    if matches!(event, WatchEvent::Ended(_)) {
                        self.actors[actor].watches.remove(&id);
                    }
                    let what = What::Told(event);
                    self.history.watches[watch].notes.push(Note { moment, after, what });
                }
                Event::Ready => self.note_all(actor, &What::Ready),
                Event::Stale(Stale::Reply(id)) => _ = late.insert(RequestName::new(actor, id)),
                _ => {}
            }
        }
        self.actors[actor].last_poll = self.now();
        late
    }

    /// Notes something about all watches of a client.
    fn note_all(&mut self, actor: usize, what: &What) {
        let (moment, after) = (self.moment(), self.actors[actor].last_poll);
        for watch in self.actors[actor].watches.values() {
            let note = Note { moment, after, what: what.clone() };
            self.history.watches[*watch].notes.push(note);
        }
    }

    fn completed(&mut self, actor: usize, id: RequestId, moment: Moment, outcome: Outcome) {
        let name = RequestName::new(actor, id);
        let number = self.actors[actor].requests.remove(&id);
        let number = number.or_else(|| self.history.ops.iter().position(|op| op.name == name));
        let Some(op) = number.and_then(|number| self.history.ops.get_mut(number)) else {
            self.history.strays += 1;
            return;
        };
        op.completions += 1;
        if let Outcome::Replied { reply: Reply::Done, version: Some(version), .. } = &outcome
            && *op.key() == commands::LOCK
        {
            self.actors[actor].tokens.push(version.to_fencing_token());
        }
        op.completed = Some((moment, outcome));
    }
}

/// The number of the store that an answer says it comes from.
fn said_by(message: &Message) -> Option<u64> {
    let text = user_property(message, property::INCARNATION)?;
    Incarnation::parse(text).map(Incarnation::number)
}

/// Which limit or share of one is exceeded, if one is.
fn exceeded(
    store: &Store,
    limits: &StoreLimits,
    clients: impl Iterator<Item = String>,
) -> Option<String> {
    let share = |limit: usize| limit.saturating_mul(limits.client_percent.into()).div_ceil(100);
    let of_all = [
        ("keys", store.len(), limits.keys_max),
        ("bytes", store.bytes(), limits.bytes_max),
        ("watches", store.watches(), limits.watches_max),
    ];
    let of_each = clients.flat_map(|client| {
        let held = store.held_by(&client);
        [
            ("keys of one client", held.keys, share(limits.keys_max)),
            ("bytes of one client", held.bytes, share(limits.bytes_max)),
            ("watches of one client", held.watches, share(limits.watches_max)),
        ]
    });
    of_all
        .into_iter()
        .chain(of_each)
        .find(|(_, taken, limit)| taken > limit)
        .map(|(what, taken, limit)| format!("{taken} {what} where {limit} are allowed"))
}
