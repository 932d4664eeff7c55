//! Output of bytes that may be secret: passwords, payloads and data of properties.

use core::fmt;

/// Bytes of which only the length is shown.
pub(crate) struct Hidden<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}
