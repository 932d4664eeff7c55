//! The holder of a lock.

use alloc::format;
use core::fmt;

use bytes::Bytes;

use crate::client::{Outcome, WatchEvent};
use crate::debug::{Value, show};
use crate::hlc::Version;
use crate::message::{Reply, Response};

/// The holder of a lock, read from the value of its key.
///
/// A GET is enough to find the holder; no [`Lock`](super::Lock) is needed.
///
/// ```
/// use bytes::Bytes;
/// use statestore_proto::client::{Outcome, Request};
/// use statestore_proto::lock::{Holder, HolderStatus};
/// use statestore_proto::message::{Reply, Response};
///
/// let request = Request::get("locks/boiler"); // submit it to a client, which returns the outcome:
/// let value = Bytes::from_static(b"thermostat-7/3820000000000000/1");
/// let response = Response::Reply(Reply::Value(value));
/// let outcome = Outcome::Responded { response, version: None, incarnation: None };
/// let HolderStatus::Held(holder) = HolderStatus::from_outcome(&outcome) else {
///     panic!("it is held")
/// };
/// assert_eq!(holder.name(), b"thermostat-7");
/// # let _ = request;
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    value: Bytes,
    version: Option<Version>,
}

impl Holder {
    /// The holder with this value and version of the lock's key.
    #[must_use]
    pub const fn new(value: Bytes, version: Option<Version>) -> Self {
        Self { value, version }
    }

    /// The [configured](super::LockConfig::new) name of the holder. If the value does not have the
    /// form that this crate writes, `name/nonce/number`, this is the whole value.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.parts().map_or(&self.value, |(name, _)| name)
    }

    /// The nonce of the holding lock; `None` if the value has another form.
    #[must_use]
    pub fn nonce(&self) -> Option<[u8; 8]> {
        self.parts().map(|(_, nonce)| nonce.to_be_bytes())
    }

    /// The stored value.
    #[must_use]
    pub const fn value(&self) -> &Bytes {
        &self.value
    }

    /// The version of the latest known renewal, which is the holder's fencing token.
    #[must_use]
    pub const fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    fn parts(&self) -> Option<(&[u8], u64)> {
        let mut parts = self.value.rsplitn(3, |byte| *byte == b'/');
        let (number, nonce, name) = (parts.next()?, parts.next()?, parts.next()?);
        let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        let nonce = core::str::from_utf8(nonce).ok()?;
        let parsed = u64::from_str_radix(nonce, 16).ok()?;
        // Only one text of this number is a nonce.
        (is_number && format!("{parsed:016x}") == nonce).then_some((name, parsed))
    }
}

/// Current knowledge about the holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderStatus {
    /// Not known to be current.
    Unknown,
    /// Not held.
    Free,
    /// Held.
    Held(Holder),
}

impl HolderStatus {
    /// Reads the outcome of a GET of the lock's key; [`Unknown`](Self::Unknown) if it failed.
    #[must_use]
    pub fn from_outcome(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Responded {
                response: Response::Reply(Reply::Value(value)), version, ..
            } => Self::Held(Holder::new(value.clone(), version.clone())),
            Outcome::Responded { response: Response::Reply(Reply::Absent), .. } => Self::Free,
            _ => Self::Unknown,
        }
    }

    /// Returns whether both are the same holding. A renewal has another version and is the same
    /// holding.
    #[must_use]
    pub fn is_same_holding(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held(own), Self::Held(other)) => own.value() == other.value(),
            _ => self == other,
        }
    }
}

/// Follows the holder of a lock through the events of a [watch](crate::client::Client::watch) of
/// its key.
#[derive(Clone, Debug)]
pub struct HolderTracker {
    /// The last status that the watch reported.
    reported: HolderStatus,
    /// True if it is current.
    is_live: bool,
}

impl HolderTracker {
    /// Starts with [`HolderStatus::Unknown`].
    #[must_use]
    pub const fn new() -> Self {
        Self { reported: HolderStatus::Free, is_live: false }
    }

    /// The holder as of the last event.
    #[must_use]
    pub const fn status(&self) -> &HolderStatus {
        const UNKNOWN: &HolderStatus = &HolderStatus::Unknown;
        if self.is_live { &self.reported } else { UNKNOWN }
    }

    /// Handles an event of the watch. Returns the new status if it has changed; a renewal changes
    /// the version of the holder.
    pub fn handle_event(&mut self, event: &WatchEvent) -> Option<&HolderStatus> {
        let before = self.status().clone();
        match event {
            WatchEvent::Changed { value: Some(value), version } => {
                self.reported = HolderStatus::Held(Holder::new(value.clone(), version.clone()));
            }
            WatchEvent::Changed { value: None, .. } => self.reported = HolderStatus::Free,
            WatchEvent::Live => self.is_live = true,
            WatchEvent::Gap => self.is_live = false,
            WatchEvent::Ended(_) => self.reset(),
        }
        Some(self.status()).filter(|status| **status != before)
    }

    /// Starts again, for another watch of the key.
    pub fn reset(&mut self) {
        *self = Self::new();
    }
}

impl Default for HolderTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show!(f, Holder { value = Value(&self.value), version = self.version })
    }
}
