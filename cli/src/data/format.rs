//! The lines of a dump: a header, and then a line for each key.

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

use crate::escape::printable;

const FORMAT: &str = "statestore-dump";

/// The version of this form. One that is later is refused and not guessed at.
const FORMAT_VERSION: u64 = 1;

/// Bytes of a line: what a key and a value of 5 MiB take at most, some times what our broker lets through. It bounds what
/// reading a dump takes.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;

/// The last millisecond of the year 9999, in Unix time: no clock goes beyond it, and no version that is issued.
const WALL_MAX: u64 = 253_402_300_799_999;

/// Where a dump came from, which decides what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// A directory: it knows everything of its keys.
    Directory,
    /// Requests: it knows no fences, no expiries, and not which keys are kept.
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

/// A line as JSON. A field that is too much, there twice or of another type is an error.
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
    /// What a store restores it from; `None` without a version.
    pub(super) fn into_record(self) -> Option<Record> {
        let Self { key, stored } = self;
        let Stored { value, version, fencing_token, expires, persist } = stored;
        Some(Record::Put { key, value, version: version?, fencing_token, expires, persist })
    }

    /// Its line, with the end.
    pub(super) fn encode(&self) -> String {
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

    /// Reads its line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, String> {
        let line: EntryLine = decode(line)?;
        let expires = line.expires.and_then(|ExpiresLine { at, after, lease }| {
            let after = Expiry::from_millis(after.get())?;
            Some(RecordedExpiry { at: UnixTime::from_millis(at), after, is_lease: lease })
        });
        let entry = Self {
            key: either("key", line.key, line.key_base64)?,
            stored: Stored {
                value: either("value", line.value, line.value_base64)?,
                version: hlc("version", line.version)?.map(Version::new),
                fencing_token: hlc("fencing_token", line.fencing_token)?.map(FencingToken::new),
                expires,
                persist: line.persist,
            },
        };
        if entry.key.is_empty() {
            return Err("the key is empty, which no store takes".to_owned());
        }
        Ok(entry)
    }
}

impl Header {
    /// Whether all keys are to be kept, whatever their lines say: whoever lists keys is not told which those are, but
    /// whoever restores them wants to have them.
    pub(super) const fn are_kept(&self) -> bool {
        matches!(self.source, Source::Requests)
    }

    /// Its line, with the end.
    pub(super) fn encode(&self) -> String {
        encode(&HeaderLine {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            from: Some(self.source),
            issued: self.issued.as_ref().map(ToString::to_string),
            keys: self.keys,
        })
    }

    /// Reads its line.
    pub(super) fn decode(line: &[u8]) -> Result<Self, String> {
        // First by itself: a later version may have other fields.
        let Format { format, format_version } = decode(line)?;
        if format != FORMAT {
            return Err(format!(
                "a dump begins with a line that has \"format\":\"{FORMAT}\", and this is none"
            ));
        }
        if format_version > FORMAT_VERSION {
            return Err(format!(
                "the dump has format_version {format_version}, and this command knows {FORMAT_VERSION}: use the version that \
                 made it, or a later one"
            ));
        }
        if format_version < FORMAT_VERSION {
            return Err("there is no such format_version".to_owned());
        }
        let line: HeaderLine = decode(line)?;
        Ok(Self {
            source: line.from.ok_or("from is missing: directory or requests")?,
            issued: hlc("issued", line.issued)?.map(Version::new),
            keys: line.keys,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Format {
    format: String,
    format_version: u64,
}

fn encode(line: &impl Serialize) -> String {
    // It can be none only of a map whose keys are no text.
    let mut text = printable(&serde_json::to_string(line).unwrap_or_default());
    text.push('\n');
    text
}

/// Reads JSON. No message has anything of what is read.
fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // Fields in a list, without their names, would do as well.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("it is no JSON object".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| {
        let column = error.column();
        match error.classify() {
            Category::Eof => "it is no JSON: it was cut short".to_owned(),
            Category::Data => {
                // Before these words it names what there is.
                let text = error.to_string();
                let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
                match what.rsplit_once("expected ") {
                    Some((_, expected)) => format!("column {column}: expected {expected}"),
                    None => format!("column {column}: {what}"),
                }
            }
            _ => format!("it is no JSON from column {column} on"),
        }
    })
}

/// Bytes as text where that is what they are, else in Base64.
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
            Err(_) => Err(format!("{name}_base64 is no Base64")),
        },
        (None, None) => Err(format!("there is neither {name} nor {name}_base64")),
        (Some(_), Some(_)) => Err(format!("there is both {name} and {name}_base64")),
    }
}

fn hlc(name: &str, text: Option<String>) -> Result<Option<Hlc>, String> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<Hlc>() {
        Ok(hlc) if hlc.wall().as_millis() > WALL_MAX => {
            Err(format!("{name} lies beyond the year 9999, and no store could go on from it"))
        }
        Ok(hlc) => Ok(Some(hlc)),
        Err(error) => Err(format!("{name} is no version such as 1700000000000:0:NODE: {error}")),
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
