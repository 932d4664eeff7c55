//! Pairs packet ids with tickets.

use std::collections::{BTreeMap, VecDeque};

use super::backpressure::Backpressure;
use super::connector::Ticket;

/// Packets that a library has accepted: in order until they are written and get a packet id, and
/// by packet id afterwards.
///
/// Both parts are bounded: [`try_admit`](Self::try_admit) returns false while as many packets as
/// the capacity wait to be written, and packet ids have 16 bits.
#[derive(Debug)]
pub struct Outstanding {
    backpressure: Backpressure,
    /// Tickets of the packets that wait to be written, in order.
    queued: VecDeque<Ticket>,
    /// Tickets of the written packets.
    written: BTreeMap<u16, Ticket>,
    /// Set if the library accepts nothing any more.
    is_closed: bool,
}

impl Outstanding {
    /// At most `capacity` packets wait to be written.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            backpressure: Backpressure::new(capacity),
            queued: VecDeque::new(),
            written: BTreeMap::new(),
            is_closed: false,
        }
    }

    /// Returns whether another packet may be queued. If not, its sender waits until
    /// [`take_drained`](Self::take_drained) reports that there is capacity again.
    pub fn try_admit(&mut self) -> bool {
        self.backpressure.try_admit(self.queued.len()) && !self.is_closed
    }

    /// The connection is lost: no packet is accepted any more. A library that ended would accept
    /// packets and drop them.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Adds a packet that waits to be written.
    pub fn push(&mut self, ticket: Ticket) {
        self.queued.push_back(ticket);
    }

    /// The oldest waiting packet was written, with this id if it has one.
    pub fn written(&mut self, id: Option<u16>) {
        if let (Some(ticket), Some(id)) = (self.queued.pop_front(), id) {
            self.written.insert(id, ticket);
        }
    }

    /// Removes and returns the ticket of a packet whose acknowledgement arrived.
    pub fn settle(&mut self, id: u16) -> Option<Ticket> {
        self.written.remove(&id)
    }

    /// Returns whether a refused sender may offer its packet again; returned once. The queue is
    /// half empty then, so that the sender is woken once for many packets.
    pub fn take_drained(&mut self) -> bool {
        self.backpressure.take_drained(self.queued.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_paired_in_order() {
        let mut packets = Outstanding::new(4);
        let (other, subscribe) = (Ticket::Other, Ticket::Subscribe(None));
        packets.push(Ticket::Publish(None));
        packets.push(other);
        packets.push(subscribe);
        packets.written(Some(7));
        packets.written(None);
        packets.written(Some(9));
        assert_eq!(packets.settle(9), Some(subscribe));
        assert_eq!(packets.settle(7), Some(Ticket::Publish(None)));
        assert_eq!(packets.settle(7), None, "each once");
    }

    #[test]
    fn full_queue_reports_once_when_it_is_half_empty() {
        let mut packets = Outstanding::new(4);
        for _ in 0..4 {
            assert!(packets.try_admit());
            packets.push(Ticket::Other);
        }
        assert!(!packets.try_admit());
        let drained = [(); 4].map(|()| {
            packets.written(None);
            packets.take_drained()
        });
        assert_eq!(drained, [false, true, false, false]);
        assert!(packets.try_admit());
    }

    #[test]
    fn closed_queue_has_no_capacity() {
        let mut packets = Outstanding::new(4);
        packets.push(Ticket::Other);
        packets.close();
        packets.written(None);
        assert!(!packets.try_admit());
        assert!(!packets.take_drained(), "no packet may be offered again");
    }
}
