//! The counters of a store.

use super::{DropReason, Handled, RequestOutcome};
use crate::message::{Refusal, RequestKind};
use crate::statistics::{Statistic, counters};
use crate::time::UnixTime;

counters! {
    rows: RequestKind::ALL.len() + 1;
    refusals: Refusal::ALL.len();
    /// The outcomes of the requests of one kind.
    outcomes {
        /// Executed.
        applied,
        /// The condition of the write did not hold.
        not_applied,
        /// The key or the registration does not exist.
        absent,
        /// Duplicates that got their first response again.
        duplicates,
    }
    /// The counters of a store since it was created. A copy is a snapshot.
    counters {
        /// Requests without a response topic, which cannot get a response.
        unanswerable,
        /// Requests with a forbidden response topic.
        forbidden,
        /// Requests whose message expiry interval had passed.
        expired_requests,
        /// Messages handed over although the store could not receive; they were not acknowledged.
        overloaded,
        /// Messages that are not requests, or are retained.
        not_requests,
        /// Notifications.
        notifications,
        /// Registrations that ended because their client was gone, or that were evicted.
        registrations_lost,
        /// Registrations that were [silenced](super::Store::silenced_registrations).
        registrations_silenced,
        /// Values that have expired.
        expired_values,
        /// Writes that [moved the clock ahead](Handled::clock_advance) by more than
        /// [`CLOCK_ADVANCE_REPORTED`](crate::limits::CLOCK_ADVANCE_REPORTED).
        clock_advances,
        /// Those whose fencing token was as far ahead.
        fence_advances,
        /// The most that a `__ts` or `__ft` was ahead of the wall clock, in milliseconds. It
        /// includes timestamps that were refused: any client can send any timestamp.
        ahead_max_ms,
        /// The most that the `__ts` of a SET was behind the wall clock, in milliseconds. Fencing
        /// tokens do not count: they may be as old as their lock.
        behind_max_ms,
    }
}

impl OutcomeCounts {
    /// Requests that were executed, whether or not they changed anything.
    #[must_use]
    pub const fn executed(&self) -> u64 {
        self.applied + self.not_applied + self.absent
    }
}

impl Counters {
    /// The outcomes of requests that could not be decoded; all of them were refused.
    #[must_use]
    pub const fn malformed(&self) -> &OutcomeCounts {
        let [.., last] = &self.by_kind;
        last
    }

    /// The messages that got no response, by the [name](DropReason::name) of the reason.
    #[must_use]
    pub const fn dropped_by_reason(&self) -> [(&'static str, u64); 5] {
        [
            ("not_a_request", self.not_requests),
            ("unanswerable", self.unanswerable),
            ("forbidden", self.forbidden),
            ("expired", self.expired_requests),
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
        self.by_kind.iter().map(OutcomeCounts::refused).sum()
    }

    /// Requests that were refused with this error.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.by_kind.iter().map(|counts| counts.refused_for(reason)).sum()
    }

    /// Duplicates that got their first response again.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.by_kind.iter().map(|counts| counts.duplicates).sum()
    }

    /// Messages that got no response.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_by_reason().map(|(_, count)| count).iter().sum()
    }

    #[inline]
    pub(super) fn count(&mut self, handled: &Handled<'_>) {
        if let Some(advance) = handled.clock_advance {
            self.clock_advances += 1;
            self.fence_advances += u64::from(advance.is_fence);
        }
        let row = handled.kind().map_or(RequestKind::ALL.len(), |kind| kind as usize);
        let Some(counts) = self.by_kind.get_mut(row) else { return };
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
