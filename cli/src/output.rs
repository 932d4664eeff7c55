//! What is printed.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::Write;

use base64::Engine;
use serde_json::{Map, Value, json};
use statestore_proto::hlc::Version;

use crate::failure::Failure;
use crate::log;

/// A value as JSON: text where it is text, Base64 where it is not.
pub(crate) fn json_value(value: &[u8]) -> (&'static str, Value) {
    match std::str::from_utf8(value) {
        Ok(text) => ("value", json!(text)),
        Err(_) => ("value_base64", json!(base64::engine::general_purpose::STANDARD.encode(value))),
    }
}

/// Prints a [`json_text`].
pub(crate) fn json_line(
    what: &str,
    key: &str,
    value: Option<&[u8]>,
    version: Option<&Version>,
) -> Result<(), Failure> {
    raw(json_text(what, key, value, version).as_bytes())
}

/// One JSON object on a line: what happened to which key, with its value and version where there are any.
pub(crate) fn json_text(
    what: &str,
    key: &str,
    value: Option<&[u8]>,
    version: Option<&Version>,
) -> String {
    let mut object = Map::new();
    object.insert("result".to_owned(), json!(what));
    object.insert("key".to_owned(), json!(key));
    if let Some(value) = value {
        let (name, value) = json_value(value);
        object.insert(name.to_owned(), value);
    }
    if let Some(version) = version {
        object.insert("version".to_owned(), json!(version.to_string()));
    }
    let mut line = printable(&Value::Object(object).to_string());
    line.push('\n');
    line
}

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

/// Says something to whoever runs this, if anybody still listens.
pub(crate) fn say(what: impl Display) {
    log::put(on_one_line(&format!("statestore: {what}")));
}

/// Says something of several lines, which must be known to be [`printable`].
pub(crate) fn say_lines(what: impl Display) {
    log::put(format!("statestore: {what}"));
}

/// A name or a value in a line: as it is when that is text of one line without a backslash, escaped otherwise. So no two
/// of them look the same.
pub(crate) fn one_line(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|char| char == '\\' || is_unprintable(char)) => text.into(),
        _ => bytes.escape_ascii().to_string().into(),
    }
}

/// A line of a command that goes on, which can be stopped while nobody takes it. Dropped, it may be written or not.
pub(crate) async fn line(line: String) -> Result<(), Failure> {
    let written = tokio::task::spawn_blocking(move || raw(line.as_bytes())).await;
    written.map_err(Failure::system)?
}

/// Bytes as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::output)
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
        let line = json_text("found", "\u{9b}\u{7f}\u{202e}\u{1f980}", None, None);
        assert_eq!(line, "{\"key\":\"\\u009b\\u007f\\u202e\u{1f980}\",\"result\":\"found\"}\n");
    }

    #[test]
    fn text_stays_text_and_the_rest_is_base64() {
        assert_eq!(json_value("grün".as_bytes()), ("value", json!("grün")));
        assert_eq!(json_value(&[0xff, 0x00]), ("value_base64", json!("/wA=")));
    }
}
