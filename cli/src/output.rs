//! What is printed.

use std::io::Write;

use base64::Engine;
use serde_json::{Map, Value, json};
use statestore_proto::hlc::Version;

use crate::failure::Failure;

/// A value as JSON: text where it is text, Base64 where it is not.
pub(crate) fn json_value(value: &[u8]) -> (&'static str, Value) {
    match std::str::from_utf8(value) {
        Ok(text) => ("value", json!(text)),
        Err(_) => ("value_base64", json!(base64::engine::general_purpose::STANDARD.encode(value))),
    }
}

/// One JSON object on a line: what happened to which key, with its value and version where there are any.
pub(crate) fn json_line(
    what: &str,
    key: &str,
    value: Option<&[u8]>,
    version: Option<&Version>,
) -> Result<(), Failure> {
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
    raw(format!("{}\n", Value::Object(object)).as_bytes())
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
    fn text_stays_text_and_the_rest_is_base64() {
        assert_eq!(json_value("grün".as_bytes()), ("value", json!("grün")));
        assert_eq!(json_value(&[0xff, 0x00]), ("value_base64", json!("/wA=")));
    }
}
