//! Decoding of packets.

use super::{
    Ack, Acks, Connect, Filters, Kind, LEVEL, Malformed, NonZeroU16, Notice, Packet, Place,
    Properties, Publish, Qos, Reader, Reason, Subscribe, Subscriptions, Unsubscribe, Will, topic,
};
use crate::packet::ConnAck;
use crate::property::id;

impl<'a> Packet<'a> {
    /// Decodes a whole packet. `packet` must have exactly the length in its
    /// [`Header`](super::Header). Decoding borrows from `packet` and does not allocate.
    ///
    /// All rules for a single packet are checked. Rules about senders and about the order of
    /// packets belong to the session.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(packet: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(packet);
        let first = reader.byte()?;
        let kind = Kind::of(first)?;
        let mut body = reader.block()?;
        reader.end()?;
        let decoded = match kind {
            Kind::Connect => Self::Connect(connect(&mut body)?),
            Kind::ConnAck => Self::ConnAck(connack(&mut body)?),
            Kind::Publish => Self::Publish(publish(first, &mut body)?),
            Kind::PubAck => Self::PubAck(ack(kind, &mut body)?),
            Kind::PubRec => Self::PubRec(ack(kind, &mut body)?),
            Kind::PubRel => Self::PubRel(ack(kind, &mut body)?),
            Kind::PubComp => Self::PubComp(ack(kind, &mut body)?),
            Kind::Subscribe => Self::Subscribe(Subscribe {
                id: packet_id(&mut body)?,
                properties: Properties::read(&mut body, Place::Packet(kind))?,
                subscriptions: Subscriptions::read(&mut body)?,
            }),
            Kind::SubAck => Self::SubAck(acks(kind, &mut body)?),
            Kind::Unsubscribe => Self::Unsubscribe(Unsubscribe {
                id: packet_id(&mut body)?,
                properties: Properties::read(&mut body, Place::Packet(kind))?,
                filters: Filters::read(&mut body)?,
            }),
            Kind::UnsubAck => Self::UnsubAck(acks(kind, &mut body)?),
            Kind::PingReq => Self::PingReq,
            Kind::PingResp => Self::PingResp,
            Kind::Disconnect => Self::Disconnect(notice(kind, &mut body)?),
            Kind::Auth => Self::Auth(auth(&mut body)?),
        };
        body.end()?;
        Ok(decoded)
    }
}

fn packet_id(body: &mut Reader<'_>) -> Result<NonZeroU16, Malformed> {
    NonZeroU16::new(body.two()?).ok_or(Malformed::PacketId)
}

fn reason(kind: Kind, code: u8) -> Result<Reason, Malformed> {
    let reason = Reason(code);
    if kind.has(reason) { Ok(reason) } else { Err(Malformed::ReasonCode(code)) }
}

fn connect<'a>(body: &mut Reader<'a>) -> Result<Connect<'a>, Malformed> {
    let (name, level) = (body.binary()?, body.byte()?);
    if name != b"MQTT" || level != LEVEL {
        return Err(Malformed::Version(level));
    }
    let flags = body.byte()?;
    let keep_alive = body.two()?;
    let has = |bit| flags & bit != 0;
    let will_qos = Qos::from_bits(flags >> 3, flags)?;
    if has(0x01) || (!has(0x04) && (has(0x20) || will_qos != Qos::AtMostOnce)) {
        return Err(Malformed::Flags(flags));
    }
    let properties = Properties::read(body, Place::Packet(Kind::Connect))?;
    let client_id = body.text()?;
    let will = match has(0x04) {
        false => None,
        true => Some(Will {
            qos: will_qos,
            retain: has(0x20),
            properties: Properties::read(body, Place::Will)?,
            topic: Some(body.text()?)
                .filter(|text| topic::is_name(text))
                .ok_or(Malformed::TopicName)?,
            payload: body.binary()?,
        }),
    };
    let user_name = has(0x80).then(|| body.text()).transpose()?;
    let password = has(0x40).then(|| body.binary()).transpose()?;
    let clean_start = has(0x02);
    Ok(Connect { clean_start, keep_alive, properties, client_id, will, user_name, password })
}

fn connack<'a>(body: &mut Reader<'a>) -> Result<ConnAck<Properties<'a>>, Malformed> {
    let flags = body.byte()?;
    let reason = reason(Kind::ConnAck, body.byte()?)?;
    let session_present = flags == 1;
    if flags > 1 || (session_present && reason != Reason::SUCCESS) {
        return Err(Malformed::Flags(flags));
    }
    let properties = Properties::read(body, Place::Packet(Kind::ConnAck))?;
    Ok(ConnAck { session_present, reason, properties })
}

fn publish<'a>(first: u8, body: &mut Reader<'a>) -> Result<Publish<'a>, Malformed> {
    let qos = Qos::from_bits(first >> 1, first)?;
    let topic = body.text()?;
    let packet_id = match qos {
        Qos::AtMostOnce => None,
        Qos::AtLeastOnce | Qos::ExactlyOnce => Some(packet_id(body)?),
    };
    let properties = Properties::read(body, Place::Packet(Kind::Publish))?;
    if topic.is_empty() {
        if !properties.has(id::TOPIC_ALIAS) {
            return Err(Malformed::Missing(id::TOPIC_ALIAS));
        }
    } else if !topic::is_name(topic) {
        return Err(Malformed::TopicName);
    }
    let (dup, retain) = (first & 0x08 != 0, first & 0x01 != 0);
    Ok(Publish { dup, qos, retain, topic, id: packet_id, properties, payload: body.rest() })
}

fn ack<'a>(kind: Kind, body: &mut Reader<'a>) -> Result<Ack<Properties<'a>>, Malformed> {
    let id = packet_id(body)?;
    let Notice { reason, properties } = notice(kind, body)?;
    Ok(Ack { id, reason, properties })
}

/// Reads an optional reason code and optional properties.
fn notice<'a>(kind: Kind, body: &mut Reader<'a>) -> Result<Notice<Properties<'a>>, Malformed> {
    let mut notice = Notice { reason: Reason::SUCCESS, properties: Properties::default() };
    if !body.is_empty() {
        notice.reason = reason(kind, body.byte()?)?;
    }
    if !body.is_empty() {
        notice.properties = Properties::read(body, Place::Packet(kind))?;
    }
    Ok(notice)
}

/// An AUTH that is not empty contains an authentication method (section 3.15.2.2.2).
fn auth<'a>(body: &mut Reader<'a>) -> Result<Notice<Properties<'a>>, Malformed> {
    let is_empty = body.is_empty();
    let notice = notice(Kind::Auth, body)?;
    match is_empty || notice.properties.has(id::AUTHENTICATION_METHOD) {
        true => Ok(notice),
        false => Err(Malformed::Missing(id::AUTHENTICATION_METHOD)),
    }
}

fn acks<'a>(kind: Kind, body: &mut Reader<'a>) -> Result<Acks<'a>, Malformed> {
    let id = packet_id(body)?;
    let properties = Properties::read(body, Place::Packet(kind))?;
    let reasons = body.rest();
    if reasons.is_empty() {
        return Err(Malformed::Empty);
    }
    for code in reasons {
        reason(kind, *code)?;
    }
    Ok(Acks { id, properties, reasons })
}
