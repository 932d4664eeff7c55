//! Proves what watches promise (see [`crate::sim`]): nothing invented, versions only grow, nothing missing while live,
//! a gap before anything else after each reconnect, and in the end the state that the store holds.
//!
//! Compares what each watch was told with the true order of changes of its key.

use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::hlc::Version;
use statestore_proto::message::{Refusal, ServiceError};

use crate::sim::{
    Change, Delivery, Effect, History, Mix, Note, Scenario, Truth, Watched, What, Wire,
};

/// What a run allows and another does not.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// What can be promised.
    pub delivery: Delivery,
    /// No message takes longer from sender to receiver, in milliseconds.
    pub transit_max: u64,
    /// Whether a watch may end because there is no room for it.
    pub quota: bool,
}

impl Allowance {
    /// What a scenario allows.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        Self {
            delivery: scenario.mix.delivery(),
            transit_max: scenario.transit_max(),
            quota: scenario.mix == Mix::Quota,
        }
    }
}

/// Checks every watch of a history, by what can be promised.
///
/// # Errors
/// The first watch that was told wrong, what it was told, and what was true.
pub fn check(history: &History, truth: &Truth, allowance: Allowance) -> Result<(), String> {
    for watched in &history.watches {
        let log: Vec<&Change> =
            truth.log().iter().filter(|change| change.key == watched.key).collect();
        let follower = Follower::new(&log, truth.losses(), truth.replaced(), allowance);
        follower.check(watched).map_err(|why| describe(watched, &log, &why))?;
    }
    Ok(())
}

/// Checks that no notification came after the answer to the STOP that ended its registration, where order is promised.
///
/// # Errors
/// The topic of the first that did.
pub fn quiet_after_stop(wire: &Wire, delivery: Delivery) -> Result<(), String> {
    match wire.after_stop.first().filter(|_| delivery == Delivery::InOrder) {
        Some(topic) => Err(format!("a notification after the answer to its STOP: {topic}")),
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
        "client {client}, key {key:?}: {why}\n   told:\n{}   true:\n{}",
        notes.collect::<String>(),
        log.collect::<String>()
    )
}

