//! How bytes of a peer look in `Debug` output: a key as a short preview, a value only by its length.

use core::fmt;

/// Bytes of a key shown before the rest is cut.
const KEY_PREVIEW: usize = 32;

/// The first bytes of a key, escaped, and its length when it was cut: how a key may stand in a log.
///
/// ```
/// use statestore_proto::message::KeyPreview;
///
/// assert_eq!(format!("{:?}", KeyPreview(b"k\n")), r#""k\n""#);
/// assert!(format!("{:?}", KeyPreview(&[b'k'; 99])).ends_with(r#""... (99 bytes)"#));
/// ```
#[derive(Clone, Copy)]
pub struct Key<'a>(pub &'a [u8]);

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_at_checked(KEY_PREVIEW) {
            Some((head, rest)) if !rest.is_empty() => {
                write!(f, "\"{}\"... ({} bytes)", head.escape_ascii(), self.0.len())
            }
            _ => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

/// Bytes that are kept and not shown: their length and nothing of their content.
#[cfg(feature = "alloc")]
#[derive(Clone)]
pub(crate) struct Hidden(pub(crate) bytes::Bytes);

#[cfg(feature = "alloc")]
impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Value(&self.0), f)
    }
}

/// A value: its length and nothing of its content.
pub(crate) struct Value<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}
