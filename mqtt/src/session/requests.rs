//! Requests of the caller: publishes that wait, are in flight or are sent again, and SUBSCRIBE and
//! UNSUBSCRIBE packets without an acknowledgement.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use bytes::Bytes;

use super::aliases::Outgoing;
use super::error::{Error, SendError, Violation};
use super::event::{Event, Events, Lost};
use super::options::Options;
use super::output::{Out, Output};
use super::packet_ids::PacketIds;
use super::properties::PropertyBytes;
use super::publish_packet::{Wire, check_server};
use super::server::Server;
use crate::kind::Kind;
use crate::packet::{Ack, Acks, Packet};
use crate::property::Properties;
use crate::qos::Qos;
use crate::reason::Reason;

/// A publish at QoS 1 or 2 that is not acknowledged.
pub(super) struct Retained {
    /// The topic name, and behind it the properties.
    pub(super) head: Box<[u8]>,
    /// Length of the topic name.
    pub(super) topic: usize,
    pub(super) payload: Bytes,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) token: u64,
}

impl Retained {
    /// Bytes that count for the limit of publishes.
    const fn size(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// The packet, with this packet identifier.
    fn wire(&self, id: NonZeroU16, dup: bool) -> Wire<'_> {
        let (topic, properties) = self.head.split_at_checked(self.topic).unwrap_or_default();
        Wire {
            dup,
            qos: self.qos,
            retain: self.retain,
            // It was copied from a text.
            topic: core::str::from_utf8(topic).unwrap_or_default(),
            id: Some(id),
            properties,
            payload: &self.payload,
        }
    }
}

/// The request that uses a packet identifier.
pub(super) enum IdOwner {
    Publish {
        publish: Retained,
        order: u64,
        /// Set if it was sent on this connection.
        is_sent: bool,
    },
    /// PUBREL was sent.
    Release {
        /// `None` if the publish has ended for the caller.
        token: Option<u64>,
        /// Reason code of the PUBREC.
        reason: Reason,
        order: u64,
        /// Set if PUBREL was sent on several connections.
        is_again: bool,
    },
    Subscribe {
        token: u64,
        filters: usize,
    },
    Unsubscribe {
        token: u64,
        filters: usize,
    },
}

fn unknown(kind: Kind, id: NonZeroU16) -> Error {
    Error::Protocol(Violation::PacketId(kind, id))
}

/// Requests without an outcome.
#[derive(Default)]
pub(super) struct Requests {
    ids: PacketIds<IdOwner>,
    /// Publishes that were not sent yet.
    waiting: VecDeque<Retained>,
    /// Publishes that were sent on a former connection and not yet on this one, in order.
    resend: VecDeque<NonZeroU16>,
    /// Packet identifiers that count for the server's Receive Maximum.
    in_flight: usize,
    publishes: usize,
    publish_bytes: usize,
    /// SUBSCRIBE and UNSUBSCRIBE packets.
    subscribes: usize,
    last_order: u64,
    pub(super) aliases: Outgoing,
}

impl Requests {
    /// Publishes at QoS 1 and 2.
    pub(super) const fn publishes(&self) -> usize {
        self.publishes
    }

    /// Bytes of these publishes, except those that the server received at QoS 2.
    pub(super) const fn publish_bytes(&self) -> usize {
        self.publish_bytes
    }

    /// Bytes that the requests retain, approximately.
    pub(super) const fn usage(&self) -> usize {
        self.publishes * size_of::<IdOwner>() + self.publish_bytes + self.aliases.bytes()
    }

    /// Returns whether a publish of `size` bytes would be sent at once.
    pub(super) fn can_publish(&self, size: usize, server: &Server, options: &Options) -> bool {
        !self.has_waiting()
            && self.in_flight < window(server, options)
            && self.publishes < options.publishes
            && self.publish_bytes.saturating_add(size) <= options.publish_bytes
    }

