//! Records deliveries and events, and compares the store with the truth.

use std::collections::BTreeSet;

use crate::{Message, TraceEvent};
use bytes::Bytes;
use statestore_proto::client::{Event, Outcome, RequestId, Unmatched, WatchEvent};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Incarnation, Reply, Response, property};
use statestore_proto::store::{Principal, Store};
use statestore_proto::topic;

use super::Run;
use super::commands;
use crate::runs::history::{Moment, Note, What};
use crate::runs::wire::{RequestName, name_of, user_property};
use crate::runs::{Check, Violation};

impl Run {
    /// Records the deliveries of the last step and compares the store with the truth.
    pub(super) fn tap(&mut self) {
        let at = self.now();
        let trace = self.world.take_trace();
        let runs = self.world.store_runs();
        let (store, now) = self.world.store();
        // Nothing expires while the store is not running.
        if runs {
            self.truth.expire(now);
        }
        let mut replied = Vec::new();
        for traced in &trace {
            match traced {
                TraceEvent::Message(message) if *message.topic == *topic::REQUEST => {
                    self.digest.message(at, message);
                    let answer = self.truth.take(now, message);
                    self.wire.request(message, answer);
                    if let Some(name) = name_of(message) {
                        self.taken_by.insert(name, self.stores);
                    }
                }
                TraceEvent::Message(message) => {
                    self.digest.message(at, message);
                    self.wire.deliver(message);
                    replied.extend(name_of(message).map(|name| (name, incarnation_of(message))));
                }
                TraceEvent::StoreStarted => self.truth.restart(now),
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
                    // A client that polls rarely may now report events from before these replies.
                    let replies = replied.iter().filter(|(name, _)| name.client == actor);
                    let replies = replies.filter(|(name, _)| !late.contains(name));
                    // A duplicate of the request may have reached a later store than the one that
                    // replied.
                    let store = |(name, incarnation): &(RequestName, Option<u64>)| {
                        incarnation.or_else(|| self.taken_by.get(name).copied())
                    };
                    let store = replies.filter_map(store).max();
                    self.note_store(actor, store.unwrap_or_default());
                }
            }
        }
    }

    /// Records the store of a reply that the client was waiting for.
    fn note_store(&mut self, actor: usize, store: u64) {
        let before = self.actors[actor].contacted;
        self.actors[actor].contacted = before.max(store);
        if before > 0 && store > before {
            self.note_all(actor, &What::Replaced);
        }
    }

    /// Polls every event of a client. Returns the requests whose replies came too late.
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
                    let what = What::Event(event);
                    self.history.watches[watch].notes.push(Note { moment, after, what });
                }
                Event::Ready => self.note_all(actor, &What::Ready),
                Event::Unmatched(Unmatched::Reply(id)) => {
                    _ = late.insert(RequestName::new(actor, id))
                }
                _ => {}
            }
        }
        self.actors[actor].last_poll = self.now();
        late
    }

    /// Adds a note to all watches of a client.
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
        if let Outcome::Responded {
            response: Response::Reply(Reply::Done),
            version: Some(version),
            ..
        } = &outcome
            && *op.key() == commands::LOCK
        {
            self.actors[actor].tokens.push(version.to_fencing_token());
        }
        op.completed = Some((moment, outcome));
    }
}

/// The number of the store in a reply, if the reply has an incarnation.
fn incarnation_of(message: &Message) -> Option<u64> {
    let text = user_property(message, property::INCARNATION)?;
    Incarnation::parse(text).map(Incarnation::number)
}

/// Returns the exceeded limit or share, if any.
fn exceeded(
    store: &Store,
    limits: &StoreLimits,
    clients: impl Iterator<Item = String>,
) -> Option<String> {
    let share = |limit: usize| limit.saturating_mul(limits.client_percent.into()).div_ceil(100);
    let of_all = [
        ("keys", store.len(), limits.keys_max),
        ("bytes", store.bytes(), limits.bytes_max),
        ("watches", store.registrations(), limits.registrations_max),
    ];
    let of_each = clients.flat_map(|client| {
        let held = store.usage_of(Principal::verified(&client));
        [
            ("keys of one client", held.keys, share(limits.keys_max)),
            ("bytes of one client", held.bytes, share(limits.bytes_max)),
            ("watches of one client", held.registrations, share(limits.registrations_max)),
        ]
    });
    of_all
        .into_iter()
        .chain(of_each)
        .find(|(_, taken, limit)| taken > limit)
        .map(|(what, taken, limit)| format!("{taken} {what} where {limit} are allowed"))
}
