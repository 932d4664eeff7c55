//! The lines of a dump: a header, then one line for each key.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::num::NonZeroU64;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use statestore_proto::hlc::{FencingToken, Hlc, Version};
use statestore_proto::message::Expiry;
use statestore_proto::store::{Record, RecordedExpiry};
use statestore_proto::time::UnixTime;

use statestore_tokio::diagnostics::text::printable;

use crate::json;

const FORMAT: &str = "statestore-dump";

/// Version of the format. A later one is rejected.
pub(super) const FORMAT_VERSION: u64 = 1;

/// Maximum length of a line in bytes: enough for any key and value of 5 MiB together, several times
/// what the embedded broker accepts. Reading a dump takes about four times the longest line.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// The last millisecond of the year 9999, in Unix time: the limit of clocks and versions.
const WALL_MAX: u64 = 253_402_300_799_999;

/// Origin of a dump, which determines what it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A directory: it contains everything that a store needs of its keys.
    Directory,
    /// Requests to a store: it contains no fencing tokens, no expiries, and not which keys are
    /// durable.
    Requests,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Origin of the dump.
    pub source: Source,
    /// The greatest version that the store issued. A restored store issues only greater ones.
    pub issued: Option<Version>,
    /// Number of the lines that follow.
    pub keys: Option<u64>,
}

/// Any other line: a key.
#[cfg_attr(test, derive(PartialEq, Eq))]
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Box<[u8]>,
    /// Its value and everything else that a store has of it.
    pub stored: StoredValue,
}

/// A value, and everything else that a store has of its key.
#[cfg_attr(test, derive(PartialEq, Eq))]
#[derive(Clone)]
pub struct StoredValue {
    /// The value.
    pub value: Box<[u8]>,
    /// Version; `None` only in a dump made by requests.
    pub version: Option<Version>,
    /// Fencing token of the last write that had one.
    pub fencing_token: Option<FencingToken>,
    /// Expiry.
    pub expires: Option<RecordedExpiry>,
    /// Set if its writer asked the store to persist it.
    pub persist: bool,
}

/// The value is omitted.
impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredValue")
            .field("value", &format_args!("<{} bytes>", self.value.len()))
            .field("version", &self.version)
            .field("fencing_token", &self.fencing_token)
            .field("expires", &self.expires)
            .field("persist", &self.persist)
            .finish()
    }
}

/// A line as JSON. An unknown field, a duplicate and another type are errors.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct EntryLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<ExpiresLine>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    persist: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "an object with at, after and lease")]
struct ExpiresLine {
    /// Unix time in milliseconds.
    at: u64,
    /// Milliseconds.
    after: NonZeroU64,
    #[serde(default)]
    lease: bool,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct HeaderLine {
    format: String,
    format_version: u64,
    from: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
}

impl Entry {
    /// The record of the key; `None` without a version.
    #[must_use]
    pub fn into_record(self) -> Option<Record> {
        let Self { key, stored } = self;
        let StoredValue { value, version, fencing_token, expires, persist } = stored;
        Some(Record::Put { key, value, version: version?, fencing_token, expires, persist })
    }

    /// The line, with a line feed.
    #[must_use]
    pub fn encode(&self) -> String {
        let Self { key, stored } = self;
        let (key, key_base64) = text_or_base64(key);
        let (value, value_base64) = text_or_base64(&stored.value);
        encode(&EntryLine {
            key,
            key_base64,
            value,
            value_base64,
            version: stored.version.as_ref().map(ToString::to_string),
            fencing_token: stored.fencing_token.as_ref().map(ToString::to_string),
            expires: stored.expires.and_then(|expires| {
                let after = NonZeroU64::new(expires.after.as_millis())?;
                Some(ExpiresLine { at: expires.at.as_millis(), after, lease: expires.is_lease })
            }),
            persist: stored.persist,
        })
    }

    /// Reads a line. The error is the reason, without anything of the line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, String> {
        let line: EntryLine = decode(line)?;
        let expires = line.expires.and_then(|ExpiresLine { at, after, lease }| {
            let after = Expiry::from_millis(after.get())?;
            Some(RecordedExpiry { at: UnixTime::from_millis(at), after, is_lease: lease })
        });
        let entry = Self {
            key: either("key", line.key, line.key_base64)?,
            stored: StoredValue {
                value: either("value", line.value, line.value_base64)?,
                version: version("version", line.version)?,
                fencing_token: hlc("fencing_token", line.fencing_token)?.map(FencingToken::new),
                expires,
                persist: line.persist,
            },
        };
        if entry.key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        Ok(entry)
    }
}

impl Header {
    /// Returns whether restoring makes all keys durable. A dump made by requests does not contain
    /// which keys were.
    #[must_use]
    pub const fn makes_all_keys_durable(&self) -> bool {
        matches!(self.source, Source::Requests)
    }

