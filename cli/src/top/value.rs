//! A value as lines of a screen, and as a line that can be edited.

use crate::escape::on_one_line;

/// Bytes of a value that are shown; of more, the first.
const SHOWN_MAX: usize = 64 << 10;

/// Bytes of a line of hex, the columns that it takes, and bytes of one where there are fewer columns.
const HEX_LINE: usize = 16;
const HEX_COLUMNS: usize = 8 + 3 * HEX_LINE + 1 + HEX_LINE;
const HEX_LINE_SHORT: usize = 8;

/// How a value is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Text,
    Json,
    Hex,
}

impl Form {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Text => Self::Json,
            Self::Json => Self::Hex,
            Self::Hex => Self::Text,
        }
    }
}

/// What a value is shown as, and its lines. What a terminal would act on is escaped; what is no JSON is shown as text.
pub(super) fn lines(value: &[u8], form: Form, columns: usize) -> (&'static str, Vec<String>) {
    let (shown, rest) = value.split_at(value.len().min(SHOWN_MAX));
    let (name, mut lines) = match form {
        Form::Hex if columns < HEX_COLUMNS => ("hex", hex(shown, HEX_LINE_SHORT)),
        Form::Hex => ("hex", hex(shown, HEX_LINE)),
        Form::Json => match json(value) {
            Some(lines) => ("JSON", lines),
            None => ("text, since it is no JSON", text(shown)),
        },
        Form::Text => ("text", text(shown)),
    };
    if !rest.is_empty() {
        lines.push(format!("... and {} bytes more", rest.len()));
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

fn hex(value: &[u8], in_line: usize) -> Vec<String> {
    let line = |(number, bytes): (usize, &[u8])| {
        let each: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = bytes.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let text: String = text.collect();
        let width = 3 * in_line - 1;
        format!("{:06x}  {:width$}  {text}", number * in_line, each.join(" "))
    };
    value.chunks(in_line).enumerate().map(line).collect()
}

/// A value as text that is edited: bytes that are no text, and backslashes, are escaped.
pub(super) fn to_edit(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains('\\') && on_one_line(text) == text => text.to_owned(),
        _ => value.escape_ascii().to_string(),
    }
}

/// The value that this text stands for.
pub(super) fn edited(text: &str) -> Result<Vec<u8>, String> {
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
                    .ok_or("\\x takes two hexadecimal digits")?
            }
            _ => return Err("a backslash begins \\n, \\r, \\t, \\\\ or \\xHH".to_owned()),
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_in_each_form() {
        let of = |value: &[u8], form, columns| {
            let (name, lines) = lines(value, form, columns);
            (name, lines.join("|"))
        };
        let is = |name, lines: &str| (name, lines.to_owned());
        assert_eq!(of(b"one\ntwo\x1b[2J", Form::Text, 80), is("text", "one|two\\u001b[2J"));
        let json = of(b"{\"a\":[1]}", Form::Json, 80);
        assert_eq!(json, is("JSON", "{|  \"a\": [|    1|  ]|}"));
        assert_eq!(of(b"{", Form::Json, 80), is("text, since it is no JSON", "{"));
        let (_, hex) = lines(b"0123456789abcdef\x00", Form::Hex, HEX_COLUMNS);
        assert_eq!(hex.len(), 2);
        assert!(hex[0].starts_with("000000  30 31") && hex[0].ends_with("  0123456789abcdef"));
        assert_eq!(hex[0].len(), HEX_COLUMNS);
        assert!(hex[1].starts_with("000010  00 ") && hex[1].ends_with("  ."));
        let short = of(b"0123456789", Form::Hex, HEX_COLUMNS - 1).1;
        let first = "000000  30 31 32 33 34 35 36 37  01234567";
        assert_eq!(short, format!("{first}|000008  38 39                    89"));
        let (_, long) = lines(&vec![b'v'; SHOWN_MAX + 3], Form::Text, 80);
        assert_eq!(long.last().map(String::as_str), Some("... and 3 bytes more"));
    }

    #[test]
    fn what_is_edited_is_the_value_again() {
        for value in [&b"21"[..], "21 °C".as_bytes(), b"a\\b", b"two\nlines", &[0, 255, b'\\'], b""]
        {
            assert_eq!(edited(&to_edit(value)).as_deref(), Ok(value));
        }
        assert!(edited("\\").is_err() && edited("\\x1").is_err() && edited("\\q").is_err());
    }
}
