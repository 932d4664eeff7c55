//! Expiries that the store sets or limits by key.

use alloc::boxed::Box;

use crate::glob::{Pattern, PatternError};
use crate::message::Expiry;

/// A default and a maximum of the expiry of keys that match a pattern. Clients that write without
/// an expiry, and cannot be changed, then leave no keys forever.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::message::Expiry;
/// use statestore_proto::store::{ExpiryRule, StoreConfig};
///
/// let rule = ExpiryRule::new(b"sensors/*")?
///     .default_expiry(Expiry::after(Duration::from_secs(600)))
///     .max_expiry(Expiry::after(Duration::from_secs(86_400)));
/// let config = StoreConfig::new(7).expiry_rules([rule]);
/// # let _ = config;
/// # Ok::<(), statestore_proto::glob::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryRule {
    pattern: Box<[u8]>,
    default: Option<Expiry>,
    max: Option<Expiry>,
}

impl ExpiryRule {
    /// A rule without effect for the keys that match a [pattern](crate::glob).
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(pattern: &[u8]) -> Result<Self, PatternError> {
        Pattern::new(pattern)?;
        Ok(Self { pattern: pattern.into(), default: None, max: None })
    }

    /// Sets the expiry of a value whose SET has none.
    #[must_use]
    pub const fn default_expiry(mut self, expiry: Option<Expiry>) -> Self {
        self.default = expiry;
        self
    }

    /// Sets the longest expiry. A SET without an expiry gets it too, unless there is a shorter
    /// default.
    #[must_use]
    pub const fn max_expiry(mut self, expiry: Option<Expiry>) -> Self {
        self.max = expiry;
        self
    }

    /// The pattern.
    #[must_use]
    pub const fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The default.
    #[must_use]
    pub const fn default(&self) -> Option<Expiry> {
        self.default
    }

    /// The maximum.
    #[must_use]
    pub const fn max(&self) -> Option<Expiry> {
        self.max
    }

    pub(super) fn matches(&self, key: &[u8]) -> bool {
        Pattern::new(&self.pattern).is_ok_and(|pattern| pattern.matches(key))
    }
}