/// Follows one watch. A place is a number of changes: the state of the key after so many of them.
struct Follower<'a> {
    log: &'a [&'a Change],
    /// When stores were replaced by ones that have nothing, and whose versions begin anew.
    losses: &'a [u64],
    /// When stores were replaced by ones that do not know the registrations.
    replaced: &'a [u64],
    delivery: Delivery,
    transit_max: u64,
    quota: bool,
    /// The place that was told last; `None` is somewhere where the key is absent.
    told: Option<usize>,
    /// The newest version told, of which store, and whether it was told as gone.
    newest: Option<(usize, Version, bool)>,
    /// While live: places that the watch may be at.
    live: Option<Vec<usize>>,
    /// When it was polled before it went live.
    live_after: u64,
    /// Whether the watch went live on an absent key and was told nothing since.
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
        let Allowance { delivery, transit_max, quota } = allowance;
        Self {
            log,
            losses,
            replaced,
            delivery,
            transit_max,
            quota,
            told: None,
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
                return Err(format!("told {:?} after the end", note.what));
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
            What::Told(WatchEvent::Changed { value, version }) => {
                let told = (value.as_deref(), version.as_ref());
                self.order(note, told)?;
                if self.live.is_some() {
                    self.changed_live(note, told)
                } else {
                    self.changed(note, told)
                }
            }
            What::Told(WatchEvent::Live) => self.go_live(note),
            What::Told(WatchEvent::Gap) => {
                self.nothing_missing(note.after)?;
                self.live = None;
                Ok(())
            }
            What::Told(WatchEvent::Ended(end)) => {
                self.ended = true;
                let full = WatchEnd::Refused(ServiceError::Known(Refusal::QuotaExceeded));
                let expected = match end {
                    WatchEnd::Stopped => self.stopped,
                    other => self.quota && *other == full,
                };
                if expected { Ok(()) } else { Err(format!("ended by itself: {end:?}")) }
            }
            // One that the application has ended tells nothing but its end.
            What::Ready | What::Replaced if self.stopped => Ok(()),
            What::Ready if self.live.is_some() => Err("reconnected without a gap".into()),
            What::Replaced if self.live.is_some() => {
                Err("heard of another store without a gap".into())
            }
            What::Ready | What::Replaced => Ok(()),
            What::Unwatched => {
                self.stopped = true;
                self.nothing_missing(note.after)
            }
        }
    }

    /// What is told comes after what was told before: a deletion has the version of what it deletes.
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
        // What another store has is told in any case: its versions say nothing about those of the store before.
        let again = self.replaced.iter().any(|at| *at <= note.moment.at);
        match &self.newest {
            Some(newest) if this < *newest || (this == *newest && !again) => {
                Err(format!("{this:?} told after {newest:?}"))
            }
            _ => {
                self.newest = Some(this);
                Ok(())
            }
        }
    }

    /// A change told before the watch is live: it must have happened.
    fn changed(
        &mut self,
        note: &Note,
        told: (Option<&[u8]>, Option<&Version>),
    ) -> Result<(), String> {
        let place = self.find(note, told);
        self.told = match told {
            (Some(_), _) => Some(place.ok_or("told a value that nobody wrote so far")? + 1),
            (None, None) => None,
            (None, Some(version)) => {
                // Overtaken by the read, the version known may be an earlier one than the one deleted.
                let was_set = || self.log.iter().any(|change| change.version == *version.hlc());
                let happened = place.is_some() || (self.delivery != Delivery::InOrder && was_set());
                if !happened {
                    return Err("told a deletion that did not happen so far".into());
                }
                None
            }
        };
        Ok(())
    }

    /// A change told while live: the one that follows.
    fn changed_live(
        &mut self,
        note: &Note,
        told: (Option<&[u8]>, Option<&Version>),
    ) -> Result<(), String> {
        let place = self.find(note, told).ok_or("told a change that did not happen so far")?;
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
        self.told = Some(place + 1).filter(|_| told.0.is_some());
        Ok(())
    }

    /// Where in the log a change is that was told: the last place, for a store that begins anew may issue a version again.
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

    /// What was told must be current, or have been when the answer to the read was on its way.
    fn go_live(&mut self, note: &Note) -> Result<(), String> {
        if self.live.is_some() {
            return Err("live twice".into());
        }
        let earliest = note.after.saturating_sub(self.transit_max);
        let places: Vec<usize> = (0..=self.log.len())
            .filter(|place| self.told.map_or_else(|| self.is_absent(*place), |told| told == *place))
            .filter(|place| {
                let began = place.checked_sub(1).and_then(|before| self.log.get(before));
                began.is_none_or(|change| change.at <= note.moment.at)
                    && self.log.get(*place).is_none_or(|change| change.at >= earliest)
            })
            .collect();
        // A store that has lost everything may issue a version again, and no client can tell the two values apart: known.
        let told = self.told.and_then(|told| self.log.get(told.checked_sub(1)?));
        let same = |change: &&&Change| told.is_some_and(|told| told.version == change.version);
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
        self.may_be_late = self.told.is_none();
        Ok(())
    }

    fn is_absent(&self, place: usize) -> bool {
        let last = place.checked_sub(1).and_then(|before| self.log.get(before));
        last.is_none_or(|change| !matches!(change.effect, Effect::Set(_)))
    }

    /// Every change was told that had the time to arrive before `until`.
    fn nothing_missing(&self, until: u64) -> Result<(), String> {
        let from = self.live_after.saturating_sub(self.transit_max);
        let replaced = || self.replaced.iter().any(|at| (from..=until).contains(at));
        if self.delivery == Delivery::Broken || replaced() {
            return Ok(());
        }
        let next = self.live.as_ref().and_then(|places| self.log.get(*places.last()?));
        match next {
            Some(change) if change.at + self.transit_max < until => {
                Err(format!("never told {change:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
