//! How far the wall clock here is from the leader's, as far as a standby can tell.
//!
//! A head says what the clock of its writer showed. On arrival the clock here shows that, and how long the head took, and by
//! how much it is ahead. So the least of many differences is near the truth, and each is too great rather than too small.

use std::time::Duration;

use statestore_proto::time::UnixTime;

/// What clocks may differ by before it is worth a warning, in milliseconds.
const DIFFERENCE_MAX: i64 = 1_000;

/// How far behind the clock of the store a wall clock may be, in milliseconds: further, and every SET would be refused.
const BEHIND_MAX: u64 = 60_000;

/// Heads that one judgement is made of.
const HEADS: u32 = 64;

/// What a standby has seen of the leader's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skew {
    /// Of this many heads the least difference, in milliseconds.
    seen: Option<(u32, i64)>,
    /// Of those before.
    before: Option<i64>,
}

impl Skew {
    /// A head that its writer wrote at `written` has come at `now`.
    pub(crate) fn observe(&mut self, written: UnixTime, now: UnixTime) {
        let difference = difference(written, now);
        let (count, least) = self.seen.unwrap_or((0, i64::MAX));
        let least = least.min(difference);
        if count + 1 == HEADS {
            self.before = Some(least);
            self.seen = None;
        } else {
            self.seen = Some((count + 1, least));
        }
    }

    /// By how much the clock here is ahead, in milliseconds, less than nothing if it is behind; `None` for less than is worth
    /// a warning, and where nothing is known. Heads are on their way for as long as a round trip to etcd or two, which then
    /// are no sign of a clock that is ahead; one that is behind would only look less so.
    pub(crate) fn excess(&self, round_trip: Duration) -> Option<i64> {
        let seen = self.seen.map(|(_, least)| least);
        let least = seen.into_iter().chain(self.before).min()?;
        let on_the_way = i64::try_from(round_trip.as_millis() * 2).unwrap_or(i64::MAX);
        let is_ahead = least > DIFFERENCE_MAX.saturating_add(on_the_way);
        (is_ahead || least < -DIFFERENCE_MAX).then_some(least)
    }
}

/// Whether a store with this wall clock would refuse every SET after a store with this clock.
pub(crate) fn is_too_far_behind(now: UnixTime, clock: UnixTime) -> bool {
    now.as_millis().saturating_add(BEHIND_MAX) < clock.as_millis()
}

fn difference(written: UnixTime, now: UnixTime) -> i64 {
    let (written, now) = (i128::from(written.as_millis()), i128::from(now.as_millis()));
    let bound = i128::from(i64::MAX);
    i64::try_from((now - written).clamp(-bound, bound)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> UnixTime {
        UnixTime::from_millis(millis)
    }

    /// Heads that take between 1 and 3,000 ms, to a clock that is ahead by so many.
    fn seen(ahead: i64, heads: u64) -> Skew {
        let mut skew = Skew::default();
        for head in 0..heads {
            let delay = if head % 10 == 3 { 1 } else { 500 + (head * 613) % 2_500 };
            let now = i64::try_from(1_000_000 + head + delay).unwrap() + ahead;
            skew.observe(at(1_000_000 + head), at(now.unsigned_abs()));
        }
        skew
    }

    #[test]
    fn heads_that_come_late_are_no_skew() {
        assert_eq!(Skew::default().excess(Duration::ZERO), None);
        for heads in 10..200 {
            assert_eq!(seen(0, heads).excess(Duration::ZERO), None);
            assert_eq!(seen(900, heads).excess(Duration::ZERO), None);
            assert_eq!(seen(1_500, heads).excess(Duration::ZERO), Some(1_501));
            assert_eq!(seen(-1_500, heads).excess(Duration::ZERO), Some(-1_499));
        }
    }

    #[test]
    fn an_etcd_that_is_slow_is_no_clock_that_is_ahead() {
        let mut skew = Skew::default();
        for head in 0..200 {
            skew.observe(at(head), at(head + 3_000));
        }
        assert_eq!(skew.excess(Duration::from_millis(1_500)), None);
        assert_eq!(skew.excess(Duration::from_millis(900)), Some(3_000));
        // What is behind is so however late a head has come.
        assert_eq!(seen(-1_500, 100).excess(Duration::from_secs(60)), Some(-1_499));
    }

    #[test]
    fn a_clock_that_was_set_right_is_noticed() {
        let mut skew = seen(-70_000, 100);
        assert!(skew.excess(Duration::ZERO).is_some());
        for head in 0..2 * u64::from(HEADS) {
            skew.observe(at(head), at(head + 5));
        }
        assert_eq!(skew.excess(Duration::ZERO), None);
    }

    #[test]
    fn a_clock_that_is_a_minute_behind_is_too_far_behind() {
        assert!(!is_too_far_behind(at(100_000), at(160_000)));
        assert!(is_too_far_behind(at(100_000), at(160_001)));
        assert!(!is_too_far_behind(at(u64::MAX), at(0)));
        let mut skew = Skew::default();
        skew.observe(at(u64::MAX), at(0));
        assert!(skew.excess(Duration::ZERO).is_some());
    }
}
