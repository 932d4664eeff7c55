//! Initial keys of the store, from a JSON file.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use statestore_proto::limits::StoreLimits;
use statestore_tokio::diagnostics::text::path_on_one_line;

use crate::archive::decode_entries;
use crate::config::{Config, ConfigError};
use crate::files::BYTE_ORDER_MARK;
use crate::json;

/// Largest file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Advice of each error.
const FORMS: &str = "write {\"key\": \"value\"}, or a list of such objects, or use the output of \
    `statestore export`";

/// Error of an object that is neither a pair nor a list of pairs. A key with the name `key` is
/// written as a pair.
const KEY_AND_VALUE: &str =
    "an object with the member key has only the members key, a text, and value";

/// Keys and values.
pub(crate) type Pairs = Vec<(Bytes, Bytes)>;

/// Returns the initial keys of a configuration.
pub(crate) fn load(config: &Config) -> Result<Pairs, ConfigError> {
    let Some(path) = &config.store.seed else { return Ok(Pairs::new()) };
    let invalid = |reason: String| {
        ConfigError::setting("seed", format!("{}{reason}", path_on_one_line(path)))
    };
    let text = read(path).map_err(&invalid)?;
    let pairs = parse(&text).map_err(|SeedError { line, reason }| {
        invalid(format!(", line {line}: {reason}; {FORMS}"))
    })?;
    let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
    if pairs.len() > config.limits.max_keys || bytes > config.limits.max_bytes {
        let count = pairs.len();
        return Err(invalid(format!(
            ": {count} keys with {bytes} bytes exceed max-keys or max-bytes; raise the limit, or \
             remove keys"
        )));
    }
    Ok(pairs)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| format!(": cannot be read: {error}; check the path"))?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= FILE_BYTES_MAX => Ok(text),
        _ => Err(format!(
            ": the file is longer than {} MiB; start without it, and use `statestore import`",
            FILE_BYTES_MAX >> 20
        )),
    }
}

/// Error of a line of the file, without anything of its values.
#[derive(Debug, PartialEq, Eq)]
struct SeedError {
    line: u64,
    reason: String,
}

/// Reads an export, an object whose members are keys and values, or a list of objects. An object of
/// the list has any number of such members, or only the members `key` and `value`.
fn parse(text: &[u8]) -> Result<Pairs, SeedError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    if let Some(entries) = decode_entries(text) {
        let entries = entries.map_err(|(line, reason)| SeedError { line, reason })?;
        let mut names = Names::default();
        return entries
            .into_iter()
            .map(|(line, entry)| {
                let key = Bytes::from(entry.key.into_vec());
                names.add(&key).map_err(|reason| SeedError { line, reason })?;
                Ok((key, Bytes::from(entry.stored.value.into_vec())))
            })
            .collect();
    }
    let mut parser = Parser::default();
    let mut json = serde_json::Deserializer::from_slice(text);
    let parsed = json.deserialize_any(&mut parser).and_then(|()| json.end());
    parsed.map_err(|error| explain(&error))?;
    Ok(parser.pairs)
}

fn explain(error: &serde_json::Error) -> SeedError {
    let line = u64::try_from(error.line()).unwrap_or(u64::MAX);
    SeedError { line, reason: json::cause(error) }
}

/// Keys so far. Two values of one key are a mistake, since one of them would be ignored.
#[derive(Default)]
struct Names(HashSet<Bytes>);

impl Names {
    fn add(&mut self, key: &Bytes) -> Result<(), String> {
        let most = StoreLimits::default().key_bytes_max;
        if key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        if key.len() > most {
            return Err(format!("the key is longer than {most} bytes"));
        }
        if !self.0.insert(key.clone()) {
            return Err(format!("the key {} has two values", shown(&String::from_utf8_lossy(key))));
        }
        Ok(())
    }
}

/// A key in an error.
fn shown(key: &str) -> String {
    format!("{:?}", key.chars().take(100).collect::<String>())
}

/// The next member. `null` is refused at once, so that the error has the line of the member, or of
/// the next token if the member is the last one.
fn next_member<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<(String, Value)>, A::Error> {
    match map.next_entry::<String, Value>()? {
        Some((name, Value::Null)) => {
            let name = shown(&name);
            Err(A::Error::custom(format_args!(
                "the value of {name} is null: remove the member, or write a text"
            )))
        }
        member => Ok(member),
    }
}

/// Collects pairs while the file is parsed, so that errors have the line.
#[derive(Default)]
struct Parser {
    names: Names,
    pairs: Pairs,
}

impl Parser {
    fn add<E: Error>(&mut self, key: String, value: Value) -> Result<(), E> {
        let key = Bytes::from(key);
        self.names.add(&key).map_err(E::custom)?;
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.pairs.push((key, value.into()));
        Ok(())
    }
}

impl<'de> Visitor<'de> for &mut Parser {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Element(self).visit_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Element(self))?.is_some() {}
        Ok(())
    }
}

