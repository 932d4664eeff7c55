//! Topics and clocks.

use std::time::{Duration, SystemTime};

use statestore_client::diagnostics::text::one_line;
use statestore_proto::hlc::HlcRef;
use statestore_proto::topic::{
    ParsedNotificationTopic, REQUEST, RESERVED, ResponseTopic, check_response,
};

use super::Message;

/// Returns whether these bytes begin like a topic of the protocol.
pub(super) fn is_topic(bytes: &[u8]) -> bool {
    [b"statestore/".as_slice(), b"clients/"].iter().any(|head| bytes.starts_with(head))
}

/// Returns whether these are two numbers and a name, separated by colons.
pub(super) fn is_clock(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(3, |byte| *byte == b':');
    let mut is_number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    is_number() && is_number()
}

/// Returns whether the first element of an array is an array, as in a page of keys.
pub(super) fn begins_with_array(bytes: &[u8]) -> bool {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    lines.nth(1).is_some_and(|line| line.starts_with(b"*"))
}

pub(super) fn topic(bytes: &[u8]) -> Result<Message, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        format!("not UTF-8 after byte {}; a topic must be UTF-8", error.valid_up_to())
    })?;
    if text == REQUEST {
        return Ok(Message::new("the topic of requests"));
    }
    if let Some(received) = ParsedNotificationTopic::parse(text) {
        // The decoded names have half the length of their digits.
        let mut buffer = vec![0; text.len()];
        let client = received.decode_client_id(&mut buffer).unwrap_or_default().to_vec();
        let key = received.decode_key(&mut buffer).unwrap_or_default();
        return Ok(Message::new("a topic of notifications")
            .with("to", one_line(&client))
            .with("key", one_line(key)));
    }
    if text.starts_with(RESERVED) {
        return Err("not a topic of notifications, but below their prefix".to_owned());
    }
    check_response(text).map_err(|error| format!("not a topic of the protocol: {error}"))?;
    Ok(match ResponseTopic::parse(text) {
        Some(response) => Message::new("a response topic of the recommended form")
            .with("client", response.client_id()),
        None => Message::new("a topic that can be a response topic"),
    })
}

pub(super) fn clock(bytes: &[u8]) -> Result<Message, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        format!("not UTF-8 after byte {}; a clock must be UTF-8", error.valid_up_to())
    })?;
    let hlc = HlcRef::parse(text).map_err(|error| format!("not a clock: {error}"))?;
    Ok(Message::new("a hybrid logical clock")
        .with("wall", moment(hlc.wall().as_millis()))
        .with("milliseconds", hlc.wall().as_millis().to_string())
        .with("counter", hlc.counter().to_string())
        .with("node", hlc.node().as_str()))
}

/// Describes a clock in one field.
pub(super) fn clock_in_words(text: &str) -> String {
    match HlcRef::parse(text) {
        Ok(hlc) => {
            let (wall, counter) = (hlc.wall().as_millis(), hlc.counter());
            format!("{text} ({}, counter {counter})", moment(wall))
        }
        Err(error) => format!("{text} (not a clock: {error})"),
    }
}

/// Formats a time in UTC.
fn moment(millis: u64) -> String {
    const LAST: u64 = 253_402_300_799_999;
    if millis > LAST {
        return "after the year 9999".to_owned();
    }
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
        .to_string()
}
