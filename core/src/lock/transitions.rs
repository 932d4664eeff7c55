//! State transitions of a lock: replies, the watch of its key, and the passing of time.

use core::time::Duration;

use bytes::Bytes;

use super::{
    AcquireError, Attempt, HolderStatus, Kind, Lock, LockAction, LockEvent, LockState, LossReason,
    Next, NotAcquired, Phase,
};
use crate::client::{Outcome, Request, RequestError, SubmitError, WatchEnd, WatchEvent};
use crate::hlc::Version;
use crate::limits::LOCK_EVENTS_MAX;
use crate::message::{Condition, Incarnation, Refusal, Reply, Response, ServiceError};
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
    pub(super) fn begin(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        once: bool,
    ) -> Result<(), AcquireError> {
        self.advance(now);
        if self.is_active() {
            return Err(AcquireError::Active);
        }
        if self.events.len() >= LOCK_EVENTS_MAX {
            return Err(AcquireError::Full);
        }
        let attempt =
            Attempt { deadline, once, contended: false, woken: false, store_changed: false };
        self.phase = Phase::Waiting(attempt);
        self.backoff.reset();
        if self.watch_state == WatchState::Refused {
            self.watch_state = WatchState::Off;
        }
        if self.pending.is_none() {
            self.next = Next::Now;
        }
        self.advance(now);
        Ok(())
    }

    /// Returns whether the lock is waiting or held.
    pub(super) const fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_) | Phase::Held { .. })
    }

    /// The attempt, while the lock is waiting.
    pub(super) const fn attempt(&mut self) -> Option<&mut Attempt> {
        match &mut self.phase {
            Phase::Waiting(attempt) => Some(attempt),
            _ => None,
        }
    }

    const fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    pub(super) fn set_request(&mut self, now: Instant) -> Request {
        let claim = &mut self.claim;
        if claim.abandoned {
            claim.number += 1;
            claim.value = self.config.value(claim.number);
            claim.abandoned = false;
        }
        // A later reply could not be used.
        let limit = match &mut self.phase {
            Phase::Held { until, .. } => Some(*until),
            Phase::Waiting(attempt) => {
                attempt.woken = false;
                attempt.deadline
            }
            Phase::Free | Phase::Lost | Phase::Released => None,
        };
        let limit = limit.map_or(self.config.lease, |limit| limit.duration_since(now));
        let timeout = self.config.timeout.min(self.config.held_for()).min(limit);
        Request::set(&self.config.key, &self.claim.value)
            .condition(Condition::IfAbsentOrEqual)
            .expires_after(self.config.lease)
            .timeout(timeout)
            .into()
    }

    pub(super) fn vdel_request(&self, now: Instant, until: Instant) -> Request {
        let timeout = self.config.timeout.min(until.duration_since(now));
        Request::vdel(&self.config.key, &self.claim.value).timeout(timeout).into()
    }

    /// Runs all timers that are due.
    pub(super) fn advance(&mut self, now: Instant) {
        match &self.phase {
            Phase::Held { until, .. } if *until <= now => self.lose(LossReason::Expired),
            Phase::Waiting(attempt) if attempt.deadline.is_some_and(|at| at <= now) => {
                self.give_up(NotAcquired::Deadline);
            }
            _ => {}
        }
        if self.removal_ends().is_some_and(|at| at <= now) {
            self.finish_removal(false);
        }
        if matches!(self.next, Next::At(at) if at <= now) {
            self.next = Next::Now;
        }
    }

    /// The time when an abandoned value expires, while its removal is tried.
    pub(super) fn removal_ends(&self) -> Option<Instant> {
        let taking = self.pending.as_ref().is_some_and(|pending| pending.kind == Kind::Set);
        self.claim.until.filter(|_| self.claim.abandoned && !taking)
    }

    /// Handles the outcome of a SET that was sent at `sent`.
    pub(super) fn on_set_reply(
        &mut self,
        now: Instant,
        sent: Instant,
        outcome: Result<Outcome, SubmitError>,
    ) {
        match &outcome {
            Ok(Outcome::Responded { response: Response::Reply(Reply::NotApplied), .. }) => {
                self.claim.until = None
            }
            // It was applied by now at the latest, which bounds the end of its lease.
            Ok(outcome) if outcome.may_be_applied() => {
                self.claim.until = Some(now + self.config.lease);
            }
            _ => {}
        }
        let same_store = self.observe_store_of(&outcome);
        if self.claim.abandoned {
            // The value was abandoned while the SET was outstanding.
            return match self.claim.until {
                Some(_) => self.next = Next::Now,
                None => self.finish_removal(true),
            };
        }
        let once = self.attempt().map(|attempt| attempt.once);
        match outcome {
            // Lost, since another store replied.
            _ if !self.is_active() => {}
            Ok(Outcome::Responded { response: Response::Reply(Reply::Done), .. })
                if !same_store =>
            {
                self.retry_after_store_change(now)
            }
            Ok(Outcome::Responded { response: Response::Reply(Reply::Done), version, .. }) => {
                self.on_applied(now, sent, version);
            }
            Ok(Outcome::Responded { response: Response::Reply(Reply::NotApplied), .. }) => {
                self.on_not_applied(now)
            }
            Ok(Outcome::Responded { response: Response::Reply(Reply::Error(error)), .. }) => {
                self.on_refused(now, error)
            }
            Err(SubmitError::Full) if once == Some(false) => self.retry(now),
            Err(error) if once.is_some() => self.give_up(NotAcquired::NotAccepted(error)),
            Ok(outcome) if once == Some(true) => self.give_up(match outcome {
                Outcome::Undelivered(reason) => {
                    NotAcquired::Unreachable(RequestError::Undelivered(reason))
                }
                Outcome::TimedOut { sent: false } => {
                    NotAcquired::Unreachable(RequestError::NotSent)
                }
                _ => NotAcquired::NoAnswer,
            }),
            _ => self.retry(now),
        }
    }

    /// Handles the outcome of a VDEL.
    pub(super) fn on_vdel_reply(&mut self, now: Instant, outcome: &Result<Outcome, SubmitError>) {
        self.observe_store_of(outcome);
        match outcome {
            Ok(Outcome::Responded {
                response:
                    Response::Reply(Reply::Removed | Reply::NothingRemoved | Reply::NotApplied),
                ..
            }) => self.finish_removal(true),
            Ok(Outcome::Responded { .. }) => self.finish_removal(false),
            _ => self.retry(now),
        }
    }

    /// Records the store of a reply. Returns `false` if it differs from the previous one.
    fn observe_store_of(&mut self, outcome: &Result<Outcome, SubmitError>) -> bool {
        match outcome {
            Ok(Outcome::Responded { incarnation, .. }) => self.observe_incarnation(*incarnation),
            _ => true,
        }
    }

    /// Records the current store. Returns `false` if it differs from the previous one.
    pub(super) fn observe_incarnation(&mut self, incarnation: Option<Incarnation>) -> bool {
        let before = self.store.replace(incarnation);
        let same_store = before.is_none_or(|before| before == incarnation);
        if !same_store {
            // Its clock may be behind that of the previous store.
            self.floor = None;
            if self.is_holding() {
                self.lose(LossReason::StoreReplaced);
            }
        }
        same_store
    }

    /// The reply came from a different store than the last known one, and either may be the current
    /// one: tries again before trusting it. The next SET renews what this one acquired.
    fn retry_after_store_change(&mut self, now: Instant) {
        let Some(attempt) = self.attempt() else { return };
        match (core::mem::replace(&mut attempt.store_changed, true), attempt.once) {
            (false, _) => self.next = Next::Now,
            // Two replies in a row came from different stores, which may continue for ever.
            (true, true) => self.give_up(NotAcquired::NoAnswer),
            (true, false) => self.retry(now),
        }
    }

    fn on_applied(&mut self, now: Instant, sent: Instant, version: Option<Version>) {
        let newer = |version: &Version| self.floor.as_ref().is_none_or(|floor| version > floor);
        let Some(version) = version.filter(newer) else {
            return if self.is_holding() {
                self.lose(LossReason::BadVersion);
            } else {
                self.give_up(NotAcquired::BadVersion);
            };
        };
        let token = version.to_fencing_token();
        self.floor = Some(version);
        let until = sent + self.config.held_for();
        if until <= now {
            // The reply took longer than the lease lasts.
            return match self.attempt() {
                Some(attempt) if attempt.once => self.give_up(NotAcquired::NoAnswer),
                _ => self.retry(now),
            };
        }
        self.next = Next::At(sent + self.config.renew_after);
        self.backoff.reset();
        let held_since = match &self.phase {
            Phase::Held { since, .. } => Some(*since),
            _ => None,
        };
        let since = held_since.unwrap_or(now);
        self.phase = Phase::Held { since, until, token: token.clone() };
        if held_since.is_some() {
            self.push_latest(LockEvent::Renewed { token });
        } else {
            self.events.push_back(LockEvent::Acquired { token });
        }
    }

    fn on_not_applied(&mut self, now: Instant) {
        let Some(attempt) = self.attempt() else { return self.lose(LossReason::Taken) };
        if attempt.once {
            return self.give_up(NotAcquired::Taken);
        }
        attempt.contended = true;
        let woken = attempt.woken;
        self.backoff.reset();
        self.next = if woken { Next::Now } else { Next::At(now + self.config.max_lease) };
    }

    fn on_refused(&mut self, now: Instant, error: ServiceError<Bytes>) {
        let may_pass =
            matches!(error.known(), Some(Refusal::TimestampSkew | Refusal::QuotaExceeded));
        match self.phase {
            Phase::Held { .. } if may_pass => self.retry(now),
            Phase::Held { .. } => self.lose(LossReason::Refused(error)),
            _ => self.give_up(NotAcquired::Refused(error)),
        }
    }

    /// Schedules the next request after a failure; a renewal early enough for further ones.
    fn retry(&mut self, now: Instant) {
        let pause = match self.held_until() {
            Some(until) => self.backoff.next_pause().min(until.duration_since(now) / 2),
            None => self.backoff.next_pause(),
        };
        self.next = Next::At(now + pause.max(Duration::from_millis(1)));
    }

    pub(super) fn lose(&mut self, loss: LossReason) {
        self.events.push_back(LockEvent::Lost(loss));
        self.abandon(Phase::Lost);
    }

    pub(super) fn give_up(&mut self, reason: NotAcquired) {
        self.events.push_back(LockEvent::AcquireFailed(reason));
        self.abandon(Phase::Free);
    }

    /// Ends waiting or holding, and schedules the removal of a value that the store may contain.
    pub(super) fn abandon(&mut self, phase: Phase) {
        self.phase = phase;
        let taking = self.pending.as_ref().is_some_and(|pending| pending.kind == Kind::Set);
        self.claim.abandoned |= taking || self.claim.until.is_some();
        if self.pending.is_none() {
            self.next = if self.claim.until.is_some() { Next::Now } else { Next::Never };
        }
    }

    /// Handles the end of an abandoned value: removed, or expired (not `confirmed`).
    fn finish_removal(&mut self, confirmed: bool) {
        self.claim.until = None;
        self.pending = None;
        self.backoff.reset();
        self.next = if self.attempt().is_some() { Next::Now } else { Next::Never };
        if core::mem::take(&mut self.claim.release_owed) {
            self.events.push_back(LockEvent::Released { confirmed });
        }
    }

    /// Queues an event that replaces an earlier one of its kind.
    pub(super) fn push_latest(&mut self, event: LockEvent) {
        let kind = core::mem::discriminant(&event);
        let is_same = |other: &LockEvent| core::mem::discriminant(other) == kind;
        if let Some(earlier) = self.events.iter().rposition(is_same) {
            // A renewal of an earlier holding stays.
            let ends = |other: &LockEvent| matches!(other, LockEvent::Acquired { .. });
            let same_holding = !self.events.iter().skip(earlier).any(ends);
            if same_holding || matches!(event, LockEvent::HolderChanged(_)) {
                self.events.remove(earlier);
            }
        }
        self.events.push_back(event);
    }
}

/// The watch of the key.
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
