//! Acknowledgements: those of the server for publishes, and those of the session for messages.

use core::num::NonZeroU16;

use super::Session;
use super::deliveries::{Acknowledgement, Released};
use super::error::{Error, Stale, Violation};
use super::event::Event;
use super::message::Delivery;
use super::properties::PropertyBytes;
use super::publish::Use;
use crate::kind::Kind;
use crate::packet::{Ack, Packet};
use crate::property::Properties;
use crate::qos::Qos;
use crate::reason::Reason;

/// Result of a received acknowledgement.
type Handled = Result<(), Error>;

fn unknown(kind: Kind, id: NonZeroU16) -> Error {
    Error::Protocol(Violation::PacketId(kind, id))
}

impl Session {
    /// Acknowledges a message. The session sends acknowledgements in the order in which the
    /// messages arrived, so an earlier message that is not acknowledged holds back later ones.
    ///
    /// A reason that PUBACK and PUBREC cannot have is sent as *unspecified error*.
    ///
    /// # Errors
    /// [`Stale`] when the message was acknowledged already, or when it was received on a former
    /// connection at QoS 1: the server redelivers it.
    pub fn acknowledge(&mut self, delivery: Delivery, reason: Reason) -> Result<(), Stale> {
        let is_valid = Kind::PubAck.has(reason);
        let reason = if is_valid { reason } else { Reason::UNSPECIFIED_ERROR };
        self.deliveries.acknowledge(delivery, reason)?;
        self.send_acknowledgements();
        Ok(())
    }

    /// Writes the acknowledgements that are due.
    pub(super) fn send_acknowledgements(&mut self) {
        while let Some(Acknowledgement { id, qos, reason }) = self.deliveries.next_acknowledgement()
        {
            let ack = Ack { id, reason, properties: () };
            self.put_ack(match qos {
                Qos::ExactlyOnce => Packet::PubRec(ack),
                Qos::AtMostOnce | Qos::AtLeastOnce => Packet::PubAck(ack),
            });
        }
    }

    /// Writes a packet of a few bytes, even if the output is full.
    pub(super) fn put_ack(&mut self, packet: Packet<'_, ()>) {
        let written = packet.encode(&mut self.output);
        debug_assert!(written.is_ok(), "the packet has no variable part");
    }

    pub(super) fn handle_puback(&mut self, ack: &Ack<Properties<'_>>) -> Handled {
        match self.ids.get(ack.id) {
            Some(Use::Publish { publish, is_sent: true, .. })
                if publish.qos == Qos::AtLeastOnce =>
            {
                self.finish_publish(ack);
                Ok(())
            }
            _ => Err(unknown(Kind::PubAck, ack.id)),
        }
    }

    pub(super) fn handle_pubrec(&mut self, ack: &Ack<Properties<'_>>) -> Handled {
        let id = ack.id;
        match self.ids.get(id) {
            Some(Use::Publish { publish, is_sent: true, .. })
                if publish.qos == Qos::ExactlyOnce =>
            {
                if ack.reason.is_error() {
                    self.finish_publish(ack);
                    return Ok(());
                }
                self.publishes.bytes -= publish.size();
                let token = Some(publish.token);
                let order = self.publishes.next_order();
                let (reason, is_again) = (ack.reason, false);
                self.ids.replace(id, Use::Release { token, reason, order, is_again });
                self.put_pubrel(id, Reason::SUCCESS);
                Ok(())
            }
            Some(Use::Release { .. }) if ack.reason.is_error() => {
                self.finish_publish(ack);
                Ok(())
            }
            Some(Use::Release { .. }) => {
                self.put_pubrel(id, Reason::SUCCESS);
                Ok(())
            }
            Some(_) => Err(unknown(Kind::PubRec, id)),
            None => {
                // Section 4.3.3: the server has a publish in flight that the session does not have.
                if !ack.reason.is_error() {
                    self.put_pubrel(id, Reason::PACKET_IDENTIFIER_NOT_FOUND);
                }
                Ok(())
            }
        }
    }

    pub(super) fn put_pubrel(&mut self, id: NonZeroU16, reason: Reason) {
        self.put_ack(Packet::PubRel(Ack { id, reason, properties: () }));
    }

    pub(super) fn handle_pubcomp(&mut self, ack: &Ack<Properties<'_>>) -> Handled {
        match self.ids.get(ack.id) {
            Some(Use::Release { .. }) => {
                self.finish_publish(ack);
                Ok(())
            }
            Some(_) => Err(unknown(Kind::PubComp, ack.id)),
            // The response to a PUBREL with *packet identifier not found*.
            None => Ok(()),
        }
    }

    /// The publish with this identifier ended.
    fn finish_publish(&mut self, ack: &Ack<Properties<'_>>) {
        let (token, reason) = match self.ids.remove(ack.id) {
            Some(Use::Publish { publish, .. }) => {
                self.publishes.bytes -= publish.size();
                (Some(publish.token), ack.reason)
            }
            Some(Use::Release { token, reason, is_again, .. }) => {
                // Section 3.7.2.1: an unknown identifier is not an error during recovery. The
                // PUBCOMP of the former connection was lost.
                let is_recovered = is_again && ack.reason == Reason::PACKET_IDENTIFIER_NOT_FOUND;
                let is_success = ack.reason == Reason::SUCCESS || is_recovered;
                (token, if is_success { reason } else { ack.reason })
            }
            Some(Use::Subscribe { .. } | Use::Unsubscribe { .. }) | None => return,
        };
        self.publishes.in_flight -= 1;
        if let Some(token) = token {
            self.publishes.count -= 1;
            let properties = PropertyBytes::copy(&ack.properties);
            self.events.push(Event::Published { token, reason, properties });
        }
    }

    pub(super) fn handle_pubrel(&mut self, id: NonZeroU16) -> Handled {
        let reason = match self.deliveries.release(id) {
            Released::Known => Reason::SUCCESS,
            Released::Unknown => Reason::PACKET_IDENTIFIER_NOT_FOUND,
            Released::Early => return Err(unknown(Kind::PubRel, id)),
        };
        self.put_ack(Packet::PubComp(Ack { id, reason, properties: () }));
        Ok(())
    }
}
