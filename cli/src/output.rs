//! What is printed.

use std::fmt::Display;
use std::io::Write;

use base64::Engine;
use serde_json::{Map, Value, json};
use statestore_proto::hlc::Version;

use crate::escape::{on_one_line, printable};
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

/// Says something to whoever runs this, if anybody still listens.
pub(crate) fn say(what: impl Display) {
    log::put(on_one_line(&format!("statestore: {what}")));
}

/// Says something of several lines, which must be known to be [`printable`].
pub(crate) fn say_lines(what: impl Display) {
    log::put(format!("statestore: {what}"));
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
    fn json_stays_one_line() {
        let line = json_text("found", "\u{9b}\u{7f}\u{202e}\u{1f980}", None, None);
        assert_eq!(line, "{\"key\":\"\\u009b\\u007f\\u202e\u{1f980}\",\"result\":\"found\"}\n");
    }

    #[test]
    fn text_stays_text_and_the_rest_is_base64() {
        assert_eq!(json_value("grün".as_bytes()), ("value", json!("grün")));
        assert_eq!(json_value(&[0xff, 0x00]), ("value_base64", json!("/wA=")));
    }
}
