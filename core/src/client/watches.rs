//! The watches of a client, and the effects of their transitions.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;

use super::pending::{Owner, Timer};
use super::watch::{Input, Next, Outstanding, Pause, Phase, Watch};
use super::{Client, Event, IntoBytes, SubmitError, Subscription, WatchEvent, WatchId, WatchPhase};
use crate::invariant::invariant;
use crate::message::{Command, RequestKind};
use crate::time::Now;

/// All watches of a client.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_id: BTreeMap<WatchId, Watch>,
    /// Watches by key, without those that end.
    by_key: BTreeMap<Bytes, WatchId>,
    /// Watches with an event that did not fit into the queue. They report nothing until they catch
    /// up.
    lagging: BTreeSet<WatchId>,
    last_id: u64,
}

impl Watches {
    pub(super) fn find_by_key(&self, key: &[u8]) -> Option<WatchId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}

impl Client {
    /// Watches a key: reports its value now and every change until [`unwatch`](Self::unwatch), also
    /// after the connection was lost.
    ///
    /// # Errors
    /// [`SubmitError`]; then no watch was added.
    pub fn watch(&mut self, now: Now, key: impl IntoBytes) -> Result<WatchId, SubmitError> {
        let key = key.into_bytes();
        self.now = now;
        self.check_key(&key)?;
        if self.watches.by_key.contains_key(&key) {
            return Err(SubmitError::AlreadyWatched);
        }
        if self.watches.by_id.len() >= self.config.limits.watches_max {
            return Err(SubmitError::Full);
        }
        self.watches.last_id += 1;
        let id = WatchId(self.watches.last_id);
        self.watches.by_key.insert(key.clone(), id);
        self.watches.by_id.insert(id, Watch::new(key));
        if self.connected {
            self.subscribe_notifications();
            self.step_watch(id, Input::Connected { session_present: false });
        }
        Ok(id)
    }

    /// Ends a watch. Of the events that were not polled yet, only
    /// [`WatchEvent::Ended`] is added. Returns `false` if the watch was
    /// already ended.
    pub fn unwatch(&mut self, now: Now, id: WatchId) -> bool {
        self.now = now;
        if self.watches.by_id.get(&id).is_none_or(Watch::is_ending) {
            return false;
        }
        // The application does not need the events that did not fit.
        self.watches.lagging.remove(&id);
        let may_be_registered = self.notifications == Subscription::Granted;
        self.step_watch(id, Input::Stop { may_be_registered })
    }

    /// The phase of a watch; `None` after its end, and for an unknown id.
    #[must_use]
    pub fn watch_phase(&self, id: WatchId) -> Option<WatchPhase> {
        self.watches.by_id.get(&id)?.public_phase()
    }

    /// Reports a gap, reads the key and reports its state even if it has not changed, for an
    /// application that lost events of this watch. Returns `false` if the watch was ended.
    pub fn refresh(&mut self, now: Now, id: WatchId) -> bool {
        self.now = now;
        self.step_watch(id, Input::Refresh)
    }

    /// Registers every watch on the new connection.
    pub(super) fn resume_watches(&mut self, session_present: bool) {
        if self.watches.by_id.is_empty() {
            return;
        }
        self.subscribe_notifications();
        self.step_watches(|| Input::Connected { session_present });
    }

    /// Registers every watch with a store that has replaced another one: its registrations are
    /// gone.
    pub(super) fn restart_watches(&mut self) {
        // Two stores that reply in turn must not cause registrations at the rate of messages.
        let last = self.watches_restarted_at.replace(self.now.instant);
        let recently = last.is_some_and(|at| self.now.instant < at + self.config.timeout / 10);
        self.step_watches(|| Input::StoreReplaced { recently });
    }

    /// Returns the next event that did not fit into the queue.
    pub(super) fn pop_lagging_event(&mut self) -> Option<Event> {
        while let Some(id) = self.watches.lagging.pop_first() {
            self.step_watch(id, Input::CatchUp);
            if let Some(event) = self.events.pop() {
                return Some(event);
            }
        }
        None
    }

    pub(super) fn step_watches(&mut self, input: impl Fn() -> Input) {
        let ids: Vec<WatchId> = self.watches.by_id.keys().copied().collect();
        for id in ids {
            self.step_watch(id, input());
        }
    }

    /// Passes an input to a watch and executes its effects. Returns `false` if the input does not
    /// concern the watch.
    pub(super) fn step_watch(&mut self, id: WatchId, input: Input) -> bool {
        let is_registered = matches!(self.last_incarnation, Some(Some(_)));
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return false };
        let Some(effects) = watch.step(input, is_registered) else { return false };
        let ended = match &watch.phase {
            Phase::Ended(end) => Some(WatchEvent::Ended(end.clone())),
            _ => None,
        };
        if watch.is_ending() && self.watches.by_key.get(&watch.key) == Some(&id) {
            self.watches.by_key.remove(&watch.key);
        }
        self.wait_for(id, effects.next);
        let gap = effects.gap.then_some(WatchEvent::Gap);
        let change = effects.change.map(|(value, version)| WatchEvent::Changed { value, version });
        let live = effects.live.then_some(WatchEvent::Live);
        for event in [gap, change, live, ended].into_iter().flatten() {
            self.report(id, event);
        }
        true
    }

    /// Drops what the watch has outstanding, and sends its next request or sets its timer.
    fn wait_for(&mut self, id: WatchId, next: Next) {
        let Some(watch) = invariant(self.watches.by_id.get_mut(&id)) else { return };
        if matches!(next, Next::Same) {
            return;
        }
        if let Some(request) = watch.request.take() {
            self.requests.remove(request.id);
        }
        if let Some(at) = watch.register_at.take() {
            self.requests.deadlines.remove(at, Timer::Register(id));
        }
        match next {
            Next::Same | Next::Nothing => {}
            Next::Reply(kind) => {
                let key = watch.key.clone();
                let request = self.enqueue(
                    Owner::Watch(id),
                    match kind {
                        RequestKind::Watch => Command::Watch { key },
                        RequestKind::Unwatch => Command::Unwatch { key },
                        _ => Command::Get { key },
                    }
                    .into(),
                );
                if let Some(watch) = invariant(self.watches.by_id.get_mut(&id)) {
                    watch.request = Some(Outstanding { id: request, kind });
                }
            }
            Next::Time(pause) => {
                let pause = match pause {
                    Pause::Short => Some(self.config.timeout / 10),
                    Pause::Long => Some(self.config.timeout),
                    // Earlier for some watches, so that not all renew at once.
                    Pause::Renewal => {
                        let share = u32::try_from(id.0 % 64).unwrap_or_default();
                        self.config.renewal.map(|interval| interval - interval / 256 * share)
                    }
                };
                let Some(pause) = pause else { return };
                let at = self.now.instant + pause;
                watch.register_at = Some(at);
                self.requests.deadlines.insert(at, Timer::Register(id));
            }
        }
    }

    /// Reports an event in order. After one that does not fit, a watch reports nothing until it
    /// catches up. A watch whose end was reported is removed.
    fn report(&mut self, id: WatchId, event: WatchEvent) {
        if self.watches.lagging.contains(&id) || self.events.is_full() {
            self.watches.lagging.insert(id);
            return;
        }
        if matches!(event, WatchEvent::Ended(_)) {
            self.watches.by_id.remove(&id);
        } else if let Some(watch) = invariant(self.watches.by_id.get_mut(&id)) {
            watch.record_reported(&event);
        }
        self.events.push(Event::Watch { id, event });
    }
}
