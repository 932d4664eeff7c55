//! Configuration of a lock.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::client::IntoBytes;
use crate::debug;
use crate::time::{round_up, whole_millis};

/// The greatest default of the time limit of a request: the default of a client.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// A value of a [`LockConfig`] that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockConfigError {
    /// The lease is zero.
    #[error("the lease is zero")]
    ZeroLease,
    /// The margin is not shorter than the lease, so the lock would never be held.
    #[error("the margin is not shorter than the lease")]
    MarginTooLong,
    /// The interval after which the lock is renewed is zero.
    #[error("the time after which the lock is renewed is zero")]
    ZeroRenewal,
    /// The time limit of requests is zero.
    #[error("the time limit of requests is zero")]
    ZeroTimeout,
    /// The longest lease of other holders is zero.
    #[error("the longest lease of other holders is zero")]
    ZeroMaxLease,
    /// The first pause after a failure is zero.
    #[error("the first pause after a failure is zero")]
    ZeroRetry,
    /// The first pause after a failure is longer than the longest one.
    #[error("the first pause after a failure is longer than the longest one")]
    RetryOrder,
}

/// Configuration of a [`Lock`](super::Lock). Durations are rounded up to whole milliseconds.
///
/// Setters store what they are given; [`Lock::new`](super::Lock::new) reports invalid values.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::lock::{Lock, LockConfig};
///
/// let lease = Duration::from_secs(10);
/// let config = LockConfig::new("locks/boiler", "thermostat-7", *b"8 random", lease)
///     .margin(Duration::from_millis(500))
///     .renew_after(Duration::from_secs(4));
/// assert_eq!(config.key(), "locks/boiler");
/// let lock = Lock::new(config)?;
/// # let _ = lock;
/// # Ok::<(), statestore_proto::lock::LockConfigError>(())
/// ```
#[derive(Clone)]
pub struct LockConfig {
    pub(super) key: Bytes,
    /// Name and nonce: the prefix of all values of this lock.
    pub(super) session: String,
    pub(super) seed: u64,
    pub(super) lease: Duration,
    pub(super) margin: Duration,
    pub(super) renew_after: Duration,
    pub(super) timeout: Duration,
    pub(super) max_lease: Duration,
    pub(super) retry_min: Duration,
    pub(super) retry_max: Duration,
    pub(super) watch_holder: bool,
}

impl LockConfig {
    /// The defaults for a lock on `key` that is held for `lease` from each renewal.
    ///
    /// `name` shows others who holds the lock; usually the MQTT client id. `nonce` is eight random
    /// bytes, drawn for each lock and each run. To the store two locks with the same name and nonce
    /// are one holder, so both would hold the lock.
    #[must_use]
    pub fn new(key: impl IntoBytes, name: &str, nonce: [u8; 8], lease: Duration) -> Self {
        const MIN: Duration = Duration::from_millis(1);
        let lease = round_up(lease);
        let seed = u64::from_be_bytes(nonce);
        Self {
            key: key.into_bytes(),
            session: format!("{name}/{seed:016x}"),
            seed,
            lease,
            margin: fraction(lease, 10),
            renew_after: fraction(lease, 3).max(MIN),
            timeout: fraction(lease, 4).clamp(MIN, TIMEOUT_MAX),
            max_lease: lease,
            retry_min: fraction(lease, 50).max(MIN),
            retry_max: fraction(lease, 4).max(MIN),
            watch_holder: false,
        }
    }

    /// Sets the time by which the holder considers its lease over before the store does [default: a
    /// tenth of the lease]. It must be shorter than the lease.
    ///
    /// The margin covers clocks that run at different rates, and the time between
    /// [`is_held`](super::Lock::is_held) and what the application does next.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = round_up(margin);
        self
    }

    /// Sets the time from sending the last successful request to the next renewal [default: a third
    /// of the lease]. If it is not less than lease minus margin, the lock is never renewed.
    #[must_use]
    pub fn renew_after(mut self, renew_after: Duration) -> Self {
        self.renew_after = round_up(renew_after);
        self
    }

    /// Sets the time limit of one request [default: a quarter of the lease, at most ten seconds]. A
    /// renewal gets less if less is left of the lease.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = round_up(timeout);
        self
    }

    /// Sets the longest lease that other holders of this lock take [default: the lease].
    ///
    /// After this time without a notification a waiter tries again: the holder's lease must have
    /// run out, and the notification of its end may be lost.
    #[must_use]
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = round_up(lease);
        self
    }

    /// Sets the pauses after failed requests: the first, which doubles with each failure, and the
    /// longest [default: a fiftieth and a quarter of the lease]. Each pause is shortened by up to a
    /// half, depending on the nonce, so that contenders do not stay in step.
    #[must_use]
    pub fn retry(mut self, first: Duration, longest: Duration) -> Self {
        self.retry_min = round_up(first);
        self.retry_max = round_up(longest);
        self
    }

    /// Sets whether to watch the key all the time and report the holder, as an election needs
    /// [default: off]. A lock that waits for another holder, or has been held for a
    /// second, watches in any case.
    #[must_use]
    pub const fn watch_holder(mut self, watch: bool) -> Self {
        self.watch_holder = watch;
        self
    }

    /// The key of the lock.
    #[must_use]
    pub const fn key(&self) -> &Bytes {
        &self.key
    }

    /// The lease.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn check(&self) -> Result<(), LockConfigError> {
        let problems = [
            (self.lease.is_zero(), LockConfigError::ZeroLease),
            (self.margin >= self.lease, LockConfigError::MarginTooLong),
            (self.renew_after.is_zero(), LockConfigError::ZeroRenewal),
            (self.timeout.is_zero(), LockConfigError::ZeroTimeout),
            (self.max_lease.is_zero(), LockConfigError::ZeroMaxLease),
            (self.retry_min.is_zero(), LockConfigError::ZeroRetry),
            (self.retry_min > self.retry_max, LockConfigError::RetryOrder),
        ];
        let problem = problems.into_iter().find(|(is_invalid, _)| *is_invalid);
        problem.map_or(Ok(()), |(_, problem)| Err(problem))
    }

    /// The lease of the lock, counted from sending the SET.
    pub(super) const fn held_for(&self) -> Duration {
        self.lease.saturating_sub(self.margin)
    }

    /// Value of the holding with this number.
    pub(super) fn value(&self, number: u64) -> Bytes {
        format!("{}/{number}", self.session).into()
    }
}

impl fmt::Debug for LockConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockConfig")
            .field("key", &debug::Key(&self.key))
            .field("lease", &self.lease)
            .field("margin", &self.margin)
            .finish_non_exhaustive()
    }
}

/// A fraction of `duration` in whole milliseconds, rounded down.
fn fraction(duration: Duration, divisor: u64) -> Duration {
    Duration::from_millis(whole_millis(duration) / divisor)
}
