//! The outputs of a store as text: captures and replays compare it, and people read it.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use statestore_proto::message::property;
use statestore_proto::store::{Batch, Record, RecordedResponse, encode_records};
use statestore_proto::transport::{Publish, Transmit};

use crate::redaction::Redaction;

/// Maximum length of bytes that are shown in full. The hash of longer bytes suffices to compare
/// them, and keeps captures with large values short.
const SHOWN_MAX: usize = 256;

/// Number of first bytes that are shown of longer bytes, before their length and their hash.
const HEAD_LEN: usize = 64;

/// Bytes as text in quotes.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        match bytes.get(..HEAD_LEN) {
            Some(head) if bytes.len() > SHOWN_MAX => {
                let (head, len, hash) = (head.escape_ascii(), bytes.len(), hash(bytes));
                write!(f, "\"{head}\"... ({len} bytes, {hash:016x})")
            }
            _ => {
                f.write_str("\"")?;
                write_escaped(f, bytes)?;
                f.write_str("\"")
            }
        }
    }
}

/// Writes bytes as `escape_ascii` does. Most bytes of a capture need no escape, so runs of
/// them are written at once.
fn write_escaped(f: &mut fmt::Formatter<'_>, mut bytes: &[u8]) -> fmt::Result {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\'' | b'\\');
    while !bytes.is_empty() {
        let plain = bytes.iter().position(|byte| !is_plain(byte)).unwrap_or(bytes.len());
        let (run, rest) = bytes.split_at(plain);
        f.write_str(core::str::from_utf8(run).map_err(|_| fmt::Error)?)?;
        let escaped = rest.iter().position(is_plain).unwrap_or(rest.len());
        let (run, rest) = rest.split_at(escaped);
        write!(f, "{}", run.escape_ascii())?;
        bytes = rest;
    }
    Ok(())
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Writes a packet. In a redacted capture, its value is replaced. The reason of a refusal is
/// omitted, since it may refer to a position in the original payload.
pub(crate) fn write_transmit(
    to: &mut impl fmt::Write,
    transmit: &Transmit,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> fmt::Result {
    match transmit {
        Transmit::Subscribe { filter, token } => {
            write!(to, "SUBSCRIBE {} {}", Shown(filter.as_bytes()), token.into_raw())
        }
        Transmit::Acknowledge(delivery) => write!(to, "acknowledge {}", delivery.0),
        Transmit::Disconnect { client_id, response_topic, offence } => {
            let (client_id, topic) =
                (Shown(client_id.as_bytes()), Shown(response_topic.as_bytes()));
            write!(to, "DISCONNECT {client_id} {topic} {offence}")
        }
        Transmit::Publish(publish) => write_publish(to, publish, redaction, is_redacted),
        // A kind of packet that this version does not know.
        _ => to.write_str("unknown"),
    }
}

fn write_publish(
    text: &mut impl fmt::Write,
    publish: &Publish,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> fmt::Result {
    let Publish { topic, payload, response_topic, correlation_data, message_expiry, token, .. } =
        publish;
    let payload =
        redaction.map_or(Cow::Borrowed(&payload[..]), |redaction| redaction.output(payload));
    write!(text, "PUBLISH {} {}", Shown(topic.as_bytes()), Shown(&payload))?;
    for (name, value) in publish.user_properties() {
        if !(is_redacted && name == property::REASON) {
            write!(text, " {name}={value}")?;
        }
    }
    if let Some(topic) = response_topic {
        write!(text, " response topic {}", Shown(topic.as_bytes()))?;
    }
    if let Some(data) = correlation_data {
        write!(text, " correlation {}", Shown(data.as_bytes()))?;
    }
    if let Some(seconds) = message_expiry {
        write!(text, " expires after {seconds} s")?;
    }
    if let Some(token) = token {
        write!(text, " token {}", token.into_raw())?;
    }
    if let Some(content_type) = publish.content_type {
        write!(text, " content type {content_type}")?;
    }
    Ok(())
}

/// Writes text to the end of a byte buffer.
pub(crate) struct TextWriter<'a>(pub(crate) &'a mut Vec<u8>);

impl fmt::Write for TextWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Returns the text of a batch: the number and the hash of its records.
pub(crate) fn batch_text(
    batch: &Batch,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> String {
    let Batch { id, records, bytes: _ } = batch;
    let mut hasher = SipHasher13::new();
    for record in records {
        hasher.write(&encode_records([&*redacted(record, redaction, is_redacted)]));
    }
    let (id, len, hash) = (id.into_raw(), records.len(), hasher.finish());
    let mut text = String::new();
    let _ = write!(text, "batch {id}: {len} records, {hash:016x}");
    text
}

fn redacted<'a>(
    record: &'a Record,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> Cow<'a, Record> {
    match (record, redaction) {
        (record, Some(redaction)) => Cow::Owned(redaction.record(record)),
        (Record::Response(response), None) if is_redacted => {
            Cow::Owned(Record::Response(RecordedResponse { content: 0, ..response.clone() }))
        }
        (record, None) => Cow::Borrowed(record),
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn runs_of_plain_bytes_are_written_like_single_bytes() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for len in 1..=5 {
            for bytes in all.windows(len) {
                let expected = format!("\"{}\"", bytes.escape_ascii());
                assert_eq!(format!("{}", Shown(bytes)), expected);
            }
        }
        assert_eq!(format!("{}", Shown(b"")), "\"\"");
        let mixed = b"$4\r\n21.5\r\n\\\"'\x7f\xff end";
        assert_eq!(format!("{}", Shown(mixed)), format!("\"{}\"", mixed.escape_ascii()));
    }
}
