//! A value, and its format as lines of the screen and as an editable line.

use std::fmt;

use bytes::Bytes;
use statestore_tokio::diagnostics::text::on_one_line;

/// Maximum number of bytes of a value that are shown.
const SHOWN_MAX: usize = 64 << 10;

/// Bytes in a line of hex, its columns, and the bytes in a line of a narrow terminal.
const HEX_LINE: usize = 16;
const HEX_COLUMNS: usize = 8 + 3 * HEX_LINE + 1 + HEX_LINE;
const HEX_LINE_SHORT: usize = 8;

/// A value. `Debug` shows only its length.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Value(pub(crate) Bytes);

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

impl<T: Into<Bytes>> From<T> for Value {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

/// Format of a value on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
    Hex,
}

impl Format {
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Text => Self::Json,
            Self::Json => Self::Hex,
            Self::Hex => Self::Text,
        }
    }
}

/// Returns the name of the format and the lines of a value. Control characters are escaped. A value
/// that is not JSON is shown as text.
pub(crate) fn lines(value: &[u8], format: Format, columns: usize) -> (&'static str, Vec<String>) {
    let (shown, rest) = value.split_at(value.len().min(SHOWN_MAX));
    let (name, mut lines) = match format {
        Format::Hex if columns < HEX_COLUMNS => ("hex", hex(shown, HEX_LINE_SHORT)),
        Format::Hex => ("hex", hex(shown, HEX_LINE)),
        Format::Json => match json(value) {
            Some(lines) => ("JSON", lines),
            None => ("text, because it is not JSON", text(shown)),
        },
        Format::Text => ("text", text(shown)),
    };
    if !rest.is_empty() {
        lines.push(format!("... and {} more bytes", rest.len()));
    }
    (name, lines)
}

fn text(value: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for line in value.split(|byte| *byte == b'\n') {
        lines.push(match std::str::from_utf8(line) {
            Ok(text) => on_one_line(text),
            Err(_) => line.escape_ascii().to_string(),
        });
    }
    lines
}

fn json(value: &[u8]) -> Option<Vec<String>> {
    if value.len() > SHOWN_MAX {
        return None;
    }
    let parsed: serde_json::Value = serde_json::from_slice(value).ok()?;
    let text = serde_json::to_string_pretty(&parsed).ok()?;
    Some(text.lines().map(on_one_line).collect())
}

fn hex(value: &[u8], line_bytes: usize) -> Vec<String> {
    let line = |(number, bytes): (usize, &[u8])| {
        let each: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = bytes.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let text: String = text.collect();
        let width = 3 * line_bytes - 1;
        format!("{:06x}  {:width$}  {text}", number * line_bytes, each.join(" "))
    };
    value.chunks(line_bytes).enumerate().map(line).collect()
}

/// Returns a value as editable text. Backslashes and bytes that are not text are escaped.
pub(crate) fn to_edit(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains('\\') && on_one_line(text) == text => text.to_owned(),
        _ => value.escape_ascii().to_string(),
    }
}

/// Parses edited text.
pub(crate) fn parse_edited(text: &str) -> Result<Vec<u8>, String> {
    let mut value = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            value.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        value.push(match chars.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some(same @ ('\\' | '\'' | '"')) => same as u8,
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16)
                    .ok()
                    .filter(|_| digits.len() == 2)
                    .ok_or("\\x requires two hexadecimal digits")?
            }
            _ => return Err("a backslash must begin \\n, \\r, \\t, \\\\ or \\xHH".to_owned()),
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_shown_in_each_format() {
        let shown = |value: &[u8], format, columns| {
            let (name, lines) = lines(value, format, columns);
            (name, lines.join("|"))
        };
        let is = |name, lines: &str| (name, lines.to_owned());
        assert_eq!(shown(b"one\ntwo\x1b[2J", Format::Text, 80), is("text", "one|two\\u001b[2J"));
        let json = shown(b"{\"a\":[1]}", Format::Json, 80);
        assert_eq!(json, is("JSON", "{|  \"a\": [|    1|  ]|}"));
        assert_eq!(shown(b"{", Format::Json, 80), is("text, because it is not JSON", "{"));
        let (_, hex) = lines(b"0123456789abcdef\x00", Format::Hex, HEX_COLUMNS);
        assert_eq!(hex.len(), 2);
        assert!(hex[0].starts_with("000000  30 31") && hex[0].ends_with("  0123456789abcdef"));
        assert_eq!(hex[0].len(), HEX_COLUMNS);
        assert!(hex[1].starts_with("000010  00 ") && hex[1].ends_with("  ."));
        let short = shown(b"0123456789", Format::Hex, HEX_COLUMNS - 1).1;
        let first = "000000  30 31 32 33 34 35 36 37  01234567";
        assert_eq!(short, format!("{first}|000008  38 39                    89"));
        let (_, long) = lines(&vec![b'v'; SHOWN_MAX + 3], Format::Text, 80);
        assert_eq!(long.last().map(String::as_str), Some("... and 3 more bytes"));
    }

    #[test]
    fn unchanged_text_is_the_same_value() {
        for value in [&b"21"[..], "21 °C".as_bytes(), b"a\\b", b"two\nlines", &[0, 255, b'\\'], b""]
        {
            assert_eq!(parse_edited(&to_edit(value)).as_deref(), Ok(value));
        }
        assert!(
            parse_edited("\\").is_err()
                && parse_edited("\\x1").is_err()
                && parse_edited("\\q").is_err()
        );
    }
}
