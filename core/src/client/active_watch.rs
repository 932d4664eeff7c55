//! One watch with the parts of the client that it acts on: requests it sends, events it reports.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use bytes::Bytes;

use super::config::Settings;
use super::event_queue::EventQueue;
use super::pending::{Owner, Pending, PendingRequests, Timer};
use super::watch::{Change, Notified, OutOfDate, Outstanding, Phase, State, Step, Watch};
use super::{Event, Outcome, WatchEnd, WatchEvent, WatchId};
use crate::debug::Hidden;
use crate::hlc::HybridClock;
use crate::message::{Command, RequestKind};
use crate::time::Now;

pub(super) struct ActiveWatch<'a> {
    pub(super) id: WatchId,
    pub(super) watch: &'a mut Watch,
    pub(super) by_key: &'a mut BTreeMap<Bytes, WatchId>,
    pub(super) lagging: &'a mut BTreeSet<WatchId>,
    pub(super) requests: &'a mut PendingRequests,
    pub(super) events: &'a mut EventQueue,
    pub(super) clock: &'a mut HybridClock,
    pub(super) config: &'a Settings,
    pub(super) now: Now,
    /// True if the registration of a live watch is known to have held: the store reports its
    /// incarnation, and another one would have ended the registration.
    pub(super) is_registered: bool,
    /// True if the end was reported, so that the watch can be removed.
    pub(super) is_over: bool,
}

