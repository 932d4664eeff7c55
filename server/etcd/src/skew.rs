//! Estimates the skew between the wall clock of a standby and that of the leader.
//!
//! A head contains the writer's clock. The local clock on its arrival, minus the writer's clock, is
//! the skew plus the delay of the head. Delays are never negative, so each difference is an upper
//! bound, and the least of many is a good estimate.

use std::time::Duration;

use statestore_proto::time::UnixTime;

/// Skew in milliseconds above which a standby warns.
const DIFFERENCE_MAX: i64 = 1_000;

/// Milliseconds that a wall clock may be behind the store's clock. With more, the store would
/// refuse every SET.
const BEHIND_MAX: u64 = 60_000;

/// Number of heads in one window.
const HEADS: u32 = 64;

/// Estimate of the skew from the last heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skew {
    /// Current window: number of heads, and their least difference in milliseconds.
    seen: Option<(u32, i64)>,
    /// Least difference of the previous window.
    before: Option<i64>,
}

impl Skew {
    /// Observes a head that was written at `written` and has arrived at `now`.
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

    /// Returns how many milliseconds the local clock is ahead, negative if it is behind; `None` if
    /// that is not worth a warning, or unknown.
    ///
    /// A head can take up to two round trips to etcd. So a clock only counts as ahead if the
    /// difference exceeds that delay too. A delay cannot make a clock look behind.
    pub(crate) fn excess(&self, round_trip: Duration) -> Option<i64> {
        let seen = self.seen.map(|(_, least)| least);
        let least = seen.into_iter().chain(self.before).min()?;
        let on_the_way = i64::try_from(round_trip.as_millis() * 2).unwrap_or(i64::MAX);
        let is_ahead = least > DIFFERENCE_MAX.saturating_add(on_the_way);
        (is_ahead || least < -DIFFERENCE_MAX).then_some(least)
    }
}

/// Returns whether a store with the wall clock `now` would refuse every SET, because the last
/// version of the store is `clock`.
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

    /// Observes heads with delays from 1 to 3,000 ms, with a clock that is `ahead` milliseconds.
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
    fn delayed_heads_do_not_count_as_skew() {
        assert_eq!(Skew::default().excess(Duration::ZERO), None);
        for heads in 10..200 {
            assert_eq!(seen(0, heads).excess(Duration::ZERO), None);
            assert_eq!(seen(900, heads).excess(Duration::ZERO), None);
            assert_eq!(seen(1_500, heads).excess(Duration::ZERO), Some(1_501));
            assert_eq!(seen(-1_500, heads).excess(Duration::ZERO), Some(-1_499));
        }
    }

    #[test]
    fn slow_etcd_does_not_count_as_a_clock_that_is_ahead() {
        let mut skew = Skew::default();
        for head in 0..200 {
            skew.observe(at(head), at(head + 3_000));
        }
        assert_eq!(skew.excess(Duration::from_millis(1_500)), None);
        assert_eq!(skew.excess(Duration::from_millis(900)), Some(3_000));
        // A delay cannot make a clock look behind.
        assert_eq!(seen(-1_500, 100).excess(Duration::from_secs(60)), Some(-1_499));
    }

    #[test]
    fn corrected_clock_has_no_skew_after_two_windows() {
        let mut skew = seen(-70_000, 100);
        assert!(skew.excess(Duration::ZERO).is_some());
        for head in 0..2 * u64::from(HEADS) {
            skew.observe(at(head), at(head + 5));
        }
        assert_eq!(skew.excess(Duration::ZERO), None);
    }

    #[test]
    fn clock_is_too_far_behind_after_a_minute() {
        assert!(!is_too_far_behind(at(100_000), at(160_000)));
        assert!(is_too_far_behind(at(100_000), at(160_001)));
        assert!(!is_too_far_behind(at(u64::MAX), at(0)));
        let mut skew = Skew::default();
        skew.observe(at(u64::MAX), at(0));
        assert!(skew.excess(Duration::ZERO).is_some());
    }
}
