//! The inputs of a store as frames. Each begins with its kind and its time.

use alloc::vec::Vec;

use bytes::Bytes;
use statestore_proto::machine::Input;
use statestore_proto::message::property;
use statestore_proto::store::BatchId;
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{
    Delivery, Incoming, PublishToken, Qos, ReasonCode, SubscribeToken,
};

use crate::codec::{Reader, bytes, number, option};

pub(crate) const BEGIN: u8 = 0;
pub(crate) const RESTORE: u8 = 1;
const CONNECTED: u8 = 2;
const DISCONNECTED: u8 = 3;
const SUBSCRIBED: u8 = 4;
const PUBLISHED: u8 = 5;
pub(crate) const MESSAGE: u8 = 6;
const CLIENT_GONE: u8 = 7;
const TIMEOUT: u8 = 8;
pub(crate) const TRANSMIT: u8 = 9;
pub(crate) const BATCH: u8 = 10;
pub(crate) const PERSISTED: u8 = 11;
pub(crate) const END: u8 = 12;
pub(crate) const STORAGE_FULL: u8 = 13;

/// The name before the owner of a message.
const OWNER: &str = "";

const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// Writes the position of a value in a table of all its values.
pub(crate) fn position<T: PartialEq>(out: &mut Vec<u8>, table: &[T], value: &T) {
    let position = table.iter().position(|known| known == value);
    out.push(position.and_then(|position| u8::try_from(position).ok()).unwrap_or(u8::MAX));
}

pub(crate) fn read_position<T: Copy>(reader: &mut Reader<'_>, table: &[T]) -> Option<T> {
    table.get(usize::from(reader.byte()?)).copied()
}

pub(crate) fn time(out: &mut Vec<u8>, now: Now) {
    number(out, now.instant.as_millis());
    number(out, now.unix.as_millis());
}

pub(crate) fn read_time(reader: &mut Reader<'_>) -> Option<Now> {
    let instant = Instant::from_millis(reader.number()?);
    Some(Now::new(instant, UnixTime::from_millis(reader.number()?)))
}

/// The kind of an input's frame; `None` if this version of the crate cannot capture the input.
pub(crate) const fn kind(input: Input<'_>) -> Option<u8> {
    Some(match input {
        Input::Connected { .. } => CONNECTED,
        Input::Disconnected => DISCONNECTED,
        Input::Subscribed(..) => SUBSCRIBED,
        Input::Published(..) => PUBLISHED,
        Input::Message(_) => MESSAGE,
        Input::ClientGone(_) => CLIENT_GONE,
        Input::Timeout => TIMEOUT,
        _ => return None,
    })
}

/// Writes the time and the fields of an input other than a message, which [`message`] writes.
pub(crate) fn input(out: &mut Vec<u8>, now: Now, input: Input<'_>) {
    time(out, now);
    match input {
        Input::Connected { session_present } => out.push(u8::from(session_present)),
        Input::Subscribed(token, reason) => {
            number(out, token.into_raw());
            out.push(reason.0);
        }
        Input::Published(token, reason) => {
            number(out, token.into_raw());
            out.push(reason.0);
        }
        Input::ClientGone(client_id) => bytes(out, client_id.as_bytes()),
        _ => {}
    }
}

pub(crate) fn read_input<'a>(kind: u8, reader: &mut Reader<'a>) -> Option<(Now, Input<'a>)> {
    let now = read_time(reader)?;
    let input = match kind {
        CONNECTED => Input::Connected { session_present: reader.bool()? },
        DISCONNECTED => Input::Disconnected,
        SUBSCRIBED => {
            let token = SubscribeToken::from_raw(reader.number()?);
            Input::Subscribed(token, ReasonCode(reader.byte()?))
        }
        PUBLISHED => {
            let token = PublishToken::from_raw(reader.number()?);
            Input::Published(token, ReasonCode(reader.byte()?))
        }
        CLIENT_GONE => Input::ClientGone(reader.text()?),
        TIMEOUT => Input::Timeout,
        _ => return None,
    };
    Some((now, input))
}

pub(crate) fn persisted(out: &mut Vec<u8>, id: BatchId) {
    out.push(PERSISTED);
    number(out, id.into_raw());
}

pub(crate) fn storage_full(out: &mut Vec<u8>, is_full: bool) {
    out.push(STORAGE_FULL);
    out.push(u8::from(is_full));
}

pub(crate) fn read_storage_full(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Writes a message with a payload that may be redacted, and the results of the callbacks.
pub(crate) fn message(
    out: &mut Vec<u8>,
    now: Now,
    incoming: &Incoming<'_>,
    payload: &[u8],
    results: &[u8],
) {
    let text = |out: &mut Vec<u8>, text: &str| bytes(out, text.as_bytes());
    out.push(MESSAGE);
    time(out, now);
    bytes(out, results);
    bytes(out, payload);
    text(out, incoming.topic);
    position(out, &QOS, &incoming.qos);
    out.push(u8::from(incoming.retain));
    option(out, incoming.response_topic, text);
    option(out, incoming.correlation_data, bytes);
    option(out, incoming.message_expiry.map(u64::from), number);
    option(out, incoming.arrived.map(Instant::as_millis), number);
    option(out, incoming.verified_sender, text);
    option(out, incoming.packet_bytes_max.map(|bytes| bytes as u64), number);
    option(out, incoming.delivery.map(|delivery| delivery.0), number);
    // A property without a name, which no store reads, so that earlier captures stay valid.
    if let Some(owner) = incoming.owner {
        text(out, OWNER);
        text(out, owner);
    }
    // A store ignores the reason, and it may contain anything.
    for (name, value) in incoming.user_properties().filter(|(name, _)| *name != property::REASON) {
        text(out, name);
        text(out, value);
    }
}

/// The parts of a message that an [`Incoming`] does not own.
pub(crate) struct Message<'a> {
    pub(crate) now: Now,
    pub(crate) results: &'a [u8],
    payload: Bytes,
    fields: &'a [u8],
}

impl<'a> Message<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let now = read_time(reader)?;
        let results = reader.bytes()?;
        let payload = Bytes::copy_from_slice(reader.bytes()?);
        Some(Self { now, results, payload, fields: reader.0 })
    }

    pub(crate) fn incoming(&self) -> Option<Incoming<'_>> {
        let mut reader = Reader(self.fields);
        let mut incoming = Incoming::new(reader.text()?, &self.payload);
        incoming.qos = read_position(&mut reader, &QOS)?;
        incoming.retain = reader.bool()?;
        incoming.response_topic = reader.option(Reader::text)?;
        incoming.correlation_data = reader.option(Reader::bytes)?;
        incoming.message_expiry = reader.option(|reader| u32::try_from(reader.number()?).ok())?;
        incoming.arrived = reader.option(Reader::number)?.map(Instant::from_millis);
        incoming.verified_sender = reader.option(Reader::text)?;
        let packet_bytes_max = reader.option(Reader::number)?;
        incoming.packet_bytes_max =
            packet_bytes_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        incoming.delivery = reader.option(Reader::number)?.map(Delivery);
        while !reader.0.is_empty() {
            let (name, value) = (reader.text()?, reader.text()?);
            match name {
                OWNER => incoming.owner = Some(value),
                name => incoming.user_property(name, value),
            }
        }
        Some(incoming)
    }
}
