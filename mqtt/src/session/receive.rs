//! Received bytes and packets.

use core::num::NonZeroU16;
use core::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};

use super::authenticate::Exchange;
use super::deliveries::{Arrival, Released};
use super::error::{Error, Notice, Violation};
use super::event::Event;
use super::message::{Delivery, Message};
use super::properties::PropertyBytes;
use super::{Phase, Session};
use crate::error::Malformed;
use crate::kind::Kind;
use crate::packet::{self, Ack, Header, Packet};
use crate::property::Properties;
use crate::qos::Qos;
use crate::reason::Reason;
use crate::topic;
use crate::wire::Reader;

impl Session {
    /// Takes whole packets from the front of `input`. What is left belongs to `input`: the
    /// beginning of a packet, at most the Maximum Packet Size, or packets that the session cannot
    /// take yet, see [`wants_input`](Self::wants_input).
    ///
    /// Messages share the memory of `input`; nothing of them is copied. Bytes that arrive after the
    /// end of the connection are discarded.
    pub fn handle_bytes(&mut self, now: Duration, input: &mut BytesMut) {
        if input.len() > self.unread {
            self.timers.last_received = self.timers.last_received.max(now);
        }
        while self.is_open() && self.wants_input() {
            let limit = self.requested.maximum_packet_size;
            let handled = match Header::read(input, limit) {
                Ok(Some(header)) if input.len() >= header.len => self.handle_packet(header, input),
                Ok(_) => break,
                Err(error) => Err(Error::Malformed(error)),
            };
            if let Err(error) = handled {
                self.fail(error);
            }
            self.fill();
        }
        if !self.is_open() {
            input.clear();
        }
        self.unread = input.len();
    }

    fn handle_packet(&mut self, header: Header, input: &mut BytesMut) -> Result<(), Error> {
        if header.kind == Kind::Publish {
            // Before the CONNACK this is an error, whatever the packet contains.
            if self.phase != Phase::Connected {
                return Err(Error::Protocol(Violation::Unexpected(Kind::Publish)));
            }
            let packet = input.split_to(header.len).freeze();
            return self.handle_publish(&packet);
        }
        let bytes = input.get(..header.len).unwrap_or_default();
        let handled = match Packet::decode(bytes) {
            Ok(packet) => self.handle_decoded(&packet),
            // A DISCONNECT cannot contain the reason code of an unsupported version.
            Err(Malformed::Version(_)) => {
                Err(Error::Protocol(Violation::Unexpected(Kind::Connect)))
            }
            Err(error) => Err(Error::Malformed(error)),
        };
        input.advance(header.len);
        handled
    }

    fn handle_decoded(&mut self, packet: &Packet<'_>) -> Result<(), Error> {
        match (packet, self.phase) {
            (Packet::ConnAck(connack), Phase::Connecting) => self.handle_connack(connack),
            (Packet::Auth(notice), _) => self.handle_auth(notice),
            (Packet::Disconnect(notice), _) => {
                let properties = PropertyBytes::copy(&notice.properties);
                let notice = Notice { reason: notice.reason, properties };
                self.end(Error::Disconnected(notice.into()));
                Ok(())
            }
            (Packet::PubAck(ack), Phase::Connected) => {
                self.requests.handle_puback(ack, &mut self.out.events)
            }
            (Packet::PubRec(ack), Phase::Connected) => {
                self.requests.handle_pubrec(ack, &mut self.out)
            }
            (Packet::PubRel(ack), Phase::Connected) => self.handle_pubrel(ack.id),
            (Packet::PubComp(ack), Phase::Connected) => {
                self.requests.handle_pubcomp(ack, &mut self.out.events)
            }
            (Packet::SubAck(acks), Phase::Connected) => {
                self.requests.handle_suback(Kind::SubAck, acks, &mut self.out.events)
            }
            (Packet::UnsubAck(acks), Phase::Connected) => {
                self.requests.handle_suback(Kind::UnsubAck, acks, &mut self.out.events)
            }
            (Packet::PingResp, Phase::Connected) => {
                self.timers.ping = None;
                Ok(())
            }
            (packet, _) => Err(Error::Protocol(Violation::Unexpected(packet.kind()))),
        }
    }

