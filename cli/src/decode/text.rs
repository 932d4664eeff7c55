//! Topics and clocks.

use std::time::{Duration, SystemTime};

use statestore_proto::hlc::HlcRef;
use statestore_proto::topic::{REQUEST, RESERVED, ReceivedTopic, ResponseTopic, check_response};

use super::Message;
use crate::escape::one_line;

/// Whether these bytes begin as topics of the protocol do.
pub(super) fn is_topic(bytes: &[u8]) -> bool {
    [b"statestore/".as_slice(), b"clients/"].iter().any(|head| bytes.starts_with(head))
}

/// Whether these are two numbers and a name with colons between them.
pub(super) fn is_clock(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(3, |byte| *byte == b':');
    let mut is_number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    is_number() && is_number()
}

/// Whether an array's first element is an array too, as in a page of keys.
pub(super) fn begins_with_array(bytes: &[u8]) -> bool {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    lines.nth(1).is_some_and(|line| line.starts_with(b"*"))
}

pub(super) fn topic(bytes: &[u8]) -> Result<Message, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("a topic is UTF-8, up to byte {} this is", error.valid_up_to()))?;
    if text == REQUEST {
        return Ok(Message::new("the topic of requests"));
    }
    if let Some(received) = ReceivedTopic::parse(text) {
        // Digits of either are half of what they say.
        let mut room = vec![0; text.len()];
        let client = received.decode_client_id(&mut room).unwrap_or_default().to_vec();
        let key = received.decode_key(&mut room).unwrap_or_default();
        return Ok(Message::new("a topic of notifications")
            .with("to", one_line(&client))
            .with("key", one_line(key)));
    }
    if text.starts_with(RESERVED) {
        return Err("a topic below that of notifications, and none of them".to_owned());
    }
    check_response(text).map_err(|error| format!("no topic of the protocol: {error}"))?;
    Ok(match ResponseTopic::parse(text) {
        Some(response) => Message::new("a response topic of the recommended form")
            .with("client", response.client_id()),
        None => Message::new("a topic that may be a response topic"),
    })
}

pub(super) fn clock(bytes: &[u8]) -> Result<Message, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("a clock is UTF-8, up to byte {} this is", error.valid_up_to()))?;
    let hlc = HlcRef::parse(text).map_err(|error| format!("no clock: {error}"))?;
    Ok(Message::new("a hybrid logical clock")
        .with("wall", moment(hlc.wall().as_millis()))
        .with("milliseconds", hlc.wall().as_millis().to_string())
        .with("counter", hlc.counter().to_string())
        .with("node", hlc.node().as_str()))
}

/// A clock in one field.
pub(super) fn clock_in_words(text: &str) -> String {
    match HlcRef::parse(text) {
        Ok(hlc) => {
            let (wall, counter) = (hlc.wall().as_millis(), hlc.counter());
            format!("{text} ({}, counter {counter})", moment(wall))
        }
        Err(error) => format!("{text} (no clock: {error})"),
    }
}

/// In UTC, as far as people count.
fn moment(millis: u64) -> String {
    const LAST: u64 = 253_402_300_799_999;
    if millis > LAST {
        return "after the year 9999".to_owned();
    }
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
        .to_string()
}
