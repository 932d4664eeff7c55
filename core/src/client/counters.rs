//! The counters of a client.

use core::fmt;

use super::{Event, Outcome, WatchEvent};
use crate::message::{Refusal, Reply, RequestKind, Response};
use crate::statistics::{self, Statistic};

/// The outcomes of the requests of one kind, including those of watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutcomeCounts {
    /// Executed.
    pub applied: u64,
    /// The condition did not hold.
    pub not_applied: u64,
    /// The key or the registration does not exist.
    pub absent: u64,
    /// The broker did not deliver the request.
    pub undelivered: u64,
    /// No response arrived in time.
    pub timed_out: u64,
    /// The connection was lost before the response.
    pub connection_lost: u64,
    /// Cancelled by the caller.
    pub cancelled: u64,
    /// The response was malformed.
    pub malformed: u64,
    /// Refused, by [`Refusal`] in its order; the last place is for texts that are not in the table.
    refused: [u64; Refusal::ALL.len() + 1],
}

impl OutcomeCounts {
    /// Requests that the store refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Requests that the store refused with this error.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.refused.get(reason as usize).copied().unwrap_or_default()
    }

    fn iter(&self, verb: Option<RequestKind>) -> impl Iterator<Item = Statistic> {
        let reasons = Refusal::ALL.iter().copied().map(Some).chain([None]);
        let refused = reasons.zip(self.refused).map(move |(reason, value)| Statistic {
            reason,
            ..Statistic::of(verb, "refused", value)
        });
        [
            ("applied", self.applied),
            ("not_applied", self.not_applied),
            ("absent", self.absent),
            ("undelivered", self.undelivered),
            ("timed_out", self.timed_out),
            ("connection_lost", self.connection_lost),
            ("cancelled", self.cancelled),
            ("malformed", self.malformed),
        ]
        .into_iter()
        .map(move |(name, value)| Statistic::of(verb, name, value))
        .chain(refused)
    }

    fn counter(&mut self, outcome: &Outcome) -> Option<&mut u64> {
        Some(match outcome {
            Outcome::Responded { response: Response::Reply(reply), .. } => match reply {
                Reply::Done | Reply::Value(_) | Reply::Removed => &mut self.applied,
                Reply::NotApplied => &mut self.not_applied,
                Reply::Absent | Reply::NothingRemoved | Reply::NotWatched => &mut self.absent,
                Reply::Error(error) => {
                    let place = error.known().map_or(Refusal::ALL.len(), |known| known as usize);
                    return self.refused.get_mut(place);
                }
            },
            Outcome::Responded { response: Response::Page(_), .. } => &mut self.applied,
            Outcome::Undelivered(_) => &mut self.undelivered,
            Outcome::TimedOut { .. } => &mut self.timed_out,
            Outcome::ConnectionLost => &mut self.connection_lost,
            Outcome::Cancelled { .. } => &mut self.cancelled,
            Outcome::Malformed(_) => &mut self.malformed,
        })
    }
}

/// The counters of a client since it was created. A copy is a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Completed requests, by [`RequestKind`] in its order.
    by_verb: [OutcomeCounts; RequestKind::ALL.len()],
    /// Connections.
    pub connections: u64,
    /// Gaps reported to watches.
    pub gaps: u64,
    /// Changes of the store's incarnation.
    pub stores_replaced: u64,
    /// Messages that matched no request and no watch.
    pub unmatched: u64,
    /// Timestamps of a store that were too far ahead of the local wall clock.
    pub clock_drifts: u64,
}

impl Counters {
    /// The outcomes of requests of this kind.
    #[must_use]
    pub fn of(&self, verb: RequestKind) -> &OutcomeCounts {
        // Each kind has a place.
        let [first, ..] = &self.by_verb;
        self.by_verb.get(verb as usize).unwrap_or(first)
    }

    /// All counters in a fixed order, including those that are zero.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        let verbs = RequestKind::ALL.iter().copied();
        let plain = [
            ("connections", self.connections),
            ("gaps", self.gaps),
            ("stores_replaced", self.stores_replaced),
            ("unmatched", self.unmatched),
            ("clock_drifts", self.clock_drifts),
        ];
        let plain = plain.map(|(name, value)| Statistic::plain(name, value));
        verbs.flat_map(|verb| self.of(verb).iter(Some(verb))).chain(plain)
    }

    pub(super) fn record_outcome(&mut self, verb: RequestKind, outcome: &Outcome) {
        let row = self.by_verb.get_mut(verb as usize);
        if let Some(counter) = row.and_then(|row| row.counter(outcome)) {
            *counter += 1;
        }
    }

    pub(super) const fn record_event(&mut self, event: &Event) {
        let counter = match event {
            Event::Watch { event: WatchEvent::Gap, .. } => &mut self.gaps,
            Event::StoreReplaced { .. } => &mut self.stores_replaced,
            Event::Unmatched(_) => &mut self.unmatched,
            Event::ClockDrift(_) => &mut self.clock_drifts,
            _ => return,
        };
        *counter += 1;
    }
}

/// Prints the counters that are not zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        statistics::print(f, self.iter())
    }
}
