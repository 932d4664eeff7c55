//! Requests built from argument bytes.

use bytes::Bytes;
use statestore_proto::message::{Command, Condition, Expiry, Operand, Scan};
use statestore_proto::time::{Instant, Now};
use statestore_proto::topic::{REQUEST, RESERVED};
use statestore_proto::transport::Qos;

use super::{CLIENTS, KEYS, PAYLOADS, SECRET, StoreOp};
use statestore_models::machines::Args;
use statestore_models::machines::request::StoreRequest;

/// Patterns of keys, one invalid and one not UTF-8.
const PATTERNS: [&[u8]; 7] = [b"*", b"?", b"*o*", b"[a-b]", b"[", b"secret", b"\xff*"];

/// A valid request, except that its clock texts may be malformed.
pub(super) fn request(
    op: StoreOp,
    [who, key, value, option, stamps]: Args,
    now: Now,
    number: u64,
) -> StoreRequest {
    let which = usize::from(key) % (KEYS.len() + 1);
    let key = KEYS.get(which).unwrap_or(&SECRET).as_bytes();
    let long = [b'v'; 40];
    let values: [&[u8]; 6] = [b"", b"x", b"y", b"alice", b"\r\n$-1\r\n", &long];
    let value = values[usize::from(value) % values.len()];
    let condition = match option & 3 {
        1 => Condition::IfAbsent,
        2 => Condition::IfAbsentOrEqual,
        3 => Operand::new(values[usize::from(option >> 2) % values.len()])
            .map_or(Condition::Always, Condition::IfAbsentOrEqualTo),
        _ => Condition::Always,
    };
    let expiry = Expiry::from_millis(u64::from(option >> 4) * 100);
    let command = match op {
        StoreOp::Set => Command::Set { key, value, condition, expiry },
        StoreOp::Del => Command::Del { key },
        StoreOp::VDel => Command::VDel { key, value },
        StoreOp::Watch => Command::Watch { key },
        StoreOp::Unwatch => Command::Unwatch { key },
        _ => Command::Get { key },
    };
    let client = CLIENTS[usize::from(who & 3)];
    let mut ask = match op {
        StoreOp::Scan => {
            let pattern = PATTERNS[which % PATTERNS.len()];
            let token = (option & 7 == 0).then_some(value);
            StoreRequest::with_payload(client, number, Scan { pattern, token }.encode())
        }
        _ => StoreRequest::new(client, number, &command),
    };
    let is_claimed = match op {
        StoreOp::Watch | StoreOp::Unwatch => option & 1 != 0,
        _ => who & 0xf0 == 0xe0,
    };
    if is_claimed {
        ask.verified = None;
    }
    ask.deployed = who & 4 == 0;
    ask.persist = who & 8 != 0;
    ask.expiry = (who & 16 != 0).then_some(u32::from(who >> 5));
    ask.timestamp = clock_text(stamps & 15, now);
    ask.token = clock_text(15 - (stamps >> 4), now);
    ask
}

fn clock_text(choice: u8, now: Now) -> Option<String> {
    let unix = now.unix.as_millis();
    Some(match choice {
        0..=4 => format!("{}:0:node", unix - u64::from(choice) * 700),
        5 => format!("{unix:015}:{:05}:other", 7),
        6 => format!("{}:0:node", unix + 60_000),
        7 => format!("{}:0:node", unix + 60_001),
        8 => format!("{}:{}:node", unix, i32::MAX),
        9 => format!("{}:0:node", unix + 30_000),
        10 => "soon".into(),
        11 => format!("{}:{}:node", unix + 60_000, i32::MAX - 1),
        _ => return None,
    })
}

/// A payload of the table with one byte changed or its end truncated.
pub(super) fn damaged([_, which, at, with, _]: Args) -> Bytes {
    let mut payload = PAYLOADS[usize::from(which) % PAYLOADS.len()].to_vec();
    let at = usize::from(at) % (payload.len() + 1);
    match (with & 3, payload.get_mut(at)) {
        (1, Some(byte)) => *byte = with,
        (2, _) => payload.truncate(at),
        (3, _) => payload.insert(at, with),
        _ => {}
    }
    payload.into()
}

/// Changes a property of a request other than its payload.
pub(super) fn spoil(ask: &mut StoreRequest, flaw: u8, now: Now) {
    let earlier = Instant::from_millis(now.instant.as_millis().saturating_sub(900));
    match flaw % 20 {
        0 => ask.response_topic = None,
        1 => ask.response_topic = Some(REQUEST.into()),
        2 => ask.response_topic = Some(format!("{RESERVED}/x")),
        3 => ask.response_topic = Some("a/+/b".into()),
        4 => ask.response_topic = Some(String::new()),
        5 => ask.correlation = None,
        6 => ask.qos = Qos::AtMostOnce,
        7 => ask.qos = Qos::ExactlyOnce,
        8 => (ask.arrived, ask.expiry) = (Some(earlier), Some(0)),
        9 => (ask.arrived, ask.expiry) = (Some(earlier), Some(1)),
        10 => ask.topic = "elsewhere".into(),
        11 => (ask.verified, ask.response_topic) = (None, Some("some/topic".into())),
        12 => ask.source = Some("mallory".into()),
        13 => (ask.verified, ask.source) = (None, Some("alice".into())),
        14 => (ask.verified, ask.source) = (None, Some(String::new())),
        15 => ask.correlation = Some(Vec::new()),
        16 => ask.chunk = Some("0:3:9".into()),
        17 => ask.chunk = Some("1:3:9".into()),
        18 => ask.chunk = Some("no position".into()),
        _ => (ask.chunk, ask.correlation) = (Some("0:3:9".into()), None),
    }
}
