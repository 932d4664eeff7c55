//! Output of a peer's bytes: a short preview of a key, only the length of a value, texts on one
//! line.

use core::fmt;

/// Number of bytes of a key in its preview.
const KEY_PREVIEW: usize = 32;

/// A preview of a key for logs: its first 32 bytes, escaped, and its length if it is longer.
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

/// Replaces control characters, and characters that are invisible or change the direction of text,
/// so that a peer's text stays on one line of a log or terminal.
pub(crate) struct OneLine<'a, 'b>(pub(crate) &'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut pieces = text.split(is_unprintable);
        self.0.write_str(pieces.next().unwrap_or_default())?;
        pieces.try_for_each(|piece| {
            self.0.write_char(char::REPLACEMENT_CHARACTER)?;
            self.0.write_str(piece)
        })
    }
}

/// A text of a peer on one line.
#[cfg(feature = "machines")]
pub(crate) struct Printable<'a, T>(pub(crate) &'a T);

#[cfg(feature = "machines")]
impl<T: fmt::Display> fmt::Display for Printable<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Write::write_fmt(&mut OneLine(f), format_args!("{}", self.0))
    }
}

fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

/// Writes a struct or a variant with these fields. A field is shown as the expression after its
/// name, or as it is.
macro_rules! show {
    ($f:expr, $name:ident { $($field:ident $(= $shown:expr)?),* $(,)? }) => {
        $f.debug_struct(stringify!($name))
            $(.field(stringify!($field), &$crate::debug::show!(@ $field $(, $shown)?)))*
            .finish()
    };
    (@ $field:ident) => { $field };
    (@ $field:ident, $shown:expr) => { $shown };
}

pub(crate) use show;

/// Owned bytes of which only the length is shown.
#[cfg(feature = "machines")]
#[derive(Clone)]
pub(crate) struct Hidden(pub(crate) bytes::Bytes);

#[cfg(feature = "machines")]
impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Value(&self.0), f)
    }
}

/// A value of which only the length is shown.
pub(crate) struct Value<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}
