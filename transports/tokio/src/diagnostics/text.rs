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

#[cfg(test)]
mod tests {
    use super::*;

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