    /// The line, with a line feed.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(&HeaderLine {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            from: Some(self.source),
            issued: self.issued.as_ref().map(ToString::to_string),
            keys: self.keys,
        })
    }

    /// Reads a line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, HeaderError> {
        // Separately, since a later format may have other fields.
        let Format { format, format_version } = decode(line)?;
        if format != FORMAT {
            let reason = format!("the first line must contain \"format\":\"{FORMAT}\"");
            return Err(reason.into());
        }
        if format_version > FORMAT_VERSION {
            return Err(HeaderError::FormatVersion(format_version));
        }
        if format_version < FORMAT_VERSION {
            return Err("unknown format_version".to_owned().into());
        }
        let line: HeaderLine = decode(line)?;
        Ok(Self {
            source: line.from.ok_or_else(|| "from is missing: directory or requests".to_owned())?,
            issued: version("issued", line.issued)?,
            keys: line.keys,
        })
    }
}

/// An entry of a dump and the number of its line, or the line and the reason of an error.
pub(crate) type EntryAtLine = (u64, Entry);

/// Reads a whole dump; `None` if the first line is not the header of one.
pub(crate) fn decode_entries(text: &[u8]) -> Option<Result<Vec<EntryAtLine>, (u64, String)>> {
    let mut lines = (1..).zip(text.split(|byte| *byte == b'\n'));
    let (first, header) = lines.find(|(_, line)| !line.trim_ascii().is_empty())?;
    let has_format = decode::<Format>(header).is_ok_and(|line| line.format == FORMAT);
    has_format.then(|| {
        Header::decode(header).map_err(|error| match error {
            HeaderError::Invalid(reason) => (first, reason),
            HeaderError::FormatVersion(found) => {
                (first, format!("format_version {found} is later than {FORMAT_VERSION}"))
            }
        })?;
        let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
        lines
            .map(|(number, line)| match Entry::decode(line) {
                Ok(entry) => Ok((number, entry)),
                Err(reason) => Err((number, reason)),
            })
            .collect()
    })
}

/// Error of the first line.
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
pub(super) enum HeaderError {
    /// The reason, without anything of the line.
    Invalid(String),
    /// This later version of the format is unknown.
    FormatVersion(u64),
}

impl From<String> for HeaderError {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Format {
    format: String,
    format_version: u64,
}

fn encode(line: &impl Serialize) -> String {
    // Only a map whose keys are not text could fail.
    let mut text = printable(&serde_json::to_string(line).unwrap_or_default());
    text.push('\n');
    text
}

/// Reads JSON. No error contains anything of the line.
fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // serde would also accept a list of the fields.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| {
        let column = error.column();
        match error.classify() {
            Category::Eof => "it is not JSON: it was cut short".to_owned(),
            Category::Data => format!("column {column}: {}", json::cause(&error)),
            _ => format!("it is not JSON from column {column} on"),
        }
    })
}

/// Bytes as text if they are text, else in Base64.
fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => (Some(text.to_owned()), None),
        _ => (None, Some(STANDARD.encode(bytes))),
    }
}

fn either(name: &str, text: Option<String>, base64: Option<String>) -> Result<Box<[u8]>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes().into()),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(bytes.into()),
            Err(_) => Err(format!("{name}_base64 is not Base64")),
        },
        (None, None) => Err(format!("there is neither {name} nor {name}_base64")),
        (Some(_), Some(_)) => Err(format!("there is both {name} and {name}_base64")),
    }
}

/// A version, which the store sends to clients: many MQTT clients reject control characters.
fn version(name: &str, text: Option<String>) -> Result<Option<Version>, String> {
    match hlc(name, text)? {
        Some(hlc) if hlc.node().as_str().contains(char::is_control) => {
            Err(format!("the node id of {name} contains a control character"))
        }
        hlc => Ok(hlc.map(Version::new)),
    }
}

fn hlc(name: &str, text: Option<String>) -> Result<Option<Hlc>, String> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<Hlc>() {
        // No text of MQTT contains it.
        Ok(hlc) if hlc.node().as_str().contains('\0') => {
            Err(format!("the node id of {name} contains U+0000"))
        }
        Ok(hlc) if hlc.wall().as_millis() > WALL_MAX => {
            Err(format!("{name} is after the year 9999"))
        }
        Ok(hlc) => Ok(Some(hlc)),
        Err(error) => Err(format!("{name} is not a version such as 1700000000000:0:NODE: {error}")),
    }
}

/// Lines with their numbers, none longer than [`LINE_BYTES_MAX`].
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

/// Error of the next line.
pub(super) enum LineError {
    Io(io::Error),
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// Number of the last line; the first one has number 1.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not blank, with its line feed; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        loop {
            // Frees the memory of a long line.
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
