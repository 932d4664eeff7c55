//! The search for an order, after Wing and Gong: an operation takes effect only when a reply
//! requires it, guided by versions to avoid guessing.
//!
//! Known writes take effect in the order of their versions, and a version ends only when every
//! operation that observed it is in the order. Guesses remain for the time of expiries and for
//! operations without a reply. A hint, the order of the store's log, is tried first. It proves
//! nothing, because any order must explain the replies of clients.

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use statestore_proto::message::Condition;

use super::linear::{Call, Clocks, Does, Restart, Seen, Segment};

/// States visited before the search gives up and reports that, besides several for each operation.
const BUDGET: usize = 20_000;

/// A change of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The SET takes effect, at this place in the chain if its version is known.
    Set { call: usize, segment: Option<usize> },
    /// The deletion takes effect.
    Remove { call: usize },
    /// The value expires.
    Expire,
}

/// Returns whether some order explains all calls.
pub(super) fn search<V: Ord + Debug>(
    calls: &[Call<V>],
    chain: &[(V, Segment)],
    hint: &[Step],
    clocks: Clocks<'_>,
) -> Result<(), String> {
    let mut events: Vec<Event> = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let point = |order, at, returns| Event { order, at, call: number, returns };
        events.push(point(call.invoked.order, call.invoked.at, false));
        events.extend(call.returned.map(|returned| point(returned.order, returned.at, true)));
    }
    events.sort_by_key(|event| event.order);
    let search = Search { calls, chain, hint, clocks, events };
    let budget = BUDGET + 8 * calls.len();
    let mut visited = BTreeSet::new();
    let mut furthest = 0;
    let mut next = Some(Config::default());
    // The states on the current path, each with the steps that have not been tried.
    let mut path: Vec<Branch> = Vec::new();
    loop {
        if let Some(mut config) = next.take() {
            if search.run(&mut config) {
                return Ok(());
            }
            furthest = furthest.max(config.event);
            if visited.insert(config.clone()) {
                if visited.len() > budget {
                    return Err(format!("gave up: no order found among {budget} states"));
                }
                path.extend(search.branch(config));
            }
        }
        let Some(branch) = path.last_mut() else { break };
        match branch.steps.pop() {
            Some(step) => next = search.follow(branch, step),
            None => _ = path.pop(),
        }
    }
    let stuck = search.events.get(furthest).and_then(|event| calls.get(event.call));
    Err(format!("no order explains {stuck:?}"))
}

struct Search<'a, V> {
    calls: &'a [Call<V>],
    chain: &'a [(V, Segment)],
    hint: &'a [Step],
    clocks: Clocks<'a>,
    events: Vec<Event>,
}

struct Event {
    order: u64,
    at: u64,
    call: usize,
    returns: bool,
}

/// A state, and the steps that may follow; the likeliest last, since it is tried first.
struct Branch {
    config: Config,
    steps: Vec<Step>,
    /// Time by which the next effect happened.
    at: u64,
}

/// A partial order and its current state.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Config {
    /// Events before this one are explained.
    event: usize,
    /// The next step of the hint, while it is followed.
    hint: usize,
    /// The next version.
    next: usize,
    register: Option<Held>,
    /// No known operation from here on took effect earlier.
    floor: u64,
    /// Invoked, but not in the order yet.
    pending: Vec<usize>,
}

/// The value of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    setter: usize,
    /// Its place in the chain; `None` if no operation observed it.
    segment: Option<usize>,
    /// It was set between these times.
    earliest: u64,
    latest: u64,
    /// Number of its observers already in the order.
    seen: usize,
}

