//! The lines of a dump: a header, and then a line for each key.

use std::io::{self, BufRead, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use statestore_proto::hlc::{FencingToken, Hlc, Version};
use statestore_proto::message::Expiry;
use statestore_proto::store::{Record, RecordedExpiry};
use statestore_proto::time::UnixTime;

use crate::escape::printable;

const FORMAT: &str = "statestore-dump";

/// The version of this form. One that is later is refused and not guessed at.
const FORMAT_VERSION: u64 = 1;

/// Bytes of a line: what a key and a value of 45 MiB take, which is more than brokers let through. It bounds what reading
/// a dump takes.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// Where a dump came from, which decides what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A directory: it knows everything of its keys.
    Directory,
    /// Requests: it knows no fences and no expiries.
    Requests,
}

/// The first line.
#[cfg_attr(test, derive(Clone, Debug, PartialEq, Eq))]
pub(super) struct Header {
    pub(super) source: Source,
    /// No version up to this one is issued again.
    pub(super) issued: Option<Version>,
    /// Lines that follow.
    pub(super) keys: Option<u64>,
}

/// Any other line. Without `Debug`, since values go nowhere else.
#[cfg_attr(test, derive(Clone, Debug, PartialEq, Eq))]
pub(super) struct Entry {
    pub(super) key: Box<[u8]>,
    pub(super) stored: Stored,
}

/// What a key has.
#[cfg_attr(test, derive(Clone, Debug, PartialEq, Eq))]
pub(super) struct Stored {
    pub(super) value: Box<[u8]>,
    pub(super) version: Option<Version>,
    pub(super) fencing_token: Option<FencingToken>,
    pub(super) expires: Option<RecordedExpiry>,
    pub(super) persist: bool,
}

impl Entry {
    /// What a store restores it from; `None` without a version.
    pub(super) fn into_record(self) -> Option<Record> {
        let Self { key, stored } = self;
        let Stored { value, version, fencing_token, expires, persist } = stored;
        Some(Record::Put { key, value, version: version?, fencing_token, expires, persist })
    }

    /// Its line, with the end.
    pub(super) fn encode(&self) -> String {
        let Self { key, stored } = self;
        let mut line = Map::new();
        put_bytes(&mut line, "key", key);
        put_bytes(&mut line, "value", &stored.value);
        if let Some(version) = &stored.version {
            line.insert("version".to_owned(), json!(version.to_string()));
        }
        if let Some(token) = &stored.fencing_token {
            line.insert("fencing_token".to_owned(), json!(token.to_string()));
        }
        if let Some(RecordedExpiry { at, after, is_lease }) = stored.expires {
            let expires =
                json!({ "at": at.as_millis(), "after": after.as_millis(), "lease": is_lease });
            line.insert("expires".to_owned(), expires);
        }
        if stored.persist {
            line.insert("persist".to_owned(), json!(true));
        }
        text(line)
    }

    /// Reads its line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::parse(line)?;
        let entry = Self {
            key: fields.bytes("key", "key_base64")?,
            stored: Stored {
                value: fields.bytes("value", "value_base64")?,
                version: fields.hlc("version")?.map(Version::new),
                fencing_token: fields.hlc("fencing_token")?.map(FencingToken::new),
                expires: fields.expires()?,
                persist: fields.flag("persist")?,
            },
        };
        fields.end()?;
        if entry.key.is_empty() {
            return Err("the key is empty, which no store takes".to_owned());
        }
        Ok(entry)
    }
}

impl Header {
    /// Its line, with the end.
    pub(super) fn encode(&self) -> String {
        let mut line = Map::new();
        line.insert("format".to_owned(), json!(FORMAT));
        line.insert("format_version".to_owned(), json!(FORMAT_VERSION));
        let source = match self.source {
            Source::Directory => "directory",
            Source::Requests => "requests",
        };
        line.insert("from".to_owned(), json!(source));
        if let Some(issued) = &self.issued {
            line.insert("issued".to_owned(), json!(issued.to_string()));
        }
        if let Some(keys) = self.keys {
            line.insert("keys".to_owned(), json!(keys));
        }
        text(line)
    }