    /// Returns whether a SUBSCRIBE or UNSUBSCRIBE is accepted.
    pub(super) fn can_subscribe(&self, options: &Options) -> bool {
        self.subscribes < usize::from(options.requests) && self.ids.len() < usize::from(u16::MAX)
    }

    /// Accepts a publish at QoS 1 or 2, which [`fill`](Self::fill) sends.
    pub(super) fn publish(
        &mut self,
        publish: Retained,
        options: &Options,
    ) -> Result<(), SendError> {
        let (size, limit) = (publish.size(), options.publish_bytes);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        if self.publishes >= options.publishes || self.publish_bytes > limit - size {
            return Err(SendError::Full);
        }
        self.publishes += 1;
        self.publish_bytes += size;
        self.waiting.push_back(publish);
        Ok(())
    }

    /// Writes a SUBSCRIBE or UNSUBSCRIBE of at most `limit` bytes.
    pub(super) fn subscribe<'a>(
        &mut self,
        owner: IdOwner,
        limit: usize,
        output: &mut Output,
        packet: impl Fn(NonZeroU16) -> Packet<'a>,
    ) -> Result<(), SendError> {
        let size = packet(NonZeroU16::MIN).encoded_len().map_err(SendError::Unwritable)?;
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        let id = self.ids.insert(owner).ok_or(SendError::Full)?;
        self.subscribes += 1;
        packet(id).encode(output).map_err(SendError::Unwritable).map(drop)
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.resend.is_empty()
    }

    /// Sends publishes that wait, while there is a window and space in the output.
    pub(super) fn fill(&mut self, server: &Server, options: &Options, out: &mut Out) {
        while self.in_flight < window(server, options)
            && out.output.len() < options.output_bytes
            && out.events.len() < options.events.max(1)
        {
            if let Some(id) = self.resend.pop_front() {
                self.send_again(id, server, out);
            } else {
                let Some(publish) = self.waiting.pop_front() else { return };
                if !self.send_new(publish, server, out) {
                    return;
                }
            }
        }
    }

    /// Returns whether a packet identifier was free.
    fn send_new(&mut self, publish: Retained, server: &Server, out: &mut Out) -> bool {
        if let Err(error) = check_server(server, &publish.wire(NonZeroU16::MIN, false)) {
            self.publish_bytes -= publish.size();
            self.lose(Some(publish.token), Lost::Unsendable(error), &mut out.events);
            return true;
        }
        if self.ids.len() >= usize::from(u16::MAX) {
            self.waiting.push_front(publish);
            return false;
        }
        let order = self.next_order();
        if let Some(id) = self.ids.insert(IdOwner::Publish { publish, order, is_sent: true }) {
            self.in_flight += 1;
            self.put_publish(id, false, server, &mut out.output);
        }
        true
    }

    /// Sends a publish of a former connection again.
    fn send_again(&mut self, id: NonZeroU16, server: &Server, out: &mut Out) {
        let Some(IdOwner::Publish { publish, is_sent, .. }) = self.ids.get_mut(id) else { return };
        if let Err(error) = check_server(server, &publish.wire(id, true)) {
            let (token, qos) = (publish.token, publish.qos);
            self.publish_bytes -= publish.size();
            self.lose(Some(token), Lost::Unsendable(error), &mut out.events);
            if qos == Qos::ExactlyOnce {
                // The server may have received it. After a PUBREL the packet identifier is free on
                // both sides.
                let (order, reason) = (self.next_order(), Reason::SUCCESS);
                let release = IdOwner::Release { token: None, reason, order, is_again: true };
                self.ids.replace(id, release);
                self.in_flight += 1;
                put_pubrel(id, Reason::SUCCESS, &mut out.output);
            } else {
                self.ids.remove(id);
            }
            return;
        }
        *is_sent = true;
        self.in_flight += 1;
        self.put_publish(id, true, server, &mut out.output);
    }

    /// Writes the publish that a packet identifier is in use for.
    fn put_publish(&mut self, id: NonZeroU16, dup: bool, server: &Server, output: &mut Output) {
        let Some(IdOwner::Publish { publish, .. }) = self.ids.get(id) else { return };
        let written = publish.wire(id, dup).write(output, &mut self.aliases, server);
        debug_assert!(written.is_ok(), "the size was checked when the publish was accepted");
    }

    const fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    /// A publish ends without an acknowledgement.
    fn lose(&mut self, token: Option<u64>, cause: Lost, events: &mut Events) {
        if let Some(token) = token {
            self.publishes -= 1;
            events.push(Event::Lost { token, cause });
        }
    }
}

