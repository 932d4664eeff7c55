//! The counters of a store.

use core::fmt;

use super::{DropReason, Handled, RequestOutcome};
use crate::message::{Refusal, RequestKind};
use crate::statistics::{self, Statistic};
use crate::time::UnixTime;

/// The outcomes of the requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutcomeCounts {
    /// Executed.
    pub applied: u64,
    /// The condition of the write did not hold.
    pub not_applied: u64,
    /// The key or the registration does not exist.
    pub absent: u64,
    /// Duplicates that got their first response again.
    pub duplicates: u64,
    /// Refused, by [`Refusal`] in the order of its variants.
    refused: [u64; Refusal::ALL.len()],
}

impl OutcomeCounts {
    /// Requests that were executed, whether or not they changed anything.
    #[must_use]
    pub const fn executed(&self) -> u64 {
        self.applied + self.not_applied + self.absent
    }

    fn iter(&self, verb: Option<RequestKind>) -> impl Iterator<Item = Statistic> {
        let refused = Refusal::ALL.iter().zip(self.refused).map(move |(reason, value)| Statistic {
            reason: Some(*reason),
            ..Statistic::of(verb, "refused", value)
        });
        [
            ("applied", self.applied),
            ("not_applied", self.not_applied),
            ("absent", self.absent),
            ("repeated", self.duplicates),
        ]
        .into_iter()
        .map(move |(name, value)| Statistic::of(verb, name, value))
        .chain(refused)
    }

    /// Requests that were refused with this error.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.refused.get(reason as usize).copied().unwrap_or_default()
    }
}

/// The counters of a store since it was created. A copy is a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// By [`RequestKind`] in the order of its variants.
    by_kind: [OutcomeCounts; RequestKind::ALL.len()],
    /// Requests that could not be decoded; all of them were refused.
    malformed: OutcomeCounts,
    /// Requests without a response topic, which cannot get a response.
    pub unanswerable: u64,
    /// Requests with a forbidden response topic.
    pub forbidden: u64,
    /// Requests whose message expiry interval had passed.
    pub expired_requests: u64,
    /// Later [chunks](crate::message::property::CHUNK) of requests that were refused.
    pub later_chunks: u64,
    /// Messages handed over although the store could not receive; they were not acknowledged.
    pub overloaded: u64,
    /// Messages that are not requests, or are retained.
    pub not_requests: u64,
    /// Notifications.
    pub notifications: u64,
    /// Registrations that ended because their client was gone, or that were evicted.
    pub registrations_lost: u64,
    /// Registrations that were [silenced](super::Store::silenced_registrations).
    pub registrations_silenced: u64,
    /// Values that have expired.
    pub expired_values: u64,
    /// Writes that [moved the clock ahead](Handled::clock_advance) by more than
    /// [`CLOCK_ADVANCE_REPORTED`](crate::limits::CLOCK_ADVANCE_REPORTED).
    pub clock_advances: u64,
    /// Those whose fencing token was as far ahead.
    pub fence_advances: u64,
    /// The most that a `__ts` or `__ft` was ahead of the wall clock, in milliseconds. It includes
    /// timestamps that were refused: any client can send any timestamp.
    pub ahead_max_ms: u64,
    /// The most that the `__ts` of a SET was behind the wall clock, in milliseconds. Fencing tokens
    /// do not count: they may be as old as their lock.
    pub behind_max_ms: u64,
}

impl Counters {
    /// The outcomes of requests of this kind.
    #[must_use]
    pub fn of(&self, kind: RequestKind) -> &OutcomeCounts {
        self.by_kind.get(kind as usize).unwrap_or(&self.malformed)
    }

    /// The outcomes of requests that could not be decoded; all of them were refused.
    #[must_use]
    pub const fn malformed(&self) -> &OutcomeCounts {
        &self.malformed
    }