    fn handle_connack(&mut self, connack: &packet::ConnAck<Properties<'_>>) -> Result<(), Error> {
        if connack.reason.is_error() {
            let properties = PropertyBytes::copy(&connack.properties);
            let notice = Notice { reason: connack.reason, properties };
            self.end(Error::Refused(notice.into()));
            return Ok(());
        }
        self.check_method(&connack.properties)?;
        self.exchange = Exchange::None;
        self.establish(connack)
    }

    fn handle_pubrel(&mut self, id: NonZeroU16) -> Result<(), Error> {
        let reason = match self.deliveries.release(id) {
            Released::Known => Reason::SUCCESS,
            Released::Unknown => Reason::PACKET_IDENTIFIER_NOT_FOUND,
            Released::Early => {
                return Err(Error::Protocol(Violation::PacketId(Kind::PubRel, id)));
            }
        };
        self.out.output.put_ack(Packet::PubComp(Ack { id, reason, properties: () }));
        Ok(())
    }

    /// Discards a PUBLISH with invalid properties, after acknowledging it at QoS 1 and 2.
    ///
    /// Some servers forward properties of other clients without validating them. If such a message
    /// ended the connection, any of those clients could end it repeatedly, since the server
    /// redelivers the message. A PUBLISH with a topic alias and an empty topic still ends the
    /// connection, and an alias that the discarded PUBLISH sets is lost. So do not offer topic
    /// aliases to a server that forwards such properties.
    fn reject_publish(&mut self, packet: &Bytes, error: Malformed) -> Result<(), Error> {
        let Some((qos, id)) = read_qos_and_id(packet) else {
            return Err(Error::Malformed(error));
        };
        let Some(id) = id else { return Ok(()) };
        if let Some(delivery) = self.register_delivery(id, qos)? {
            let _ = self.acknowledge(delivery, Reason::IMPLEMENTATION_SPECIFIC_ERROR);
        }
        Ok(())
    }

    /// Registers a received PUBLISH at QoS 1 or 2. Returns `None` for a duplicate.
    fn register_delivery(&mut self, id: NonZeroU16, qos: Qos) -> Result<Option<Delivery>, Error> {
        match self.deliveries.receive(id, qos, self.requested.receive_maximum) {
            Arrival::New(delivery) => Ok(Some(delivery)),
            Arrival::Duplicate => {
                self.deliveries.send_acknowledgements(&mut self.out.output);
                Ok(None)
            }
            Arrival::Exceeded => Err(Error::Protocol(Violation::ReceiveMaximum)),
        }
    }

    fn handle_publish(&mut self, packet: &Bytes) -> Result<(), Error> {
        let publish = match Packet::decode(packet) {
            Ok(Packet::Publish(publish)) => publish,
            Ok(_) => return Ok(()),
            Err(error) => return self.reject_publish(packet, error),
        };
        let maximum = self.requested.topic_alias_maximum;
        let alias = self.incoming_aliases.resolve(&publish, maximum)?;
        let delivery = match publish.id {
            None => None,
            Some(id) => {
                let Some(delivery) = self.register_delivery(id, publish.qos)? else {
                    return Ok(());
                };
                Some(delivery)
            }
        };
        let mut message = Message::new(packet, &publish, alias);
        message.delivery = delivery;
        self.out.events.push(Event::Message(message));
        Ok(())
    }
}

/// Reads QoS and packet identifier of a PUBLISH. Returns `None` if anything but the content of its
/// properties is invalid.
fn read_qos_and_id(packet: &[u8]) -> Option<(Qos, Option<NonZeroU16>)> {
    let mut reader = Reader::new(packet);
    let qos = match reader.byte().ok()? & 0x06 {
        0x00 => Qos::AtMostOnce,
        0x02 => Qos::AtLeastOnce,
        0x04 => Qos::ExactlyOnce,
        _ => return None,
    };
    reader.varint().ok()?;
    let topic = reader.text().ok()?;
    let id = match qos {
        Qos::AtMostOnce => None,
        _ => Some(NonZeroU16::new(reader.two().ok()?)?),
    };
    reader.block().ok()?;
    // An empty topic needs a valid alias.
    topic::is_name(topic).then_some((qos, id))
}
