//! Clock for leases. It continues while the machine is suspended.

use std::time::Duration;

/// A moment, measured from the start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Reads `CLOCK_BOOTTIME`. The monotonic clock stops during a suspend, unlike the clocks of
    /// etcd on other machines.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
        Self(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
    }

    /// Reads the monotonic clock. It depends on the system whether that continues during a suspend.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Self {
        static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
        Self(START.get_or_init(tokio::time::Instant::now).elapsed())
    }

    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// Returns the time until this moment; zero if it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Returns the time since this moment; zero if it is in the future.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` includes suspends.
    #[cfg(target_os = "linux")]
    #[test]
    fn moment_agrees_with_the_uptime_of_the_kernel() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let seconds = text.split_whitespace().next().unwrap().parse().unwrap();
            Duration::from_secs_f64(seconds)
        };
        let rounding = Duration::from_millis(20);
        let (before, now, after) = (uptime(), Moment::now(), uptime());
        assert!(before.saturating_sub(rounding) <= now.0 && now.0 <= after + rounding);
    }

    #[test]
    fn passed_moment_has_no_time_left() {
        let now = Moment::now();
        assert!(now.left().is_zero());
        assert!(now.after(Duration::from_secs(60)).left() > Duration::from_secs(30));
        assert!(now.after(Duration::MAX).left() > Duration::from_secs(30));
        assert!(now.after(Duration::from_secs(60)).elapsed().is_zero());
    }
}
