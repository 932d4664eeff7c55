//! The watches of a client.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;

use super::active_watch::ActiveWatch;
use super::watch::{Phase, State, Watch};
use super::{Client, Event, IntoBytes, SubmitError, Subscription, Unmatched, WatchId, WatchPhase};
use crate::time::Now;

/// All watches of a client.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_id: BTreeMap<WatchId, Watch>,
    /// Watches by key, without those that end.
    by_key: BTreeMap<Bytes, WatchId>,
    /// Watches with an event that did not fit into the queue.
    lagging: BTreeSet<WatchId>,
    last_id: u64,
}

impl Watches {
    fn ids(&self) -> Vec<WatchId> {
        self.by_id.keys().copied().collect()
    }

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
            self.with_watch(id, |watch| watch.enter(Phase::Registering));
        }
        Ok(id)
    }

    /// Ends a watch. Of the events that were not polled yet, only
    /// [`WatchEvent::Ended`](super::WatchEvent::Ended) is added. Returns `false` if the watch was
    /// already ended.
    pub fn unwatch(&mut self, now: Now, id: WatchId) -> bool {
        self.now = now;
        let may_be_registered = self.notifications == Subscription::Granted;
        let stopped = self.with_watch(id, |watch| {
            let can_stop = !watch.watch.is_ending();
            if can_stop {
                watch.stop(may_be_registered);
            }
            can_stop
        });
        stopped.unwrap_or(false)
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
        let refreshed = self.with_watch(id, |watch| {
            let can_refresh = !watch.watch.is_ending();
            if can_refresh {
                watch.refresh();
            }
            can_refresh
        });
        refreshed.unwrap_or(false)
    }

    /// Handles a decoded notification.
    pub(super) fn notify_watch(
        &mut self,
        id: WatchId,
        state: State,
        value: Option<Bytes>,
    ) -> Result<(), Unmatched> {
        match self.with_watch(id, |watch| watch.handle_notification(state, value)) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(Unmatched::Notification),
        }
    }

    /// Registers every watch on the new connection.
    pub(super) fn resume_watches(&mut self, session_present: bool) {
        if self.watches.by_id.is_empty() {
            return;
        }
        self.subscribe_notifications();
        self.for_each_watch(|watch| watch.resume(session_present));
    }

    /// Registers every watch with a store that has replaced another one: its registrations are
    /// gone.
    pub(super) fn restart_watches(&mut self) {
        // Two stores that reply in turn must not cause registrations at the rate of messages.
        let pause = self.config.timeout / 10;
        let last = self.watches_restarted_at.replace(self.now.instant);
        let is_recent = last.is_some_and(|at| self.now.instant < at + pause);
        self.for_each_watch(|watch| watch.restart(is_recent.then_some(pause)));
    }

    /// Interrupts every watch: registrations are gone with the connection.
    pub(super) fn interrupt_watches(&mut self) {
        self.for_each_watch(|watch| watch.interrupt());
    }

    /// Returns the next event that did not fit into the queue.
    pub(super) fn pop_lagging_event(&mut self) -> Option<Event> {
        while let Some(id) = self.watches.lagging.pop_first() {
            if let Some(event) = self.with_watch(id, |watch| watch.catch_up()).flatten() {
                return Some(Event::Watch { id, event });
            }
        }
        None
    }

    fn for_each_watch(&mut self, mut change: impl FnMut(&mut ActiveWatch<'_>)) {
        for id in self.watches.ids() {
            self.with_watch(id, &mut change);
        }
    }

    /// Changes a watch, and removes it if its end was reported.
    pub(super) fn with_watch<R>(
        &mut self,
        id: WatchId,
        change: impl FnOnce(&mut ActiveWatch<'_>) -> R,
    ) -> Option<R> {
        let Watches { by_id, by_key, lagging, .. } = &mut self.watches;
        let mut active = ActiveWatch {
            id,
            watch: by_id.get_mut(&id)?,
            by_key,
            lagging,
            requests: &mut self.requests,
            events: &mut self.events,
            clock: &mut self.clock,
            config: &self.config,
            now: self.now,
            is_registered: matches!(self.last_incarnation, Some(Some(_))),
            is_over: false,
        };
        let result = change(&mut active);
        if active.is_over {
            by_id.remove(&id);
        }
        Some(result)
    }
}