/// Acknowledgements of the server.
impl Requests {
    pub(super) fn handle_puback(
        &mut self,
        ack: &Ack<Properties<'_>>,
        events: &mut Events,
    ) -> Result<(), Error> {
        match self.ids.get(ack.id) {
            Some(IdOwner::Publish { publish, is_sent: true, .. })
                if publish.qos == Qos::AtLeastOnce =>
            {
                self.finish_publish(ack, events);
                Ok(())
            }
            _ => Err(unknown(Kind::PubAck, ack.id)),
        }
    }

    pub(super) fn handle_pubrec(
        &mut self,
        ack: &Ack<Properties<'_>>,
        out: &mut Out,
    ) -> Result<(), Error> {
        let id = ack.id;
        let is_error = ack.reason.is_error();
        match self.ids.get(id) {
            Some(IdOwner::Publish { publish, is_sent: true, .. })
                if publish.qos == Qos::ExactlyOnce =>
            {
                if is_error {
                    self.finish_publish(ack, &mut out.events);
                    return Ok(());
                }
                self.publish_bytes -= publish.size();
                let token = Some(publish.token);
                let (order, reason) = (self.next_order(), ack.reason);
                let release = IdOwner::Release { token, reason, order, is_again: false };
                self.ids.replace(id, release);
                put_pubrel(id, Reason::SUCCESS, &mut out.output);
            }
            Some(IdOwner::Release { .. }) if is_error => {
                self.finish_publish(ack, &mut out.events);
            }
            Some(IdOwner::Release { .. }) => put_pubrel(id, Reason::SUCCESS, &mut out.output),
            Some(_) => return Err(unknown(Kind::PubRec, id)),
            // Section 4.3.3: the server has a publish in flight that the session does not have.
            None if !is_error => {
                put_pubrel(id, Reason::PACKET_IDENTIFIER_NOT_FOUND, &mut out.output);
            }
            None => {}
        }
        Ok(())
    }

    pub(super) fn handle_pubcomp(
        &mut self,
        ack: &Ack<Properties<'_>>,
        events: &mut Events,
    ) -> Result<(), Error> {
        match self.ids.get(ack.id) {
            Some(IdOwner::Release { .. }) => {
                self.finish_publish(ack, events);
                Ok(())
            }
            Some(_) => Err(unknown(Kind::PubComp, ack.id)),
            // The response to a PUBREL with *packet identifier not found*.
            None => Ok(()),
        }
    }

    /// The publish with this identifier ended.
    fn finish_publish(&mut self, ack: &Ack<Properties<'_>>, events: &mut Events) {
        let (token, reason) = match self.ids.remove(ack.id) {
            Some(IdOwner::Publish { publish, .. }) => {
                self.publish_bytes -= publish.size();
                (Some(publish.token), ack.reason)
            }
            Some(IdOwner::Release { token, reason, is_again, .. }) => {
                // Section 3.7.2.1: an unknown identifier is not an error during recovery. The
                // PUBCOMP of the former connection was lost.
                let is_recovered = is_again && ack.reason == Reason::PACKET_IDENTIFIER_NOT_FOUND;
                let is_success = ack.reason == Reason::SUCCESS || is_recovered;
                (token, if is_success { reason } else { ack.reason })
            }
            Some(IdOwner::Subscribe { .. } | IdOwner::Unsubscribe { .. }) | None => return,
        };
        self.in_flight -= 1;
        if let Some(token) = token {
            self.publishes -= 1;
            let properties = PropertyBytes::copy(&ack.properties);
            events.push(Event::Published { token, reason, properties });
        }
    }

