//! The watches of a client: what each of their requests means, and what the application is told.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::watch::{Change, Phase, Settled, State, Watch};
use super::{
    Client, Event, IntoBytes, Outcome, Owner, Pending, Stale, SubmitError, Subscription, Timer,
    WatchEnd, WatchEvent, WatchId, WatchPhase, watch_command,
};
use crate::debug::Hidden;
use crate::message::{Command, CommandKind, Reply};
use crate::time::Now;

/// All watches of a client.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_id: BTreeMap<WatchId, Watch>,
    /// Those whose key is watched; a watch that is being stopped is not among them.
    by_key: BTreeMap<Bytes, WatchId>,
    /// Those that found no room for an event.
    lagging: BTreeSet<WatchId>,
    last: u64,
}

impl Watches {
    fn ids(&self) -> Vec<WatchId> {
        self.by_id.keys().copied().collect()
    }

    pub(super) fn of_key(&self, key: &[u8]) -> Option<WatchId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn remove(&mut self, id: WatchId) {
        if let Some(watch) = self.by_id.remove(&id) {
            self.release_key(id, &watch.key);
        }
        self.lagging.remove(&id);
    }

    /// Allows a new watch of the key.
    fn release_key(&mut self, id: WatchId, key: &Bytes) {
        if self.by_key.get(key) == Some(&id) {
            self.by_key.remove(key);
        }
    }
}