/// An object.
struct Element<'a>(&'a mut Parser);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a key and its value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let parser = self.0;
        // The members key and value are one pair, in any order. So a value that comes first waits.
        let (mut key, mut waiting, mut has_others) = (None, None, false);
        while let Some((name, member)) = next_member(&mut map)? {
            match (&*name, member, &key) {
                ("key", Value::String(text), None) if !has_others => key = Some(text),
                ("value", value, Some(_)) if waiting.is_none() => waiting = Some(value),
                ("value", value, None) if !has_others && waiting.is_none() => waiting = Some(value),
                ("key", ..) | (_, _, Some(_)) => return Err(A::Error::custom(KEY_AND_VALUE)),
                (_, member, None) => {
                    has_others = true;
                    if let Some(value) = waiting.take() {
                        parser.add("value".to_owned(), value)?;
                    }
                    parser.add(name, member)?;
                }
            }
        }
        match (key, waiting) {
            (Some(key), Some(value)) => parser.add(key, value),
            (Some(_), None) => Err(A::Error::custom(KEY_AND_VALUE)),
            (None, Some(value)) => parser.add("value".to_owned(), value),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let text_of = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("text");
        let pairs = parse(text.as_bytes()).expect("a seed").into_iter();
        pairs.map(|(key, value)| (text_of(key), text_of(value))).collect()
    }

    #[test]
    fn each_form_has_the_same_pairs() {
        let expected = vec![
            ("factoryId".to_owned(), "north".to_owned()),
            ("limits".to_owned(), "{\"max\":7}".to_owned()),
        ];
        for text in [
            // With a byte order mark.
            "\u{feff}{\"factoryId\": \"north\", \"limits\": {\"max\": 7}}",
            // The form of Azure's tests of data flows.
            r#"[{"factoryId": "north"}, {"limits": {"max": 7}}]"#,
            r#"{"factoryId": "north", "limits": {"max": 7}}"#,
            r#"[{"key": "factoryId", "value": "north"}, {"value": {"max": 7}, "key": "limits"}]"#,
            r#"[{"factoryId": "north", "limits": {"max": 7}}, {}]"#,
            "{\"format\":\"statestore-dump\",\"format_version\":1,\"from\":\"requests\"}\n\
             {\"key\":\"factoryId\",\"value\":\"north\"}\n\
             {\"key_base64\":\"bGltaXRz\",\"value\":\"{\\\"max\\\":7}\",\"version\":\"1:0:n\"}\n",
        ] {
            assert_eq!(pairs(text), expected, "{text}");
        }
        assert_eq!(pairs("[]"), []);
        assert_eq!(pairs(r#"{"value": "a"}"#), [("value".to_owned(), "a".to_owned())]);
        let named_key = [("key".to_owned(), "a".to_owned())];
        assert_eq!(pairs(r#"{"key": "key", "value": "a"}"#), named_key);
        assert_eq!(pairs(r#"{"value": 1, "unit": "m"}"#).len(), 2);
        assert_eq!(pairs(r#"[{"n": 1.5}, {"b": true}]"#).len(), 2);
    }

    #[test]
    fn errors_name_the_line_and_no_value() {
        let many = "[".repeat(200);
        for (text, line, reason) in [
            ("", 1, "ends early"),
            ("[\n{\"a\": \"secret\"", 2, "ends early"),
            ("[\n\n\"secret\"]", 3, "expected an object with a key and its value"),
            ("\"secret\"", 1, "expected an object or a list of objects"),
            ("[{\"a\": \"secret\"},\n{\"a\": \"w\"}]", 2, "the key \"a\" has two values"),
            ("{\n\"\": \"secret\"}", 2, "the key is empty"),
            ("{\"a\": \"secret\",\n\"b\": null,\n\"c\": 1}", 2, "the value of \"b\" is null"),
            ("[{\"key\": \"secret\", \"value\": \"v\",\n \"c\": 1}]", 2, "only the members key"),
            ("[{\"a\": 1},\n{\"key\": \"secret\"}]", 2, "only the members key"),
            ("{\"key\": \"secret\",\n\"val\": \"v\"}", 2, "only the members key"),
            ("{\"a\": 1,\n\"key\": \"secret\", \"value\": 1}", 2, "only the members key"),
            ("{\"key\": 1, \"value\": \"secret\"}", 1, "key, a text"),
            ("{\"a\": \"secret\"}\n}", 2, "invalid JSON at column 1"),
            (&many, 1, "expected an object"),
            ("{\"format\":\"statestore-dump\",\"format_version\":1}\n{}", 1, "from is missing"),
            (
                "{\"format\":\"statestore-dump\",\"format_version\":1,\"from\":\"requests\"}\n\n{\"key\":\"a\"}",
                3,
                "neither value nor value_base64",
            ),
        ] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.line == line && error.reason.contains(reason), "{text}: {error:?}");
            assert!(!error.reason.contains("secret"), "{error:?}");
        }
        let deep = format!("{{\"a\": {}}}", "[".repeat(200));
        assert!(parse(deep.as_bytes()).is_err());
        let long = format!("{{\"{}\": 1}}", "k".repeat(33 << 10));
        let error = parse(long.as_bytes()).expect_err("a long key");
        assert!(error.reason.contains("longer than 32768 bytes"), "{error:?}");
    }
}
