//! Compares the replies and notifications of clients with those of a single store that loses
//! nothing.
//!
//! Each value is written once, and versions order the writes of a key, so these rules compare
//! versions and times and search for no order. A rule complains only of what no order of the
//! requests explains. The search finds what no rule names.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use bytes::Bytes;
use statestore_proto::message::Condition;

use super::linear::{self, Clocks};
use super::{Action, History, Moment, Operation, Outcome, Reported, Set, Watched};

/// Checks all keys and watches of a history whose writes have distinct values; returns every
/// violation.
#[must_use]
pub fn check<V: Ord + Clone + Debug + Display>(
    history: &History<V>,
    clocks: Clocks<'_>,
) -> Vec<String> {
    let mut keys: BTreeMap<&Bytes, Key<'_, V>> = BTreeMap::new();
    for operation in &history.operations {
        keys.entry(&operation.key).or_default().operations.push(operation);
    }
    for watch in &history.watches {
        keys.entry(&watch.key).or_default().watches.push(watch);
    }
    let mut found = Vec::new();
    for (name, mut key) in keys {
        let mut complaints = Vec::new();
        key.effects(&mut complaints);
        key.order(&mut complaints);
        key.absences(clocks.early, &mut complaints);
        key.returns(&mut complaints);
        key.conditions(&mut complaints);
        key.fences(&mut complaints);
        for watch in &key.watches {
            key.watch(watch, &mut complaints);
        }
        let operations: Vec<Operation<V>> = key.operations.iter().copied().cloned().collect();
        complaints.extend(linear::check(&operations, &[], clocks).err());
        let name = name.escape_ascii();
        found.extend(complaints.into_iter().map(|complaint| format!("{name}: {complaint}")));
    }
    found
}

/// A reply or notification with a value.
struct Sight<'a, V> {
    version: &'a V,
    invoked: Moment,
    completed: Moment,
}

struct Key<'a, V> {
    operations: Vec<&'a Operation<V>>,
    watches: Vec<&'a Watched<V>>,
    /// The value of each version in a reply or notification.
    values: BTreeMap<&'a V, &'a Bytes>,
    sights: Vec<Sight<'a, V>>,
}

impl<V> Default for Key<'_, V> {
    fn default() -> Self {
        Self {
            operations: Vec::new(),
            watches: Vec::new(),
            values: BTreeMap::new(),
            sights: Vec::new(),
        }
    }
}

