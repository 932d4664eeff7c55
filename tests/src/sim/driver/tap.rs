//! What was delivered and told, written down; and the store held to what it must hold.

use bytes::Bytes;
use statestore_loopback::Traced;
use statestore_proto::client::{Event, Outcome, RequestId, WatchEvent};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::Reply;
use statestore_proto::store::Store;
use statestore_proto::topic;

use super::Run;
use crate::sim::history::{Moment, Note, What};
use crate::sim::wire::RequestName;
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
        for traced in &trace {
            match traced {
                Traced::Message(message) if *message.topic == *topic::REQUEST => {
                    self.digest.message(at, message);
                    let answer = self.truth.take(now, message);
                    self.wire.request(message, answer);
                }
                Traced::Message(message) => {
                    self.digest.message(at, message);
                    self.wire.deliver(message);
                }
                Traced::Started => self.truth.restart(at),
                _ => {}
            }
        }
        if self.violations.is_empty() && runs {
            let differs = |key: &Bytes| {
                let text = self.truth.differs(store, now, key)?;
                Some(format!("at {at} ms, key {key:?}: {text}"))
            };
            let wrong = self.keys.iter().find_map(differs);
            let wrong = wrong.or_else(|| exceeded(store, &self.scenario.limits));
            self.violations.extend(wrong.map(|text| Violation { check: Check::Store, text }));
        }
        for actor in 0..self.actors.len() {
            if self.world.is_paused(self.actors[actor].index) {
                continue;
            }
            if !self.actors[actor].sleepy || self.rng.u8(0..8) == 0 {
                self.poll(actor);
            }
        }
    }

    /// Takes every event of a client.
    pub(super) fn poll(&mut self, actor: usize) {
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
                Event::Ready => {
                    for watch in self.actors[actor].watches.values() {
                        let what = What::Ready;
                        self.history.watches[*watch].notes.push(Note { moment, after, what });
                    }
                }
                _ => {}
            }
        }
        self.actors[actor].last_poll = self.now();
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

/// Which limit is exceeded, if one is.
fn exceeded(store: &Store, limits: &StoreLimits) -> Option<String> {
    [
        ("keys", store.len(), limits.keys_max),
        ("bytes", store.bytes(), limits.bytes_max),
        ("watches", store.watches(), limits.watches_max),
    ]
    .into_iter()
    .find(|(_, taken, limit)| taken > limit)
    .map(|(what, taken, limit)| format!("{taken} {what} where {limit} are allowed"))
}
