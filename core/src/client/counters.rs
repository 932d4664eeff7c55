//! The counters of a client.

use super::{Event, Outcome, WatchEvent};
use crate::message::{Refusal, Reply, RequestKind, Response};
use crate::statistics::{Statistic, counters};

counters! {
    rows: RequestKind::ALL.len();
    refusals: Refusal::ALL.len() + 1;
    /// The outcomes of the requests of one kind, including those of watches.
    outcomes {
        /// Executed.
        applied,
        /// The condition did not hold.
        not_applied,
        /// The key or the registration does not exist.
        absent,
        /// The broker did not deliver the request.
        undelivered,
        /// No response arrived in time.
        timed_out,
        /// The connection was lost before the response.
        connection_lost,
        /// Cancelled by the caller.
        cancelled,
        /// The response was malformed.
        malformed,
    }
    /// The counters of a client since it was created. A copy is a snapshot.
    counters {
        /// Connections.
        connections,
        /// Gaps reported to watches.
        gaps,
        /// Changes of the store's incarnation.
        stores_replaced,
        /// Messages that matched no request and no watch.
        unmatched,
        /// Timestamps of a store that were too far ahead of the local wall clock.
        clock_drifts,
    }
}

impl OutcomeCounts {
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

impl Counters {
    pub(super) fn record_outcome(&mut self, verb: RequestKind, outcome: &Outcome) {
        let row = self.by_kind.get_mut(verb as usize);
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
