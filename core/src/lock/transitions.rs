//! State transitions of a lock: replies, the watch of its key, and the passing of time.

use core::cmp::Ordering;
use core::time::Duration;

use bytes::Bytes;

use super::{
    AcquireError, Attempt, HolderStatus, Kind, Lock, LockAction, LockEvent, LossReason,
    NextRequest, NotAcquired, Phase, WatchState,
};
use crate::client::{Outcome, Request, RequestError, SubmitError, WatchEnd, WatchEvent};
use crate::hlc::{FencingToken, Version};
use crate::limits::LOCK_EVENTS_MAX;
use crate::message::{Condition, Incarnation, Refusal, Reply, Response, ServiceError};
use crate::time::Instant;

/// Time after which a held lock watches its key. A watch costs two requests, and a notification of
/// each renewal, so a lock that is held for less than this does not watch.
const WATCH_HELD_AFTER: Duration = Duration::from_secs(1);

/// What the next reply to a SET decides.
#[derive(Clone, Copy)]
enum Purpose {
    /// Whether the held lock stays held.
    Renew,
    /// Whether the only attempt acquires the lock.
    TryOnce,
    /// Whether the lock is acquired now; otherwise it waits.
    Wait,
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
        let attempt = Attempt { deadline, once, contended: false, store_changed: false };
        self.phase = Phase::Waiting(attempt);
        self.backoff.reset();
        if self.watch_state == WatchState::Refused {
            self.watch_state = WatchState::Off;
        }
        self.next = NextRequest::Due;
        self.advance(now);
        Ok(())
    }

    /// Runs all timers that are due.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.phase_ends().is_some_and(|at| at <= now) {
            self.end(LossReason::Expired, NotAcquired::Deadline);
        }
        if self.removal_ends().is_some_and(|at| at <= now) {
            self.finish_removal(false);
        }
        if matches!(self.next, NextRequest::At(at) if at <= now) {
            self.next = NextRequest::Due;
        }
    }

    /// Returns whether the lock is waiting or held.
    pub(super) const fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_) | Phase::Held { .. })
    }

    const fn purpose(&self) -> Option<Purpose> {
        match &self.phase {
            Phase::Held { .. } => Some(Purpose::Renew),
            Phase::Waiting(Attempt { once: true, .. }) => Some(Purpose::TryOnce),
            Phase::Waiting(_) => Some(Purpose::Wait),
            Phase::Free | Phase::Lost | Phase::Released => None,
        }
    }

    /// The time when a held lock is lost, or a waiting one gives up.
    pub(super) const fn phase_ends(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Held { until, .. } => Some(*until),
            Phase::Waiting(attempt) => attempt.deadline,
            Phase::Free | Phase::Lost | Phase::Released => None,
        }
    }

    /// The time when an abandoned value expires, while its removal is tried.
    pub(super) fn removal_ends(&self) -> Option<Instant> {
        self.own.until.filter(|_| self.own.abandoned && !self.is_set_outstanding())
    }

    fn is_set_outstanding(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.kind == Kind::Set)
    }

    pub(super) fn set_request(&mut self, now: Instant) -> Request {
        if self.own.abandoned {
            self.own.number += 1;
            self.own.abandoned = false;
        }
        // A later reply could not be used.
        let limit = self.phase_ends().map_or(self.config.lease, |end| end.duration_since(now));
        Request::set(&self.config.key, self.own_value())
            .condition(Condition::IfAbsentOrEqual)
            .expires_after(self.config.lease)
            .timeout(self.config.timeout.min(self.config.held_for()).min(limit))
            .into()
    }

    pub(super) fn vdel_request(&self, now: Instant, until: Instant) -> Request {
        let timeout = self.config.timeout.min(until.duration_since(now));
        Request::vdel(&self.config.key, self.own_value()).timeout(timeout).into()
    }

    fn own_value(&self) -> Bytes {
        self.config.value(self.own.number)
    }

    /// Handles the outcome of a SET that was sent at `sent`.
    pub(super) fn on_set_reply(
        &mut self,
        now: Instant,
        sent: Instant,
        outcome: Result<Outcome, SubmitError>,
    ) {
        use Purpose::{Renew, TryOnce, Wait};

        let may_be_applied = outcome.as_ref().is_ok_and(Outcome::may_be_applied);
        let is_same_store = self.observe_store_of(&outcome);
        let reply = reply_of(outcome);
        if matches!(reply, Ok((Reply::NotApplied, _))) {
            self.own.until = None;
        } else if may_be_applied {
            // The store applied the SET at some time before now, so the lease ends at `now + lease`
            // at the latest.
            self.own.until = Some(now + self.config.lease);
        }
        let purpose = match self.purpose() {
            Some(purpose) if !self.own.abandoned => purpose,
            // Abandoned while the SET was outstanding, or lost, since another store replied.
            _ if self.own.until.is_some() => return self.next = NextRequest::Due,
            _ => return self.finish_removal(true),
        };
        match (reply, purpose) {
            (Ok((Reply::Done, _)), TryOnce | Wait) if !is_same_store => {
                self.on_store_change(now);
            }
            (Ok((Reply::Done, version)), _) => self.on_applied(now, sent, version),
            (Ok((Reply::NotApplied, _)), Renew) => self.lose(LossReason::Taken),
            (Ok((Reply::NotApplied, _)), TryOnce) => self.give_up(NotAcquired::Taken),
            (Ok((Reply::NotApplied, _)), Wait) => self.wait_for_holder(now),
            (Ok((Reply::Error(error), _)), Renew) if may_pass(&error) => self.retry(now),
            (Ok((Reply::Error(error), _)), Renew) => self.lose(LossReason::Refused(error)),
            (Ok((Reply::Error(error), _)), _) => self.give_up(NotAcquired::Refused(error)),
            (Ok(_), TryOnce) => self.give_up(NotAcquired::NoAnswer),
            (Err(reason), TryOnce) => self.give_up(reason),
            (Err(NotAcquired::NotAccepted(error)), Wait) if error != SubmitError::Full => {
                self.give_up(NotAcquired::NotAccepted(error));
            }
            (_, Renew | Wait) => self.retry(now),
        }
    }

    /// Handles the outcome of a VDEL.
    pub(super) fn on_vdel_reply(&mut self, now: Instant, outcome: Result<Outcome, SubmitError>) {
        self.observe_store_of(&outcome);
        match reply_of(outcome) {
            Ok((Reply::Removed | Reply::NothingRemoved | Reply::NotApplied, _)) => {
                self.finish_removal(true);
            }
            Ok(_) => self.finish_removal(false),
            Err(_) => self.retry(now),
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
        let is_same_store = before.is_none_or(|before| before == incarnation);
        if !is_same_store {
            // Its clock may be behind that of the previous store.
            self.greatest_version = None;
            if matches!(self.phase, Phase::Held { .. }) {
                self.lose(LossReason::StoreReplaced);
            }
        }
        is_same_store
    }

    /// The SET was applied by a different store than the last known one, and either may be the
    /// current one: tries again before trusting it. The next SET renews what this one acquired.
    fn on_store_change(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Waiting(attempt) if !attempt.store_changed => {
                attempt.store_changed = true;
                self.next = NextRequest::Due;
            }
            // Two replies in a row came from different stores, which may continue for ever.
            _ => self.fail(now),
        }
    }

    fn on_applied(&mut self, now: Instant, sent: Instant, version: Option<Version>) {
        let Some(version) = version.filter(|new| Some(new) > self.greatest_version.as_ref()) else {
            return self.end(LossReason::BadVersion, NotAcquired::BadVersion);
        };
        let token = version.to_fencing_token();
        self.greatest_version = Some(version);
        let until = sent + self.config.held_for();
        if until <= now {
            // The reply took longer than the lease lasts.
            return self.fail(now);
        }
        self.next = NextRequest::At(sent + self.config.renew_after);
        self.backoff.reset();
        let mut since = now;
        if let Phase::Held { since: before, .. } = self.phase {
            since = before;
            self.report_renewal(token.clone());
        } else {
            self.events.push_back(LockEvent::Acquired { token: token.clone() });
        }
        self.phase = Phase::Held { since, until, token };
    }

    fn wait_for_holder(&mut self, now: Instant) {
        if let Phase::Waiting(attempt) = &mut self.phase {
            attempt.contended = true;
        }
        self.backoff.reset();
        // Unless the key was reported free after the SET was sent.
        if self.next == NextRequest::Never {
            self.next = NextRequest::At(now + self.config.max_lease);
        }
    }

    /// Handles a SET without a usable result: the only attempt ends.
    fn fail(&mut self, now: Instant) {
        match self.purpose() {
            Some(Purpose::TryOnce) => self.give_up(NotAcquired::NoAnswer),
            _ => self.retry(now),
        }
    }

    /// Schedules the next request after a failure; a renewal early enough for further ones.
    fn retry(&mut self, now: Instant) {
        let mut pause = self.backoff.next_pause();
        if let Some(until) = self.held_until() {
            pause = pause.min(until.duration_since(now) / 2);
        }
        self.next = NextRequest::At(now + pause.max(Duration::from_millis(1)));
    }

    /// Ends holding or waiting, with the reason for either.
    fn end(&mut self, loss: LossReason, reason: NotAcquired) {
        match self.phase {
            Phase::Held { .. } => self.lose(loss),
            _ => self.give_up(reason),
        }
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
        self.own.abandoned |= self.is_set_outstanding() || self.own.until.is_some();
        self.next = if self.own.until.is_some() { NextRequest::Due } else { NextRequest::Never };
    }

    /// Handles the end of an abandoned value: removed, or expired (not `confirmed`).
    fn finish_removal(&mut self, confirmed: bool) {
        self.own.until = None;
        self.pending = None;
        self.backoff.reset();
        self.next = if self.is_active() { NextRequest::Due } else { NextRequest::Never };
        if core::mem::take(&mut self.own.release_owed) {
            self.events.push_back(LockEvent::Released { confirmed });
        }
    }

    /// Reports a renewal in place of an unpolled one of the same holding.
    fn report_renewal(&mut self, token: FencingToken) {
        let is_own = |event: &LockEvent| !matches!(event, LockEvent::HolderChanged(_));
        let last = self.events.iter().rposition(is_own);
        let is_renewal =
            |last: &usize| matches!(self.events.get(*last), Some(LockEvent::Renewed { .. }));
        if let Some(last) = last.filter(is_renewal) {
            self.events.remove(last);
        }
        self.events.push_back(LockEvent::Renewed { token });
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
    pub(super) fn on_watch_event(&mut self, now: Instant, event: &WatchEvent) {
        let holder = self.holder.handle_event(event).cloned();
        match event {
            WatchEvent::Changed { value, version } => {
                self.on_changed(now, value.as_ref(), version.as_ref());
            }
            WatchEvent::Live if *self.holder.status() == HolderStatus::Free => {
                self.on_changed(now, None, None);
            }
            WatchEvent::Ended(WatchEnd::Refused(_)) => self.watch_state = WatchState::Refused,
            WatchEvent::Live | WatchEvent::Gap | WatchEvent::Ended(_) => {}
        }
        if let Some(holder) = holder.filter(|_| self.config.watch_holder) {
            self.events.retain(|event| !matches!(event, LockEvent::HolderChanged(_)));
            self.events.push_back(LockEvent::HolderChanged(holder));
        }
    }

    /// Handles a change of the key. Without a version, a read of the key found no value.
    fn on_changed(&mut self, now: Instant, value: Option<&Bytes>, version: Option<&Version>) {
        let is_own = value == Some(&self.own_value());
        let order = version.cmp(&self.greatest_version.as_ref());
        match (&self.phase, value) {
            (Phase::Held { .. }, Some(_)) if !is_own && order == Ordering::Greater => {
                self.lose(LossReason::Taken);
            }
            // A renewal would set the value again, although another holder may have come and gone.
            (Phase::Held { .. }, None) if version.is_none() || order != Ordering::Less => {
                self.lose(LossReason::Deleted);
            }
            // The lock is free, or a SET whose reply was lost has acquired it, and the next one
            // renews it.
            (Phase::Waiting(_), _) if value.is_none() || is_own => self.next = NextRequest::Due,
            // The lease of another holder began just now at the latest.
            (Phase::Waiting(_), _) if self.is_set_outstanding() => self.next = NextRequest::Never,
            (Phase::Waiting(_), _)
                if matches!(self.next, NextRequest::At(_)) && self.removal_ends().is_none() =>
            {
                self.next = NextRequest::At(now + self.config.max_lease);
            }
            _ => {}
        }
    }
}

/// The reply in an outcome; without one, the reason why nothing was acquired.
fn reply_of(
    outcome: Result<Outcome, SubmitError>,
) -> Result<(Reply<Bytes>, Option<Version>), NotAcquired> {
    Err(match outcome {
        Ok(Outcome::Responded { response: Response::Reply(reply), version, .. }) => {
            return Ok((reply, version));
        }
        Ok(Outcome::Undelivered(reason)) => {
            NotAcquired::Unreachable(RequestError::Undelivered(reason))
        }
        Ok(Outcome::TimedOut { sent: false }) => NotAcquired::Unreachable(RequestError::NotSent),
        Ok(_) => NotAcquired::NoAnswer,
        Err(error) => NotAcquired::NotAccepted(error),
    })
}

/// Returns whether a later renewal may succeed.
fn may_pass(error: &ServiceError<Bytes>) -> bool {
    matches!(error.known(), Some(Refusal::TimestampSkew | Refusal::QuotaExceeded))
}
