//! What each answer and each moment make of a lock.

use core::time::Duration;

use bytes::Bytes;

use super::watching::Watching;
use super::{AcquireError, Kind, Lock, LockEvent, LockState, LossReason, Next, NotAcquired};
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
        self.state = LockState::Waiting;
        (self.deadline, self.once, self.nudged) = (deadline, once, false);
        self.doubted = false;
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
        matches!(self.state, LockState::Waiting | LockState::Held)
    }

    pub(super) fn take_request(&mut self, now: Instant) -> Request {
        if self.spent {
            self.number += 1;
            self.value = self.config.value(self.number);
            self.spent = false;
        }
        self.nudged = false;
        // An answer that comes later than this is of no use.
        let limit = match self.state {
            LockState::Held => self.held_until.duration_since(now),
            _ => self.deadline.map_or(self.config.lease, |deadline| deadline.duration_since(now)),
        };
        let timeout = self.config.timeout.min(self.config.held_for()).min(limit);
        Request::new(Command::Set {
            key: self.config.key.clone(),
            value: self.value.clone(),
            condition: Condition::IfAbsentOrEqual,
            expiry: Expiry::after(self.config.lease),
        })
        .timeout(timeout)
    }

    pub(super) fn free_request(&self, now: Instant, until: Instant) -> Request {
        let (key, value) = (self.config.key.clone(), self.value.clone());
        let timeout = self.config.timeout.min(until.duration_since(now));
        Request::new(Command::VDel { key, value }).timeout(timeout)
    }

    /// Lets everything happen that is due.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.state == LockState::Held && self.held_until <= now {
            self.lose(LossReason::Expired);
        }
        if self.state == LockState::Waiting && self.deadline.is_some_and(|at| at <= now) {
            self.give_up(NotAcquired::Deadline);
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
        self.claim_until.filter(|_| self.spent && !taking)
    }

    /// Takes the outcome of a SET that was sent at `sent`.
    pub(super) fn took(
        &mut self,
        now: Instant,
        sent: Instant,
        outcome: Result<Outcome, SubmitError>,
    ) {
        match &outcome {
            Ok(Outcome::Replied { reply: Reply::NotApplied, .. }) => self.claim_until = None,
            // It was applied by now, so its lease ends by then.
            Ok(outcome) if outcome.may_be_applied() => {
                self.claim_until = Some(now + self.config.lease);
            }
            _ => {}
        }
        let is_known = self.answered_by(&outcome);
        if self.spent {
            // Nobody wants it any more.
            return match self.claim_until {
                Some(_) => self.next = Next::Now,
                None => self.cleaned(true),
            };
        }
        match outcome {
            // It is lost: another store answered.
            _ if !self.is_active() => {}
            Ok(Outcome::Replied { reply: Reply::Done, .. }) if !is_known => self.doubt(now),
            Ok(Outcome::Replied { reply: Reply::Done, version, .. }) => {
                self.done(now, sent, version);
            }
            Ok(Outcome::Replied { reply: Reply::NotApplied, .. }) => self.not_applied(now),
            Ok(Outcome::Replied { reply: Reply::Error(error), .. }) => self.refused(now, error),
            Err(error) if self.state == LockState::Waiting => match error {
                SubmitError::Full if !self.once => self.retry(now),
                error => self.give_up(NotAcquired::NotAccepted(error)),
            },
            _ if self.state == LockState::Waiting && self.once => {
                self.give_up(NotAcquired::NoAnswer)
            }
            _ => self.retry(now),
        }
    }

    /// Takes the outcome of a VDEL.
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

    /// Notes which store an answer comes from; whether that is the one heard of before.
    fn answered_by(&mut self, outcome: &Result<Outcome, SubmitError>) -> bool {
        match outcome {
            Ok(Outcome::Replied { incarnation, .. }) => self.meet(*incarnation),
            _ => true,
        }
    }

    /// Notes which store there is; whether it is the one heard of before.
    pub(super) fn meet(&mut self, incarnation: Option<Incarnation>) -> bool {
        let before = self.store.replace(incarnation);
        let is_known = before.is_none_or(|before| before == incarnation);
        if !is_known {
            // Its clock may be behind that of the one before.
            self.floor = None;
            if self.state == LockState::Held {
                self.lose(LossReason::StoreReplaced);
            }
        }
        is_known
    }

    /// A try was answered by a store that was not heard of before, or no more: the next answer tells. What it took there
    /// the next try renews.
    fn doubt(&mut self, now: Instant) {
        match (core::mem::replace(&mut self.doubted, true), self.once) {
            (false, _) => self.next = Next::Now,
            // The stores of two answers in a row differ: there may be no end to it.
            (true, true) => self.give_up(NotAcquired::NoAnswer),
            (true, false) => self.retry(now),
        }
    }

    fn done(&mut self, now: Instant, sent: Instant, version: Option<Version>) {
        let newer = |version: &Version| self.floor.as_ref().is_none_or(|floor| version > floor);
        let Some(version) = version.filter(newer) else {
            return match self.state {
                LockState::Held => self.lose(LossReason::BadVersion),
                _ => self.give_up(NotAcquired::BadVersion),
            };
        };
        let token = version.to_fencing_token();
        self.floor = Some(version);
        self.held_until = sent + self.config.held_for();
        if self.held_until <= now {
            // The answer took longer than the lease is good for.
            return if self.once { self.give_up(NotAcquired::NoAnswer) } else { self.retry(now) };
        }
        self.token = Some(token.clone());
        self.next = Next::At(sent + self.config.renew_after);
        self.backoff.reset();
        if self.state == LockState::Held {
            self.tell_last(LockEvent::Renewed { token });
        } else {
            self.state = LockState::Held;
            self.contended = false;
            self.deadline = None;
            self.events.push_back(LockEvent::Acquired { token });
        }
    }

    fn not_applied(&mut self, now: Instant) {
        if self.state == LockState::Held {
            return self.lose(LossReason::Taken);
        }
        if self.once {
            return self.give_up(NotAcquired::Taken);
        }
        self.contended = true;
        self.backoff.reset();
        self.next = if self.nudged { Next::Now } else { Next::At(now + self.config.patience) };
    }

    fn refused(&mut self, now: Instant, error: ServiceError<Bytes>) {
        let may_pass =
            matches!(error.known(), Some(Refusal::TimestampSkew | Refusal::QuotaExceeded));
        match self.state {
            LockState::Held if may_pass => self.retry(now),
            LockState::Held => self.lose(LossReason::Refused(error)),
            _ => self.give_up(NotAcquired::Refused(error)),
        }
    }

    /// Sets the time of the next try after a failure; that of a renewal while there is still time for more.
    fn retry(&mut self, now: Instant) {
        let pause = match self.state {
            LockState::Held => self.backoff.pause().min(self.held_until.duration_since(now) / 2),
            _ => self.backoff.pause(),
        };
        self.next = Next::At(now + pause.max(Duration::from_millis(1)));
    }

    pub(super) fn lose(&mut self, loss: LossReason) {
        if loss == LossReason::Deleted || loss == LossReason::Taken {
            self.claim_until = None;
        }
        self.events.push_back(LockEvent::Lost(loss));
        self.abandon(LockState::Lost);
    }

    pub(super) fn give_up(&mut self, reason: NotAcquired) {
        self.events.push_back(LockEvent::GaveUp(reason));
        self.abandon(LockState::Free);
    }

    /// From here on the lock is neither held nor wanted, and what the store may have of it is to be removed.
    pub(super) fn abandon(&mut self, state: LockState) {
        self.state = state;
        self.token = None;
        self.deadline = None;
        self.contended = false;
        let taking = self.pending.as_ref().is_some_and(|pending| pending.kind == Kind::Take);
        self.spent |= taking || self.claim_until.is_some();
        if self.pending.is_none() {
            self.next = if self.claim_until.is_some() { Next::Now } else { Next::Never };
        }
    }

    /// The store has nothing of ours any more, as it said or as time tells.
    fn cleaned(&mut self, confirmed: bool) {
        self.claim_until = None;
        self.pending = None;
        self.backoff.reset();
        self.next = if self.state == LockState::Waiting { Next::Now } else { Next::Never };
        if core::mem::take(&mut self.release_owed) {
            self.events.push_back(LockEvent::Released { confirmed });
        }
    }

    /// Tells something of which only the last is of interest.
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
