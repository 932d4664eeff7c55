//! The watch of a lock's key.

use core::time::Duration;

use bytes::Bytes;

use super::{HolderStatus, Lock, LockAction, LockEvent, LockState, LossReason, Next, Phase};
use crate::client::{WatchEnd, WatchEvent};
use crate::hlc::Version;
use crate::time::Instant;

/// Time after which a held lock watches its key. A watch costs two requests, and a notification of
/// each renewal, so a lock that is held for less than this does not watch.
const WATCH_HELD_AFTER: Duration = Duration::from_secs(1);

/// State of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchState {
    Off,
    On,
    /// The store refused the watch: the lock relies on time alone.
    Refused,
}

impl Lock {
    pub(super) fn watch_action(&mut self, now: Instant) -> Option<LockAction> {
        let wanted = self.config.watch_holder
            || match &self.phase {
                Phase::Waiting(attempt) => attempt.contended,
                // A watch that began while the lock was waiting continues.
                Phase::Held { .. } => self.watch_starts_at().is_none_or(|at| at <= now),
                Phase::Free | Phase::Lost | Phase::Released => false,
            };
        match (self.watch_state, wanted) {
            (WatchState::Off, true) => {
                self.watch_state = WatchState::On;
                Some(LockAction::Watch(self.config.key.clone()))
            }
            (WatchState::On, false) => {
                self.watch_state = WatchState::Off;
                self.holder.reset();
                Some(LockAction::Unwatch)
            }
            _ => None,
        }
    }

    /// The time when a held lock begins to watch its key; `None` if it watches, or the watch was
    /// refused.
    pub(super) fn watch_starts_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Held { since, .. } if self.watch_state == WatchState::Off => {
                Some(*since + WATCH_HELD_AFTER)
            }
            _ => None,
        }
    }

    /// Handles an event of the watch of the key.
    pub(super) fn apply_watch_event(&mut self, now: Instant, event: &WatchEvent) {
        let holder = self.holder.handle_event(event).cloned();
        match event {
            WatchEvent::Changed { value, version } => {
                self.on_changed(now, value.as_ref(), version.as_ref());
            }
            WatchEvent::Live if *self.holder.status() == HolderStatus::Free => self.on_absent(),
            WatchEvent::Ended(WatchEnd::Refused(_)) => self.watch_state = WatchState::Refused,
            WatchEvent::Live | WatchEvent::Gap | WatchEvent::Ended(_) => {}
        }
        if let Some(holder) = holder.filter(|_| self.config.watch_holder) {
            self.push_latest(LockEvent::HolderChanged(holder));
        }
    }

    fn on_changed(&mut self, now: Instant, value: Option<&Bytes>, version: Option<&Version>) {
        let ours = value == Some(&self.claim.value);
        match (self.state(), value) {
            (LockState::Held, Some(_)) if !ours && version > self.floor.as_ref() => {
                self.lose(LossReason::Taken);
            }
            (LockState::Held, None) if version >= self.floor.as_ref() => {
                self.lose(LossReason::Deleted)
            }
            (LockState::Held, None) if version.is_none() => self.on_absent(),
            (LockState::Waiting, None) => self.wake(),
            // A SET whose reply was lost has acquired the lock: the next one renews it.
            (LockState::Waiting, Some(_)) if ours => self.wake(),
            (LockState::Waiting, Some(_)) => self.defer_retry(now),
            _ => {}
        }
    }

    /// Handles a read of the key that found no value. A held lock is lost: its value was deleted
    /// before the read. A renewal would set it again, although another holder may have come and
    /// gone.
    fn on_absent(&mut self) {
        match self.state() {
            LockState::Held => self.lose(LossReason::Deleted),
            _ => self.wake(),
        }
    }

    /// Tries at once: the lock may be free.
    fn wake(&mut self) {
        if let Some(attempt) = self.attempt() {
            attempt.woken = true;
            if self.pending.is_none() {
                self.next = Next::Now;
            }
        }
    }

    /// Defers the next try: another holder's lease began just now at the latest.
    fn defer_retry(&mut self, now: Instant) {
        if let Some(attempt) = self.attempt() {
            attempt.woken = false;
        }
        if matches!(self.next, Next::At(_)) && self.removal_ends().is_none() {
            self.next = Next::At(now + self.config.max_lease);
        }
    }
}
