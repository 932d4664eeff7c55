//! Proves the guarantees of watches (see [`crate::runs`]): no invented change, increasing versions,
//! no missing change while live, a gap first after each reconnect, and the store's state at the
//! end.
//!
//! Compares the events of each watch with the true order of changes of its key.

use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::hlc::Version;
use statestore_proto::message::{Refusal, ServiceError};

use crate::runs::{
    Change, Delivery, Effect, History, Mix, Note, Scenario, Truth, Watched, What, Wire,
};

/// Allowances that depend on the scenario.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// The delivery guarantee.
    pub delivery: Delivery,
    /// Maximum transit time of a message, in milliseconds.
    pub transit_max: u64,
    /// Time in milliseconds for which a client is disconnected before it reports a gap.
    pub reconnect_after: u64,
    /// A watch may end because the store is full.
    pub quota: bool,
}

impl Allowance {
    /// The allowances of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        Self {
            delivery: scenario.mix.delivery(),
            transit_max: scenario.transit_max(),
            reconnect_after: u64::try_from(scenario.reconnect_after.as_millis())
                .unwrap_or(u64::MAX),
            quota: scenario.mix == Mix::Quota,
        }
    }
}

/// Checks every watch of a history against the delivery guarantee.
///
/// # Errors
/// The first wrong watch, its events, and the true changes.
pub fn check(history: &History, truth: &Truth, allowance: Allowance) -> Result<(), String> {
    for watched in &history.watches {
        let log: Vec<&Change> =
            truth.log().iter().filter(|change| change.key == watched.key).collect();
        let follower = Follower::new(&log, truth.losses(), truth.replaced(), allowance);
        follower.check(watched).map_err(|why| describe(watched, &log, &why))?;
    }
    Ok(())
}

/// Checks that no notification followed the reply to the STOP that ended its registration, where
/// delivery is in order.
///
/// # Errors
/// The topic of the first that did.
pub fn quiet_after_stop(wire: &Wire, delivery: Delivery) -> Result<(), String> {
    match wire.after_stop.first().filter(|_| delivery == Delivery::InOrder) {
        Some(topic) => Err(format!("a notification after the reply to its STOP: {topic}")),
        None => Ok(()),
    }
}

fn describe(watched: &Watched, log: &[&Change], why: &str) -> String {
    let notes = watched
        .notes
        .iter()
        .map(|note| format!("    {} (after {}): {:?}\n", note.moment.at, note.after, note.what));
    let log = log
        .iter()
        .map(|change| format!("    {}: {:?} {}\n", change.at, change.effect, change.version));
    let (client, key) = (watched.client, &watched.key);
    format!(
        "client {client}, key {key:?}: {why}\n   reported:\n{}   true:\n{}",
        notes.collect::<String>(),
        log.collect::<String>()
    )
}

/// State of one watch. A place is a number of changes: the state of the key after that many.
struct Follower<'a> {
    log: &'a [&'a Change],
    /// Times at which a store was replaced by an empty one, whose versions start over.
    losses: &'a [u64],
    /// Times at which a store was replaced by one without the registrations.
    replaced: &'a [u64],
    delivery: Delivery,
    transit_max: u64,
    reconnect_after: u64,
    quota: bool,
    /// The last reported place; `None` is any place at which the key is absent.
    reported: Option<usize>,
    /// The newest version reported, by which store, and whether as a deletion.
    newest: Option<(usize, Version, bool)>,
    /// While live: places that the watch may be at.
    live: Option<Vec<usize>>,
    /// The time of the last poll before it went live.
    live_after: u64,
    /// The watch went live on an absent key and has reported nothing since.
    may_be_late: bool,
    stopped: bool,
    ended: bool,
}

