//! Who holds a lock.

use core::fmt;

use bytes::Bytes;

use crate::client::{IntoBytes, Outcome, Request};
use crate::debug;
use crate::hlc::Version;
use crate::message::Reply;

/// Who holds a lock: the value of its key.
///
/// Asking who holds a lock takes no [`Lock`](super::Lock), only a GET.
///
/// ```
/// use bytes::Bytes;
/// use statestore_proto::client::Outcome;
/// use statestore_proto::lock::{Holder, HolderStatus};
/// use statestore_proto::message::Reply;
///
/// let request = Holder::query("locks/boiler"); // to be submitted to a client, which tells the outcome:
/// let value = Bytes::from_static(b"thermostat-7/3820000000000000/1");
/// let outcome = Outcome::Replied { reply: Reply::Value(value), version: None, incarnation: None };
/// let HolderStatus::Held(holder) = Holder::of_outcome(&outcome) else { panic!("somebody holds it") };
/// assert_eq!(holder.name(), b"thermostat-7");
/// # let _ = request;
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    value: Bytes,
    version: Option<Version>,
}

impl Holder {
    /// The holder that a value of the key of a lock names.
    #[must_use]
    pub const fn new(value: Bytes, version: Option<Version>) -> Self {
        Self { value, version }
    }

    /// The request that asks who holds a lock.
    #[must_use]
    pub fn query(key: impl IntoBytes) -> Request {
        Request::get(key)
    }

    /// What the outcome of that request tells; [`HolderStatus::Unknown`] when it was not answered.
    #[must_use]
    pub fn of_outcome(outcome: &Outcome) -> HolderStatus {
        match outcome {
            Outcome::Replied { reply: Reply::Value(value), version, .. } => {
                HolderStatus::Held(Self::new(value.clone(), version.clone()))
            }
            Outcome::Replied { reply: Reply::Absent, .. } => HolderStatus::Free,
            _ => HolderStatus::Unknown,
        }
    }

    /// The name that the holder was [configured](super::LockConfig::new) with; the whole value when it is not of the form
    /// that this crate writes, name, nonce and number with slashes between them.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.parts().map_or(&self.value, |(name, _)| name)
    }

    /// The nonce of the lock that holds; `None` when the value is of another form.
    #[must_use]
    pub fn nonce(&self) -> Option<[u8; 8]> {
        self.parts().map(|(_, nonce)| nonce.to_be_bytes())
    }

    /// The value as it is stored.
    #[must_use]
    pub const fn value(&self) -> &Bytes {
        &self.value
    }

    /// The version of the latest renewal that is known, which is the holder's fencing token.
    #[must_use]
    pub const fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    fn parts(&self) -> Option<(&[u8], u64)> {
        let mut parts = self.value.rsplitn(3, |byte| *byte == b'/');
        let (number, nonce, name) = (parts.next()?, parts.next()?, parts.next()?);
        let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        let is_nonce =
            nonce.len() == 16 && nonce.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let nonce = core::str::from_utf8(nonce).ok()?;
        let nonce = u64::from_str_radix(nonce, 16).ok()?;
        (is_number && is_nonce).then_some((name, nonce))
    }
}

/// What is known of the holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderStatus {
    /// Nothing that is known to be current.
    Unknown,
    /// Nobody holds it.
    Free,
    /// It is held.
    Held(Holder),
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("value", &debug::Value(&self.value))
            .field("version", &self.version)
            .finish()
    }
}
