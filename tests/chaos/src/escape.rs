//! Untrusted text for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns whether a terminal shows the character and nothing else happens. Control characters and
/// marks of text direction are not visible.
fn is_visible(char: char) -> bool {
    matches!(char, '"' | '\'' | '\\') || char.escape_debug().len() == 1
}

/// Escapes the characters that are not visible.
pub(crate) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for char in text.chars() {
        if is_visible(char) {
            visible.push(char);
        } else {
            visible.extend(char.escape_debug());
        }
    }
    visible
}

/// Escapes the characters in JSON that are not visible. The JSON keeps its meaning.
pub(crate) fn visible_json(json: &str) -> String {
    let mut visible = String::with_capacity(json.len());
    for char in json.chars() {
        if is_visible(char) {
            visible.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(visible, "\\u{unit:04x}");
            }
        }
    }
    visible
}

/// Returns bytes as text on one line. Bytes that are not UTF-8, or contain a backslash or an
/// invisible character, are escaped. The result is unambiguous.
pub(crate) fn one_line(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(|char| char != '\\' && is_visible(char)) => text.into(),
        _ => bytes.escape_ascii().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_stays_on_one_line() {
        assert_eq!(one_line("21 °C".as_bytes()), "21 °C");
        assert_eq!(one_line(b"two\nlines"), "two\\nlines");
        assert_eq!(one_line(&[0xff]), "\\xff");
        assert_eq!(one_line(b"a\\nb"), "a\\\\nb", "not a line feed");
        assert_eq!(one_line("\u{202e}\u{2028}".as_bytes()), r"\xe2\x80\xae\xe2\x80\xa8");
        assert_eq!(
            visible("\"a\\\nb\u{1b}[2J\u{9b}\u{feff}"),
            "\"a\\\\nb\\u{1b}[2J\\u{9b}\\u{feff}"
        );
        assert_eq!(visible_json("\"\u{9b}\u{202e}\""), "\"\\u009b\\u202e\"");
    }
}