impl<'a> Follower<'a> {
    const fn new(
        log: &'a [&'a Change],
        losses: &'a [u64],
        replaced: &'a [u64],
        allowance: Allowance,
    ) -> Self {
        let Allowance { delivery, transit_max, reconnect_after, quota } = allowance;
        Self {
            log,
            losses,
            replaced,
            delivery,
            transit_max,
            reconnect_after,
            quota,
            reported: None,
            newest: None,
            live: None,
            live_after: 0,
            may_be_late: false,
            stopped: false,
            ended: false,
        }
    }

    fn check(mut self, watched: &Watched) -> Result<(), String> {
        for note in &watched.notes {
            if self.ended {
                return Err(format!("reported {:?} after the end", note.what));
            }
            self.note(note).map_err(|why| format!("at {} ms: {why}", note.moment.at))?;
        }
        if self.ended {
            return Ok(());
        }
        let live = self.live.as_ref().ok_or("quiet, connected and not live")?;
        let excused = self.delivery == Delivery::Broken
            || (self.delivery == Delivery::Replaced && watched.outdated);
        if !excused && live.last() != Some(&self.log.len()) {
            return Err("quiet, connected and not up to date".into());
        }
        Ok(())
    }

    fn note(&mut self, note: &Note) -> Result<(), String> {
        match &note.what {
            What::Event(WatchEvent::Changed { value, version }) => {
                let reported = (value.as_deref(), version.as_ref());
                self.order(note, reported)?;
                if self.live.is_some() {
                    self.changed_live(note, reported)
                } else {
                    self.changed(note, reported)
                }
            }
            What::Event(WatchEvent::Live) => self.go_live(note),
            What::Event(WatchEvent::Gap) => {
                // The client reports the gap when it is connected again. Since the connection was
                // lost, nothing could arrive.
                self.nothing_missing(note.after.saturating_sub(self.reconnect_after))?;
                self.live = None;
                Ok(())
            }
            What::Event(WatchEvent::Ended(end)) => {
                self.ended = true;
                let full = WatchEnd::Refused(ServiceError::Known(Refusal::QuotaExceeded));
                let expected = match end {
                    WatchEnd::Stopped => self.stopped,
                    other => self.quota && *other == full,
                };
                if expected { Ok(()) } else { Err(format!("ended without cause: {end:?}")) }
            }
            What::Event(other) => Err(format!("an unknown event: {other:?}")),
            // A watch ended by the application reports only its end.
            What::Ready | What::Replaced if self.stopped => Ok(()),
            What::Ready if self.live.is_some() => Err("reconnected without a gap".into()),
            What::Replaced if self.live.is_some() => {
                Err("reached another store without a gap".into())
            }
            What::Ready | What::Replaced => Ok(()),
            What::Unwatched => {
                self.stopped = true;
                self.nothing_missing(note.after)
            }
        }
    }

    /// Events come in order: a deletion has the version of the deleted value.
    fn order(
        &mut self,
        note: &Note,
        (value, version): (Option<&[u8]>, Option<&Version>),
    ) -> Result<(), String> {
        let Some(version) = version else {
            return if value.is_some() { Err("a value without version".into()) } else { Ok(()) };
        };
        let is_it =
            |change: &&&Change| change.version == *version.hlc() && change.at <= note.moment.at;
        let set = self.log.iter().rfind(is_it);
        let store = set.map_or(0, |set| self.losses.iter().filter(|at| **at < set.at).count());
        let this = (store, version.clone(), value.is_none());
        // Versions of different stores are not comparable.
        let again = self.replaced.iter().any(|at| *at <= note.moment.at);
        match &self.newest {
            Some(newest) if this < *newest || (this == *newest && !again) => {
                Err(format!("{this:?} reported after {newest:?}"))
            }
            _ => {
                self.newest = Some(this);
                Ok(())
            }
        }
    }

    /// A change before the watch is live must have happened.
    fn changed(
        &mut self,
        note: &Note,
        reported: (Option<&[u8]>, Option<&Version>),
    ) -> Result<(), String> {
        let place = self.find(note, reported);
        self.reported = match reported {
            (Some(_), _) => {
                Some(place.ok_or("reported a value that no client has written yet")? + 1)
            }
            (None, None) => None,
            (None, Some(version)) => {
                // The read overtook it, so the known version may be earlier than the deleted one.
                let was_set = || self.log.iter().any(|change| change.version == *version.hlc());
                let happened = place.is_some() || (self.delivery != Delivery::InOrder && was_set());
                if !happened {
                    return Err("reported a deletion that has not happened yet".into());
                }
                None
            }
        };
        Ok(())
    }

    /// A change while live must be the next one.
    fn changed_live(
        &mut self,
        note: &Note,
        reported: (Option<&[u8]>, Option<&Version>),
    ) -> Result<(), String> {
        let place =
            self.find(note, reported).ok_or("reported a change that has not happened yet")?;
        let late = std::mem::replace(&mut self.may_be_late, false);
        let follows = self.live.as_ref().is_some_and(|places| places.contains(&place));
        let excused = match self.delivery {
            Delivery::InOrder | Delivery::Replaced => false,
            Delivery::Reordered => late,
            Delivery::Broken => true,
        };
        if !follows && !excused {
            return Err(format!("a change is missing before {:?}", self.log.get(place)));
        }
        self.live = Some(vec![place + 1]);
        self.reported = Some(place + 1).filter(|_| reported.0.is_some());
        Ok(())
    }

    /// Finds a reported change in the log: the last place, since a store that starts over may
    /// reissue a version.
    fn find(
        &self,
        note: &Note,
        (value, version): (Option<&[u8]>, Option<&Version>),
    ) -> Option<usize> {
        let version = version?.hlc();
        self.log.iter().rposition(|change| {
            let same = match (&change.effect, value) {
                (Effect::Set(set), Some(value)) => set == value,
                (Effect::Deleted | Effect::Expired, None) => true,
                _ => false,
            };
            same && change.version == *version && change.at <= note.moment.at
        })
    }

    /// The reported state must be current, or have been while the reply to the read was in transit.
    fn go_live(&mut self, note: &Note) -> Result<(), String> {
        if self.live.is_some() {
            return Err("live twice".into());
        }
        let earliest = note.after.saturating_sub(self.transit_max);
        let places: Vec<usize> = (0..=self.log.len())
            .filter(|place| {
                self.reported.map_or_else(|| self.is_absent(*place), |reported| reported == *place)
            })
            .filter(|place| {
                let began = place.checked_sub(1).and_then(|before| self.log.get(before));
                began.is_none_or(|change| change.at <= note.moment.at)
                    && self.log.get(*place).is_none_or(|change| change.at >= earliest)
            })
            .collect();
        // A store that lost everything may reissue a version, and clients cannot distinguish the
        // two values.
        let reported = self.reported.and_then(|reported| self.log.get(reported.checked_sub(1)?));
        let same =
            |change: &&&Change| reported.is_some_and(|reported| reported.version == change.version);
        let sets = self.log.iter().filter(same).filter(|set| matches!(set.effect, Effect::Set(_)));
        if places.is_empty() && !self.losses.is_empty() && sets.count() > 1 {
            self.live = Some((0..=self.log.len()).collect());
            return Ok(());
        }
        if places.is_empty() {
            return Err("live with what was out of date".into());
        }
        self.live = Some(places);
        self.live_after = note.after;
        self.may_be_late = self.reported.is_none();
        Ok(())
    }

    fn is_absent(&self, place: usize) -> bool {
        let last = place.checked_sub(1).and_then(|before| self.log.get(before));
        last.is_none_or(|change| !matches!(change.effect, Effect::Set(_)))
    }

    /// Every change with enough time to arrive before `until` was reported.
    fn nothing_missing(&self, until: u64) -> Result<(), String> {
        let from = self.live_after.saturating_sub(self.transit_max);
        let replaced = || self.replaced.iter().any(|at| (from..=until).contains(at));
        if self.delivery == Delivery::Broken || replaced() {
            return Ok(());
        }
        let next = self.live.as_ref().and_then(|places| self.log.get(*places.last()?));
        match next {
            Some(change) if change.at + self.transit_max < until => {
                Err(format!("never reported {change:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
