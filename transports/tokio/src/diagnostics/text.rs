//! Names and values from peers as text for a terminal or a log.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::path::Path;

/// Escapes control characters, invisible characters and those that reverse text, as JSON does.
/// Line feeds remain. The result of valid JSON is valid JSON with the same content.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if is_unprintable(char) && char != '\n' {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(char);
        }
    }
    line
}

/// Whether a character controls a terminal, reverses text, is invisible or is not a character.
fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fdd0}'..='\u{fdef}'
            | '\u{e0000}'..='\u{e007f}')
        || u32::from(char) & 0xfffe == 0xfffe
}

/// Like [`printable`], with line feeds escaped too.
#[must_use]
pub fn on_one_line(text: &str) -> String {
    printable(text).replace('\n', "\\u000a")
}

/// Returns a path as text on one line, escaped like [`on_one_line`]. Bytes that are not UTF-8 are
/// replaced.
#[must_use]
pub fn path_on_one_line(path: &Path) -> String {
    on_one_line(&path.display().to_string())
}

/// Returns a name or a value as text on one line: unchanged if it is such text without a backslash,
/// and otherwise escaped like a byte string of Rust. Different inputs have different results.
#[must_use]
pub fn one_line(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|char| char == '\\' || is_unprintable(char)) => text.into(),
        _ => bytes.escape_ascii().to_string().into(),
    }
}

/// Bytes of which `Debug` shows only the length.
pub(crate) struct Hidden<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// Replaces the user and the password of each URL in a text, for messages that quote what they
/// reject. Without a scheme, they are recognized by the colon between them.
///
/// ```
/// use statestore_tokio::diagnostics::text::hide_credentials;
///
/// assert_eq!(hide_credentials("mqtt://lamp:secret@hub"), "mqtt://(hidden)@hub");
/// assert_eq!(hide_credentials("lamp:secret@hub:1883"), "(hidden)@hub:1883");
/// assert_eq!(hide_credentials("mqtt://hub:1883"), "mqtt://hub:1883");
/// ```
#[must_use]
pub fn hide_credentials(text: &str) -> Cow<'_, str> {
    if !text.contains('@') {
        return text.into();
    }
    let mut shown = String::new();
    for word in text.split_inclusive('"') {
        match word.rsplit_once('@').map(|(login, host)| (login.split_once(':'), host)) {
            // A password may contain any character, so that the last `@` ends it.
            Some((Some((scheme, rest)), host)) if rest.starts_with("//") => {
                shown.extend([scheme, "://(hidden)@", host]);
            }
            Some((Some(_), host)) => shown.extend(["(hidden)@", host]),
            _ => shown.push_str(word),
        }
    }
    shown.into()
}

/// Removes the value or the unknown name that a message of serde quotes, for files that may contain
/// secrets. The message must not contain the text of the file in another form, as the `Display`
/// output of a TOML error does.
///
/// ```
/// use statestore_tokio::diagnostics::text::without_value;
///
/// let message = "invalid type: string \"secret\", expected u16";
/// assert_eq!(without_value(message), "invalid type, expected u16");
/// assert_eq!(without_value("missing field `port`"), "missing field `port`");
/// ```
#[must_use]
pub fn without_value(message: &str) -> Cow<'_, str> {
    // A value may contain the word `expected`, and what is expected follows the value.
    let expected = |kind: &str| match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("{kind}, expected {expected}").into(),
        None => kind.to_owned().into(),
    };
    let quoting = ["invalid type", "invalid value", "unknown variant", "unknown field"];
    let kind = quoting.into_iter().find(|kind| message.starts_with(kind));
    kind.map_or(Cow::Borrowed(message), expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_hidden() {
        for (text, shown) in [
            ("no URL, a@b", "no URL, a@b"),
            ("", ""),
            ("mqtt://hub", "mqtt://hub"),
            ("mqtt://a:p@hub", "mqtt://(hidden)@hub"),
            ("mqtt://a:p@/:ss@hub/x@y", "mqtt://(hidden)@y"),
            ("a:p@hub:1883", "(hidden)@hub:1883"),
            ("mqtt://a:p@hub,mqtt://b:q@hub", "mqtt://(hidden)@hub"),
            ("a:p://s@hub b", "(hidden)@hub b"),
            ("mqtt://a:p s@hub", "mqtt://(hidden)@hub"),
            ("string \"mqtt://a:p@hub\", not x@y", "string \"mqtt://(hidden)@hub\", not x@y"),
            (
                "[\"mqtt://a@b\", \"http://c:d@e\"]",
                "[\"mqtt://(hidden)@b\", \"http://(hidden)@e\"]",
            ),
            ("://@", "://(hidden)@"),
        ] {
            assert_eq!(hide_credentials(text), shown);
        }
    }

    #[test]
    fn values_in_messages_of_serde_are_removed() {
        for (message, shown) in [
            ("invalid type: string \"a, expected b\", expected u16", "invalid type, expected u16"),
            ("invalid value: integer `7`, expected i8", "invalid value, expected i8"),
            ("unknown variant `p`, expected `a` or `b`", "unknown variant, expected `a` or `b`"),
            ("unknown variant `p`, there are no variants", "unknown variant"),
            ("unknown field `p`, expected `a`", "unknown field, expected `a`"),
            ("duplicate field `a`", "duplicate field `a`"),
            ("", ""),
        ] {
            assert_eq!(without_value(message), shown, "{message}");
        }
    }

    #[test]
    fn every_value_is_one_line() {
        assert_eq!(one_line("21 °C".as_bytes()), "21 °C");
        assert_eq!(one_line(b"two\nlines"), "two\\nlines");
        assert_eq!(one_line(&[0xff]), "\\xff");
        assert_eq!(one_line(b"a\\nb"), "a\\\\nb", "a backslash is escaped");
        assert_eq!(one_line("\u{202e}\u{2028}".as_bytes()), r"\xe2\x80\xae\xe2\x80\xa8");
        assert_eq!(on_one_line("a\nb\u{1b}[2J"), "a\\u000ab\\u001b[2J");
        assert_eq!(path_on_one_line(Path::new("/a\nb")), "/a\\u000ab");
    }
}
