//! Standard output and messages.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use statestore_proto::hlc::Version;

use crate::escape::{on_one_line, printable};
use crate::failure::Failure;
use crate::log;

/// A member of a JSON object: text if it is UTF-8, Base64 otherwise.
fn json_member(name: &str, bytes: &[u8]) -> (String, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), json!(text)),
        Err(_) => (format!("{name}_base64"), json!(BASE64_STANDARD.encode(bytes))),
    }
}

/// Prints a [`json_text`].
pub(crate) fn json_line(
    result: &str,
    key: impl AsRef<[u8]>,
    value: Option<&[u8]>,
    version: Option<&Version>,
) -> Result<(), Failure> {
    raw(json_text(result, key, value, version).as_bytes())
}

/// One JSON object on a line: result and key, with value and version if present.
pub(crate) fn json_text(
    result: &str,
    key: impl AsRef<[u8]>,
    value: Option<&[u8]>,
    version: Option<&Version>,
) -> String {
    let mut object = Map::new();
    object.insert("result".to_owned(), json!(result));
    object.extend([json_member("key", key.as_ref())]);
    object.extend(value.map(|value| json_member("value", value)));
    if let Some(version) = version {
        object.insert("version".to_owned(), json!(version.to_string()));
    }
    let mut line = printable(&Value::Object(object).to_string());
    line.push('\n');
    line
}

/// Prints a message on standard error. Errors of writing are ignored.
pub(crate) fn notice(text: impl Display) {
    log::put(on_one_line(&format!("statestore: {text}")));
}

/// Prints a negative result on standard error if that is a terminal. Scripts use the exit code.
pub(crate) fn terminal_note(text: &str) {
    if std::io::stderr().is_terminal() {
        log::put(text.to_owned());
    }
}

/// Prints a message of several lines, which must be [`printable`].
pub(crate) fn notice_lines(text: impl Display) {
    log::put(format!("statestore: {text}"));
}

/// Writes a line without blocking the runtime. If the future is dropped, the line may be written or
/// not.
pub(crate) async fn line(line: String) -> Result<(), Failure> {
    let written = tokio::task::spawn_blocking(move || raw(line.as_bytes())).await;
    written.map_err(Failure::system)?
}

/// Writes bytes unchanged.
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
        assert_eq!(json_member("key", "grün".as_bytes()), ("key".to_owned(), json!("grün")));
        assert_eq!(json_member("key", &[0xff, 0]), ("key_base64".to_owned(), json!("/wA=")));
    }
}