    /// All counters in a fixed order, including those that are zero.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        let verbs = RequestKind::ALL.iter().map(|verb| (Some(*verb), self.of(*verb)));
        let rows = verbs.chain([(None, &self.malformed)]);
        let plain = [
            ("unanswerable", self.unanswerable),
            ("forbidden", self.forbidden),
            ("expired_requests", self.expired_requests),
            ("later_chunks", self.later_chunks),
            ("overloaded", self.overloaded),
            ("not_requests", self.not_requests),
            ("notifications", self.notifications),
            ("watches_lost", self.registrations_lost),
            ("watches_silenced", self.registrations_silenced),
            ("expired_values", self.expired_values),
            ("set_ahead", self.clock_advances),
            ("fenced_ahead", self.fence_advances),
            ("ahead_max_ms", self.ahead_max_ms),
            ("behind_max_ms", self.behind_max_ms),
        ];
        let plain = plain.map(|(name, value)| Statistic::plain(name, value));
        rows.flat_map(|(kind, counts)| counts.iter(kind)).chain(plain)
    }

    /// The messages that got no response, by the [name](DropReason::name) of the reason.
    #[must_use]
    pub const fn dropped_by_reason(&self) -> [(&'static str, u64); 6] {
        [
            ("not_a_request", self.not_requests),
            ("unanswerable", self.unanswerable),
            ("forbidden", self.forbidden),
            ("expired", self.expired_requests),
            ("chunk", self.later_chunks),
            ("overloaded", self.overloaded),
        ]
    }

    /// Requests that were executed, whether or not they changed anything.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.by_kind.iter().map(OutcomeCounts::executed).sum()
    }

    /// Requests that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.all().flat_map(|counts| counts.refused).sum()
    }

    /// Requests that were refused with this error.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.all().map(|counts| counts.refused_for(reason)).sum()
    }

    /// Duplicates that got their first response again.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.by_kind.iter().map(|counts| counts.duplicates).sum()
    }

    /// Messages that got no response.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.unanswerable
            + self.forbidden
            + self.expired_requests
            + self.later_chunks
            + self.overloaded
            + self.not_requests
    }

    fn all(&self) -> impl Iterator<Item = &OutcomeCounts> {
        self.by_kind.iter().chain([&self.malformed])
    }

    #[inline]
    pub(super) fn count(&mut self, handled: &Handled<'_>) {
        if let Some(advance) = handled.clock_advance {
            self.clock_advances += 1;
            self.fence_advances += u64::from(advance.is_fence);
        }
        let counts = handled.kind().and_then(|kind| self.by_kind.get_mut(kind as usize));
        let counts = counts.unwrap_or(&mut self.malformed);
        let counter = match &handled.outcome {
            RequestOutcome::Applied => &mut counts.applied,
            RequestOutcome::NotApplied => &mut counts.not_applied,
            RequestOutcome::Absent => &mut counts.absent,
            RequestOutcome::Duplicate => &mut counts.duplicates,
            RequestOutcome::Refused(refused) => {
                match counts.refused.get_mut(refused.refusal() as usize) {
                    Some(counter) => counter,
                    None => return,
                }
            }
            RequestOutcome::Dropped(reason) => match reason {
                DropReason::NotARequest => &mut self.not_requests,
                DropReason::NoResponseTopic => &mut self.unanswerable,
                DropReason::ForbiddenResponseTopic(_) => &mut self.forbidden,
                DropReason::Expired => &mut self.expired_requests,
                DropReason::LaterChunk => &mut self.later_chunks,
                DropReason::Overloaded => &mut self.overloaded,
            },
        };
        *counter += 1;
    }

    /// Records how far a timestamp is from the wall clock.
    #[inline]
    pub(super) fn observe_timestamp(&mut self, now: UnixTime, wall: UnixTime, is_token: bool) {
        let (now, wall) = (now.as_millis(), wall.as_millis());
        self.ahead_max_ms = self.ahead_max_ms.max(wall.saturating_sub(now));
        if !is_token {
            self.behind_max_ms = self.behind_max_ms.max(now.saturating_sub(wall));
        }
    }
}

/// Prints the counters that are not zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        statistics::print(f, self.iter())
    }
}
