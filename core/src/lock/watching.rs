//! What a lock makes of the watch of its key.

use bytes::Bytes;

use super::{Action, Holder, HolderStatus, Lock, LockEvent, LockState, LossReason, Next};
use crate::client::{WatchEnd, WatchEvent};
use crate::hlc::Version;
use crate::time::Instant;

/// Whether the key is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watching {
    Off,
    On,
    /// The store refused the watch: the lock relies on time alone.
    Refused,
}

impl Lock {
    pub(super) fn watch_action(&mut self) -> Option<Action> {
        let contended = self.attempt().is_some_and(|attempt| attempt.contended);
        let wanted = self.config.watch_holder || contended;
        match (self.watching, wanted) {
            (Watching::Off, true) => {
                self.watching = Watching::On;
                Some(Action::Watch(self.config.key.clone()))
            }
            (Watching::On, false) => {
                self.watching = Watching::Off;
                (self.live, self.holder) = (false, None);
                self.tell_holder();
                Some(Action::Unwatch)
            }
            _ => None,
        }
    }

    /// Handles an event of the watch of the key.
    pub(super) fn take_watch_event(&mut self, now: Instant, event: &WatchEvent) {
        match event {
            WatchEvent::Changed { value, version } => {
                self.holder =
                    value.as_ref().map(|value| Holder::new(value.clone(), version.clone()));
                self.changed(now, value.as_ref(), version.as_ref());
            }
            WatchEvent::Live => {
                self.live = true;
                if self.holder.is_none() {
                    self.nudge();
                }
            }
            WatchEvent::Gap => self.live = false,
            WatchEvent::Ended(end) => {
                if let WatchEnd::Refused(_) = end {
                    self.watching = Watching::Refused;
                }
                self.live = false;
                self.holder = None;
            }
        }
        self.tell_holder();
    }

    fn changed(&mut self, now: Instant, value: Option<&Bytes>, version: Option<&Version>) {
        let ours = value == Some(&self.claim.value);
        match (self.state(), value) {
            (LockState::Held, Some(_)) if !ours && version > self.floor.as_ref() => {
                self.lose(LossReason::Taken);
            }
            (LockState::Held, None) if version >= self.floor.as_ref() => {
                self.lose(LossReason::Deleted)
            }
            // Read as absent, nobody knows when: a renewal finds out.
            (LockState::Held, None) if version.is_none() && self.pending.is_none() => {
                self.next = Next::Now;
            }
            (LockState::Waiting, None) => self.nudge(),
            // A try took it whose answer was lost: the next one renews it.
            (LockState::Waiting, Some(_)) if ours => self.nudge(),
            (LockState::Waiting, Some(_)) => self.postpone(now),
            _ => {}
        }
    }

    /// The lock may be free.
    fn nudge(&mut self) {
        if let Some(attempt) = self.attempt() {
            attempt.nudged = true;
            if self.pending.is_none() {
                self.next = Next::Now;
            }
        }
    }

    /// Somebody's lease began just now, at the latest.
    fn postpone(&mut self, now: Instant) {
        if let Some(attempt) = self.attempt() {
            attempt.nudged = false;
        }
        if matches!(self.next, Next::At(_)) && self.cleaning_ends().is_none() {
            self.next = Next::At(now + self.config.patience);
        }
    }

    pub(super) fn tell_holder(&mut self) {
        let seen = match &self.holder {
            _ if !self.live => HolderStatus::Unknown,
            Some(holder) => HolderStatus::Held(holder.clone()),
            None => HolderStatus::Free,
        };
        if self.holder_told != seen {
            self.holder_told = seen.clone();
            if self.config.watch_holder {
                self.tell_last(LockEvent::HolderChanged(seen));
            }
        }
    }
}
