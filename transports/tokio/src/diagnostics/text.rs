//! Names and values from peers as text for a terminal or a log.

use std::borrow::Cow;
use std::fmt::Write;
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

/// Replaces the user and the password of each URL in a text, for messages that quote what they
/// reject.
///
/// ```
/// use statestore_tokio::diagnostics::text::hide_credentials;
///
/// assert_eq!(hide_credentials("mqtt://lamp:secret@hub"), "mqtt://(hidden)@hub");
/// assert_eq!(hide_credentials("mqtt://hub:1883"), "mqtt://hub:1883");
/// ```
#[must_use]
pub fn hide_credentials(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        // A password may contain any character, so that the last `@` of the word ends it.
        let word = url.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(url.len());
        rest = match url.get(..word).and_then(|word| word.rfind('@')) {
            Some(at) => {
                shown.push_str("(hidden)");
                url.get(at..).unwrap_or_default()
            }
            None => url,
        };
    }
    if shown.is_empty() {
        return text.into();
    }
    shown.push_str(rest);
    shown.into()
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