impl Client {
    /// Watches a key: its value now, and every change until [`unwatch`](Self::unwatch), over reconnects too.
    ///
    /// # Errors
    /// [`SubmitError`]; then nothing is watched that was not before.
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
        self.watches.last += 1;
        let id = WatchId(self.watches.last);
        self.watches.by_key.insert(key.clone(), id);
        self.watches.by_id.insert(id, Watch::new(key));
        if self.connected {
            self.subscribe_notifications();
            self.register(id);
        }
        Ok(id)
    }

    /// Ends a watch. Nothing follows what waits to be polled but [`WatchEvent::Ended`]; `false` when it is over already.
    pub fn unwatch(&mut self, now: Now, id: WatchId) -> bool {
        self.now = now;
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return false };
        if matches!(watch.phase, Phase::Stopping | Phase::Ended(_)) {
            return false;
        }
        let key = watch.key.clone();
        // What was lost is of no interest any more.
        watch.lagging = false;
        self.watches.lagging.remove(&id);
        self.drop_request(id);
        self.watches.release_key(id, &key);
        // Without this nothing was registered on this connection, and the store forgets a client that disconnects.
        if self.notifications == Subscription::Granted {
            self.request(id, Phase::Stopping);
        } else {
            self.end(id, WatchEnd::Stopped);
        }
        true
    }

    /// Where a watch stands; `None` when it is over, or was never there.
    #[must_use]
    pub fn watch_phase(&self, id: WatchId) -> Option<WatchPhase> {
        match self.watches.by_id.get(&id)?.phase {
            Phase::Waiting => Some(WatchPhase::Waiting),
            Phase::Registering => Some(WatchPhase::Registering),
            Phase::Reading => Some(WatchPhase::Reading),
            Phase::Live => Some(WatchPhase::Live),
            Phase::Stopping => Some(WatchPhase::Stopping),
            Phase::Ended(_) => None,
        }
    }

    /// Reports a gap, reads the key again and reports its state whatever it is: for an application that lost events of this
    /// watch. `false` when the watch is over.
    pub fn refresh(&mut self, now: Now, id: WatchId) -> bool {
        self.now = now;
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return false };
        if matches!(watch.phase, Phase::Stopping | Phase::Ended(_)) {
            return false;
        }
        watch.forget_told();
        let read_again = watch.phase == Phase::Live;
        self.tell_gap(id);
        if read_again {
            self.read_again(id);
        }
        true
    }

    /// Handles a decoded notification.
    pub(super) fn hear(
        &mut self,
        id: WatchId,
        state: State,
        value: Option<Bytes>,
    ) -> Result<(), Stale> {
        let is_registered = self.is_registered();
        let watch = self.watches.by_id.get_mut(&id).ok_or(Stale::Notification)?;
        if let Some(request) = watch.request.filter(|_| !is_registered && watch.is_news(&state)) {
            // Others may have come before it while the store had forgotten this client.
            let reads = |pending: &Pending| pending.kind == CommandKind::Get;
            let reads = self.pending.get(&request).is_some_and(reads);
            watch.enter(if reads { Phase::Reading } else { Phase::Registering });
            self.tell_gap(id);
        }
        let watch = self.watches.by_id.get_mut(&id).ok_or(Stale::Notification)?;
        let change = watch.hear(state, value).map_err(|_| Stale::Notification)?;
        if let Some(change) = change {
            self.tell_change(id, change);
        }
        Ok(())
    }

    /// Handles the outcome of a watch's own request.
    pub(super) fn finish_for_watch(&mut self, id: WatchId, kind: CommandKind, outcome: Outcome) {
        if let Some(watch) = self.watches.by_id.get_mut(&id) {
            watch.request = None;
        }
        if kind == CommandKind::Unwatch {
            // Whatever the store says: nothing is watched here any more.
            return self.end(id, WatchEnd::Stopped);
        }
        if self.watches.by_id.get(&id).is_some_and(|watch| watch.phase == Phase::Live) {
            return self.finish_renewal(id, outcome);
        }
        match outcome {
            Outcome::Replied { reply: Reply::Error(error), .. } => {
                self.end(id, WatchEnd::Refused(error));
            }
            Outcome::Replied { reply: Reply::Done, .. } => self.request(id, Phase::Reading),
            Outcome::Replied { reply: Reply::Value(value), version: Some(version), .. } => {
                self.settle(id, State::Present(version), Some(value));
            }
            Outcome::Replied { reply: Reply::Absent, .. } => {
                self.settle(id, State::Absent(None), None);
            }
            // It took its time already.
            Outcome::TimedOut { .. } => self.register(id),
            // Nobody listens there yet, as when this client was faster than a store that starts.
            Outcome::Rejected(_) => self.retry_after(id, self.config.timeout / 10),
            // Nobody who makes sense.
            _ => self.retry_after(id, self.config.timeout),
        }
    }

    /// Handles the outcome of a renewal, during which changes go on being reported.
    fn finish_renewal(&mut self, id: WatchId, outcome: Outcome) {
        let is_registered = self.is_registered();
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        let read = match outcome {
            Outcome::Replied { reply: Reply::Error(error), .. } => {
                return self.end(id, WatchEnd::Refused(error));
            }
            Outcome::Replied { reply: Reply::Done, .. } => {
                watch.compare();
                let get = Command::Get { key: watch.key.clone() };
                return self.ask(id, &get);
            }
            Outcome::Replied { reply: Reply::Value(_), version: Some(version), .. } => {
                State::Present(version)
            }
            Outcome::Replied { reply: Reply::Absent, .. } => State::Absent(None),
            // A store that is started anew is not there yet.
            Outcome::Rejected(_) => return self.register_in(id, self.config.timeout / 10),
            _ => return self.register_in(id, self.config.timeout),
        };
        let missed = if is_registered { watch.missed(&read) } else { watch.may_have_missed(&read) };
        if missed {
            self.tell_gap(id);
            self.request(id, Phase::Reading);
        } else {
            self.renew_later(id);
        }
    }

    /// Whether the registrations of live watches are known to have held: another incarnation would have ended them.
    const fn is_registered(&self) -> bool {
        matches!(self.met, Some(Some(_)))
    }

    /// A watch that waited to register does so, and one that is live renews its registration.
    pub(super) fn register_due(&mut self, id: WatchId) {
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        watch.register_at = None;
        if watch.phase == Phase::Live {
            let watch = Command::Watch { key: watch.key.clone() };
            self.ask(id, &watch);
        } else {
            self.register(id);
        }
    }

    /// Every watch registers on the new connection.
    pub(super) fn resume_watches(&mut self, session_present: bool) {
        if self.watches.by_id.is_empty() {
            return;
        }
        self.subscribe_notifications();
        for id in self.watches.ids() {
            let Some(watch) = self.watches.by_id.get_mut(&id) else { continue };
            // One that is over only waits to say so.
            if matches!(watch.phase, Phase::Ended(_)) {
                continue;
            }
            // A session that was kept may still deliver what was heard before.
            if !session_present {
                watch.forget_known();
            }
            self.register(id);
        }
    }

    /// Every watch has lost its registration with the store that had it, says so, and registers with the one that answers
    /// now.
    pub(super) fn restart_watches(&mut self) {
        // When two stores answer in turn, or one lies, that must not go round as fast as messages do.
        let pause = self.config.timeout / 10;
        let earlier = self.restarted.replace(self.now.instant);
        let again = earlier.is_some_and(|at| self.now.instant < at + pause);
        for id in self.watches.ids() {
            let Some(watch) = self.watches.by_id.get_mut(&id) else { continue };
            watch.forget_known();
            watch.forget_told_version();
            // One that waits has not registered yet, and the others are over or wait for their end.
            if !matches!(watch.phase, Phase::Registering | Phase::Reading | Phase::Live) {
                continue;
            }
            self.drop_request(id);
            self.tell_gap(id);
            if again {
                self.retry_after(id, pause);
            } else {
                self.register(id);
            }
        }
    }

    /// Every watch loses its registration with the connection, and says so.
    pub(super) fn interrupt_watches(&mut self) {
        for id in self.watches.ids() {
            self.drop_request(id);
            let Some(watch) = self.watches.by_id.get_mut(&id) else { continue };
            match watch.phase {
                Phase::Ended(_) => {}
                Phase::Stopping => self.end(id, WatchEnd::Stopped),
                _ => {
                    watch.phase = Phase::Waiting;
                    self.tell_gap(id);
                }
            }
        }
    }

    /// What the application could not be told when the queue was full.
    pub(super) fn next_lagging_event(&mut self) -> Option<Event> {
        while let Some(id) = self.watches.lagging.pop_first() {
            let Some(watch) = self.watches.by_id.get_mut(&id) else { continue };
            watch.lagging = false;
            if let Phase::Ended(end) = &watch.phase {
                let event = WatchEvent::Ended(end.clone());
                self.watches.remove(id);
                return Some(Event::Watch { id, event });
            }
            let told_already = core::mem::replace(&mut watch.gap, true);
            if watch.phase == Phase::Live {
                self.read_again(id);
            }
            if !told_already {
                return Some(Event::Watch { id, event: WatchEvent::Gap });
            }
        }
        None
    }

    fn register(&mut self, id: WatchId) {
        self.request(id, Phase::Registering);
    }

    /// Reads the key of a live watch, whatever it is about.
    fn read_again(&mut self, id: WatchId) {
        self.drop_request(id);
        self.request(id, Phase::Reading);
    }

    /// Enters a phase and sends its request.
    fn request(&mut self, id: WatchId, phase: Phase) {
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        let Some(command) = watch_command(&phase, &watch.key) else { return };
        watch.enter(phase);
        self.ask(id, &command);
    }

    /// Sends a request of a watch.
    fn ask(&mut self, id: WatchId, command: &Command<Bytes>) {
        let timestamp = self.clock.tick(self.now.unix).ok();
        let request = self.enqueue(Pending {
            owner: Owner::Watch(id),
            kind: command.kind(),
            payload: Hidden(command.encode().into()),
            timestamp,
            fencing_token: None,
            persist: false,
            deadline: self.now.instant + self.config.timeout,
            sent: false,
            sent_before: false,
        });
        if let Some(watch) = self.watches.by_id.get_mut(&id) {
            watch.request = Some(request);
        }
    }

    fn retry_after(&mut self, id: WatchId, pause: Duration) {
        if let Some(watch) = self.watches.by_id.get_mut(&id) {
            watch.phase = Phase::Waiting;
            self.register_in(id, pause);
        }
    }

    /// Sets the time of the next renewal of a watch that has become live, or was compared.
    fn renew_later(&mut self, id: WatchId) {
        let Some(interval) = self.config.renewal else { return };
        let share = u32::try_from(id.0 % 64).unwrap_or_default();
        self.register_in(id, interval - interval / 256 * share);
    }

    fn register_in(&mut self, id: WatchId, pause: Duration) {
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        let at = self.now.instant + pause;
        watch.register_at = Some(at);
        self.deadlines.insert(at, Timer::Register(id));
    }

    /// Forgets what a watch has outstanding.
    fn drop_request(&mut self, id: WatchId) {
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        if let Some(at) = watch.register_at.take() {
            self.deadlines.remove(at, Timer::Register(id));
        }
        if let Some(request) = watch.request.take() {
            self.take_pending(request);
        }
    }

    fn settle(&mut self, id: WatchId, read: State, value: Option<Bytes>) {
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        match watch.settle(read, value) {
            Settled::ReadAgain => self.request(id, Phase::Reading),
            Settled::Live(change) => {
                let lagging = watch.lagging;
                self.renew_later(id);
                if let Some(change) = change {
                    self.tell_change(id, change);
                }
                // A watch that lags tells a gap first and is read again.
                if !lagging {
                    self.tell_live(id);
                }
            }
        }
    }

    fn tell_change(&mut self, id: WatchId, (value, version): Change) {
        let told = self.tell_watch(id, WatchEvent::Changed { value, version });
        if let Some(watch) = self.watches.by_id.get_mut(&id).filter(|_| told) {
            watch.told();
        }
    }

    fn tell_live(&mut self, id: WatchId) {
        let told = self.tell_watch(id, WatchEvent::Live);
        if let Some(watch) = self.watches.by_id.get_mut(&id).filter(|_| told) {
            watch.gap = false;
        }
    }

    fn tell_gap(&mut self, id: WatchId) {
        let open = self.watches.by_id.get(&id).is_none_or(|watch| watch.gap);
        let told = !open && self.tell_watch(id, WatchEvent::Gap);
        if let Some(watch) = self.watches.by_id.get_mut(&id).filter(|_| told) {
            watch.gap = true;
        }
    }

    /// Reports the end; without room for the event the watch stays until there is room.
    fn end(&mut self, id: WatchId, end: WatchEnd) {
        let Some(watch) = self.watches.by_id.get_mut(&id) else { return };
        watch.phase = Phase::Ended(end.clone());
        let key = watch.key.clone();
        self.watches.release_key(id, &key);
        if self.tell_watch(id, WatchEvent::Ended(end)) {
            self.watches.remove(id);
        }
    }

    /// Queues an event of a watch, in order; a lagging watch gets none until it has caught up.
    fn tell_watch(&mut self, id: WatchId, event: WatchEvent) -> bool {
        let Some(watch) = self.watches.by_id.get(&id) else { return false };
        let told = !watch.lagging && self.tell_if_room(Event::Watch { id, event });
        if !told {
            if let Some(watch) = self.watches.by_id.get_mut(&id) {
                watch.lagging = true;
            }
            self.watches.lagging.insert(id);
        }
        told
    }
}