impl<V: Ord> Search<'_, V> {
    /// Advances until a guess is needed; returns `true` if nothing is left.
    fn run(&self, config: &mut Config) -> bool {
        self.absorb(config);
        while let Some(event) = self.events.get(config.event) {
            if !event.returns {
                config.pending.push(event.call);
                self.absorb(config);
            } else if config.pending.contains(&event.call) {
                return false;
            }
            config.event += 1;
        }
        true
    }

    /// Adds the observers of the current state to the order. They change nothing, so as early as
    /// possible.
    fn absorb(&self, config: &mut Config) {
        let mut pending = std::mem::take(&mut config.pending);
        pending.retain(|number| !self.sees(config, &self.calls[*number]));
        config.pending = pending;
    }

    fn sees(&self, config: &mut Config, call: &Call<V>) -> bool {
        let Does::See(seen) = &call.does else { return false };
        let Some(held) = &mut config.register else { return matches!(seen, Seen::Absent) };
        if self.latest_end(held).is_some_and(|end| call.invoked.at >= end) {
            return false;
        }
        let passes = passes(self.fence(held), call.token.as_ref());
        match seen {
            Seen::Absent => false,
            Seen::Fenced => !passes,
            Seen::Present { version, value, other_than } => {
                let is_it = version.as_ref().is_none_or(|version| {
                    held.segment.is_some_and(|at| self.chain[at].0 == *version)
                });
                // Reads are never fenced.
                let fits = is_it
                    && (passes || value.is_some())
                    && other_than.as_ref().is_none_or(|other| other != self.value(held));
                if fits {
                    self.witness(held, call, &mut config.floor);
                    held.seen += usize::from(version.is_some());
                }
                fits
            }
        }
    }

    /// A known operation found the value alive, which bounds the time of its SET from below.
    fn witness(&self, held: &mut Held, call: &Call<V>, floor: &mut u64) {
        let px = self.px(held).filter(|_| !self.may_be_prolonged(held));
        if let Some(px) = px {
            held.earliest = held.earliest.max((call.invoked.at + 1).saturating_sub(px));
        }
        *floor = (*floor).max(call.invoked.at).max(held.earliest);
    }

    /// Every effect that may be next.
    fn branch(&self, config: Config) -> Option<Branch> {
        let event = self.events.get(config.event)?;
        let needs_gap = matches!(self.calls[event.call].does, Does::See(Seen::Absent));
        let mut steps = Vec::new();
        if self.is_free(&config) {
            let pending = || config.pending.iter().copied().rev();
            steps.extend(pending().filter_map(|call| self.unanswered_set(call)));
            let next = pending().filter_map(|call| self.next_in_chain(&config, call));
            let next: Vec<Step> = next.collect();
            let gaps = pending().filter_map(|call| self.unanswered_removal(call));
            let gaps: Vec<Step> = gaps.chain([Step::Expire]).collect();
            let likeliest = if needs_gap { [next, gaps] } else { [gaps, next] };
            steps.extend(likeliest.concat());
        }
        steps.extend(self.known_removal(&config));
        if let Some(hinted) = self.hint.get(config.hint)
            && let Some(at) = steps.iter().position(|step| step == hinted)
        {
            let hinted = steps.remove(at);
            steps.push(hinted);
        }
        Some(Branch { config, steps, at: event.at })
    }

    /// The state after a step, if the step is possible. The hint is dropped once another step is
    /// taken.
    fn follow(&self, branch: &Branch, step: Step) -> Option<Config> {
        let mut next = self.take(&branch.config, step, branch.at)?;
        let is_hinted = self.hint.get(next.hint) == Some(&step);
        next.hint = if is_hinted { next.hint + 1 } else { usize::MAX };
        Some(next)
    }

    /// Returns whether the current version may be overwritten, expire, or be deleted without a
    /// reply.
    fn is_free(&self, config: &Config) -> bool {
        let segment = config.register.and_then(|held| Some((held.seen, held.segment?)));
        segment.is_none_or(|(seen, at)| {
            let segment = &self.chain[at].1;
            seen == segment.watchers && segment.remover.is_none()
        })
    }

    /// The SET with the next version.
    fn next_in_chain(&self, config: &Config, call: usize) -> Option<Step> {
        let (_, segment) = self.chain.get(config.next)?;
        let Does::Set { value, version, .. } = &self.calls[call].does else { return None };
        let is_it = match segment.setter {
            Some(setter) => setter == call,
            None => version.is_none() && segment.value.as_ref().is_none_or(|seen| seen == value),
        };
        is_it.then_some(Step::Set { call, segment: Some(config.next) })
    }

    fn unanswered_set(&self, call: usize) -> Option<Step> {
        let unanswered = matches!(self.calls[call].does, Does::Set { version: None, .. });
        unanswered.then_some(Step::Set { call, segment: None })
    }

    fn unanswered_removal(&self, call: usize) -> Option<Step> {
        let unanswered = matches!(self.calls[call].does, Does::Remove { version: None, .. });
        unanswered.then_some(Step::Remove { call })
    }

    /// The deletion whose reply has the current version, once all other observers are in the order.
    fn known_removal(&self, config: &Config) -> Option<Step> {
        let held = config.register?;
        let segment = &self.chain[held.segment?].1;
        let call = segment.remover.filter(|call| config.pending.contains(call))?;
        (held.seen == segment.watchers).then_some(Step::Remove { call })
    }

    /// The state after a step, if the step is possible.
    fn take(&self, config: &Config, step: Step, at: u64) -> Option<Config> {
        match step {
            Step::Set { call, segment } => self.set(config, call, segment, at),
            Step::Remove { call } => self.remove(config, call),
            Step::Expire => {
                let held = config.register?;
                let end = self.px(&held).map(|px| held.earliest + px)?;
                let end = end.saturating_sub(self.clocks.early);
                if end > at {
                    return None;
                }
                let floor = config.floor.max(end);
                Some(Config { register: None, floor, ..config.clone() })
            }
        }
    }

    fn set(
        &self,
        config: &Config,
        number: usize,
        segment: Option<usize>,
        at: u64,
    ) -> Option<Config> {
        let call = &self.calls[number];
        let Does::Set { condition, value, .. } = &call.does else { return None };
        if let Some(held) = &config.register {
            let stored = self.value(held);
            let allowed = match condition {
                Condition::Always => true,
                Condition::IfAbsent => false,
                Condition::IfAbsentOrEqual => value == stored,
                Condition::IfAbsentOrEqualTo(operand) => operand.as_bytes() == &stored[..],
            };
            if !allowed || !passes(self.fence(held), call.token.as_ref()) {
                return None;
            }
        }
        let mut next = without(config, number);
        let earliest = call.invoked.at.max(config.floor);
        if segment.is_some() {
            next.next += 1;
            next.floor = earliest;
        }
        next.register = Some(Held { setter: number, segment, earliest, latest: at, seen: 0 });
        Some(next)
    }

    fn remove(&self, config: &Config, number: usize) -> Option<Config> {
        let mut held = config.register?;
        let call = &self.calls[number];
        let Does::Remove { value, version } = &call.does else { return None };
        let removes = value.as_ref().is_none_or(|value| value == self.value(&held))
            && passes(self.fence(&held), call.token.as_ref())
            && self.latest_end(&held).is_none_or(|end| call.invoked.at < end);
        if !removes {
            return None;
        }
        let mut next = without(config, number);
        next.register = None;
        if version.is_some() {
            self.witness(&mut held, call, &mut next.floor);
        }
        Some(next)
    }

    /// The time at which the value has certainly expired.
    fn latest_end(&self, held: &Held) -> Option<u64> {
        let px = self.px(held).filter(|_| !self.clocks.may_be_late)?;
        let restarts = self.clocks.restarts.iter();
        let prolonged = |end: u64, restart: &Restart| match restart.from <= end {
            true => end.max(restart.at + px),
            false => end,
        };
        Some(
            restarts
                .filter(|restart| restart.at >= held.earliest)
                .fold(held.latest + px, prolonged),
        )
    }

    fn may_be_prolonged(&self, held: &Held) -> bool {
        self.clocks.may_be_late
            || self.clocks.restarts.iter().any(|restart| restart.at >= held.earliest)
    }

    fn px(&self, held: &Held) -> Option<u64> {
        match &self.calls[held.setter].does {
            Does::Set { px, .. } => *px,
            _ => None,
        }
    }

    fn value(&self, held: &Held) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match &self.calls[held.setter].does {
            Does::Set { value, .. } => value,
            _ => &NONE,
        }
    }

    fn fence(&self, held: &Held) -> Option<&V> {
        self.calls[held.setter].token.as_ref()
    }
}

fn passes<V: Ord>(fence: Option<&V>, token: Option<&V>) -> bool {
    fence.is_none() || token >= fence
}

fn without(config: &Config, number: usize) -> Config {
    let mut config = config.clone();
    config.pending.retain(|other| *other != number);
    config
}