    pub(super) fn handle_suback(
        &mut self,
        kind: Kind,
        acks: &Acks<'_>,
        events: &mut Events,
    ) -> Result<(), Error> {
        let (token, filters) = match self.ids.get(acks.id) {
            Some(IdOwner::Subscribe { token, filters }) if kind == Kind::SubAck => {
                (*token, *filters)
            }
            Some(IdOwner::Unsubscribe { token, filters }) if kind == Kind::UnsubAck => {
                (*token, *filters)
            }
            _ => return Err(unknown(kind, acks.id)),
        };
        if acks.reasons.len() != filters {
            return Err(Error::Protocol(Violation::ReasonCount));
        }
        self.ids.remove(acks.id);
        self.subscribes -= 1;
        let reasons: Vec<_> = acks.reasons.iter().copied().map(Reason).collect();
        let properties = PropertyBytes::copy(&acks.properties);
        events.push(match kind {
            Kind::SubAck => Event::Subscribed { token, reasons, properties },
            _ => Event::Unsubscribed { token, reasons, properties },
        });
        Ok(())
    }
}

/// Connections.
impl Requests {
    /// The connection ended: publishes in flight are to be sent again, and other requests are lost.
    pub(super) fn end_connection(&mut self, events: &mut Events) {
        self.aliases = Outgoing::default();
        self.resend.clear();
        self.in_flight = 0;
        let mut lost = Vec::new();
        for (id, owner) in self.ids.iter_mut() {
            match owner {
                IdOwner::Publish { is_sent, .. } => *is_sent = false,
                IdOwner::Release { .. } => {}
                IdOwner::Subscribe { token, .. } | IdOwner::Unsubscribe { token, .. } => {
                    lost.push(id);
                    events.push(Event::Lost { token: *token, cause: Lost::Disconnected });
                }
            }
        }
        for id in lost {
            self.ids.remove(id);
        }
        self.subscribes = 0;
    }

    /// The server resumed the session: PUBREL packets are sent again at once, and publishes when
    /// the window allows, each in their original order.
    pub(super) fn resume(&mut self, output: &mut Output) {
        let mut in_order: Vec<_> = self
            .ids
            .iter_mut()
            .filter_map(|(id, owner)| match owner {
                IdOwner::Publish { order, .. } => Some((*order, id, true)),
                IdOwner::Release { order, is_again, .. } => {
                    *is_again = true;
                    Some((*order, id, false))
                }
                IdOwner::Subscribe { .. } | IdOwner::Unsubscribe { .. } => None,
            })
            .collect();
        in_order.sort_unstable();
        for (_, id, is_publish) in in_order {
            if is_publish {
                self.resend.push_back(id);
            } else {
                self.in_flight += 1;
                put_pubrel(id, Reason::SUCCESS, output);
            }
        }
    }

    /// The server lost the session: publishes in flight are lost. Those that wait are not part of
    /// the session and are sent.
    pub(super) fn lose_publishes(&mut self, events: &mut Events) {
        let mut lost: Vec<_> = self
            .ids
            .iter_mut()
            .filter_map(|(id, owner)| match owner {
                IdOwner::Publish { order, publish, .. } => {
                    Some((*order, id, Some(publish.token), publish.size()))
                }
                IdOwner::Release { order, token, .. } => Some((*order, id, *token, 0)),
                IdOwner::Subscribe { .. } | IdOwner::Unsubscribe { .. } => None,
            })
            .collect();
        lost.sort_unstable();
        for (_, id, token, size) in lost {
            self.ids.remove(id);
            self.publish_bytes -= size;
            self.lose(token, Lost::SessionLost, events);
        }
    }
}

/// Publishes that may be in flight.
fn window(server: &Server, options: &Options) -> usize {
    server.receive_maximum.min(options.in_flight).into()
}

fn put_pubrel(id: NonZeroU16, reason: Reason, output: &mut Output) {
    output.put_ack(Packet::PubRel(Ack { id, reason, properties: () }));
}
