//! Correlation data.

use core::fmt;

use crate::debug;
use crate::inline::InlineBytes;

/// Correlation data of a request: opaque bytes.
///
/// Up to 22 bytes are stored in place, which fits what every deployed
/// client sends. Longer data is shared between clones.
#[derive(Clone, PartialEq, Eq)]
pub struct Correlation(InlineBytes);

impl Correlation {
    /// Copies `data`.
    #[must_use]
    pub fn new(data: &[u8]) -> Self {
        Self(InlineBytes::new(data))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Correlation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&debug::Key(self.as_bytes()), f)
    }
}
