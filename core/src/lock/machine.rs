//! What each answer and each moment make of a lock.

use core::time::Duration;

use bytes::Bytes;

use super::watching::Watching;
use super::{AcquireError, Kind, Lock, LockEvent, LossReason, Next, NotAcquired, Phase, Try};
use crate::client::{Outcome, Request, SubmitError};
use crate::hlc::Version;
use crate::limits::LOCK_EVENTS_MAX;
use crate::message::{Command, Condition, Expiry, Incarnation, Refusal, Reply, ServiceError};
use crate::time::Instant;

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
        let attempt = Try { deadline, once, contended: false, nudged: false, doubted: false };
        self.phase = Phase::Waiting(attempt);
        self.backoff.reset();
        if self.watching == Watching::Refused {
            self.watching = Watching::Off;
        }
        if self.pending.is_none() {
            self.next = Next::Now;
        }
        self.advance(now);
        Ok(())
    }

    /// Whether it is wanted or held.
    pub(super) const fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_) | Phase::Held { .. })
    }

    /// The try, while there is one.
    pub(super) const fn attempt(&mut self) -> Option<&mut Try> {
        match &mut self.phase {
            Phase::Waiting(attempt) => Some(attempt),
            _ => None,
        }
    }

    const fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    pub(super) fn take_request(&mut self, now: Instant) -> Request {
        let claim = &mut self.claim;
        if claim.spent {
            claim.number += 1;
            claim.value = self.config.value(claim.number);
            claim.spent = false;
        }
        // An answer that comes later than this is of no use.
        let limit = match &mut self.phase {
            Phase::Held { until, .. } => Some(*until),
            Phase::Waiting(attempt) => {
                attempt.nudged = false;
                attempt.deadline
            }
            Phase::Free | Phase::Lost | Phase::Released => None,
        };
        let limit = limit.map_or(self.config.lease, |limit| limit.duration_since(now));
        let timeout = self.config.timeout.min(self.config.held_for()).min(limit);
        Request::new(Command::Set {
            key: self.config.key.clone(),
            value: self.claim.value.clone(),
            condition: Condition::IfAbsentOrEqual,
            expiry: Expiry::after(self.config.lease),
        })
        .timeout(timeout)
    }

    pub(super) fn free_request(&self, now: Instant, until: Instant) -> Request {
        let (key, value) = (self.config.key.clone(), self.claim.value.clone());
        let timeout = self.config.timeout.min(until.duration_since(now));
        Request::new(Command::VDel { key, value }).timeout(timeout)
    }

    /// Does everything that is due.
    pub(super) fn advance(&mut self, now: Instant) {
        match &self.phase {
            Phase::Held { until, .. } if *until <= now => self.lose(LossReason::Expired),
            Phase::Waiting(attempt) if attempt.deadline.is_some_and(|at| at <= now) => {
                self.give_up(NotAcquired::Deadline);
            }
            _ => {}
        }
        if self.cleaning_ends().is_some_and(|at| at <= now) {
            self.cleaned(false);
        }
        if matches!(self.next, Next::At(at) if at <= now) {
            self.next = Next::Now;
        }
    }

    /// When a value that was given up is gone by itself, while its removal is tried.
    pub(super) fn cleaning_ends(&self) -> Option<Instant> {
        let taking = self.pending.as_ref().is_some_and(|pending| pending.kind == Kind::Take);
        self.claim.until.filter(|_| self.claim.spent && !taking)
    }

    /// Handles the outcome of a SET that was sent at `sent`.
    pub(super) fn took(
        &mut self,
        now: Instant,
        sent: Instant,
        outcome: Result<Outcome, SubmitError>,
    ) {
        match &outcome {
            Ok(Outcome::Replied { reply: Reply::NotApplied, .. }) => self.claim.until = None,
            // It was applied by now, so its lease ends by then.
            Ok(outcome) if outcome.may_be_applied() => {
                self.claim.until = Some(now + self.config.lease);
            }
            _ => {}
        }
        let is_known = self.answered_by(&outcome);
        if self.claim.spent {
            // Nobody wants it any more.
            return match self.claim.until {
                Some(_) => self.next = Next::Now,
                None => self.cleaned(true),
            };
        }
        let once = self.attempt().map(|attempt| attempt.once);
        match outcome {
            // It is lost: another store answered.
            _ if !self.is_active() => {}
            Ok(Outcome::Replied { reply: Reply::Done, .. }) if !is_known => self.doubt(now),
            Ok(Outcome::Replied { reply: Reply::Done, version, .. }) => {
                self.done(now, sent, version);
            }
            Ok(Outcome::Replied { reply: Reply::NotApplied, .. }) => self.not_applied(now),
            Ok(Outcome::Replied { reply: Reply::Error(error), .. }) => self.refused(now, error),
            Err(SubmitError::Full) if once == Some(false) => self.retry(now),
            Err(error) if once.is_some() => self.give_up(NotAcquired::NotAccepted(error)),
            _ if once == Some(true) => self.give_up(NotAcquired::NoAnswer),
            _ => self.retry(now),
        }
    }

    /// Handles the outcome of a VDEL.
    pub(super) fn freed(&mut self, now: Instant, outcome: &Result<Outcome, SubmitError>) {
        self.answered_by(outcome);
        match outcome {
            Ok(Outcome::Replied {
                reply: Reply::Removed | Reply::NothingRemoved | Reply::NotApplied,
                ..
            }) => self.cleaned(true),
            Ok(Outcome::Replied { .. }) => self.cleaned(false),
            _ => self.retry(now),
        }
    }

    /// Records which store an answer comes from; whether it is the same as before.
    fn answered_by(&mut self, outcome: &Result<Outcome, SubmitError>) -> bool {
        match outcome {
            Ok(Outcome::Replied { incarnation, .. }) => self.meet(*incarnation),
            _ => true,
        }
    }

    /// Records which store there is; whether it is the same as before.
    pub(super) fn meet(&mut self, incarnation: Option<Incarnation>) -> bool {
        let before = self.store.replace(incarnation);
        let is_known = before.is_none_or(|before| before == incarnation);
        if !is_known {
            // Its clock may be behind that of the one before.
            self.floor = None;
            if self.is_holding() {
                self.lose(LossReason::StoreReplaced);
            }
        }
        is_known
    }

    /// A try was answered by a store that was not heard of before, or no more: the next answer tells. What it took there
    /// the next try renews.
    fn doubt(&mut self, now: Instant) {
        let Some(attempt) = self.attempt() else { return };
        match (core::mem::replace(&mut attempt.doubted, true), attempt.once) {
            (false, _) => self.next = Next::Now,
            // The stores of two answers in a row differ: there may be no end to it.
            (true, true) => self.give_up(NotAcquired::NoAnswer),
            (true, false) => self.retry(now),
        }
    }

    fn done(&mut self, now: Instant, sent: Instant, version: Option<Version>) {
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
            // The answer took longer than the lease is good for.
            return match self.attempt() {
                Some(attempt) if attempt.once => self.give_up(NotAcquired::NoAnswer),
                _ => self.retry(now),
            };
        }
        self.next = Next::At(sent + self.config.renew_after);
        self.backoff.reset();
        let renews = self.is_holding();
        self.phase = Phase::Held { until, token: token.clone() };
        if renews {
            self.tell_last(LockEvent::Renewed { token });
        } else {
            self.events.push_back(LockEvent::Acquired { token });
        }
    }

    fn not_applied(&mut self, now: Instant) {
        let Some(attempt) = self.attempt() else { return self.lose(LossReason::Taken) };
        if attempt.once {
            return self.give_up(NotAcquired::Taken);
        }
        attempt.contended = true;
        let nudged = attempt.nudged;
        self.backoff.reset();
        self.next = if nudged { Next::Now } else { Next::At(now + self.config.patience) };
    }

    fn refused(&mut self, now: Instant, error: ServiceError<Bytes>) {
        let may_pass =
            matches!(error.known(), Some(Refusal::TimestampSkew | Refusal::QuotaExceeded));
        match self.phase {
            Phase::Held { .. } if may_pass => self.retry(now),
            Phase::Held { .. } => self.lose(LossReason::Refused(error)),
            _ => self.give_up(NotAcquired::Refused(error)),
        }
    }

    /// Sets the time of the next try after a failure; that of a renewal while there is still time for more.
    fn retry(&mut self, now: Instant) {
        let pause = match self.held_until() {
            Some(until) => self.backoff.pause().min(until.duration_since(now) / 2),
            None => self.backoff.pause(),
        };
        self.next = Next::At(now + pause.max(Duration::from_millis(1)));
    }

    pub(super) fn lose(&mut self, loss: LossReason) {
        if loss == LossReason::Deleted || loss == LossReason::Taken {
            self.claim.until = None;
        }
        self.events.push_back(LockEvent::Lost(loss));
        self.abandon(Phase::Lost);
    }

    pub(super) fn give_up(&mut self, reason: NotAcquired) {
        self.events.push_back(LockEvent::GaveUp(reason));
        self.abandon(Phase::Free);
    }

    /// From here on the lock is neither held nor wanted, and what the store may have of it is to be removed.
    pub(super) fn abandon(&mut self, phase: Phase) {
        self.phase = phase;
        let taking = self.pending.as_ref().is_some_and(|pending| pending.kind == Kind::Take);
        self.claim.spent |= taking || self.claim.until.is_some();
        if self.pending.is_none() {
            self.next = if self.claim.until.is_some() { Next::Now } else { Next::Never };
        }
    }

    /// The store has nothing of ours any more, as it said or as time tells.
    fn cleaned(&mut self, confirmed: bool) {
        self.claim.until = None;
        self.pending = None;
        self.backoff.reset();
        self.next = if self.attempt().is_some() { Next::Now } else { Next::Never };
        if core::mem::take(&mut self.claim.release_owed) {
            self.events.push_back(LockEvent::Released { confirmed });
        }
    }

    /// Queues an event of which only the last counts.
    pub(super) fn tell_last(&mut self, event: LockEvent) {
        let kind = core::mem::discriminant(&event);
        let is_same = |other: &LockEvent| core::mem::discriminant(other) == kind;
        if let Some(earlier) = self.events.iter().rposition(is_same) {
            // A renewal of an earlier holding belongs to that.
            let ends = |other: &LockEvent| matches!(other, LockEvent::Acquired { .. });
            let same_holding = !self.events.iter().skip(earlier).any(ends);
            if same_holding || matches!(event, LockEvent::HolderChanged(_)) {
                self.events.remove(earlier);
            }
        }
        self.events.push_back(event);
    }
}