    /// Reads its line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::parse(line)?;
        if fields.text("format")?.as_deref() != Some(FORMAT) {
            return Err(format!(
                "a dump begins with a line that has \"format\": \"{FORMAT}\", and this is none"
            ));
        }
        match fields.number("format_version")? {
            Some(FORMAT_VERSION) => {}
            Some(later) if later > FORMAT_VERSION => {
                return Err(format!(
                    "the dump has format version {later}, and this command knows {FORMAT_VERSION}: use the version that \
                     made it, or a later one"
                ));
            }
            _ => return Err("there is no such format_version".to_owned()),
        }
        let source = match fields.text("from")?.as_deref() {
            Some("directory") => Source::Directory,
            Some("requests") => Source::Requests,
            _ => return Err("from is neither directory nor requests".to_owned()),
        };
        let header = Self {
            source,
            issued: fields.hlc("issued")?.map(Version::new),
            keys: fields.number("keys")?,
        };
        fields.end()?;
        Ok(header)
    }
}

fn text(line: Map<String, Value>) -> String {
    let mut text = printable(&Value::Object(line).to_string());
    text.push('\n');
    text
}

/// Bytes as text where that is what they are, else in Base64 under another name.
fn put_bytes(line: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => {
            line.insert(name.to_owned(), json!(text));
        }
        _ => {
            line.insert(format!("{name}_base64"), json!(STANDARD.encode(bytes)));
        }
    }
}

/// The fields of a line that were not taken yet. No message of it has anything of what it reads.
struct Fields(Map<String, Value>);

impl Fields {
    fn parse(line: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err("it is no JSON object".to_owned()),
            Err(error) if error.is_eof() => {
                Err("it is no JSON: it was cut short, so dump again".to_owned())
            }
            Err(error) => Err(format!("it is no JSON from column {} on", error.column())),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{name} is no text")),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| format!("{name} is no whole number between 0 and {}", u64::MAX)),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(value) => {
                value.as_bool().ok_or_else(|| format!("{name} is neither true nor false"))
            }
        }
    }

    fn bytes(&mut self, name: &str, name_base64: &str) -> Result<Box<[u8]>, String> {
        match (self.text(name)?, self.text(name_base64)?) {
            (Some(text), None) => Ok(text.into_bytes().into()),
            (None, Some(text)) => match STANDARD.decode(text) {
                Ok(bytes) => Ok(bytes.into()),
                Err(_) => Err(format!("{name_base64} is no Base64")),
            },
            (None, None) => Err(format!("there is neither {name} nor {name_base64}")),
            (Some(_), Some(_)) => Err(format!("there is both {name} and {name_base64}")),
        }
    }

    fn hlc(&mut self, name: &str) -> Result<Option<Hlc>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(hlc) => Ok(Some(hlc)),
            Err(error) => {
                Err(format!("{name} is no version such as 1700000000000:0:NODE: {error}"))
            }
        }
    }

    fn expires(&mut self) -> Result<Option<RecordedExpiry>, String> {
        let mut fields = match self.0.remove("expires") {
            None => return Ok(None),
            Some(Value::Object(fields)) => Self(fields),
            Some(_) => return Err("expires is no JSON object".to_owned()),
        };
        let at = fields.number("at")?.ok_or("expires has no at")?;
        let after = fields.number("after")?.ok_or("expires has no after")?;
        let after = Expiry::from_millis(after).ok_or("after of expires is zero")?;
        let is_lease = fields.flag("lease")?;
        fields.end()?;
        Ok(Some(RecordedExpiry { at: UnixTime::from_millis(at), after, is_lease }))
    }

    fn end(self) -> Result<(), String> {
        match self.0.len() {
            0 => Ok(()),
            _ => Err("it has a field that no dump has".to_owned()),
        }
    }
}

/// Lines with their numbers, each no longer than [`LINE_BYTES_MAX`].
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

/// Why there is no next line.
pub(super) enum LineError {
    Io(io::Error),
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// The number of the last line, from 1 on.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The next line, with its end; `None` when there are no more. Lines with nothing on them are passed over.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        loop {
            // What one long line took is not kept.
            self.line = Vec::new();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
            let mut input = Read::take(&mut self.input, limit);
            input.read_until(b'\n', &mut self.line).map_err(LineError::Io)?;
            if self.line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > LINE_BYTES_MAX {
                return Err(LineError::TooLong);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(&self.line));
            }
        }
    }
}

#[cfg(test)]
mod tests;
