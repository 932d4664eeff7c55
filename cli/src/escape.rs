//! What others have named or written, so that it can be shown.

use std::borrow::Cow;
use std::fmt::Write;

/// JSON, or text that is known to be of lines, with what a terminal should not be told escaped as JSON does. Outside of its
/// strings JSON has none of it.
pub(crate) fn printable(text: &str) -> String {
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

/// What moves a terminal's cursor, or turns text around, or cannot be seen, or is no character.
fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fdd0}'..='\u{fdef}'
            | '\u{e0000}'..='\u{e007f}')
        || u32::from(char) & 0xfffe == 0xfffe
}

/// Text as one line, whatever others have put into it.
pub(crate) fn on_one_line(text: &str) -> String {
    printable(text).replace('\n', "\\u000a")
}

/// A name or a value in a line: as it is when that is text of one line without a backslash, escaped otherwise. So no two
/// of them look the same.
pub(crate) fn one_line(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|char| char == '\\' || is_unprintable(char)) => text.into(),
        _ => bytes.escape_ascii().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_it_is_stays_one_line() {
        assert_eq!(one_line("21 °C".as_bytes()), "21 °C");
        assert_eq!(one_line(b"two\nlines"), "two\\nlines");
        assert_eq!(one_line(&[0xff]), "\\xff");
        assert_eq!(one_line(b"a\\nb"), "a\\\\nb", "no line feed");
        assert_eq!(one_line("\u{202e}\u{2028}".as_bytes()), r"\xe2\x80\xae\xe2\x80\xa8");
        assert_eq!(on_one_line("a\nb\u{1b}[2J"), "a\\u000ab\\u001b[2J");
    }
}
