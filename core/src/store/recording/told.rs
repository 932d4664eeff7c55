//! What a store is told, as a frame.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::machine::Input;
use crate::mqtt::{Delivery, Incoming, PublishToken, Qos, ReasonCode, SubscribeToken};
use crate::store::codec::{Reader, bytes, number};
use crate::store::{BatchId, Principal};
use crate::time::{Instant, Now, UnixTime};

pub(super) const BEGUN: u8 = 0;
pub(super) const RESTORED: u8 = 1;
const CONNECTED: u8 = 2;
const DISCONNECTED: u8 = 3;
const SUBSCRIBED: u8 = 4;
const PUBLISHED: u8 = 5;
pub(super) const MESSAGE: u8 = 6;
const CLIENT_GONE: u8 = 7;
const TIMEOUT: u8 = 8;
pub(super) const SENT: u8 = 9;
pub(super) const RECORDS: u8 = 10;
pub(super) const PERSISTED: u8 = 11;
pub(super) const ENDED: u8 = 12;

pub(super) fn now(out: &mut Vec<u8>, now: Now) {
    number(out, now.instant.as_millis());
    number(out, now.unix.as_millis());
}

pub(super) fn read_now(reader: &mut Reader<'_>) -> Option<Now> {
    let instant = Instant::from_millis(reader.number()?);
    Some(Now::new(instant, UnixTime::from_millis(reader.number()?)))
}

/// Anything but a message, which has a frame of its own.
pub(super) fn input(out: &mut Vec<u8>, at: Now, input: Input<'_>) {
    let kind = match input {
        Input::Connected { .. } => CONNECTED,
        Input::Disconnected => DISCONNECTED,
        Input::Subscribed(..) => SUBSCRIBED,
        Input::Published(..) => PUBLISHED,
        Input::Message(_) => MESSAGE,
        Input::ClientGone(_) => CLIENT_GONE,
        Input::Timeout => TIMEOUT,
    };
    out.push(kind);
    now(out, at);
    match input {
        Input::Connected { session_present } => out.push(u8::from(session_present)),
        Input::Subscribed(token, reason) => {
            number(out, token.0);
            out.push(reason.0);
        }
        Input::Published(token, reason) => {
            number(out, token.0);
            out.push(reason.0);
        }
        Input::ClientGone(client_id) => bytes(out, client_id.as_bytes()),
        Input::Disconnected | Input::Timeout | Input::Message(_) => {}
    }
}

/// Anything but a message; `kind` was read.
pub(super) fn read_input<'a>(kind: u8, reader: &mut Reader<'a>) -> Option<(Now, Input<'a>)> {
    let now = read_now(reader)?;
    let input = match kind {
        CONNECTED => Input::Connected { session_present: reader.flags(1)? != 0 },
        DISCONNECTED => Input::Disconnected,
        SUBSCRIBED => {
            Input::Subscribed(SubscribeToken(reader.number()?), ReasonCode(reader.byte()?))
        }
        PUBLISHED => Input::Published(PublishToken(reader.number()?), ReasonCode(reader.byte()?)),
        CLIENT_GONE => Input::ClientGone(reader.text()?),
        TIMEOUT => Input::Timeout,
        _ => return None,
    };
    Some((now, input))
}

pub(super) fn persisted(out: &mut Vec<u8>, batch: BatchId) {
    out.push(PERSISTED);
    number(out, batch.0);
}

/// What is there of a message; in the order of the fields.
const RETAIN: u64 = 1;
const PERSIST: u64 = 1 << 1;
const PROTOCOL_VERSION: u64 = 1 << 2;
const SENDER: u64 = 1 << 3;
const SENDER_VERIFIED: u64 = 1 << 4;
const RESPONSE_TOPIC: u64 = 1 << 5;
const CORRELATION: u64 = 1 << 6;
const VERIFIED_SENDER: u64 = 1 << 7;
const TIMESTAMP: u64 = 1 << 8;
const FENCING_TOKEN: u64 = 1 << 9;
const SOURCE: u64 = 1 << 10;
const INCARNATION: u64 = 1 << 11;
const EXPIRY: u64 = 1 << 12;
const ARRIVED: u64 = 1 << 13;
const PACKET_MAX: u64 = 1 << 14;
const DELIVERY: u64 = 1 << 15;

