//! What a lock is told at the start.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::client::IntoBytes;
use crate::debug;
use crate::time::whole_millis;

/// The longest that a request may take when nothing else is said: as long as any request of a client.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Configuration of a [`Lock`](super::Lock). Times are whole milliseconds, a fraction is rounded up.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::lock::LockConfig;
///
/// let config = LockConfig::new("locks/boiler", "thermostat-7", *b"8 random", Duration::from_secs(10))
///     .margin(Duration::from_millis(500))
///     .renew_after(Duration::from_secs(4));
/// assert_eq!(config.key(), "locks/boiler");
/// ```
#[derive(Clone)]
pub struct LockConfig {
    pub(super) key: Bytes,
    /// Name and nonce: what all values of this lock begin with.
    pub(super) session: String,
    pub(super) seed: u64,
    pub(super) lease: Duration,
    pub(super) margin: Duration,
    pub(super) renew_after: Duration,
    pub(super) timeout: Duration,
    pub(super) patience: Duration,
    pub(super) retry_min: Duration,
    pub(super) retry_max: Duration,
    pub(super) watch_holder: bool,
}

impl LockConfig {
    /// A lock on `key` that is held for `lease`, at least a millisecond, from each renewal.
    ///
    /// `name` says to others who holds the lock: the MQTT client id, or what a candidate is to be known by. `nonce` is
    /// eight random bytes, drawn anew for each lock and each run: two locks with the same name and nonce are one holder
    /// to the store, and both would hold the lock.
    #[must_use]
    pub fn new(key: impl IntoBytes, name: &str, nonce: [u8; 8], lease: Duration) -> Self {
        let lease = whole(lease).max(Duration::from_millis(1));
        let seed = u64::from_be_bytes(nonce);
        Self {
            key: key.into_bytes(),
            session: format!("{name}/{seed:016x}"),
            seed,
            lease,
            margin: part(lease, 10),
            renew_after: part(lease, 3).max(Duration::from_millis(1)),
            timeout: part(lease, 4).clamp(Duration::from_millis(1), TIMEOUT_MAX),
            patience: lease,
            retry_min: part(lease, 50).max(Duration::from_millis(1)),
            retry_max: part(lease, 4).max(Duration::from_millis(1)),
            watch_holder: false,
        }
    }

    /// How much earlier than the store this lock considers its lease over; a tenth of the lease by default, and always
    /// less than the lease. It pays for clocks that run at different rates, and for the time between
    /// [`is_held`](super::Lock::is_held) and what the application does next.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        let most = self.lease.saturating_sub(Duration::from_millis(1));
        self.margin = whole(margin).min(most);
        self
    }

    /// When to renew, counted from the sending of the last request that succeeded; a third of the lease by default. Not
    /// before the end of the time held means never.
    #[must_use]
    pub fn renew_after(mut self, renew_after: Duration) -> Self {
        self.renew_after = whole(renew_after).max(Duration::from_millis(1));
        self
    }

    /// How long one request may take, at least a millisecond; a quarter of the lease by default, ten seconds at most. A
    /// renewal gets less when less is left of the lease.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = whole(timeout).max(Duration::from_millis(1));
        self
    }

    /// The longest lease that other holders of this lock take; that of this lock by default.
    ///
    /// A waiter tries again at the latest when it has heard nothing for so long: the holder's lease must have run out,
    /// and the notification of that may be lost.
    #[must_use]
    pub fn longest_lease(mut self, lease: Duration) -> Self {
        self.patience = whole(lease).max(Duration::from_millis(1));
        self
    }

    /// The pause after a request that failed: up to `first`, doubled each time, up to `longest`; a fiftieth and a quarter
    /// of the lease by default. The nonce decides how much of it, so that contenders do not stay in step.
    #[must_use]
    pub fn retry(mut self, first: Duration, longest: Duration) -> Self {
        self.retry_min = whole(first).max(Duration::from_millis(1));
        self.retry_max = whole(longest).max(self.retry_min);
        self
    }

    /// Whether to watch the key all the time and tell who holds the lock, as an election wants it; off by default. A
    /// lock that waits watches in any case.
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

    /// How long a success counts from its sending.
    pub(super) const fn held_for(&self) -> Duration {
        self.lease.saturating_sub(self.margin)
    }

    /// The value of the holding with this number.
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

fn whole(duration: Duration) -> Duration {
    Duration::from_millis(whole_millis(duration))
}

/// A fraction in whole milliseconds, rounded down.
fn part(duration: Duration, divisor: u64) -> Duration {
    Duration::from_millis(whole_millis(duration) / divisor)
}
