//! The time that leases are counted by, which goes on while a machine is suspended.

use std::time::Duration;

/// A moment since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// `CLOCK_BOOTTIME`: the monotonic clock stands still in a suspend, and etcd's does not.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
        Self(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
    }

    /// The monotonic clock. Whether it counts a suspend is the system's to say.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Self {
        static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
        Self(START.get_or_init(tokio::time::Instant::now).elapsed())
    }

    /// So much later.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// What is left until then; nothing if it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// How long ago that was.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own word, which counts suspends.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_the_time_since_the_machine_was_started() {
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
    fn what_has_passed_has_nothing_left() {
        let now = Moment::now();
        assert!(now.left().is_zero());
        assert!(now.after(Duration::from_secs(60)).left() > Duration::from_secs(30));
        assert!(now.after(Duration::MAX).left() > Duration::from_secs(30));
        assert!(now.after(Duration::from_secs(60)).elapsed().is_zero());
    }
}