/// A message with another payload than its own, since values may be replaced, and what the embedder's functions said of it.
pub(super) fn message(
    out: &mut Vec<u8>,
    at: Now,
    from: Principal<'_>,
    incoming: &Incoming<'_>,
    payload: &[u8],
    answers: &[u8],
) {
    let properties = &incoming.properties;
    let flags = [
        (incoming.retain, RETAIN),
        (properties.persist, PERSIST),
        (properties.has_protocol_version, PROTOCOL_VERSION),
        (from.is_verified(), SENDER_VERIFIED),
    ];
    let texts = texts(from, incoming);
    let numbers = [
        (incoming.message_expiry.map(u64::from), EXPIRY),
        (incoming.arrived.map(Instant::as_millis), ARRIVED),
        (incoming.packet_bytes_max.map(|bytes| bytes as u64), PACKET_MAX),
        (incoming.delivery.map(|delivery| delivery.0), DELIVERY),
    ];
    let set = |all: u64, (is_set, flag): (bool, u64)| if is_set { all | flag } else { all };
    let flags = flags.into_iter().fold(0, set);
    let flags = texts.iter().map(|(text, flag)| (text.is_some(), *flag)).fold(flags, set);
    let flags = numbers.iter().map(|(number, flag)| (number.is_some(), *flag)).fold(flags, set);
    out.push(MESSAGE);
    now(out, at);
    number(out, flags);
    out.push(match incoming.qos {
        Qos::AtMostOnce => 0,
        Qos::AtLeastOnce => 1,
        Qos::ExactlyOnce => 2,
    });
    bytes(out, incoming.topic.as_bytes());
    texts.iter().filter_map(|(text, _)| *text).for_each(|text| bytes(out, text));
    numbers.iter().filter_map(|(number, _)| *number).for_each(|it| number(out, it));
    bytes(out, answers);
    bytes(out, payload);
}

/// Which of the texts is bytes.
const CORRELATION_AT: usize = 2;

const fn texts<'a>(from: Principal<'a>, incoming: &Incoming<'a>) -> [(Option<&'a [u8]>, u64); 8] {
    const fn of(text: Option<&str>) -> Option<&[u8]> {
        match text {
            Some(text) => Some(text.as_bytes()),
            None => None,
        }
    }
    let properties = &incoming.properties;
    [
        (of(from.client_id()), SENDER),
        (of(incoming.response_topic), RESPONSE_TOPIC),
        (incoming.correlation_data, CORRELATION),
        (of(incoming.verified_sender), VERIFIED_SENDER),
        (of(properties.timestamp), TIMESTAMP),
        (of(properties.fencing_token), FENCING_TOKEN),
        (of(properties.source), SOURCE),
        (of(properties.incarnation), INCARNATION),
    ]
}

/// A message that was read.
pub(super) struct Message<'a> {
    pub(super) now: Now,
    flags: u64,
    qos: Qos,
    topic: &'a str,
    /// In the order in which [`texts`] has them.
    texts: [Option<&'a [u8]>; 8],
    numbers: [Option<u64>; 4],
    /// What the embedder's functions said.
    pub(super) answers: &'a [u8],
    pub(super) payload: Bytes,
}

impl<'a> Message<'a> {
    /// Its kind was read.
    pub(super) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let now = read_now(reader)?;
        let flags = reader.number()?;
        let qos = match reader.byte()? {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            2 => Qos::ExactlyOnce,
            _ => return None,
        };
        let topic = reader.text()?;
        let order = [
            SENDER,
            RESPONSE_TOPIC,
            CORRELATION,
            VERIFIED_SENDER,
            TIMESTAMP,
            FENCING_TOKEN,
            SOURCE,
            INCARNATION,
        ];
        let mut texts = [None; 8];
        for (at, (text, flag)) in texts.iter_mut().zip(order).enumerate() {
            if flags & flag != 0 {
                let bytes = reader.bytes()?;
                if at != CORRELATION_AT {
                    core::str::from_utf8(bytes).ok()?;
                }
                *text = Some(bytes);
            }
        }
        let mut numbers = [None; 4];
        for (number, flag) in numbers.iter_mut().zip([EXPIRY, ARRIVED, PACKET_MAX, DELIVERY]) {
            if flags & flag != 0 {
                *number = Some(reader.number()?);
            }
        }
        let answers = reader.bytes()?;
        let payload = Bytes::copy_from_slice(reader.bytes()?);
        Some(Self { now, flags, qos, topic, texts, numbers, answers, payload })
    }

    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Whom the store was told that it is from, and what it was told.
    pub(super) fn incoming(&self) -> (Principal<'_>, Incoming<'_>) {
        let texts = self.texts.map(|text| text.and_then(|text| core::str::from_utf8(text).ok()));
        let [sender, response_topic, _, verified_sender, timestamp, token, source, incarnation] =
            texts;
        let [message_expiry, arrived, packet_bytes_max, delivery] = self.numbers;
        let mut incoming = Incoming::new(self.topic, &self.payload);
        incoming.qos = self.qos;
        incoming.retain = self.has(RETAIN);
        incoming.response_topic = response_topic;
        incoming.correlation_data = self.texts[CORRELATION_AT];
        incoming.message_expiry = message_expiry.and_then(|seconds| u32::try_from(seconds).ok());
        incoming.arrived = arrived.map(Instant::from_millis);
        incoming.verified_sender = verified_sender;
        incoming.packet_bytes_max =
            packet_bytes_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        incoming.delivery = delivery.map(Delivery);
        incoming.properties.timestamp = timestamp;
        incoming.properties.fencing_token = token;
        incoming.properties.source = source;
        incoming.properties.incarnation = incarnation;
        incoming.properties.persist = self.has(PERSIST);
        incoming.properties.has_protocol_version = self.has(PROTOCOL_VERSION);
        (Principal::noted(sender, self.has(SENDER_VERIFIED)), incoming)
    }
}
