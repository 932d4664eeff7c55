//! Judges an attack by the results of the honest client and the memory of the store.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::abuse::honest::Account;

/// Factor by which the slowest hundredth of requests may be slower than without an attack.
const RATIO_MAX: u32 = 3;

/// Shorter latencies depend on the scheduler of the system, not on the store.
const FLOOR: Duration = Duration::from_millis(4);

/// Time limit of a request if ratios are not compared.
const ABSOLUTE_MAX: Duration = Duration::from_secs(2);

/// One failure is allowed for this number of connections of other clients.
const NEWCOMERS_PER_FAILURE: usize = 20;

/// Criteria for a run of one attack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// True if latencies are compared with those from before the attack.
    pub(crate) ratio: bool,
    /// Time that the attack itself adds to the slowest request.
    pub(crate) stopped: Duration,
    /// True if the honest client may lose its connection.
    pub(crate) may_be_lost: bool,
}

/// Median, 99th percentile and maximum of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Latency {
    pub(crate) fn of(took: impl Iterator<Item = Duration>) -> Self {
        let mut took: Vec<Duration> = took.collect();
        took.sort_unstable();
        let at = |percent: usize| {
            let index = (took.len() * percent / 100).min(took.len().saturating_sub(1));
            took.get(index).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

impl Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let text = format!("{:.2}/{:.2}/{:.0}", ms(self.p50), ms(self.p99), ms(self.max));
        f.pad(&text)
    }
}

/// Violations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Complaints {
    /// Violations that fail at once.
    pub(crate) hard: Vec<String>,
    /// Violations that another program on the machine could have caused.
    pub(crate) timing: Vec<String>,
}

impl Complaints {
    pub(crate) fn is_empty(&self) -> bool {
        self.hard.is_empty() && self.timing.is_empty()
    }
}

/// Judges the memory in bytes, if it is known, and the observations of the honest client.
pub(crate) fn evaluate(
    rule: Rule,
    memory: Option<(usize, usize)>,
    account: &Account,
    (alone, attacked): (Latency, Latency),
) -> Complaints {
    let mut complaints = Complaints::default();
    let hard = &mut complaints.hard;
    if let Some((peak, budget)) = memory.filter(|(peak, budget)| peak > budget) {
        hard.push(format!("{} KiB of memory, {} at most", peak >> 10, budget >> 10));
    }
    let lost = if rule.may_be_lost { &[][..] } else { &account.lost };
    if let Some(first) = account.failures.first().or_else(|| lost.first()) {
        let count = account.failures.len() + lost.len();
        hard.push(format!("{count} failures of the honest client, first: {first}"));
    }
    hard.extend(account.watch.clone());
    let (connected, failed) = account.newcomers;
    if failed * NEWCOMERS_PER_FAILURE > connected {
        hard.push(format!("{failed} of {connected} other clients could not connect"));
    }
    if account.took.is_empty() || attacked == Latency::default() {
        hard.push("the honest client sent no request".into());
    }
    let timing = &mut complaints.timing;
    let limit = RATIO_MAX * alone.p99.max(FLOOR);
    if rule.ratio && attacked.p99 > limit {
        timing.push(format!("p99 {:.1?} under attack, {limit:.1?} at most", attacked.p99));
    }
    let limit = ABSOLUTE_MAX + rule.stopped;
    if attacked.max > limit {
        timing.push(format!("a request took {:.1?}, {limit:.1?} at most", attacked.max));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abuse::clock;

    const RULE: Rule = Rule { ratio: true, stopped: Duration::ZERO, may_be_lost: false };

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn account() -> Account {
        let took = vec![(clock::now(), ms(1))];
        let (failures, lost) = (Vec::new(), Vec::new());
        Account { took, failures, lost, watch: None, newcomers: (20, 1) }
    }

    fn steady(time: Duration) -> Latency {
        Latency { p50: time, p99: time, max: time }
    }

    #[test]
    fn percentiles_are_computed_from_sorted_latencies() {
        let latency = Latency::of((1..=1_000).rev().map(ms));
        assert_eq!(latency, Latency { p50: ms(501), p99: ms(991), max: ms(1_000) });
        assert_eq!(Latency::of([ms(7)].into_iter()), steady(ms(7)));
        assert_eq!(Latency::of([].into_iter()), Latency::default());
    }

    #[test]
    fn run_within_the_limits_has_no_violations() {
        let found = evaluate(RULE, Some((9, 9)), &account(), (steady(ms(10)), steady(ms(30))));
        assert_eq!(found, Complaints::default());
    }

    #[test]
    fn failures_and_losses_are_hard_violations() {
        let latencies = (steady(ms(1)), steady(ms(1)));
        assert_eq!(evaluate(RULE, Some((10, 9)), &account(), latencies).hard.len(), 1);
        let failed = Account { failures: vec!["a failure".into()], ..account() };
        assert_eq!(evaluate(RULE, None, &failed, latencies).hard.len(), 1);
        let lost = Account { lost: vec!["taken over".into()], ..account() };
        assert_eq!(evaluate(RULE, None, &lost, latencies).hard.len(), 1);
        let lenient = Rule { may_be_lost: true, ..RULE };
        assert!(evaluate(lenient, None, &lost, latencies).is_empty());
        assert_eq!(evaluate(lenient, None, &failed, latencies).hard.len(), 1);
        let unread = Account { watch: Some("no notification".into()), ..account() };
        assert_eq!(evaluate(lenient, None, &unread, latencies).hard.len(), 1);
        let idle = Account { took: Vec::new(), ..account() };
        assert_eq!(evaluate(RULE, None, &idle, latencies).hard.len(), 1);
        let crowded = Account { newcomers: (19, 1), ..account() };
        assert_eq!(evaluate(RULE, None, &crowded, latencies).hard.len(), 1);
    }

    #[test]
    fn slow_requests_are_violations_of_timing() {
        let found = evaluate(RULE, None, &account(), (steady(ms(10)), steady(ms(31))));
        assert_eq!((found.hard.len(), found.timing.len()), (0, 1));
        let quick = Rule { ratio: false, ..RULE };
        let hung = Latency { max: ms(2_001), ..steady(ms(31)) };
        assert_eq!(evaluate(quick, None, &account(), (steady(ms(10)), hung)).timing.len(), 1);
        let stopped = Rule { stopped: ms(3_000), ..quick };
        assert!(evaluate(stopped, None, &account(), (steady(ms(10)), hung)).is_empty());
    }
}
