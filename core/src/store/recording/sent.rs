//! What a store gave out, as the text by which a recording and a replay are compared, and a reader sees where they differ.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::{self, Write as _};
use core::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::redaction::Redaction;
use crate::message::property;
use crate::mqtt::{Publish, Transmit};
use crate::store::{Batch, Record, encode_records};

/// Bytes of a text or a payload that are written out; of a longer one there are the first, its length and its hash.
const SHOWN_MAX: usize = 256;

/// How much of it is then written out.
const SHOWN_OF_LONGER: usize = 64;

struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let (head, is_cut) = match bytes.get(..SHOWN_OF_LONGER) {
            Some(head) if bytes.len() > SHOWN_MAX => (head, true),
            _ => (bytes, false),
        };
        write!(f, "\"{}\"", head.escape_ascii())?;
        if is_cut { write!(f, "... ({} bytes, {:016x})", bytes.len(), hash(bytes)) } else { Ok(()) }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// A packet. Redacted, its value is replaced, and why a request was refused is left out: it may tell where in the
/// payload that is not there any more.
pub(super) fn packet(
    transmit: &Transmit,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> String {
    let mut text = String::new();
    let _ = match transmit {
        Transmit::Subscribe { filter, token } => {
            write!(text, "SUBSCRIBE {} {}", Shown(filter.as_bytes()), token.0)
        }
        Transmit::Acknowledge(delivery) => write!(text, "acknowledge {}", delivery.0),
        Transmit::Disconnect { client_id, response_topic, offence } => {
            let (client_id, topic) =
                (Shown(client_id.as_bytes()), Shown(response_topic.as_bytes()));
            write!(text, "DISCONNECT {client_id} {topic} {offence}")
        }
        Transmit::Publish(publish) => publish_to(&mut text, publish, redaction, is_redacted),
    };
    text
}

fn publish_to(
    text: &mut String,
    publish: &Publish,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> fmt::Result {
    let Publish { topic, payload, response_topic, correlation_data, message_expiry, token, .. } =
        publish;
    let payload = redaction.map_or(Cow::Borrowed(&payload[..]), |it| it.sent(payload));
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
        write!(text, " token {}", token.0)?;
    }
    if let Some(content_type) = publish.content_type {
        write!(text, " content type {content_type}")?;
    }
    Ok(())
}

/// Records that were handed out together.
pub(super) fn batch(batch: &Batch, redaction: Option<&Redaction>, is_redacted: bool) -> String {
    let mut text = String::new();
    let Batch { id, records } = batch;
    let mut hasher = SipHasher13::new();
    for record in records {
        hasher.write(&encode_records([&*redacted(record, redaction, is_redacted)]));
    }
    let _ = write!(text, "batch {}: {} records, {:016x}", id.0, records.len(), hasher.finish());
    text
}

fn redacted<'a>(
    record: &'a Record,
    redaction: Option<&Redaction>,
    is_redacted: bool,
) -> Cow<'a, Record> {
    match (record, redaction) {
        (record, Some(redaction)) => Cow::Owned(redaction.record(record)),
        (Record::Answered(answered), None) if is_redacted => {
            Cow::Owned(Record::Answered(crate::store::Answered { content: 0, ..answered.clone() }))
        }
        (record, None) => Cow::Borrowed(record),
    }
}
