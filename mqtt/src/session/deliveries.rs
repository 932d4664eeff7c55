//! Received messages at QoS 1 and 2, and the acknowledgements that the session owes for them.

use alloc::collections::{BTreeMap, VecDeque};
use core::num::NonZeroU16;

use super::error::Stale;
use super::message::Delivery;
use super::output::Output;
use crate::packet::{Ack, Packet};
use crate::qos::Qos;
use crate::reason::Reason;

/// A message of this connection that is not acknowledged with PUBACK or PUBREC.
#[derive(Debug)]
struct Pending {
    id: NonZeroU16,
    qos: Qos,
    /// The caller's reason code, once it has acknowledged the message.
    acknowledgement: Option<Reason>,
}

/// A message at QoS 2 between PUBLISH and PUBREL.
#[derive(Debug)]
struct Received {
    /// Number of the [`Delivery`].
    number: u64,
    stage: Stage,
    /// Position in the order of arrival on this connection, while it waits for PUBREC.
    position: Option<u64>,
    /// Set if it counts for the Receive Maximum of this connection.
    is_counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The caller has the message, and has acknowledged it if there is a reason code.
    Delivered(Option<Reason>),
    /// PUBREC was sent.
    Recorded,
}

/// Result of a received PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    New(Delivery),
    /// The caller has the message already.
    Duplicate,
    /// The Receive Maximum is exceeded.
    Exceeded,
}

/// Result of a received PUBREL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    Known,
    Unknown,
    /// The PUBREC was not sent yet.
    Early,
}

#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// In order of arrival.
    pending: VecDeque<Pending>,
    /// Position of the first of these. Positions are not reused on a later connection.
    first: u64,
    received: BTreeMap<NonZeroU16, Received>,
    /// Messages of this connection without PUBACK, PUBCOMP or a PUBREC with an error.
    unacknowledged: usize,
}

impl Deliveries {
    /// Number of messages that count for the Receive Maximum.
    pub(super) const fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// Number of entries in `pending` and `received`.
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.received.len()
    }

    fn push(&mut self, id: NonZeroU16, qos: Qos, acknowledgement: Option<Reason>) -> u64 {
        let position = self.first + self.pending.len() as u64;
        self.pending.push_back(Pending { id, qos, acknowledgement });
        position
    }

    /// A PUBLISH at QoS 1 or 2.
    pub(super) fn receive(&mut self, id: NonZeroU16, qos: Qos, maximum: u16) -> Arrival {
        let is_full = self.unacknowledged >= usize::from(maximum);
        if let Some(received) = self.received.get(&id).filter(|_| qos == Qos::ExactlyOnce) {
            if received.position.is_some() {
                return Arrival::Duplicate;
            }
            if !received.is_counted && is_full {
                return Arrival::Exceeded;
            }
            self.unacknowledged += usize::from(!received.is_counted);
            let acknowledgement = match received.stage {
                Stage::Delivered(acknowledgement) => acknowledgement,
                Stage::Recorded => Some(Reason::SUCCESS),
            };
            let position = self.push(id, qos, acknowledgement);
            if let Some(received) = self.received.get_mut(&id) {
                received.position = Some(position);
                received.is_counted = true;
            }
            return Arrival::Duplicate;
        }
        if is_full {
            return Arrival::Exceeded;
        }
        self.unacknowledged += 1;
        let number = self.push(id, qos, None);
        if qos == Qos::ExactlyOnce {
            let stage = Stage::Delivered(None);
            let received = Received { number, stage, position: Some(number), is_counted: true };
            self.received.insert(id, received);
        }
        Arrival::New(Delivery { id, qos, number })
    }

    /// Records the caller's acknowledgement.
    pub(super) fn acknowledge(&mut self, delivery: Delivery, reason: Reason) -> Result<(), Stale> {
        let position = if delivery.qos == Qos::ExactlyOnce {
            let received = self.received.get_mut(&delivery.id).ok_or(Stale)?;
            if received.number != delivery.number || received.stage != Stage::Delivered(None) {
                return Err(Stale);
            }
            received.stage = Stage::Delivered(Some(reason));
            // The message is of a former connection. The acknowledgement follows its redelivery.
            let Some(position) = received.position else { return Ok(()) };
            position
        } else {
            delivery.number
        };
        let at = position.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let pending = at.and_then(|at| self.pending.get_mut(at)).ok_or(Stale)?;
        if pending.acknowledgement.is_some() {
            return Err(Stale);
        }
        pending.acknowledgement = Some(reason);
        Ok(())
    }

    /// Writes the acknowledgements that are due, in order of arrival.
    pub(super) fn send_acknowledgements(&mut self, output: &mut Output) {
        while let Some(Pending { id, qos, acknowledgement: Some(reason) }) = self.pending.front() {
            let (id, qos, reason) = (*id, *qos, *reason);
            self.pending.pop_front();
            self.first += 1;
            let ack = Ack { id, reason, properties: () };
            if qos != Qos::ExactlyOnce {
                self.unacknowledged = self.unacknowledged.saturating_sub(1);
                output.put_ack(Packet::PubAck(ack));
                continue;
            }
            output.put_ack(Packet::PubRec(ack));
            if reason.is_error() {
                self.remove(id);
            } else if let Some(received) = self.received.get_mut(&id) {
                received.stage = Stage::Recorded;
                received.position = None;
            }
        }
    }

    /// A PUBREL.
    pub(super) fn release(&mut self, id: NonZeroU16) -> Released {
        match self.received.get(&id) {
            None => Released::Unknown,
            Some(received) if received.stage == Stage::Recorded => {
                self.remove(id);
                Released::Known
            }
            Some(_) => Released::Early,
        }
    }

    fn remove(&mut self, id: NonZeroU16) {
        if self.received.remove(&id).is_some_and(|received| received.is_counted) {
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
        }
    }

    /// The connection ended.
    pub(super) fn end_connection(&mut self) {
        self.first += self.pending.len() as u64;
        self.pending.clear();
        self.unacknowledged = 0;
        for received in self.received.values_mut() {
            received.position = None;
            received.is_counted = false;
        }
    }

    /// The session ended.
    pub(super) fn end_session(&mut self) {
        self.received.clear();
    }
}
