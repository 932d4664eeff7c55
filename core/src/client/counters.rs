//! What a client counts.

use core::fmt;

use super::{Event, Outcome, WatchEvent};
use crate::message::{CommandKind, Refusal, Reply};
use crate::statistics::{self, Statistic};

/// What became of the requests with one verb, those of watches included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcomes {
    /// Done.
    pub applied: u64,
    /// The condition did not hold.
    pub not_applied: u64,
    /// No such key or registration.
    pub absent: u64,
    /// The broker did not pass it on.
    pub undelivered: u64,
    /// No answer came in time.
    pub timed_out: u64,
    /// The connection was lost before the answer.
    pub unknown: u64,
    /// Given up by the caller.
    pub cancelled: u64,
    /// The answer could not be read.
    pub malformed: u64,
    /// Refused, by [`Refusal`] in its order; the last place is for texts that are not in the table.
    refused: [u64; Refusal::ALL.len() + 1],
}

impl Outcomes {
    /// Requests refused by the store, for whatever reason.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Requests refused for this reason.
    #[must_use]
    pub fn refused_for(&self, reason: Refusal) -> u64 {
        self.refused.get(reason as usize).copied().unwrap_or_default()
    }

    fn iter(&self, verb: Option<CommandKind>) -> impl Iterator<Item = Statistic> {
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
            ("unknown", self.unknown),
            ("cancelled", self.cancelled),
            ("malformed", self.malformed),
        ]
        .into_iter()
        .map(move |(name, value)| Statistic::of(verb, name, value))
        .chain(refused)
    }

    fn counter(&mut self, outcome: &Outcome) -> Option<&mut u64> {
        Some(match outcome {
            Outcome::Replied { reply, .. } => match reply {
                Reply::Done | Reply::Value(_) | Reply::Removed => &mut self.applied,
                Reply::NotApplied => &mut self.not_applied,
                Reply::Absent | Reply::NothingRemoved | Reply::NotWatched => &mut self.absent,
                Reply::Error(error) => {
                    let place = error.known().map_or(Refusal::ALL.len(), |known| known as usize);
                    return self.refused.get_mut(place);
                }
            },
            Outcome::Listed { .. } => &mut self.applied,
            Outcome::Rejected(_) => &mut self.undelivered,
            Outcome::TimedOut { .. } => &mut self.timed_out,
            Outcome::Unknown => &mut self.unknown,
            Outcome::Cancelled { .. } => &mut self.cancelled,
            Outcome::Malformed(_) => &mut self.malformed,
        })
    }
}

/// What a client has seen and done since it was made. Plain numbers; a copy is a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests that came to their end, by [`CommandKind`] in its order.
    by_verb: [Outcomes; CommandKind::ALL.len()],
    /// Connections.
    pub connections: u64,
    /// Gaps told to watches.
    pub gaps: u64,
    /// Other stores that answered than the one before.
    pub stores_replaced: u64,
    /// Messages that belonged to nothing outstanding.
    pub stale: u64,
    /// Timestamps of a store too far ahead of the wall clock here.
    pub clock_drifts: u64,
}

impl Counters {
    /// Requests with this verb.
    #[must_use]
    pub fn of(&self, verb: CommandKind) -> &Outcomes {
        // One place for each verb.
        let [first, ..] = &self.by_verb;
        self.by_verb.get(verb as usize).unwrap_or(first)
    }

    /// All of them, in a fixed order, zeroes included.
    pub fn iter(&self) -> impl Iterator<Item = Statistic> {
        let verbs = CommandKind::ALL.iter().copied();
        let plain = [
            ("connections", self.connections),
            ("gaps", self.gaps),
            ("stores_replaced", self.stores_replaced),
            ("stale", self.stale),
            ("clock_drifts", self.clock_drifts),
        ];
        let plain = plain.map(|(name, value)| Statistic::plain(name, value));
        verbs.flat_map(|verb| self.of(verb).iter(Some(verb))).chain(plain)
    }

    pub(super) fn ended(&mut self, verb: CommandKind, outcome: &Outcome) {
        let row = self.by_verb.get_mut(verb as usize);
        if let Some(counter) = row.and_then(|row| row.counter(outcome)) {
            *counter += 1;
        }
    }

    pub(super) const fn told(&mut self, event: &Event) {
        let counter = match event {
            Event::Watch { event: WatchEvent::Gap, .. } => &mut self.gaps,
            Event::StoreReplaced { .. } => &mut self.stores_replaced,
            Event::Stale(_) => &mut self.stale,
            Event::ClockDrift(_) => &mut self.clock_drifts,
            _ => return,
        };
        *counter += 1;
    }
}

/// Those that are not zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        statistics::print(f, self.iter())
    }
}