impl<'a, V: Ord + Clone + Display> Key<'a, V> {
    fn sets(&self) -> impl Iterator<Item = (&'a Operation<V>, &'a Set<V>)> + '_ {
        self.operations.iter().filter_map(|operation| match &operation.action {
            Action::Set(set) => Some((*operation, set)),
            _ => None,
        })
    }

    /// Returns whether something may have removed a value of this key, ever.
    fn may_be_removed(&self) -> bool {
        self.operations.iter().any(|operation| {
            operation.may_act()
                && match &operation.action {
                    Action::Set(set) => set.expires.is_some(),
                    Action::Get => false,
                    Action::Remove(_) => true,
                }
        })
    }

    /// Every write has one effect, and other operations have none.
    fn effects(&mut self, complaints: &mut Vec<String>) {
        let mut reported: Vec<(&'a Bytes, &'a V, Moment)> = Vec::new();
        for operation in &self.operations {
            let completed = operation.completed.unwrap_or(Moment::NEVER);
            let seen = match (&operation.action, &operation.outcome) {
                (Action::Set(set), Outcome::Applied(version)) => (&set.value, version),
                (_, Outcome::Found(Some((value, version)))) => (value, version),
                _ => continue,
            };
            reported.push((seen.0, seen.1, completed));
            self.sights.push(Sight { version: seen.1, invoked: operation.invoked, completed });
        }
        for (at, event) in self.watches.iter().flat_map(|watch| &watch.events) {
            if let Reported::Changed(value, version) = event {
                reported.push((value, version, *at));
                // The value was there at some time before that.
                let invoked = Moment::default();
                self.sights.push(Sight { version, invoked, completed: *at });
            }
        }
        let written: BTreeMap<&Bytes, &Operation<V>> =
            self.sets().map(|(operation, set)| (&set.value, operation)).collect();
        let mut versions: BTreeMap<&Bytes, &V> = BTreeMap::new();
        for (value, version, completed) in reported {
            let text = value.escape_ascii();
            let earlier = versions.insert(value, version).filter(|earlier| *earlier != version);
            if let Some(earlier) = earlier {
                complaints.push(format!("{text} has two versions, {earlier} and {version}"));
            }
            let other = self.values.insert(version, value).filter(|other| *other != value);
            if let Some(other) = other {
                complaints.push(format!(
                    "{version} is the version of {} and of {text}",
                    other.escape_ascii()
                ));
            }
            match written.get(value) {
                None => complaints.push(format!("{text} was never written, and is there")),
                Some(set) if !set.may_act() => {
                    complaints.push(format!("{text} was refused, and is there"));
                }
                Some(set) if completed < set.invoked => {
                    complaints.push(format!("{text} was there before it was written"));
                }
                Some(_) => {}
            }
        }
    }

    /// Versions in replies do not decrease, and an acknowledged write is not lost.
    fn order(&self, complaints: &mut Vec<String>) {
        let mut sights: Vec<_> = self.sights.iter().collect();
        sights.sort_by_key(|sight| sight.completed);
        // The greatest version of all up to here.
        let mut greatest: Vec<&V> = Vec::new();
        for sight in &sights {
            greatest.push(greatest.last().map_or(sight.version, |last| (*last).max(sight.version)));
        }
        for operation in &self.operations {
            let before = sights.partition_point(|sight| sight.completed < operation.invoked);
            let Some(known) = before.checked_sub(1).and_then(|at| greatest.get(at)) else {
                continue;
            };
            match &operation.outcome {
                Outcome::Applied(version) if version <= known => complaints.push(format!(
                    "{} got {version} for a SET at {} ms, and {known} was known before",
                    operation.client, operation.invoked.at
                )),
                Outcome::Found(Some((_, version))) if version < known => complaints.push(format!(
                    "{} read {version} at {} ms, and {known} was known before",
                    operation.client, operation.invoked.at
                )),
                _ => {}
            }
        }
    }

    /// A value is absent only where something may have removed it.
    fn absences(&self, early: u64, complaints: &mut Vec<String>) {
        for operation in &self.operations {
            let what = match (&operation.action, &operation.outcome) {
                (_, Outcome::Found(None)) => "found nothing",
                (_, Outcome::NothingRemoved) => "removed nothing",
                (Action::Set(set), Outcome::Applied(_)) if is_if_absent(set) => "set it as absent",
                _ => continue,
            };
            let before = self.sights.iter().filter(|sight| sight.completed < operation.invoked);
            let Some(last) = before.max_by_key(|sight| (sight.version, sight.invoked)) else {
                continue;
            };
            let own = |other: &Operation<V>| std::ptr::eq(other, *operation);
            let may_be_removed = self.operations.iter().any(|other| {
                let Some(end) = operation.completed else { return true };
                !own(other)
                    && other.may_act()
                    && other.invoked < end
                    && match &other.action {
                        Action::Get => false,
                        Action::Remove(_) => other.end() > last.invoked,
                        Action::Set(Set { expires: Some(expires), .. }) => {
                            let is_later = match &other.outcome {
                                Outcome::Applied(version) => version >= last.version,
                                _ => true,
                            };
                            is_later
                                && other.invoked.at.saturating_add(*expires)
                                    <= end.at.saturating_add(early)
                        }
                        Action::Set(_) => false,
                    }
            });
            if !may_be_removed {
                complaints.push(format!(
                    "{} {what} at {} ms, and {} was there, which nothing has removed",
                    operation.client, operation.invoked.at, last.version
                ));
            }
        }
    }

    /// A removed value does not return.
    fn returns(&self, complaints: &mut Vec<String>) {
        let mut first: BTreeMap<&V, Moment> = BTreeMap::new();
        for sight in &self.sights {
            let completed = first.entry(sight.version).or_insert(sight.completed);
            *completed = sight.completed.min(*completed);
        }
        let removals: Vec<_> = self
            .operations
            .iter()
            .filter(|operation| {
                matches!(operation.outcome, Outcome::Removed(_) | Outcome::NothingRemoved)
            })
            .collect();
        for operation in &self.operations {
            let Outcome::Found(Some((_, version))) = &operation.outcome else { continue };
            let Some(there) = first.get(version) else { continue };
            let removed = removals
                .iter()
                .find(|removal| removal.invoked > *there && removal.end() < operation.invoked);
            if let Some(removal) = removed {
                complaints.push(format!(
                    "{} read {version} at {} ms, which was removed at {} ms",
                    operation.client, operation.invoked.at, removal.invoked.at
                ));
            }
        }
    }

    /// If values of the key are never removed, the first value is the only one that was set as
    /// absent, and a SET whose condition did not hold follows another one.
    fn conditions(&self, complaints: &mut Vec<String>) {
        if self.may_be_removed() {
            return;
        }
        for (operation, set) in self.sets().filter(|(_, set)| is_if_absent(set)) {
            match &operation.outcome {
                Outcome::Applied(version) => {
                    let earlier = self.values.range::<V, _>(..version).next();
                    if let Some((earlier, value)) = earlier {
                        let new = set.value.escape_ascii();
                        complaints.push(format!(
                            "{new} was set as absent with {version}, and {} with {earlier} was there",
                            value.escape_ascii()
                        ));
                    }
                }
                Outcome::NotApplied(_) => {
                    let precedes = |(other, _): (&Operation<V>, _)| {
                        other.may_act() && other.invoked < operation.end()
                    };
                    if !self.sets().any(precedes) {
                        let new = set.value.escape_ascii();
                        complaints.push(format!("{new} was not applied, and nothing was there"));
                    }
                }
                _ => {}
            }
        }
    }

    /// After the write of a newer holder, an older one does not write.
    fn fences(&self, complaints: &mut Vec<String>) {
        let tokens: BTreeMap<&Bytes, &V> =
            self.sets().filter_map(|(_, set)| Some((&set.value, set.token.as_ref()?))).collect();
        let mut newest: Option<&V> = None;
        for (version, value) in &self.values {
            let Some(token) = tokens.get(value) else { continue };
            match newest {
                Some(newer) if newer > *token => complaints.push(format!(
                    "{} was written with token {token} as {version}, after token {newer}",
                    value.escape_ascii()
                )),
                _ => newest = Some(token),
            }
        }
    }

    /// Versions of a watch do not decrease, and it omits changes only in a gap.
    fn watch(&self, watch: &Watched<V>, complaints: &mut Vec<String>) {
        let is_kept = !self.may_be_removed();
        let mut last: Option<&V> = None;
        // Every change after this version was reported. Changes within a gap are unknown.
        let mut whole: Option<&V> = None;
        let mut is_live = false;
        for (_, event) in &watch.events {
            let (version, is_value) = match event {
                Reported::Changed(_, version) => (version, true),
                Reported::Gone(Some(version)) => (version, false),
                Reported::Gone(None) => continue,
                Reported::Live => {
                    is_live = true;
                    whole = whole.or_else(|| last.filter(|_| is_kept));
                    continue;
                }
                Reported::Gap | Reported::Ended => {
                    is_live = false;
                    whole = None;
                    continue;
                }
            };
            if let Some(last) = last
                && (version < last || (version == last && is_value && is_live))
            {
                complaints.push(format!("a watch reported {version} after {last}"));
            }
            if is_live
                && let Some(whole) = whole
                && let Some(missed) = self.between(whole, version)
            {
                complaints.push(format!(
                    "a watch reported {version} after {whole} without {missed}, and no gap"
                ));
            }
            last = last.max(Some(version));
            if is_value || whole.is_some() {
                whole = whole.max(Some(version));
            }
        }
        let newest = self.values.last_key_value().map(|(newest, _)| *newest);
        if let Some(newest) = newest.filter(|newest| is_live && is_kept && last < Some(*newest)) {
            complaints.push(format!("a watch is live and has not reported {newest}"));
        }
    }

    /// A known version strictly between these two.
    fn between(&self, low: &V, high: &V) -> Option<&'a V> {
        use std::ops::Bound::Excluded;
        (low < high)
            .then(|| self.values.range::<V, _>((Excluded(low), Excluded(high))).next())?
            .map(|(version, _)| *version)
    }
}

fn is_if_absent<V>(set: &Set<V>) -> bool {
    set.condition == Condition::IfAbsent
}

#[cfg(test)]
mod tests;