impl ActiveWatch<'_> {
    /// Handles the outcome of the watch's own request.
    pub(super) fn handle_outcome(&mut self, kind: RequestKind, outcome: Outcome) {
        match self.watch.handle_outcome(kind, outcome, self.is_registered) {
            Step::Enter(phase) => self.enter(phase),
            Step::RetryAfter(pause) => self.retry_after(pause.duration(self.config.timeout)),
            Step::GoLive(change) => self.go_live(change),
            Step::Compare => self.send(&Command::Get { key: self.watch.key.clone() }),
            Step::StayLive => self.schedule_renewal(),
            Step::RenewAfter(pause) => {
                self.schedule_registration(pause.duration(self.config.timeout));
            }
            Step::Resync => {
                self.report_gap();
                self.enter(Phase::Reading);
            }
            Step::End(end) => self.end(end),
        }
    }

    pub(super) fn handle_notification(
        &mut self,
        state: State,
        value: Option<Bytes>,
    ) -> Result<(), OutOfDate> {
        match self.watch.handle_notification(state, value, self.is_registered)? {
            Notified::Report(change) => self.report_change(change),
            Notified::HeldBack => {}
            Notified::HeldBackAfterGap => self.report_gap(),
        }
        Ok(())
    }

    /// Registers a watch that waited, or renews the registration of a live one.
    pub(super) fn handle_register_timer(&mut self) {
        self.watch.register_at = None;
        if self.watch.phase == Phase::Live {
            self.send(&Command::Watch { key: self.watch.key.clone() });
        } else {
            self.enter(Phase::Registering);
        }
    }

    /// Registers on a new connection.
    pub(super) fn resume(&mut self, session_present: bool) {
        if matches!(self.watch.phase, Phase::Ended(_)) {
            return;
        }
        // In a session that was kept, notifications that were received before may arrive again.
        if !session_present {
            self.watch.forget_known();
        }
        self.enter(Phase::Registering);
    }

    /// Registers with a store that has replaced another one, at once or after a pause.
    pub(super) fn restart(&mut self, pause: Option<Duration>) {
        self.watch.forget_known();
        self.watch.forget_reported_version();
        if !matches!(self.watch.phase, Phase::Registering | Phase::Reading | Phase::Live) {
            return;
        }
        self.drop_request();
        self.report_gap();
        match pause {
            Some(pause) => self.retry_after(pause),
            None => self.enter(Phase::Registering),
        }
    }

    /// Loses the registration with the connection.
    pub(super) fn interrupt(&mut self) {
        self.drop_request();
        match self.watch.phase {
            Phase::Ended(_) => {}
            Phase::Stopping => self.end(WatchEnd::Stopped),
            _ => {
                self.watch.phase = Phase::Waiting;
                self.report_gap();
            }
        }
    }

    /// Ends the watch for the application. `may_be_registered` is whether KEYNOTIFY can have been
    /// sent on this connection; otherwise the store has already forgotten this client.
    pub(super) fn stop(&mut self, may_be_registered: bool) {
        // The application does not need the events that did not fit.
        self.watch.lagging = false;
        self.lagging.remove(&self.id);
        self.drop_request();
        self.release_key();
        if may_be_registered {
            self.enter(Phase::Stopping);
        } else {
            self.end(WatchEnd::Stopped);
        }
    }

    /// Reports the state of the key again.
    pub(super) fn refresh(&mut self) {
        self.watch.forget_reported();
        let is_live = self.watch.phase == Phase::Live;
        self.report_gap();
        if is_live {
            self.read_again();
        }
    }

    /// Returns the event that did not fit into the queue. After it a live watch reads its key
    /// again.
    pub(super) fn catch_up(&mut self) -> Option<WatchEvent> {
        self.watch.lagging = false;
        if let Phase::Ended(end) = &self.watch.phase {
            self.is_over = true;
            return Some(WatchEvent::Ended(end.clone()));
        }
        let has_reported_gap = core::mem::replace(&mut self.watch.gap, true);
        if self.watch.phase == Phase::Live {
            self.read_again();
        }
        (!has_reported_gap).then_some(WatchEvent::Gap)
    }

    fn read_again(&mut self) {
        self.drop_request();
        self.enter(Phase::Reading);
    }

    /// Enters a phase and sends its request.
    pub(super) fn enter(&mut self, phase: Phase) {
        let key = self.watch.key.clone();
        let command = match phase {
            Phase::Registering => Command::Watch { key },
            Phase::Reading => Command::Get { key },
            Phase::Stopping => Command::Unwatch { key },
            Phase::Waiting | Phase::Live | Phase::Ended(_) => return,
        };
        self.watch.enter(phase);
        self.send(&command);
    }

    fn send(&mut self, command: &Command<Bytes>) {
        let kind = command.kind();
        self.clock.restart_if_ahead(self.now.unix);
        let id = self.requests.insert(Pending {
            owner: Owner::Watch(self.id),
            kind,
            payload: Hidden(command.encode().into()),
            timestamp: self.clock.tick(self.now.unix).ok(),
            fencing_token: None,
            persist: false,
            deadline: self.now.instant + self.config.timeout,
            sent: false,
            sent_before: false,
        });
        self.watch.request = Some(Outstanding { id, kind });
    }

    /// Removes what the watch has outstanding.
    fn drop_request(&mut self) {
        if let Some(at) = self.watch.register_at.take() {
            self.requests.deadlines.remove(at, Timer::Register(self.id));
        }
        if let Some(request) = self.watch.request.take() {
            self.requests.remove(request.id);
        }
    }

    fn retry_after(&mut self, pause: Duration) {
        self.watch.phase = Phase::Waiting;
        self.schedule_registration(pause);
    }

    /// Sets the time of the next renewal; earlier for some watches, so that not all renew at once.
    fn schedule_renewal(&mut self) {
        let Some(interval) = self.config.renewal else { return };
        let share = u32::try_from(self.id.0 % 64).unwrap_or_default();
        self.schedule_registration(interval - interval / 256 * share);
    }

    fn schedule_registration(&mut self, pause: Duration) {
        let at = self.now.instant + pause;
        self.watch.register_at = Some(at);
        self.requests.deadlines.insert(at, Timer::Register(self.id));
    }

    fn go_live(&mut self, change: Option<Change>) {
        let was_lagging = self.watch.lagging;
        self.schedule_renewal();
        if let Some(change) = change {
            self.report_change(change);
        }
        // A lagging watch first reports a gap and reads again.
        if !was_lagging && self.report(WatchEvent::Live) {
            self.watch.gap = false;
        }
    }

    fn report_change(&mut self, (value, version): Change) {
        if self.report(WatchEvent::Changed { value, version }) {
            self.watch.record_reported();
        }
    }

    fn report_gap(&mut self) {
        if !self.watch.gap && self.report(WatchEvent::Gap) {
            self.watch.gap = true;
        }
    }

    /// Reports the end. If the event does not fit, the watch stays until it does.
    fn end(&mut self, end: WatchEnd) {
        self.watch.phase = Phase::Ended(end.clone());
        self.release_key();
        self.is_over = self.report(WatchEvent::Ended(end));
    }

    /// Appends an event in order; returns whether it fitted. A lagging watch reports nothing until
    /// it has caught up.
    fn report(&mut self, event: WatchEvent) -> bool {
        let event = Event::Watch { id: self.id, event };
        let has_reported = !self.watch.lagging && self.events.try_push(event);
        if !has_reported {
            self.watch.lagging = true;
            self.lagging.insert(self.id);
        }
        has_reported
    }

    /// Allows another watch of the key.
    fn release_key(&mut self) {
        if self.by_key.get(&self.watch.key) == Some(&self.id) {
            self.by_key.remove(&self.watch.key);
        }
    }
}
