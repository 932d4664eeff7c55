//! Pauses between attempts to connect.

use std::time::Duration;

use statestore_proto::backoff;

/// Pauses between attempts to connect.
///
/// The pause doubles from `first` to `longest`. A random part of up to half of each pause is
/// subtracted, so that many clients do not reconnect at once. After a connection that lasted longer
/// than `longest`, pauses start again with `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Backoff {
    pub(crate) const fn pauses(self, seed: u64) -> backoff::Backoff {
        backoff::Backoff::new(self.first, self.longest, seed)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(10) }
    }
}
